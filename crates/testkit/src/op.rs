//! [`Op`]: one operation of a random test, as a value that prints itself.

use crate::KeyRange;

/// A put or a delete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteOp {
    /// Sets a key.
    Put(Vec<u8>, Vec<u8>),
    /// Removes a key.
    Delete(Vec<u8>),
}

impl WriteOp {
    /// The key.
    pub fn key(&self) -> &[u8] {
        match self {
            WriteOp::Put(key, _) | WriteOp::Delete(key) => key,
        }
    }
}

/// The durability that a write asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promise {
    /// What the database's options say.
    Default,
    /// Buffered by the database.
    Memory,
    /// Handed to the operating system.
    Buffered,
    /// On the device.
    Sync,
    /// Not in the log at all.
    NoLog,
}

/// At which moment a read looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    /// The present.
    Now,
    /// A held snapshot, as an index to be taken modulo their number; the present when none is held.
    Snapshot(usize),
}

/// From which ends a scan takes its entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the front.
    Forward,
    /// From the back.
    Backward,
    /// From both, as the bits of the number say.
    Both(u64),
}

/// One move of a cursor.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is the cursor's method of that name")]
pub enum Move {
    First,
    Last,
    Next,
    Prev,
    Seek(Vec<u8>),
    SeekForPrev(Vec<u8>),
}

/// One operation. Where a slot of a cursor or a snapshot is empty, the operation does nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// One batch. With one operation, it may as well be written by a plain put or delete.
    Write(Vec<WriteOp>, Promise),
    /// A point read.
    Get(Vec<u8>, View),
    /// A point read with a closure.
    GetWith(Vec<u8>),
    /// Several point reads at one moment.
    MultiGet(Vec<Vec<u8>>),
    /// A scan of a range, up to a number of entries.
    Scan(KeyRange, Direction, View, usize),
    /// A scan of a prefix.
    Prefix(Vec<u8>, Direction, View),
    /// Moves of a new cursor.
    Cursor(View, Vec<Move>),
    /// A cursor that stays open.
    OpenCursor,
    /// Moves of the cursor that stays open.
    MoveCursor(Vec<Move>),
    /// Closes it.
    CloseCursor,
    /// Takes and holds a snapshot.
    TakeSnapshot,
    /// Drops a held snapshot, by index modulo their number.
    DropSnapshot(usize),
    /// Compares everything that a held snapshot sees.
    CheckSnapshot(usize),
    /// Flushes the memtable.
    Flush,
    /// Compacts a range.
    Compact(KeyRange),
    /// Makes all writes durable.
    Sync,
    /// Closes and opens again.
    Reopen,
    /// Loses power, in the way that the seed says, and opens again.
    Crash(u64),
    /// Is killed, and opens again.
    Kill,
}

impl Op {
    /// The kind of operation, for counts.
    pub fn name(&self) -> &'static str {
        match self {
            Op::Write(ops, _) => match ops.as_slice() {
                [] => "empty batch",
                [WriteOp::Put(..)] => "put",
                [WriteOp::Delete(_)] => "delete",
                _ => "batch",
            },
            Op::Get(..) => "get",
            Op::GetWith(_) => "get_with",
            Op::MultiGet(_) => "multi_get",
            Op::Scan(_, Direction::Forward, ..) => "scan forward",
            Op::Scan(_, Direction::Backward, ..) => "scan backward",
            Op::Scan(_, Direction::Both(_), ..) => "scan from both ends",
            Op::Prefix(..) => "prefix",
            Op::Cursor(..) => "cursor",
            Op::OpenCursor => "open cursor",
            Op::MoveCursor(_) => "move cursor",
            Op::CloseCursor => "close cursor",
            Op::TakeSnapshot => "take snapshot",
            Op::DropSnapshot(_) => "drop snapshot",
            Op::CheckSnapshot(_) => "check snapshot",
            Op::Flush => "flush",
            Op::Compact(_) => "compact",
            Op::Sync => "sync",
            Op::Reopen => "reopen",
            Op::Crash(_) => "crash",
            Op::Kill => "kill",
        }
    }

    /// Every name, for a demand on the coverage; those of crashes come last.
    pub const NAMES: [&'static str; 24] = [
        "put",
        "delete",
        "batch",
        "empty batch",
        "get",
        "get_with",
        "multi_get",
        "scan forward",
        "scan backward",
        "scan from both ends",
        "prefix",
        "cursor",
        "open cursor",
        "move cursor",
        "close cursor",
        "take snapshot",
        "drop snapshot",
        "check snapshot",
        "flush",
        "compact",
        "sync",
        "reopen",
        "crash",
        "kill",
    ];
}

/// A value that tells where it comes from: the number of the write, the key's length and hash, then filler. Different
/// numbers and keys give different values when there is room for that.
///
/// Half of the numbers give filler that compresses.
pub fn value_for(number: u64, key: &[u8], len: usize) -> Vec<u8> {
    let hash = esker_base::key_hash(0, key);
    let mut value = format!("{number}:{}:{hash:016x}:", key.len()).into_bytes();
    let mut state = number ^ hash;
    while value.len() < len {
        if number.is_multiple_of(2) {
            value.extend_from_slice(b"filler, ");
        } else {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            value.extend_from_slice(&(state >> 17).to_le_bytes()[..5]);
        }
    }
    value.truncate(len);
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_tell_their_origin() {
        let value = value_for(12, b"key", 60);
        assert_eq!(value.len(), 60);
        assert!(value.starts_with(b"12:3:"));
        assert_ne!(value_for(12, b"kez", 60), value);
        assert_ne!(value_for(13, b"key", 60), value);
        assert_eq!(value_for(13, b"key", 0), b"");
    }
}
