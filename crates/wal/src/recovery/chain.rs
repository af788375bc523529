//! [`Chain`]: which segments make up the log.
//!
//! Every header names its predecessor. So the walk starts at the newest segment with an intact header and goes back until
//! a segment starts at or before what is needed. Segments that the walk jumps over were dropped by an earlier recovery,
//! which then crashed before it could delete them: they must not come back (W8).

#![deny(clippy::indexing_slicing, clippy::unwrap_used)]

use std::path::PathBuf;

use esker_base::{Error, FileKind, FileNumber, Result, planted};
use esker_vfs::Vfs;

use super::RecoverOptions;
use crate::header::{HeaderFault, LogKind, SegmentHeader};
use crate::reader::LogReader;

/// A segment of the log, or the place of one.
#[derive(Clone, Debug)]
pub(super) struct Link {
    pub(super) number: FileNumber,
    pub(super) path: PathBuf,
    pub(super) header: Result<SegmentHeader, LinkFault>,
}

/// Why a link has no header.
#[derive(Clone, Copy, Debug)]
pub(super) enum LinkFault {
    /// Its successor names it, but there is no such file.
    Missing,
    /// It can't be read.
    Header(HeaderFault),
}

impl Link {
    pub(super) fn is_missing(&self) -> bool {
        matches!(self.header, Err(LinkFault::Missing))
    }
}

/// The segments of the log, oldest first.
#[derive(Debug)]
pub(super) struct Chain {
    pub(super) links: Vec<Link>,
    /// Segments that are not part of it.
    pub(super) obsolete: Vec<FileNumber>,
}

impl Chain {
    /// Reads all headers and finds the chain. A failed read, and a header of another version, are errors.
    pub(super) fn read(vfs: &dyn Vfs, options: &RecoverOptions) -> Result<Chain> {
        let mut numbers = options.segments.clone();
        numbers.sort_unstable();
        numbers.dedup();
        let present =
            numbers.iter().map(|&number| read_link(vfs, options, number)).collect::<Result<Vec<_>>>()?;
        Ok(Self::find(present, options))
    }

    /// Picks the chain from the segments that are there, in ascending order.
    fn find(present: Vec<Link>, options: &RecoverOptions) -> Chain {
        // Segments behind the newest intact header: their own headers are torn or damaged, but records may follow.
        let newest = present.iter().rposition(|link| link.header.is_ok());
        let tail = newest.map_or(0, |index| index + 1);
        let mut links: Vec<Link> = present.iter().skip(tail).rev().cloned().collect();
        let mut cursor = newest;
        while let Some(link) = cursor.and_then(|index| present.get(index)) {
            links.push(link.clone());
            let Ok(header) = &link.header else { break };
            let previous = header.previous;
            if previous.last_sequence < options.first_needed || previous.number.0 == 0 {
                break;
            }
            let place = present.binary_search_by_key(&previous.number, |link| link.number);
            cursor = match place {
                Ok(index) if present.get(index).is_some_and(|link| link.header.is_ok()) => Some(index),
                Ok(index) => {
                    links.extend(present.get(index).cloned());
                    newest_intact(&present, index)
                }
                Err(index) => {
                    links.push(missing_link(options, previous.number));
                    newest_intact(&present, index)
                }
            };
        }
        if planted::is(planted::Fault::LastSegmentOnly) {
            links.truncate(1);
        }
        links.reverse();
        let is_linked = |number| links.iter().any(|link| link.number == number);
        let obsolete = present.iter().map(|link| link.number).filter(|&number| !is_linked(number)).collect();
        Chain { links, obsolete }
    }
}

/// The newest segment with an intact header before `end`: what counts when a segment in between is lost.
fn newest_intact(present: &[Link], end: usize) -> Option<usize> {
    present.iter().take(end).rposition(|link| link.header.is_ok())
}

fn missing_link(options: &RecoverOptions, number: FileNumber) -> Link {
    let path = FileKind::Wal.path(&options.dir, number);
    Link { number, path, header: Err(LinkFault::Missing) }
}

fn read_link(vfs: &dyn Vfs, options: &RecoverOptions, number: FileNumber) -> Result<Link> {
    let path = FileKind::Wal.path(&options.dir, number);
    let file = vfs.open(&path).map_err(|error| Error::io("open", &path, error))?;
    let header =
        LogReader::read_header(&*file, &path)?.and_then(|header| own_header(header, options, number));
    if let Err(fault @ HeaderFault::Version(_)) = header {
        return Err(fault.into_error(&path));
    }
    Ok(Link { number, path, header: header.map_err(LinkFault::Header) })
}

fn own_header(
    header: SegmentHeader,
    options: &RecoverOptions,
    number: FileNumber,
) -> Result<SegmentHeader, HeaderFault> {
    if header.kind != LogKind::Wal {
        Err(HeaderFault::Foreign("it is of another kind of log"))
    } else if header.store_id != options.store_id {
        Err(HeaderFault::Foreign("it has another store id"))
    } else if header.number != number {
        Err(HeaderFault::Foreign("it has another segment number than the file name"))
    } else {
        Ok(header)
    }
}
