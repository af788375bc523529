//! [`recover`]: replays a row of segments, and tells a torn tail from damage (rules W1, W3, W4, W5 and W7).
//!
//! A crash may lose what was not synced, in part and in any order; so a log that can't be read from some sequence
//! number `n` on is no news by itself. But every record says up to which number the log was known to be durable when it
//! was written, and so does the manifest. If anything says that `n` was durable, then something that was promised is
//! damaged: `Corruption`. Else it is a lost tail: what is before `n` counts, all the rest is dropped, later segments
//! included, since a history with a hole is worse than a shorter one.
//!
//! One limit remains: damage to the very last synced records, with nothing behind them that says so, looks like a torn
//! tail. The durable sequence in the manifest, written at each flush and at a clean close, keeps that window small.
//!
//! | module | what it is |
//! |---|---|
//! | `chain` | which segments make up the log, by what their headers say about their predecessors |
//! | `replay` | the records, in order, up to the first that can't be read |
//! | `proof` | whether anything says that the unreadable part was durable |

#![deny(clippy::indexing_slicing, clippy::unwrap_used)]

mod chain;
mod proof;
mod replay;

use std::path::{Path, PathBuf};

use esker_base::{Error, FileNumber, Result, SequenceNumber};
use esker_vfs::Vfs;

use self::chain::Chain;
use self::proof::Proof;
use self::replay::{Replay, Stop};
use crate::header::SegmentEnd;
use crate::record::Record;

/// What to do with a log that can't be read to its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RecoveryMode {
    /// Drop a torn tail; refuse damage (W3).
    #[default]
    Strict,
    /// Stop at the first thing that can't be read, whatever it is. Loses promised writes when there is damage.
    PointInTime,
}

/// What [`recover`] has to know.
#[derive(Clone, Debug)]
pub struct RecoverOptions {
    /// The directory of the segments.
    pub dir: PathBuf,
    /// The store they belong to.
    pub store_id: u128,
    /// The numbers of the segments that the directory has, in any order, from the manifest's log number on. Older ones
    /// must be left out: a power loss after their removal may bring some of them back and others not, and then what an
    /// earlier recovery dropped could pass for the log. Others that are not needed do no harm.
    pub segments: Vec<FileNumber>,
    /// The durable sequence that the manifest recorded, as [`LogWriter`](crate::LogWriter) gave it. *Not* the last sequence
    /// of a flushed table, which says nothing about the log: a log that a power loss tore below it would be refused.
    pub durable: SequenceNumber,
    /// The first sequence number that some keyspace's tables don't have (W7). Older records are not handed out.
    pub first_needed: SequenceNumber,
    /// The largest sequence number that a writer gives out: a larger one is damage, whatever its checksum says.
    pub last_max: SequenceNumber,
    /// What to do at damage.
    pub mode: RecoveryMode,
}

/// A segment in a [`Dropped`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogSegment {
    /// Its number.
    pub number: FileNumber,
    /// Its file.
    pub path: PathBuf,
    /// Length of the file in bytes.
    pub len: u64,
}

/// The part of the log that a recovery left out.
///
/// The files may go, or be renamed to `*.lost` after a point-in-time recovery, only when the manifest no longer needs
/// the records before `offset` (W8).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dropped {
    /// The file that can't be read on, or that is missing.
    pub file: PathBuf,
    /// From where in it.
    pub offset: u64,
    /// What is there instead of the next record.
    pub what: String,
    /// Bytes left out, in all files.
    pub bytes: u64,
    /// The files that bytes were left out of. The first one may hold replayed records before `offset`.
    pub segments: Vec<LogSegment>,
    /// The highest sequence number that is known to have been promised and is lost. Only in a point-in-time recovery.
    pub promised: Option<SequenceNumber>,
}

/// What [`recover`] found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogReplay {
    /// Where the log ends: the `previous` of the next segment's header. `end.last_sequence` is the last sequence number
    /// of the log. When tables hold later ones (written with the log off), the next segment has to start with a skip
    /// record from `end.last_sequence + 1` on.
    pub end: SegmentEnd,
    /// Records handed out.
    pub records: u64,
    /// Bytes of those records, framing included.
    pub bytes: u64,
    /// The highest number known to have been durable.
    pub durable: SequenceNumber,
    /// What was left out, if anything.
    pub dropped: Option<Dropped>,
    /// Segments that do not belong to the log any more: older than what is needed, or dropped by an earlier recovery.
    pub obsolete: Vec<FileNumber>,
}

/// Replays the log: hands every record from `first_needed` on to `visit`, in order, one at a time.
///
/// Skip records are handed out too: their numbers are not in the log, for instance because they were written with the
/// log off, and it is for the visitor to raise its last sequence number. Batches are known to be well formed, with as
/// many operations as the record says. Changes nothing on disk, so it can be repeated.
///
/// # Errors
///
/// `Corruption` (not in point-in-time mode) when something that was promised, or that no crash can cause, can't be read;
/// `Io` for a failed read, in every mode; `UnsupportedFormat` for a segment or record of a newer version; whatever
/// `visit` returns. The visitor may have seen records before an error.
pub fn recover(
    vfs: &dyn Vfs,
    options: &RecoverOptions,
    mut visit: impl FnMut(Record<'_>) -> Result<()>,
) -> Result<LogReplay> {
    let chain = Chain::read(vfs, options)?;
    let mut replay = Replay::new(vfs, options, &chain);
    let stop = replay.run(&mut visit)?;
    let mut found = LogReplay {
        end: replay.end,
        records: replay.records,
        bytes: replay.bytes,
        durable: replay.durable.max(options.durable),
        dropped: None,
        obsolete: chain.obsolete.clone(),
    };
    let Some(stop) = stop else { return Ok(found) };
    let proof = match proof::find(vfs, options, &chain, &stop) {
        // Whoever asked for as much as can be had gets it, also from a file that was built to defeat the search.
        Err(error) if error.is_corruption() && options.mode == RecoveryMode::PointInTime => None,
        proof => proof?,
    };
    if options.mode == RecoveryMode::Strict && (stop.certain || proof.is_some()) {
        return Err(refusal(&stop, proof.as_ref()));
    }
    found.dropped = dropped(vfs, &chain, &stop, proof)?;
    Ok(found)
}

#[cold]
fn refusal(stop: &Stop, proof: Option<&Proof>) -> Error {
    let what = match proof {
        Some(proof) => format!("{} (sequence {} is lost, but {proof})", stop.what, stop.next),
        None => stop.what.clone(),
    };
    Error::corruption(&stop.file, stop.offset, what)
}

/// The report of what is left out; `None` when that is not a byte and nothing was promised.
fn dropped(vfs: &dyn Vfs, chain: &Chain, stop: &Stop, proof: Option<Proof>) -> Result<Option<Dropped>> {
    let mut segments = Vec::new();
    let mut bytes = 0;
    for (index, link) in chain.links.iter().enumerate().skip(stop.link) {
        if link.is_missing() {
            continue;
        }
        let len = file_len(vfs, &link.path)?;
        let kept = if index == stop.link { stop.offset.min(len) } else { 0 };
        if len > kept {
            bytes += len - kept;
            segments.push(LogSegment { number: link.number, path: link.path.clone(), len });
        }
    }
    if bytes == 0 && proof.is_none() {
        return Ok(None);
    }
    let (file, offset, what) = (stop.file.clone(), stop.offset, stop.what.clone());
    Ok(Some(Dropped { file, offset, what, bytes, segments, promised: proof.map(|proof| proof.durable) }))
}

fn file_len(vfs: &dyn Vfs, path: &Path) -> Result<u64> {
    let file = vfs.open(path).map_err(|error| Error::io("open", path, error))?;
    file.len().map_err(|error| Error::io("read the length of", path, error))
}
