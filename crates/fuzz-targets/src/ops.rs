//! `ops`: operations on a database and on the model, every answer compared.

use std::ops::Bound;

use esker::vfs::MemVfs;
use esker_sim::disk::Disk;
use esker_sim::preset::Setup;
use esker_sim::session::{ModelSession, Session, assert_sound, content, difference};
use esker_testkit::{Direction, KeyRange, Move, Op, Promise, View, WriteOp, presets, value_for};

use crate::Input;

/// More operations are not done.
const OPS_MAX: u64 = 400;
/// Bytes of values in all: the rest is short.
const VALUE_BYTES_MAX: usize = 256 << 10;

/// A byte for the options, then operations.
pub(crate) fn ops(bytes: &[u8]) {
    let mut source = Source { input: Input::new(bytes), number: 0, value_bytes: 0 };
    let presets = presets();
    let options = Setup::of(&presets[source.input.below(presets.len())]).options;
    let disk = Disk::on(MemVfs::new(), true, None);
    let open = || Session::new(disk.open_inline(&options).expect("the database opens"));
    let (mut session, mut model) = (open(), ModelSession::new(1));
    while !source.input.is_empty() && source.number < OPS_MAX {
        source.number += 1;
        let op = source.op();
        if op == Op::Reopen {
            model.let_go();
            session.let_go().close().expect("close");
            session = open();
            continue;
        }
        let found = session.run(&op).unwrap_or_else(|error| panic!("{op:?}: {error}"));
        let wanted = model.run(0, &op);
        assert!(found == wanted, "{op:?}: {}", difference(&found, &wanted));
    }
    model.let_go();
    let db = session.let_go();
    let wanted = model.model.content(model.model.now());
    assert_eq!(content(&db).expect("a full scan"), wanted);
    assert_sound(&db);
    db.close().expect("close");
}

struct Source<'a> {
    input: Input<'a>,
    number: u64,
    value_bytes: usize,
}

impl Source<'_> {
    fn op(&mut self) -> Op {
        match self.input.below(24) {
            0..=5 => Op::Write(vec![self.write()], self.promise()),
            6 => {
                let count = self.input.below(8);
                Op::Write((0..count).map(|_| self.write()).collect(), self.promise())
            }
            7 => Op::Get(self.key(), self.view()),
            8 => Op::GetWith(self.key()),
            9 => {
                let count = self.input.below(5);
                Op::MultiGet((0..count).map(|_| self.key()).collect())
            }
            10 | 11 => Op::Scan(self.range(), self.direction(), self.view(), self.input.below(64)),
            12 => Op::Prefix(self.key(), self.direction(), self.view()),
            13 | 14 => Op::Cursor(self.view(), self.moves()),
            15 => Op::OpenCursor,
            16 => Op::MoveCursor(self.moves()),
            17 => Op::CloseCursor,
            18 => Op::TakeSnapshot,
            19 => Op::DropSnapshot(self.input.below(16)),
            20 => Op::CheckSnapshot(self.input.below(16)),
            21 => Op::Flush,
            22 => Op::Compact(self.range()),
            _ => match self.input.byte() & 1 {
                0 => Op::Sync,
                _ => Op::Reopen,
            },
        }
    }

    /// Short keys, and some with a long start in common.
    fn key(&mut self) -> Vec<u8> {
        let head = self.input.byte();
        let mut key = match head >> 6 {
            0 | 1 => Vec::new(),
            2 => vec![b'p'; 40],
            _ => vec![0xff; usize::from(head >> 4 & 3)],
        };
        key.extend_from_slice(self.input.take(usize::from(head & 3)));
        key
    }

    fn write(&mut self) -> WriteOp {
        let key = self.key();
        let head = self.input.byte();
        if head < 64 {
            return WriteOp::Delete(key);
        }
        let len = if head < 224 { usize::from(head - 64) } else { usize::from(head - 223) * 200 };
        let len = if self.value_bytes + len > VALUE_BYTES_MAX { 1 } else { len };
        self.value_bytes += len;
        let value = value_for(self.number, &key, len);
        WriteOp::Put(key, value)
    }

    fn promise(&mut self) -> Promise {
        match self.input.below(8) {
            0 => Promise::Memory,
            1 => Promise::Buffered,
            2 => Promise::Sync,
            3 => Promise::NoLog,
            _ => Promise::Default,
        }
    }

    fn view(&mut self) -> View {
        match self.input.byte() {
            byte if byte < 128 => View::Now,
            byte => View::Snapshot(usize::from(byte - 128)),
        }
    }

    fn direction(&mut self) -> Direction {
        match self.input.below(3) {
            0 => Direction::Forward,
            1 => Direction::Backward,
            _ => Direction::Both(u64::from(self.input.byte()) * 0x0101_0101_0101_0101),
        }
    }

    fn range(&mut self) -> KeyRange {
        (self.bound(), self.bound())
    }

    fn bound(&mut self) -> Bound<Vec<u8>> {
        match self.input.below(3) {
            0 => Bound::Unbounded,
            1 => Bound::Included(self.key()),
            _ => Bound::Excluded(self.key()),
        }
    }

    fn moves(&mut self) -> Vec<Move> {
        let count = self.input.below(12);
        (0..count)
            .map(|_| match self.input.below(8) {
                0 => Move::First,
                1 => Move::Last,
                2 | 3 => Move::Next,
                4 | 5 => Move::Prev,
                6 => Move::Seek(self.key()),
                _ => Move::SeekForPrev(self.key()),
            })
            .collect()
    }
}
