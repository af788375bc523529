//! A log in memory that knows what it holds, and what a recovery of a damaged copy must answer.

use std::path::{Path, PathBuf};

use esker_base::{FileKind, FileNumber, MAX_SEQUENCE, Result, SequenceNumber, SplitMix64, WriteBatch};
use esker_vfs::{MemVfs, Vfs};

use crate::{
    LogKind, LogReplay, LogWriter, RecordType, RecoverOptions, RecoveryMode, SegmentEnd, SegmentHeader,
    recover,
};

pub const STORE: u128 = 0x0123_4567_89ab_cdef_0011_2233_4455_6677;

/// A record as the log should give it back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    pub segment: u64,
    pub offset: u64,
    pub end: u64,
    pub first: SequenceNumber,
    pub count: u64,
    pub durable: SequenceNumber,
    pub payload: Vec<u8>,
}

/// What a visitor saw: first number, count, payload.
pub type Seen = Vec<(SequenceNumber, u64, Vec<u8>)>;

/// A log that is being written.
#[derive(Debug)]
pub struct Log {
    pub vfs: MemVfs,
    pub written: Vec<Written>,
    /// Number of each segment and the first sequence number that it may hold.
    pub segments: Vec<(u64, SequenceNumber)>,
    pub writer: LogWriter,
}

pub fn path(segment: u64) -> PathBuf {
    FileKind::Wal.path(Path::new("/"), FileNumber(segment))
}

pub fn header(number: u64, previous: SegmentEnd) -> SegmentHeader {
    SegmentHeader { kind: LogKind::Wal, store_id: STORE, number: FileNumber(number), previous }
}

/// A batch of `count` puts, told apart by the sequence number.
pub fn batch(first: SequenceNumber, count: u64, value_len: usize) -> WriteBatch {
    let mut batch = WriteBatch::new();
    for seq in first..first + count {
        // No zero bytes, so that a cut is never mended by zeros.
        let value: Vec<u8> = (0..value_len.max(1)).map(|i| (seq * 31 + i as u64) as u8 | 0x80).collect();
        batch.put(format!("k{seq}"), value);
    }
    batch
}

impl Log {
    pub fn new() -> Log {
        let vfs = MemVfs::new();
        let writer = LogWriter::create(&vfs, &path(1), header(1, SegmentEnd::none(0)), 0).unwrap();
        Log { vfs, written: Vec::new(), segments: vec![(1, 1)], writer }
    }

    /// Appends and flushes a batch.
    pub fn put(&mut self, count: u64, value_len: usize) {
        let first = self.writer.last_sequence() + 1;
        let batch = batch(first, count, value_len);
        self.record(RecordType::Batch, count, batch.encoded());
    }

    pub fn skip(&mut self, count: u64) {
        self.record(RecordType::Skip, count, &[]);
    }

    fn record(&mut self, record_type: RecordType, count: u64, payload: &[u8]) {
        let (offset, first) = (self.writer.len_of_all(), self.writer.last_sequence() + 1);
        let durable = self.writer.durable_sequence();
        match record_type {
            RecordType::Batch => self.writer.append_batch(first, count, payload).unwrap(),
            _ => self.writer.append_skip(first, count).unwrap(),
        }
        self.writer.flush().unwrap();
        let (segment, end) = (self.writer.header().number.0, self.writer.written());
        let payload = payload.to_vec();
        self.written.push(Written { segment, offset, end, first, count, durable, payload });
    }

    pub fn sync(&mut self) {
        self.writer.sync().unwrap();
    }

    /// Starts the next segment.
    pub fn rotate(&mut self) {
        let (end, durable) = (self.writer.end(), self.writer.durable_sequence());
        let all = self.writer.is_durable();
        let number = self.segments.last().unwrap().0 + 1;
        self.writer = LogWriter::create(&self.vfs, &path(number), header(number, end), durable).unwrap();
        self.segments.push((number, end.last_sequence + 1));
        if all {
            self.writer.previous_is_durable();
        }
    }

    /// A log of three segments with syncs and skips at places drawn from `seed`.
    pub fn random(seed: u64) -> Log {
        let mut rng = SplitMix64::new(seed);
        let mut log = Log::new();
        for segment in 0..3 {
            if segment > 0 {
                if rng.percent(60) {
                    log.sync();
                }
                log.rotate();
            }
            for _ in 0..rng.below(6) {
                match rng.below(8) {
                    0 => log.skip(1 + rng.below(300)),
                    _ => log.put(1 + rng.below(3), rng.below(40) as usize),
                }
                if rng.percent(30) {
                    log.sync();
                }
            }
        }
        log
    }

    pub fn bytes(&self, segment: u64) -> Vec<u8> {
        self.vfs.read_file(path(segment)).unwrap()
    }

    /// What is replayed when everything from sequence number `next` on is lost.
    pub fn before(&self, next: SequenceNumber) -> Seen {
        let kept = self.written.iter().take_while(|record| record.first < next);
        kept.map(|record| (record.first, record.count, record.payload.clone())).collect()
    }

    /// Whether an intact record behind `(segment, offset)` says that `next` was durable.
    pub fn proves(&self, segment: u64, offset: u64, next: SequenceNumber) -> bool {
        let behind = |record: &&Written| (record.segment, record.offset) >= (segment, offset);
        self.written.iter().filter(behind).any(|record| record.durable >= next)
    }

    /// Whether all that is needed is in later segments: damage to this one then does nothing.
    pub fn is_obsolete(&self, segment: u64) -> bool {
        self.segments.iter().any(|(number, first)| *number > segment && *first == 1)
    }

    pub fn first_after(&self, segment: u64) -> SequenceNumber {
        let next = self.segments.iter().find(|(number, _)| *number > segment);
        next.map_or(self.writer.last_sequence() + 1, |(_, first)| *first)
    }
}

pub fn options(vfs: &MemVfs) -> RecoverOptions {
    let segments = vfs.list(Path::new("/")).unwrap().into_iter().filter_map(|entry| {
        match esker_base::parse_file_name(&entry.name) {
            Some((FileKind::Wal, number)) => Some(number),
            _ => None,
        }
    });
    RecoverOptions {
        dir: PathBuf::from("/"),
        store_id: STORE,
        segments: segments.collect(),
        durable: 0,
        first_needed: 1,
        last_max: MAX_SEQUENCE,
        mode: RecoveryMode::Strict,
    }
}

/// Recovers and collects.
pub fn replay_with(vfs: &dyn Vfs, options: &RecoverOptions) -> Result<(Seen, LogReplay)> {
    let mut seen = Seen::new();
    let found = recover(vfs, options, |record| {
        seen.push((record.fields.first, record.fields.count, record.payload.to_vec()));
        Ok(())
    })?;
    Ok((seen, found))
}

pub fn replay(vfs: &MemVfs) -> Result<(Seen, LogReplay)> {
    replay_with(vfs, &options(vfs))
}

/// A file system with these segments.
pub fn with_segment(log: &Log, segment: u64, bytes: &[u8]) -> MemVfs {
    let vfs = MemVfs::new();
    for (number, _) in &log.segments {
        let bytes = if *number == segment { bytes.to_vec() } else { log.bytes(*number) };
        vfs.write_file(path(*number), bytes).unwrap();
    }
    vfs
}
