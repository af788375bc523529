//! Random logs, random cuts: what is read is what was written, up to the cut.

use proptest::prelude::*;

use super::util::{Log, options, replay, replay_with, with_segment};
use crate::{DumpItem, RecoverOptions, dump_segment};
use esker_vfs::Vfs;

#[derive(Clone, Debug)]
enum Step {
    Put(u64, usize),
    Skip(u64),
    Sync,
    Rotate,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (1_u64..20, 0_usize..300).prop_map(|(count, len)| Step::Put(count, len)),
        1 => (1_u64..4, 60_000_usize..400_000).prop_map(|(count, len)| Step::Put(count, len)),
        1 => (1_u64..1 << 40).prop_map(Step::Skip),
        2 => Just(Step::Sync),
        1 => Just(Step::Rotate),
    ]
}

fn written(steps: &[Step]) -> Log {
    let mut log = Log::new();
    for step in steps {
        match *step {
            Step::Put(count, len) => log.put(count, len),
            Step::Skip(count) => log.skip(count),
            Step::Sync => log.sync(),
            Step::Rotate => log.rotate(),
        }
    }
    log
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn logs_round_trip(steps in prop::collection::vec(step(), 0..40), from in any::<prop::sample::Index>()) {
        let log = written(&steps);
        let (seen, found) = replay(&log.vfs).unwrap();
        prop_assert_eq!(&seen, &log.before(u64::MAX));
        prop_assert_eq!(found.end, log.writer.end());
        prop_assert_eq!(found.dropped, None);
        // From the middle on.
        let first_needed = 1 + from.index(log.writer.last_sequence() as usize + 1) as u64;
        let (tail, _) = replay_with(&log.vfs, &RecoverOptions { first_needed, ..options(&log.vfs) }).unwrap();
        let expected: Vec<_> = seen.into_iter().filter(|record| record.0 + record.1 > first_needed).collect();
        prop_assert_eq!(tail, expected);
    }

    #[test]
    fn cuts_give_prefixes_or_corruption(
        steps in prop::collection::vec(step(), 1..30),
        segment in any::<prop::sample::Index>(),
        cut in any::<prop::sample::Index>(),
    ) {
        let log = written(&steps);
        let segment = log.segments[segment.index(log.segments.len())].0;
        let bytes = log.bytes(segment);
        let vfs = with_segment(&log, segment, &bytes[..cut.index(bytes.len())]);
        match replay(&vfs) {
            Ok((seen, found)) => {
                let next = found.end.last_sequence + 1;
                prop_assert_eq!(seen, log.before(next));
                prop_assert!(log.is_obsolete(segment) || !log.proves(segment + 1, 0, next));
            }
            Err(error) => prop_assert!(error.is_corruption(), "{}", error),
        }
    }

    /// The dump of a segment with a hole finds every record but those in the hole.
    #[test]
    fn the_dump_goes_on_behind_damage(
        steps in prop::collection::vec(step(), 1..20),
        at in any::<prop::sample::Index>(),
        len in 1_usize..100,
    ) {
        let steps: Vec<_> = steps.into_iter().filter(|step| !matches!(step, Step::Rotate)).collect();
        let log = written(&steps);
        let mut bytes = log.bytes(1);
        prop_assume!(bytes.len() > 64);
        let hole = 64 + at.index(bytes.len() - 64);
        let hole = hole..(hole + len).min(bytes.len());
        bytes[hole.clone()].iter_mut().for_each(|byte| *byte ^= 0x5a);
        let vfs = with_segment(&log, 1, &bytes);
        let mut offsets = Vec::new();
        let mut faults = 0;
        let summary = dump_segment(vfs.open(&super::util::path(1)).unwrap(), "000001.wal".as_ref(), None, |item| {
            match item {
                DumpItem::Record(record) => offsets.push(record.offset),
                DumpItem::Fault { .. } | DumpItem::OutOfOrder { .. } => faults += 1,
                _ => {}
            }
            Ok(())
        })
        .unwrap();
        let intact = |record: &&super::util::Written| {
            record.end <= hole.start as u64 || record.offset >= hole.end as u64
        };
        let expected: Vec<_> = log.written.iter().filter(intact).map(|record| record.offset).collect();
        prop_assert_eq!(&offsets, &expected);
        prop_assert_eq!((summary.records, summary.faults), (expected.len() as u64, faults));
        prop_assert!(faults > 0);
    }
}
