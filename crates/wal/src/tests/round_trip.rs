//! What the writer wrote, the reader reads; and the limits on bytes and memory.

use std::path::Path;

use esker_base::{ErrorKind, FileNumber, WriteBatch};
use esker_vfs::{MemVfs, Vfs};

use crate::{LogEnd, LogKind, LogReader, LogWriter, SegmentEnd, SegmentHeader};

const PATH: &str = "/000007.wal";

fn header() -> SegmentHeader {
    SegmentHeader {
        kind: LogKind::Wal,
        store_id: 0x0123_4567_89ab_cdef_0011_2233_4455_6677,
        number: FileNumber(7),
        previous: SegmentEnd::none(0),
    }
}

#[test]
fn what_was_appended_is_read() {
    let vfs = MemVfs::new();
    let mut writer = LogWriter::create(&vfs, Path::new(PATH), header(), 0).unwrap();
    writer.append_batch(1, 3, b"abc").unwrap();
    writer.append_skip(4, 10).unwrap();
    writer.sync().unwrap();
    let big = vec![7; 3 << 20];
    writer.append_batch(14, 1, &big).unwrap();
    writer.append_batch(15, 1, b"").unwrap();
    writer.flush().unwrap();
    assert_eq!(writer.durable_sequence(), 13);

    let (read, mut reader) = LogReader::open(&vfs, Path::new(PATH), LogKind::Wal).unwrap();
    assert_eq!(read, header());
    let mut seen = Vec::new();
    while let Some(record) = reader.next_record().unwrap() {
        seen.push((record.fields.first, record.fields.count, record.fields.durable, record.payload.to_vec()));
    }
    let expected =
        vec![(1, 3, 0, b"abc".to_vec()), (4, 10, 0, vec![]), (14, 1, 13, big), (15, 1, 13, Vec::new())];
    assert_eq!(seen, expected);
    assert_eq!(reader.end(), Some(LogEnd::Clean { offset: writer.written(), zeros: 0 }));
}

/// A log for one kind of number never takes the records of another, and numbers are contiguous.
#[test]
fn w4_numbers_out_of_order_are_refused_by_the_writer() {
    let vfs = MemVfs::new();
    let mut writer = LogWriter::create(&vfs, Path::new(PATH), header(), 0).unwrap();
    writer.append_batch(1, 2, b"x").unwrap();
    let len = writer.buffered();
    for error in [
        writer.append_batch(2, 1, b"x").unwrap_err(),
        writer.append_batch(4, 1, b"x").unwrap_err(),
        writer.append_edit(3, b"x").unwrap_err(),
        writer.append_skip(3, 0).unwrap_err(),
    ] {
        assert!(matches!(error.kind(), ErrorKind::Fatal { .. }), "{error}");
    }
    assert_eq!(writer.buffered(), len);
    writer.append_batch(3, 1, b"x").unwrap();
}

/// One committed put with a key and a value of 16 bytes costs at most 64 bytes, whatever the numbers.
#[test]
fn bytes_per_small_put() {
    let mut batch = WriteBatch::new();
    batch.put([1; 16], [2; 16]);
    for (last, durable, sync_each) in
        [(0, 0, true), (1 << 32, 0, false), (1 << 55, 0, false), (1 << 55, 1 << 55, true)]
    {
        let vfs = MemVfs::new();
        let mut head = header();
        head.previous.last_sequence = last;
        let mut writer = LogWriter::create(&vfs, Path::new(PATH), head, durable).unwrap();
        let start = writer.written();
        for put in 1..=1_000 {
            writer.append_batch(last + put, 1, batch.encoded()).unwrap();
            if sync_each {
                writer.sync().unwrap();
            } else if put % 100 == 0 {
                writer.flush().unwrap();
            }
        }
        let each = (writer.written() - start).div_ceil(1_000);
        assert_eq!(writer.written(), vfs.open(Path::new(PATH)).unwrap().len().unwrap());
        assert!(each <= 64, "{each} bytes a put");
        println!("{each} bytes a put at {last}");
    }
}
