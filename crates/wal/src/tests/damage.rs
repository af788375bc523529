//! Every cut and every flipped bit of small logs, against an oracle that knows where the records are: the replay is
//! exactly the whole batches before the damage, or `Corruption` exactly when an intact record behind it says that the
//! damaged part was synced.

use esker_vfs::MemVfs;

use super::util::{Log, options, path, replay, replay_with, with_segment};
use crate::{HEADER_LEN, RecoveryMode};

/// Checks a copy of `log` in which segment `segment` is damaged, so that sequence number `next` is the
/// first one lost; records from `behind` on are intact, 0 for later segments only.
fn check(log: &Log, vfs: &MemVfs, segment: u64, behind: u64, next: u64, what: &str) -> bool {
    let (next, lost_promise) = match log.is_obsolete(segment) {
        true => (log.writer.last_sequence() + 1, false),
        false => (next, log.proves(if behind == 0 { segment + 1 } else { segment }, behind, next)),
    };
    match replay(vfs) {
        Ok((seen, found)) => {
            assert!(!lost_promise, "{what}: {next} was synced, but {found:?}");
            assert_eq!(seen, log.before(next), "{what}");
            assert_eq!(found.end.last_sequence, next - 1, "{what}: {found:?}");
        }
        Err(error) => {
            assert!(error.is_corruption(), "{what}: {error}");
            assert!(lost_promise, "{what}: {error}");
        }
    }
    // A point-in-time recovery gives what can be read, and says when a promise was broken.
    let (seen, found) =
        replay_with(vfs, &crate::RecoverOptions { mode: RecoveryMode::PointInTime, ..options(vfs) }).unwrap();
    assert_eq!(seen, log.before(next), "{what}");
    assert_eq!(found.dropped.is_some_and(|dropped| dropped.promised.is_some()), lost_promise, "{what}");
    lost_promise
}

#[test]
fn w3_co06_co09_every_flipped_bit() {
    let (mut refused, mut cut) = (0, 0);
    for seed in 0..40 {
        let log = Log::random(seed);
        for (segment, first) in log.segments.clone() {
            let bytes = log.bytes(segment);
            for offset in 0..bytes.len() as u64 {
                let record = log.written.iter().find(|record| {
                    record.segment == segment && (record.offset..record.end).contains(&offset)
                });
                let (next, behind) = record.map_or((first, HEADER_LEN), |record| (record.first, record.end));
                // Every bit of some logs, a bit of every byte of the others.
                for bit in (0..8).filter(|bit| seed < 4 || offset % 8 == *bit) {
                    let mut damaged = bytes.clone();
                    damaged[offset as usize] ^= 1 << bit;
                    let vfs = with_segment(&log, segment, &damaged);
                    let what = format!("seed {seed}, {segment} @ {offset} bit {bit}");
                    match check(&log, &vfs, segment, behind, next, &what) {
                        true => refused += 1,
                        false => cut += 1,
                    }
                }
            }
        }
    }
    assert!(refused > 1_000 && cut > 1_000, "both answers must be met: {refused}, {cut}");
}

#[test]
fn w3_dw01_dw05_every_cut() {
    let (mut refused, mut cut) = (0, 0);
    for seed in 0..20 {
        let log = Log::random(seed);
        for (segment, first) in log.segments.clone() {
            let bytes = log.bytes(segment);
            for len in 0..bytes.len() {
                let lost =
                    log.written.iter().find(|record| record.segment == segment && record.end > len as u64);
                let next = match lost {
                    _ if len < 64 => first,
                    Some(record) => record.first,
                    None => log.first_after(segment),
                };
                for zeros in [0, 1, 9, 300] {
                    let damaged = [&bytes[..len], &vec![0; zeros]].concat();
                    let vfs = with_segment(&log, segment, &damaged);
                    let what = format!("seed {seed}, {segment} cut to {len}, {zeros} zeros");
                    match check(&log, &vfs, segment, 0, next, &what) {
                        true => refused += 1,
                        false => cut += 1,
                    }
                }
            }
        }
    }
    assert!(refused > 300 && cut > 300, "both answers must be met: {refused}, {cut}");
}

/// A segment that is gone altogether.
#[test]
fn w3_a_missing_segment_is_a_gap() {
    for seed in 0..60 {
        let log = Log::random(seed);
        for (segment, first) in log.segments.clone() {
            let vfs = with_segment(&log, 0, &[]);
            esker_vfs::Vfs::remove(&vfs, &path(segment)).unwrap();
            let last = segment == log.segments.last().unwrap().0;
            // An empty segment at the start takes nothing with it.
            let next =
                if segment == 1 && log.first_after(1) == 1 { log.writer.last_sequence() + 1 } else { first };
            let next = if last { first } else { next };
            check(&log, &vfs, segment, 0, next, &format!("seed {seed}, {segment} is missing"));
        }
    }
}

/// What the manifest knows to be durable is proof too: after a clean close any damage to the log is found.
#[test]
fn w3_the_manifest_proves_the_tail() {
    for seed in 0..10 {
        let log = Log::random(seed);
        let last = log.writer.last_sequence();
        for (segment, _) in log.segments.clone() {
            let bytes = log.bytes(segment);
            for len in 0..bytes.len() {
                let vfs = with_segment(&log, segment, &bytes[..len]);
                let plain = replay(&vfs);
                let known = replay_with(&vfs, &crate::RecoverOptions { durable: last, ..options(&vfs) });
                let complete = plain.as_ref().is_ok_and(|(_, found)| found.end.last_sequence == last);
                assert_eq!(
                    known.is_ok(),
                    complete,
                    "seed {seed}, {segment} cut to {len}: {plain:?}, {known:?}"
                );
            }
        }
    }
}

/// Zeros at the end are no damage, in the last segment; other bytes behind zeros are.
#[test]
fn w3_f8_zeros_to_the_end_are_a_clean_end() {
    let log = Log::random(3);
    let (segment, _) = *log.segments.last().unwrap();
    for zeros in (1..80).chain([300_000, 1_000_000]) {
        let mut bytes = log.bytes(segment);
        let len = bytes.len();
        bytes.resize(len + zeros, 0);
        let (seen, found) = replay(&with_segment(&log, segment, &bytes)).unwrap();
        assert_eq!(seen, log.before(u64::MAX));
        assert_eq!(found.dropped, None);
        assert_eq!(found.end.length, len as u64);
        bytes.push(1);
        let (seen, found) = replay(&with_segment(&log, segment, &bytes)).unwrap();
        assert_eq!(seen, log.before(u64::MAX));
        let dropped = found.dropped.unwrap();
        assert_eq!((dropped.offset, dropped.bytes), (len as u64, zeros as u64 + 1));
    }
}
