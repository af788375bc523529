//! The write-ahead log: framing, checksum and the append to a file in memory.

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use esker_base::{FileNumber, WriteBatch};
use esker_bench::data::{DataSet, ENTRIES};
use esker_vfs::MemVfs;
use esker_wal::{LogKind, LogReader, LogWriter, SegmentEnd, SegmentHeader};
use std::hint::black_box;
use std::path::Path;

fn path() -> &'static Path {
    Path::new("/000001.wal")
}

fn writer(vfs: &MemVfs) -> LogWriter {
    let header = SegmentHeader {
        kind: LogKind::Wal,
        store_id: 1,
        number: FileNumber(1),
        previous: SegmentEnd::none(0),
    };
    LogWriter::create(vfs, path(), header, 0).expect("the file system is empty")
}

/// The set as batches of `size` puts, with their numbers of puts.
fn payloads(size: usize) -> Vec<(Vec<u8>, u64)> {
    let set = DataSet::sequential();
    let batches = set.entries.chunks(size).map(|entries| {
        let mut batch = WriteBatch::new();
        for (key, value) in entries {
            batch.put(key, value);
        }
        (batch.encoded().to_vec(), u64::from(batch.len()))
    });
    batches.collect()
}

/// Appends all batches, and gives each to the file before the next, as single writers do.
fn append(writer: &mut LogWriter, payloads: &[(Vec<u8>, u64)]) {
    let mut first = 1;
    for (payload, count) in payloads {
        writer.append_batch(first, *count, payload).expect("the numbers are contiguous");
        writer.flush().expect("memory can be written to");
        first += count;
    }
}

fn wal(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("wal");
    group.throughput(Throughput::Elements(ENTRIES as u64));
    for (name, size) in [("append, 1 put a record", 1), ("append, 500 puts a record", 500)] {
        let payloads = payloads(size);
        group.bench_function(name, |bencher| {
            bencher.iter_batched(
                || writer(&MemVfs::new()),
                |mut writer| {
                    append(&mut writer, &payloads);
                    writer
                },
                BatchSize::SmallInput,
            );
        });
    }
    let vfs = MemVfs::new();
    append(&mut writer(&vfs), &payloads(1));
    group.bench_function("read, 1 put a record", |bencher| {
        bencher.iter(|| {
            let (_, mut reader) = LogReader::open(&vfs, path(), LogKind::Wal).expect("the log is sound");
            let mut records = 0;
            while let Some(record) = reader.next_record().expect("the log is sound") {
                black_box(&record);
                records += 1;
            }
            assert_eq!(records, ENTRIES);
        });
    });
    group.finish();
}

criterion_group!(benches, wal);
criterion_main!(benches);
