//! Faults that other engines had, by the ids of the recipe book; the part of them that the log decides.

use esker_base::{FileNumber, SplitMix64};
use esker_vfs::{CallKind, Fault, FaultMode, FaultVfs, MemVfs, Vfs};

use super::util::{Log, batch, header, options, path, replay, replay_with, with_segment};
use crate::{LogKind, LogReader, LogWriter, RecoverOptions, RecoveryMode, SegmentEnd};

/// DW01: an older segment was cut inside a record, and the next one was replayed all the same.
#[test]
fn dw01_no_later_writes_without_earlier_ones() {
    for synced in [false, true] {
        let mut log = Log::new();
        for segment in 0..3 {
            if segment > 0 {
                log.rotate();
            }
            (0..4).for_each(|_| log.put(2, 30));
            if synced {
                log.sync();
            }
        }
        let bytes = log.bytes(1);
        for cut in 1..=200 {
            let result = replay(&with_segment(&log, 1, &bytes[..bytes.len() - cut]));
            if synced {
                assert!(result.unwrap_err().is_corruption());
            } else {
                let (seen, found) = result.unwrap();
                assert!(seen.len() < 4);
                assert_eq!(seen, log.before(found.end.last_sequence + 1));
                let dropped = found.dropped.unwrap().segments.len();
                let at_boundary =
                    log.written[..4].iter().any(|record| record.end == (bytes.len() - cut) as u64);
                assert_eq!(dropped, if at_boundary { 2 } else { 3 });
            }
        }
    }
}

/// DW03: a torn segment and then an empty one made every later open fail.
#[test]
fn dw03_a_torn_segment_before_an_empty_one() {
    let mut log = Log::new();
    log.put(1, 30);
    log.sync();
    log.put(1, 30);
    let bytes = log.bytes(1);
    for cut in 0..30 {
        for next in [&[][..], &[0; 64], &[0; 10_000], &bytes[..40]] {
            let vfs = with_segment(&log, 1, &bytes[..bytes.len() - cut]);
            vfs.write_file(path(2), next).unwrap();
            let (seen, found) = replay(&vfs).unwrap();
            assert_eq!(seen.len(), if cut == 0 { 2 } else { 1 });
            assert_eq!(found.end.number, FileNumber(1));
        }
    }
}

/// DW05: a record longer than what is read at a time was returned truncated, or glued to a piece of another log.
#[test]
fn dw05_a_large_record_is_whole_or_not_there() {
    let mut log = Log::new();
    log.put(1, 30);
    log.put(1, 700_000);
    log.put(1, 2_000);
    let bytes = log.bytes(1);
    let mut other = Log::new();
    other.put(2, 30);
    other.put(1, 700_001);
    other.put(3, 3_000);
    let other = other.bytes(1);
    let large = &log.written[1];
    let mut rng = SplitMix64::new(5);
    let near = [1 << 18, (1 << 18) + 64, 1 << 19, (1 << 19) + 64, large.end];
    let mut cuts: Vec<u64> = near.iter().flat_map(|place| place - 9..place + 9).collect();
    cuts.extend((0..60).map(|_| large.offset + rng.below(large.end - large.offset)));
    cuts.extend(log.written[2].offset..log.written[2].end);
    for cut in cuts.into_iter().filter(|&cut| cut < bytes.len() as u64) {
        let whole = log.before(4).into_iter().zip(&log.written).filter(|(_, record)| record.end <= cut);
        let whole: Vec<_> = whole.map(|(seen, _)| seen).collect();
        let at = cut as usize;
        assert_eq!(replay(&with_segment(&log, 1, &bytes[..at])).unwrap().0, whole, "cut at {cut}");
        let glued = [&bytes[..at], &other[at..]].concat();
        if at > log.written[0].end as usize + 20 {
            assert_eq!(replay(&with_segment(&log, 1, &glued)).unwrap().0, whole, "glued at {cut}");
        }
    }
}

/// DW07: half of a record was kept, and glued to the first record of the next file.
#[test]
fn dw07_no_record_is_mixed_from_two_segments() {
    let mut log = Log::new();
    log.put(1, 600_000);
    log.rotate();
    (0..20).for_each(|_| log.put(1, 5));
    let bytes = log.bytes(1);
    for len in [64, 65, 77, 1_000, 262_144, 262_208, 524_288, bytes.len() - 1] {
        let (seen, found) = replay(&with_segment(&log, 1, &bytes[..len])).unwrap();
        assert_eq!((seen.len(), found.end.last_sequence), (0, 0));
    }
    // Each segment by itself, the first one torn: the second one's records are right.
    let (_, mut reader) = LogReader::open(&log.vfs, &path(2), LogKind::Wal).unwrap();
    for record in &log.written[1..] {
        assert_eq!(reader.next_record().unwrap().unwrap().payload, record.payload);
    }
}

/// DW14: only the newest segment was replayed.
#[test]
fn dw14_all_segments_are_replayed_in_order() {
    let mut log = Log::new();
    for segment in 0..5 {
        if segment > 0 {
            log.rotate();
        }
        (0..20).for_each(|_| log.put(3, 10));
    }
    let mut shuffled = options(&log.vfs);
    shuffled.segments.reverse();
    let (seen, found) = replay_with(&log.vfs, &shuffled).unwrap();
    assert_eq!(seen, log.before(u64::MAX));
    assert_eq!((found.records, found.end), (100, log.writer.end()));
}

/// DW20: records were appended behind a torn tail, where the next recovery does not look.
#[test]
fn dw20_writes_after_a_torn_tail_are_found() {
    let mut log = Log::new();
    log.put(1, 30);
    log.sync();
    log.put(2, 30);
    let bytes = log.bytes(1);
    for len in log.written[1].offset..log.written[1].end {
        let vfs = with_segment(&log, 1, &bytes[..len as usize]);
        let (seen, found) = replay(&vfs).unwrap();
        assert_eq!(seen.len(), 1);
        let mut writer = LogWriter::create(&vfs, &path(2), header(2, found.end), 1).unwrap();
        for seq in 2..12 {
            writer.append_batch(seq, 1, batch(seq, 1, 10).encoded()).unwrap();
            writer.sync().unwrap();
        }
        let (seen, found) = replay(&vfs).unwrap();
        assert_eq!(seen.iter().map(|record| record.0).collect::<Vec<_>>(), (1..12).collect::<Vec<_>>());
        assert_eq!(found.dropped, None);
    }
}

/// DW23: a write after a failed one got the same sequence number, and the log had both.
#[test]
fn dw23_numbers_strictly_increase_after_a_failed_append() {
    for nth in 1..=6 {
        for mode in [FaultMode::Before, FaultMode::Short, FaultMode::After] {
            let mem = MemVfs::new();
            let vfs = FaultVfs::over_mem(&mem);
            let mut writer = LogWriter::create(&vfs, &path(1), header(1, SegmentEnd::none(0)), 0).unwrap();
            vfs.arm(Fault::nth(nth).kind(CallKind::Append).mode(mode));
            let mut acknowledged = Vec::new();
            for _ in 0..6 {
                let (mark, first) = (writer.mark(), writer.last_sequence() + 1);
                writer.append_batch(first, 2, batch(first, 2, 9).encoded()).unwrap();
                match writer.flush() {
                    Ok(()) => acknowledged.push(first),
                    Err(_) => {
                        writer.rollback(mark).unwrap();
                        writer.append_skip(first, 2).unwrap();
                    }
                }
            }
            writer.flush().unwrap();
            let (seen, found) = replay(&mem).unwrap();
            assert!(seen.windows(2).all(|pair| pair[0].0 + pair[0].1 == pair[1].0), "{seen:?}");
            let batches: Vec<_> =
                seen.iter().filter(|record| !record.2.is_empty()).map(|record| record.0).collect();
            assert_eq!((batches, found.end.last_sequence), (acknowledged, 12));
        }
    }
}

/// CO06 and CO09: arbitrary damage, several places at once, in every mode: no panic, and an end.
#[test]
fn co06_co09_heavy_damage_ends_without_a_panic() {
    let mut rng = SplitMix64::new(9);
    for round in 0..3_000 {
        let log = Log::random(round % 20);
        let segment = 1 + rng.below(3);
        let mut bytes = log.bytes(segment);
        for _ in 0..1 + rng.below(6) {
            let at = rng.below(bytes.len() as u64) as usize;
            match rng.below(4) {
                0 => bytes[at] = rng.next_u64() as u8,
                1 => bytes.truncate(at.max(1)),
                2 => drop(bytes.splice(at..at, (0..rng.below(50)).map(|i| i as u8))),
                _ => bytes.copy_within(at.., at / 2),
            }
        }
        let vfs = with_segment(&log, segment, &bytes);
        if let Ok((seen, found)) = replay(&vfs) {
            assert_eq!(seen, log.before(found.end.last_sequence + 1), "round {round}");
        }
        let mode = RecoveryMode::PointInTime;
        let (seen, found) = replay_with(&vfs, &RecoverOptions { mode, ..options(&vfs) }).unwrap();
        assert_eq!(seen, log.before(found.end.last_sequence + 1), "round {round}");
        let file = vfs.open(&path(segment)).unwrap();
        crate::dump_segment(file, &path(segment), None, |_| Ok(())).unwrap();
    }
}

/// Records behind damage are found wherever they start, also across the edges of what is read at a time.
#[test]
fn w3_the_search_finds_records_at_every_place() {
    for len in 262_105..262_130 {
        let mut log = Log::new();
        log.put(1, len);
        log.put(1, 20);
        for damage in [64, 70, 72, 80, 1_000] {
            let mut bytes = log.bytes(1);
            bytes[damage] ^= 1;
            let vfs = with_segment(&log, 1, &bytes);
            let (_, mut reader) = LogReader::open(&vfs, &path(1), LogKind::Wal).unwrap();
            assert!(reader.next_record().unwrap().is_none());
            assert_eq!(reader.resync().unwrap(), Some(log.written[1].offset), "{len}, {damage}");
            assert_eq!(reader.next_record().unwrap().unwrap().payload, log.written[1].payload);
            assert!(reader.next_record().unwrap().is_none());
            assert_eq!(reader.resync().unwrap(), None);
        }
    }
}
