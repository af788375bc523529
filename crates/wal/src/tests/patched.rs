//! Records and headers that no writer wrote but whose checksums are right. They are built here from the description in
//! `docs/format/wal.md`, with nothing of the encoder, so that this is a test of the description too.

use esker_base::coding::put_varint;
use esker_base::{ErrorKind, FileNumber, MAX_SEQUENCE};
use esker_vfs::{MemVfs, Vfs};

use super::util::{STORE, batch, header, options, path, replay, replay_with};
use crate::{
    LogKind, LogReader, RecordContext, RecordFields, RecordType, RecoverOptions, RecoveryMode, SegmentEnd,
    dump_segment, encode_record,
};

/// A record with any type, length and body.
fn raw(offset: u64, type_number: u8, length: u64, body: &[u8]) -> Vec<u8> {
    let mut covered = vec![type_number, 1];
    put_varint(&mut covered, length);
    let context =
        [&b"ESKERWAL"[..], &STORE.to_le_bytes(), &1_u64.to_le_bytes(), &offset.to_le_bytes(), &covered]
            .concat();
    let check = crc32fast::hash(&context) as u16;
    let crc = crc32fast::hash(&[&context, body].concat());
    [&crc.to_le_bytes()[..], &check.to_le_bytes(), &covered, body].concat()
}

fn body(numbers: [u64; 3], payload: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    numbers.iter().for_each(|&number| put_varint(&mut body, number));
    [&body[..], payload].concat()
}

fn record(offset: u64, type_number: u8, numbers: [u64; 3], payload: &[u8]) -> Vec<u8> {
    let body = body(numbers, payload);
    raw(offset, type_number, body.len() as u64, &body)
}

/// A file system with a segment that has the header and these bytes.
fn segment(records: &[u8]) -> MemVfs {
    let vfs = MemVfs::new();
    let header = header(1, SegmentEnd::none(0)).encode();
    vfs.write_file(path(1), [&header[..], records].concat()).unwrap();
    vfs
}

/// Strict recovery refuses, point-in-time recovery keeps what is before.
fn assert_refused(vfs: &MemVfs, kept: usize, what: &str) {
    let error = replay(vfs).unwrap_err();
    assert!(error.is_corruption(), "{what}: {error}");
    let mode = RecoveryMode::PointInTime;
    let (seen, found) = replay_with(vfs, &RecoverOptions { mode, ..options(vfs) }).unwrap();
    assert_eq!(seen.len(), kept, "{what}");
    assert!(found.dropped.is_some(), "{what}");
}

#[test]
fn the_description_is_the_encoder() {
    let payload = batch(1, 3, 40);
    let context = RecordContext::new(LogKind::Wal, STORE, FileNumber(1));
    for (first, count, durable) in [(1, 3, 0), (1 << 40, 1, 5), (300, 1 << 20, 299)] {
        let fields = RecordFields { record_type: RecordType::Batch, first, count, durable };
        let mut encoded = Vec::new();
        encode_record(&mut encoded, &context, 64, &fields, payload.encoded()).unwrap();
        assert_eq!(encoded, record(64, 1, [first, count, first - durable], payload.encoded()));
    }
    let bytes = header(7, SegmentEnd { number: FileNumber(5), length: 1_000, last_sequence: 99 }).encode();
    let fields: Vec<u8> = [
        &b"ESKERWAL"[..],
        &1_u32.to_le_bytes(),
        &STORE.to_le_bytes(),
        &7_u64.to_le_bytes(),
        &5_u64.to_le_bytes(),
        &1_000_u64.to_le_bytes(),
        &99_u64.to_le_bytes(),
    ]
    .concat();
    assert_eq!(bytes.to_vec(), [&fields[..], &crc32fast::hash(&fields).to_le_bytes()].concat());
}

/// CO05: the checksum is right, but the batch is cut, or has more or fewer operations than the record says.
#[test]
fn co05_batches_that_are_not_what_their_record_says() {
    let whole = batch(1, 3, 10);
    let good = record(64, 1, [1, 3, 1], whole.encoded());
    assert_eq!(replay(&segment(&good)).unwrap().0.len(), 1);
    for len in 0..whole.encoded().len() {
        assert_refused(
            &segment(&record(64, 1, [1, 3, 1], &whole.encoded()[..len])),
            0,
            &format!("cut to {len}"),
        );
    }
    for count in [1, 2, 4, 1 << 31, u64::from(u32::MAX), MAX_SEQUENCE] {
        assert_refused(
            &segment(&record(64, 1, [1, count, 1], whole.encoded())),
            0,
            &format!("count {count}"),
        );
    }
}

/// W4: numbers that leave a gap or come twice are damage without any further proof.
#[test]
fn w4_dw23_gaps_and_repeats() {
    let first = record(64, 1, [1, 2, 1], batch(1, 2, 9).encoded());
    let offset = 64 + first.len() as u64;
    for number in [1, 2, 4, 100] {
        let second = record(offset, 1, [number, 1, 1], batch(3, 1, 9).encoded());
        let vfs = segment(&[first.clone(), second].concat());
        assert_refused(&vfs, 1, &format!("number {number}"));
        let mut items = Vec::new();
        dump_segment(vfs.open(&path(1)).unwrap(), &path(1), None, |item| {
            items.push(format!("{item:?}"));
            Ok(())
        })
        .unwrap();
        assert!(
            items[2].starts_with(&format!("OutOfOrder {{ offset: {offset}, found: {number}, expected: 3"))
        );
    }
}

/// CO09: every field at its odd values.
#[test]
fn co09_fields_that_no_writer_writes() {
    let payload = batch(1, 1, 9);
    let max = MAX_SEQUENCE;
    let numbers = [
        [0, 1, 1],
        [1, 0, 1],
        [1, 1, 0],
        [1, 1, 2],
        [1, 1, u64::MAX],
        [max + 1, 1, 1],
        [u64::MAX, 1, 1],
        [max, 2, 1],
        [1, u64::MAX, 1],
        [u64::MAX, u64::MAX, u64::MAX],
    ];
    for numbers in numbers {
        for type_number in [1, 2] {
            let payload = if type_number == 1 { payload.encoded() } else { &[] };
            assert_refused(&segment(&record(64, type_number, numbers, payload)), 0, &format!("{numbers:?}"));
        }
    }
    assert_refused(&segment(&record(64, 2, [1, 1, 1], b"x")), 0, "a skip with a payload");
    let good = body([1, 1, 1], payload.encoded());
    for len in 0..3 {
        assert_refused(&segment(&raw(64, 1, len as u64, &good[..len])), 0, "numbers are cut short");
    }
    for zero in [&[0x80, 0][..], &[0xff; 10]] {
        assert_refused(&segment(&raw(64, 1, zero.len() as u64, zero)), 0, "no varint");
    }
}

/// A length beyond the end is a torn record whatever it is: nothing of that size is read or allocated.
#[test]
fn co09_lengths_beyond_the_end() {
    let good = body([1, 1, 1], batch(1, 1, 9).encoded());
    for length in [good.len() as u64 + 1, 1 << 20, 1 << 31, u64::from(u32::MAX), 1 << 40, u64::MAX] {
        let vfs = segment(&raw(64, 1, length, &good));
        let (seen, found) = replay(&vfs).unwrap();
        assert_eq!((seen.len(), found.dropped.unwrap().offset), (0, 64), "{length}");
    }
}

/// CO09. Heads with right checks that claim gigabytes, in a file that is a hole of that length: what is read is little
/// more than what is there, and what is allocated does not depend on what is claimed. Mutation: a record is read as soon as its
/// head is right.
#[test]
#[allow(clippy::disallowed_methods, reason = "a file with a hole")]
fn co09_records_that_claim_a_hole() {
    use esker_vfs::{CountingVfs, OsVfs};
    let dir = tempfile::tempdir().unwrap();
    for claimed in [u64::from(u32::MAX), 1 << 30] {
        let header = header(1, SegmentEnd::none(0)).encode();
        let mut bytes = header.to_vec();
        // A head every few bytes, each with the same end.
        while bytes.len() < 3 << 20 {
            let offset = bytes.len() as u64;
            bytes.extend(raw(offset, 1, claimed, b""));
            bytes.extend([7; 1000]);
        }
        let path = dir.path().join(format!("{claimed:06}.wal"));
        std::fs::write(&path, &bytes).unwrap();
        let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        file.set_len(claimed + (4 << 20)).unwrap();
        drop(file);
        let vfs = CountingVfs::new(std::sync::Arc::new(OsVfs::new()));
        let context = RecordContext::new(LogKind::Wal, STORE, FileNumber(1));
        let mut found = Ok(None);
        let allocated = allocation_counter::measure(|| {
            let mut reader = LogReader::new(vfs.open(&path).unwrap(), &path, context.clone()).unwrap();
            assert!(reader.next_record().unwrap().is_none());
            found = reader.resync();
        });
        // So many heads are no log: told at once, not searched.
        assert!(found.as_ref().is_err_and(|error| error.is_corruption()), "{found:?}");
        assert!(allocated.bytes_max < 4 << 20, "{} bytes allocated", allocated.bytes_max);
        let read = vfs.counts().read_bytes();
        assert!(read < 4 * bytes.len() as u64, "{read} bytes read of {}", bytes.len());
    }
}

/// A record of many megabytes is read as any other, with holes or without.
#[test]
fn a_record_of_many_megabytes() {
    let payload = batch(1, 1, 40 << 20);
    let record = record(64, 1, [1, 1, 1], payload.encoded());
    let vfs = segment(&record);
    let (seen, found) = replay(&vfs).unwrap();
    assert_eq!((seen.len(), found.dropped), (1, None));
    let mut damaged = record;
    let middle = damaged.len() / 2;
    damaged[middle] ^= 1;
    let (seen, found) = replay(&segment(&damaged)).unwrap();
    assert_eq!((seen.len(), found.dropped.map(|dropped| dropped.offset)), (0, Some(64)));
}

/// Types that this build does not know are refused in every mode, even for a manifest's record in the log.
#[test]
fn unknown_types_are_refused() {
    for type_number in [0, 3, 4, 5, 127, 255] {
        let vfs = segment(&record(64, type_number, [1, 1, 1], batch(1, 1, 9).encoded()));
        for mode in [RecoveryMode::Strict, RecoveryMode::PointInTime] {
            let error = replay_with(&vfs, &RecoverOptions { mode, ..options(&vfs) }).unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::UnsupportedFormat { .. }), "{type_number}: {error}");
        }
    }
}

/// Headers with right checksums: other versions are refused as such, odd fields as damage.
#[test]
fn w1_patched_headers() {
    let good = header(1, SegmentEnd::none(0)).encode();
    let patch = |at: usize, bytes: &[u8]| {
        let mut header = good;
        header[at..at + bytes.len()].copy_from_slice(bytes);
        let crc = crc32fast::hash(&header[..60]);
        header[60..].copy_from_slice(&crc.to_le_bytes());
        let vfs = MemVfs::new();
        vfs.write_file(path(1), header).unwrap();
        replay(&vfs)
    };
    assert!(patch(0, b"").is_ok());
    for version in [0_u32, 2, u32::MAX] {
        let error = patch(8, &version.to_le_bytes()).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::UnsupportedFormat { .. }), "{error}");
    }
    let odd: [(usize, u64); 7] =
        [(28, 0), (28, 2), (36, 1), (36, u64::MAX), (44, 64), (52, MAX_SEQUENCE + 1), (52, u64::MAX)];
    for (at, value) in odd {
        let error = patch(at, &value.to_le_bytes()).unwrap_err();
        assert!(error.is_corruption(), "{at}: {error}");
    }
    // A predecessor that is not older would make the walk along the chain endless.
    for previous in [1_u64, 2, u64::MAX] {
        let both = [previous.to_le_bytes(), 64_u64.to_le_bytes()].concat();
        let error = patch(36, &both).unwrap_err();
        assert!(error.to_string().contains("do not grow"), "{error}");
    }
    assert!(patch(0, b"ESKERLOG").unwrap_err().is_corruption());
    assert!(patch(12, b"x").unwrap_err().is_corruption(), "another store");
}

/// A hostile file in which a record seems to start at every few bytes, each as long as the rest: the search ends, soon.
#[test]
fn the_search_for_records_is_linear() {
    let mut bytes = vec![0xff];
    let len = 400_000_u64;
    while (bytes.len() as u64) < len {
        let offset = 64 + bytes.len() as u64;
        let head = raw(offset, 1, len - bytes.len() as u64, b"");
        bytes.extend_from_slice(&head);
    }
    bytes.resize(bytes.len() + len as usize, 0xaa);
    let vfs = segment(&bytes);
    let error = replay(&vfs).unwrap_err();
    assert!(error.to_string().contains("more record heads"), "{error}");
    let (_, mut reader) = LogReader::open(&vfs, &path(1), LogKind::Wal).unwrap();
    assert!(reader.next_record().unwrap().is_none());
    assert!(reader.resync().is_err());
    let mode = RecoveryMode::PointInTime;
    let (_, found) = replay_with(&vfs, &RecoverOptions { mode, ..options(&vfs) }).unwrap();
    assert_eq!(found.dropped.unwrap().bytes, bytes.len() as u64);
}

/// The lengths fit, but the header counts otherwise than the records of its predecessor.
#[test]
fn w1_a_header_that_disagrees_with_the_records_before() {
    for stated in [0, 1, 3, 100] {
        let records = record(64, 1, [1, 2, 1], batch(1, 2, 9).encoded());
        let vfs = segment(&records);
        let end =
            SegmentEnd { number: FileNumber(1), length: 64 + records.len() as u64, last_sequence: stated };
        vfs.write_file(path(2), header(2, end).encode()).unwrap();
        // A segment that starts at what is needed is enough by itself.
        let base = stated == 0;
        assert_eq!(replay(&vfs).is_ok(), base, "{stated}");
        if !base {
            assert!(replay(&vfs).unwrap_err().is_corruption());
        }
    }
}

/// Numbers that can't be read back are not written.
#[test]
fn the_encoder_refuses_what_the_decoder_would() {
    let context = RecordContext::new(LogKind::Wal, STORE, FileNumber(1));
    let good = RecordFields { record_type: RecordType::Skip, first: 5, count: 1, durable: 4 };
    let refused = [
        RecordFields { durable: 5, ..good },
        RecordFields { first: 0, ..good },
        RecordFields { count: 0, ..good },
        RecordFields { first: MAX_SEQUENCE, count: 2, ..good },
        RecordFields { record_type: RecordType::Edit, count: 2, ..good },
    ];
    let mut out = Vec::new();
    for fields in refused {
        let error = encode_record(&mut out, &context, 64, &fields, b"").unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Fatal { .. }), "{fields:?}");
    }
    assert!(encode_record(&mut out, &context, 64, &good, b"x").is_err());
    assert!(out.is_empty());
    encode_record(&mut out, &context, 64, &good, b"").unwrap();
}
