//! `scan`: the entries of a table, in either direction, over a range. Goes on behind damaged blocks.
//!
//! Blocks are read one by one and handed out entry by entry. Going backward, the entries of a block are gathered first, up
//! to [`GATHERED_BYTES_MAX`]; a block whose keys add up to more, which takes a hostile one, is read several times.

use crate::fault::{Failure, Fault};
use crate::target::{Kind, Target};
use esker_base::{InternalKey, InternalKeyRef, SequenceNumber, ValueKind};
use esker_sstable::{OpenTable, TableReader};
use esker_vfs::Vfs;
use serde::Serialize;
use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::path::Path;

/// Most bytes of keys and values that are gathered of a block.
const GATHERED_BYTES_MAX: usize = 64 << 20;

/// Which entries are wanted. All conditions must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScanOptions {
    /// The smallest user key.
    pub from: Option<Vec<u8>>,
    /// The user key before which it ends.
    pub to: Option<Vec<u8>>,
    /// What user keys start with.
    pub prefix: Option<Vec<u8>>,
    /// The kind of entry.
    pub kind: Option<ValueKind>,
    /// The smallest sequence number.
    pub min_seq: Option<SequenceNumber>,
    /// The largest sequence number.
    pub max_seq: Option<SequenceNumber>,
    /// How many entries at most.
    pub limit: Option<u64>,
    /// From the last entry to the first.
    pub reverse: bool,
}

/// What came out of a scan.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ScanSummary {
    /// Entries that were handed out.
    pub count: u64,
    /// What could not be read; entries may be missing there.
    pub faults: Vec<Fault>,
}

/// Hands out the entries of the table at `path` that `options` want.
///
/// # Errors
///
/// When the file is no table, or does not open, and when the visitor fails. Damaged blocks are in the answer.
pub fn scan<'a>(
    vfs: &dyn Vfs,
    path: &Path,
    options: &'a ScanOptions,
    visit: &'a mut (dyn FnMut(InternalKeyRef<'_>, &[u8]) -> io::Result<()> + 'a),
) -> Result<ScanSummary, Failure> {
    let target = Target::open_kind(vfs, path, Kind::Table, "`wal --ops` and `manifest` show the others")?;
    let reader = TableReader::open(target.file, target.path, OpenTable::default())?;
    Scan::new(options, visit).run(&reader)
}

struct Scan<'a> {
    options: &'a ScanOptions,
    /// The first key behind all that have the prefix.
    end: Option<Vec<u8>>,
    summary: ScanSummary,
    /// Why the visitor can take no more.
    output: Option<io::Error>,
    gathered_bytes_max: usize,
    visit: &'a mut Visit<'a>,
}

type Visit<'a> = dyn FnMut(InternalKeyRef<'_>, &[u8]) -> io::Result<()> + 'a;

impl<'a> Scan<'a> {
    fn new(options: &'a ScanOptions, visit: &'a mut Visit<'a>) -> Self {
        Scan {
            options,
            end: options.prefix.as_deref().and_then(successor),
            summary: ScanSummary::default(),
            output: None,
            gathered_bytes_max: GATHERED_BYTES_MAX,
            visit,
        }
    }

    fn run(mut self, reader: &TableReader) -> Result<ScanSummary, Failure> {
        let blocks = self.blocks(reader);
        if self.options.reverse {
            blocks.rev().try_for_each(|number| self.block_backward(reader, number))?;
        } else {
            let mut blocks = blocks;
            blocks.try_for_each(|number| self.block_forward(reader, number))?;
        }
        Ok(self.summary)
    }

    /// The blocks that may hold wanted entries.
    fn blocks(&mut self, reader: &TableReader) -> Range<usize> {
        let bounds = |a: &Option<Vec<u8>>, b: &Option<Vec<u8>>| (a.clone(), b.clone());
        let (from, prefix) = bounds(&self.options.from, &self.options.prefix);
        let (to, end) = bounds(&self.options.to, &self.end);
        let mut blocks = 0..0;
        let mut is_behind = false;
        let walked = reader.dump_index(&mut |entry| {
            let separator = entry.separator.user_key;
            if [&from, &prefix].into_iter().flatten().any(|bound| separator < bound.as_slice()) {
                blocks = entry.number + 1..entry.number + 1;
            } else if !is_behind {
                blocks.end = entry.number + 1;
                is_behind = [&to, &end].into_iter().flatten().any(|bound| separator >= bound.as_slice());
            }
        });
        if let Err(error) = walked {
            self.summary.faults.push(error.into());
        }
        blocks
    }

    fn wants(&self, key: InternalKeyRef<'_>) -> bool {
        let options = self.options;
        options.from.as_ref().is_none_or(|from| key.user_key >= from.as_slice())
            && options.to.as_ref().is_none_or(|to| key.user_key < to.as_slice())
            && options.prefix.as_ref().is_none_or(|prefix| key.user_key.starts_with(prefix))
            && options.kind.is_none_or(|kind| key.kind == kind)
            && options.min_seq.is_none_or(|seq| key.seq >= seq)
            && options.max_seq.is_none_or(|seq| key.seq <= seq)
    }

    fn is_done(&self) -> bool {
        self.output.is_some() || self.options.limit.is_some_and(|limit| self.summary.count >= limit)
    }

    fn give(&mut self, key: InternalKeyRef<'_>, value: &[u8]) {
        if self.is_done() {
            return;
        }
        match (self.visit)(key, value) {
            Ok(()) => self.summary.count += 1,
            Err(error) => self.output = Some(error),
        }
    }

    fn end_block(&mut self, read: esker_base::Result<()>) -> Result<(), Failure> {
        if let Err(error) = read {
            self.summary.faults.push(error.into());
        }
        match self.output.take() {
            Some(error) => Err(Failure::Output(error)),
            None => Ok(()),
        }
    }

    fn block_forward(&mut self, reader: &TableReader, number: usize) -> Result<(), Failure> {
        if self.is_done() {
            return Ok(());
        }
        let read = reader.dump_block(number, &mut |entry| {
            if self.wants(entry.key) {
                self.give(entry.key, entry.value);
            }
        });
        self.end_block(read.map(|_| ()))
    }

    fn block_backward(&mut self, reader: &TableReader, number: usize) -> Result<(), Failure> {
        // Entries with this number in the block, and later ones, were handed out.
        let mut end = usize::MAX;
        while !self.is_done() {
            let mut gathered: VecDeque<(usize, InternalKey, Vec<u8>)> = VecDeque::new();
            let (mut index, mut bytes, mut is_whole) = (0, 0, true);
            let read = reader.dump_block(number, &mut |entry| {
                if index < end && self.wants(entry.key) {
                    bytes += entry.key.user_key.len() + entry.value.len() + size_of::<InternalKey>();
                    gathered.push_back((index, entry.key.to_owned(), entry.value.to_vec()));
                    while bytes > self.gathered_bytes_max && gathered.len() > 1 {
                        let Some((_, key, value)) = gathered.pop_front() else { break };
                        bytes -= key.user_key.len() + value.len() + size_of::<InternalKey>();
                        is_whole = false;
                    }
                }
                index += 1;
            });
            is_whole |= read.is_err();
            for (_, key, value) in gathered.iter().rev() {
                self.give(key.as_ref(), value);
            }
            self.end_block(read.map(|_| ()))?;
            match gathered.front() {
                Some((first, ..)) if !is_whole => end = *first,
                _ => break,
            }
        }
        Ok(())
    }
}

/// The first key that is behind all keys that start with `prefix`; `None` when there is none.
fn successor(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|&byte| byte != 0xff)?;
    let mut successor = prefix.get(..=last)?.to_vec();
    *successor.last_mut()? += 1;
    Some(successor)
}

#[cfg(test)]
mod tests {
    use super::*;
    use esker_base::FileNumber;
    use esker_sstable::{TableBuilder, TableIdentity, TableOptions};
    use esker_vfs::MemVfs;

    #[test]
    fn successors_of_prefixes() {
        assert_eq!(successor(b"ab"), Some(b"ac".to_vec()));
        assert_eq!(successor(b"a\xff\xff"), Some(b"b".to_vec()));
        assert_eq!(successor(b"\xff"), None);
        assert_eq!(successor(b""), None);
    }

    /// A block that is gathered in several pieces comes out as one that is gathered at once, also when only some of its
    /// entries are wanted.
    #[test]
    fn blocks_are_gathered_in_pieces() {
        let vfs = MemVfs::new();
        let path = Path::new("/000001.sst");
        let identity = TableIdentity { store_id: 1, number: FileNumber(1), hash_seed: 7 };
        let file = vfs.create_new(path).unwrap();
        let mut builder = TableBuilder::new(file, path.into(), &TableOptions::default(), identity, 0);
        for n in 0..300_u64 {
            let kind = if n % 3 == 0 { ValueKind::Delete } else { ValueKind::Put };
            let value: &[u8] = if n % 3 == 0 { b"" } else { b"value" };
            builder.add(InternalKeyRef::new(format!("{n:05}").as_bytes(), n + 1, kind), value).unwrap();
        }
        builder.finish().unwrap();
        let reader = TableReader::open(vfs.open(path).unwrap(), path.into(), OpenTable::default()).unwrap();
        for kind in [None, Some(ValueKind::Delete)] {
            let run = |reverse, max| {
                let options = ScanOptions { kind, reverse, ..ScanOptions::default() };
                let mut keys = Vec::new();
                let mut visit = |key: InternalKeyRef<'_>, _: &[u8]| {
                    keys.push(key.to_owned());
                    Ok(())
                };
                let mut scan = Scan::new(&options, &mut visit);
                scan.gathered_bytes_max = max;
                assert!(scan.run(&reader).unwrap().faults.is_empty());
                keys
            };
            let mut forward = run(false, GATHERED_BYTES_MAX);
            assert_eq!(forward.len(), if kind.is_none() { 300 } else { 100 });
            forward.reverse();
            for max in [1, 200, 1000, GATHERED_BYTES_MAX] {
                assert_eq!(run(true, max), forward, "{max}");
            }
        }
    }
}
