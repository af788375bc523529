//! `wal_segment`: one or two segments, read in every way.

use std::path::Path;

use esker_base::{BatchReader, FileKind, FileNumber, MAX_SEQUENCE};
use esker_sim::disk::DIR;
use esker_vfs::{MemVfs, Vfs};
use esker_wal::{
    DumpItem, LogEnd, LogKind, LogReader, LogReplay, RecordContext, RecordType, RecoverOptions, RecoveryMode,
    dump_segment, recover,
};

use crate::{Input, assert_of_bytes, seal};

/// The store of all segments.
const STORE: u128 = 0x0123_4567_89ab_cdef_0011_2233_4455_6677;
/// Number of the first segment.
const FIRST: u64 = 1;

/// Flags, records to seal in each, durable number, first number that is needed, then the segments.
pub(crate) fn wal_segment(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let flags = input.byte();
    let sealed = [usize::from(input.byte()), usize::from(input.byte())];
    let (durable, first_needed) = (u64::from(input.byte()), u64::from(input.byte()) + 1);
    let first = if flags & 1 == 0 { input.rest() } else { input.large() };
    let mem = MemVfs::new();
    let mut segments = vec![first];
    if flags & 1 != 0 {
        segments.push(input.rest());
    }
    let mut end = None;
    for ((number, segment), sealed) in (FIRST..).zip(&segments).zip(sealed) {
        let mut file = segment.to_vec();
        if file.len() >= seal::SEGMENT_HEADER && flags & 2 == 0 {
            file[12..28].copy_from_slice(&STORE.to_le_bytes());
            if let Some((offset, last)) = end.filter(|_| flags & 4 == 0) {
                file[36..60].copy_from_slice(&link(number - 1, offset, last));
            }
            seal::log(&mut file, LogKind::Wal, number, sealed);
        }
        let path = seal::path(FileKind::Wal, number);
        mem.write_file(&path, &file).expect("a memory file");
        end = Some(read(&mem, &path, number));
        dump(&mem, &path, number);
    }
    let numbers = (FIRST..).take(segments.len()).map(FileNumber).collect();
    let options = RecoverOptions {
        dir: DIR.into(),
        store_id: STORE,
        segments: numbers,
        durable,
        first_needed,
        last_max: MAX_SEQUENCE,
        mode: RecoveryMode::Strict,
    };
    judge(&mem, &options);
}

/// The fields of a header that tell of the segment before it.
fn link(number: u64, offset: u64, last: u64) -> [u8; 24] {
    let mut bytes = [0; 24];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    bytes[8..16].copy_from_slice(&offset.to_le_bytes());
    bytes[16..].copy_from_slice(&last.to_le_bytes());
    bytes
}

/// Reads all records, those behind damage too. Returns where the first row of them ends, in bytes and in numbers.
fn read(mem: &MemVfs, path: &Path, number: u64) -> (u64, u64) {
    let file = mem.open(path).expect("it is there");
    let len = file.len().expect("a length");
    let context = RecordContext::new(LogKind::Wal, STORE, FileNumber(number));
    let mut reader = LogReader::new(file, path, context).expect("a reader");
    let (mut records, mut position, mut last) = (0, 0, 0);
    let mut first_end = None;
    loop {
        match reader.next_record() {
            Ok(Some(record)) => {
                assert!(record.offset >= position && record.offset + record.len <= len);
                assert!(record.payload.len() as u64 <= record.len);
                position = record.offset + record.len;
                records += 1;
                if first_end.is_none() {
                    last = record.fields.last();
                }
            }
            Ok(None) => {
                let end = reader.end().expect("it has ended");
                first_end.get_or_insert(end.offset());
                if matches!(end, LogEnd::Clean { .. }) {
                    break;
                }
                match reader.resync() {
                    Ok(Some(offset)) => assert!(offset > end.offset(), "a search goes forward"),
                    Ok(None) => break,
                    Err(error) => {
                        assert_of_bytes(&error);
                        break;
                    }
                }
            }
            Err(error) => {
                assert_of_bytes(&error);
                break;
            }
        }
    }
    assert!(records * 12 <= len);
    (first_end.unwrap_or(position), last)
}

fn dump(mem: &MemVfs, path: &Path, number: u64) {
    let file = mem.open(path).expect("it is there");
    let identity = Some((LogKind::Wal, STORE, FileNumber(number)));
    let (mut records, mut faults) = (0, 0);
    let summary = dump_segment(file, path, identity, |item| {
        match item {
            DumpItem::Record(_) => records += 1,
            DumpItem::HeaderFault(_) | DumpItem::OutOfOrder { .. } | DumpItem::Fault { .. } => faults += 1,
            DumpItem::Header(_) | DumpItem::End { .. } => {}
        }
        Ok(())
    });
    match summary {
        Ok(summary) => assert_eq!((summary.records, summary.faults), (records, faults)),
        Err(error) => assert_of_bytes(&error),
    }
}

/// Replays the log, and checks what is promised of each record that is handed out.
fn replay(mem: &MemVfs, options: &RecoverOptions) -> esker::Result<(LogReplay, Vec<(u64, u64)>)> {
    let mut seen: Vec<(u64, u64)> = Vec::new();
    let replay = recover(mem, options, |record| {
        let (first, last) = (record.fields.first, record.fields.last());
        assert!(seen.last().is_none_or(|(_, before)| before + 1 == first), "a gap before {first}");
        assert!(last >= options.first_needed, "{last} is not needed");
        if record.fields.record_type == RecordType::Batch {
            let ops = BatchReader::new(record.payload).inspect(|op| assert!(op.is_ok())).count();
            assert_eq!(ops as u64, record.fields.count);
        }
        seen.push((first, last));
        Ok(())
    })?;
    assert_eq!(replay.records, seen.len() as u64);
    Ok((replay, seen))
}

fn judge(mem: &MemVfs, options: &RecoverOptions) {
    let strict = replay(mem, options);
    let again = replay(mem, options);
    let lenient = replay(mem, &RecoverOptions { mode: RecoveryMode::PointInTime, ..options.clone() });
    match (&strict, &again) {
        (Ok(found), Ok(again)) => assert_eq!(found, again, "W8"),
        (Err(error), Err(_)) => assert_of_bytes(error),
        _ => panic!("two recoveries differ: {strict:?}, {again:?}"),
    }
    match (&strict, &lenient) {
        (Ok((strict, seen)), Ok((lenient, seen_too))) => {
            assert_eq!((strict.end, seen), (lenient.end, seen_too));
        }
        (Err(_), Ok((lenient, _))) => {
            assert!(lenient.dropped.is_some(), "the strict mode refuses what the lenient one finds whole");
        }
        (Ok(_), Err(error)) => panic!("only the strict mode succeeds: {error}"),
        (Err(_), Err(error)) => assert_of_bytes(error),
    }
}
