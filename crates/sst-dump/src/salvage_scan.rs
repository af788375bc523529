//! [`Scanner`]: the blocks of a stretch of a table, without an index.
//!
//! A block ends where the checksum of what started behind the last one matches. Behind damage the start is not known; then
//! windows are searched for both. Whatever the bytes are, the work is linear in the file: windows do not overlap by more
//! than their width, and runs that lead nowhere and checks of candidates have budgets.

use crate::block_search::{Candidate, Context, Run, find_blocks};
use esker_sstable::{StoredBlock, StoredBlocks, TableProperties};
use esker_vfs::RandomAccessFile;
use std::ops::Range;

/// Bytes that are read at once in a run: first about a block, then more.
const FIRST_CHUNK: usize = 8 << 10;
const CHUNK: usize = 64 << 10;

/// A window: starts that are tried, and bytes behind them in which their blocks may end. The small one is tried first: in
/// most cases a block is near.
const SMALL: (usize, usize) = (64 << 10, 128 << 10);
const LARGE: (usize, usize) = (2 << 20, 4 << 20);

/// Bytes that are read when more cannot be.
const PAGE: usize = 4096;

/// A block that is whole.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) range: Range<u64>,
    pub(crate) content: StoredBlock,
}

/// What a stretch came to.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scanned {
    pub(crate) blocks: Vec<Range<u64>>,
    /// Where the data ended, because something else than data followed.
    pub(crate) data_end: Option<u64>,
}

#[derive(Debug)]
struct Window {
    starts: Range<u64>,
    is_small: bool,
    found: Vec<Candidate>,
}

/// Finds blocks in one file.
#[derive(Debug)]
pub(crate) struct Scanner<'a> {
    file: &'a dyn RandomAccessFile,
    blocks: &'a StoredBlocks,
    context: Context,
    /// Bytes that runs may still take in vain.
    run_budget: u64,
    /// Bytes of candidates that may still be checked.
    check_budget: u64,
    window: Option<Window>,
}

impl<'a> Scanner<'a> {
    pub(crate) fn new(
        file: &'a dyn RandomAccessFile,
        size: u64,
        blocks: &'a StoredBlocks,
        context: Context,
    ) -> Self {
        let run_budget = size.saturating_mul(4).saturating_add(64 << 20);
        let check_budget = size.saturating_mul(16).saturating_add(64 << 20);
        Scanner { file, blocks, context, run_budget, check_budget, window: None }
    }

    /// The data blocks in a stretch, up to the first block that is something else.
    pub(crate) fn scan(&mut self, stretch: Range<u64>) -> Scanned {
        let mut scanned = Scanned::default();
        let mut at = stretch.start;
        while let Some(found) = self.next(at..stretch.end) {
            if found.content != StoredBlock::Data {
                scanned.data_end = Some(found.range.start);
                break;
            }
            at = found.range.end;
            scanned.blocks.push(found.range);
        }
        scanned
    }

    /// The properties among the blocks that lie back to back from `at` on.
    pub(crate) fn properties_behind(&mut self, mut at: u64, end: u64) -> Option<Box<TableProperties>> {
        loop {
            let found = self.run(at..end)?;
            if let StoredBlock::Properties(properties) = found.content {
                return Some(properties);
            }
            at = found.range.end;
        }
    }

    /// All blocks that start and end in a stretch, which is searched at once.
    pub(crate) fn all(&mut self, stretch: Range<u64>) -> Vec<Found> {
        let len = usize::try_from(stretch.end - stretch.start).unwrap_or(0);
        let bytes = self.read(stretch.start, len);
        let candidates = find_blocks(self.context, stretch.start, &bytes, len);
        candidates.into_iter().filter_map(|candidate| self.check(candidate)).collect()
    }

    fn next(&mut self, stretch: Range<u64>) -> Option<Found> {
        if stretch.is_empty() {
            return None;
        }
        if let Some(found) = self.run(stretch.clone()) {
            return Some(found);
        }
        let mut from = stretch.start;
        while from < stretch.end {
            let window = match self.window.take().filter(|window| window.starts.contains(&from)) {
                Some(window) => window,
                None => self.search(from..stretch.end, SMALL),
            };
            if let Some(found) = self.first_of(&window, from, stretch.end) {
                self.window = Some(window);
                return Some(found);
            }
            if !window.is_small {
                from = window.starts.end;
                self.window = Some(window);
            } else if window.starts.start == from {
                // Nothing near: farther ones, and longer ones.
                self.window = Some(self.search(from..stretch.end, LARGE));
            }
        }
        None
    }

    fn first_of(&mut self, window: &Window, from: u64, end: u64) -> Option<Found> {
        let first = window.found.partition_point(|candidate| candidate.start < from);
        let candidates = window.found.iter().skip(first).filter(|found| found.start + found.len <= end);
        candidates.copied().find_map(|candidate| self.check(candidate))
    }

    /// The block that starts where the stretch starts.
    pub(crate) fn run(&mut self, stretch: Range<u64>) -> Option<Found> {
        let mut run = Run::new(self.context, stretch.start);
        let end = stretch.end.min(stretch.start.saturating_add(self.run_budget));
        let mut at = stretch.start;
        while at < end {
            let len = if at == stretch.start { FIRST_CHUNK } else { CHUNK };
            let len = len.min(usize::try_from(end - at).unwrap_or(len));
            let chunk = self.read(at, len);
            let mut rest = &chunk[..];
            while let Some((len, taken)) = run.next_end(rest) {
                if let Some(found) = self.check(Candidate { start: stretch.start, len }) {
                    return Some(found);
                }
                rest = &rest[taken..];
            }
            at += len as u64;
        }
        self.run_budget = self.run_budget.saturating_sub(end.saturating_sub(stretch.start));
        None
    }

    fn check(&mut self, candidate: Candidate) -> Option<Found> {
        self.check_budget = self.check_budget.checked_sub(candidate.len)?;
        let content = self.blocks.classify(candidate.start, candidate.len).ok()?;
        Some(Found { range: candidate.start..candidate.start + candidate.len, content })
    }

    fn search(&mut self, stretch: Range<u64>, (starts, behind): (usize, usize)) -> Window {
        let len = usize::try_from(stretch.end - stretch.start).unwrap_or(usize::MAX);
        let bytes = self.read(stretch.start, len.min(starts + behind));
        let starts_len = starts.min(len);
        let found = find_blocks(self.context, stretch.start, &bytes, starts_len);
        Window {
            starts: stretch.start..stretch.start + starts_len as u64,
            is_small: starts == SMALL.0,
            found,
        }
    }

    /// Reads `len` bytes that lie in the file; pages that can't be read are zeros.
    fn read(&self, offset: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        if self.file.read_exact_at(offset, &mut bytes).is_err() {
            let mut at = offset;
            for page in bytes.chunks_mut(PAGE) {
                if self.file.read_exact_at(at, page).is_err() {
                    page.fill(0);
                }
                at += page.len() as u64;
            }
        }
        bytes
    }
}
