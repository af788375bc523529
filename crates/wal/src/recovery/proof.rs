//! Looks for a proof that what can't be read was durable: all bytes behind the stop, all later segments, the manifest.

#![deny(clippy::indexing_slicing, clippy::unwrap_used)]

use std::fmt;
use std::path::PathBuf;

use esker_base::{Error, Result, SequenceNumber};
use esker_vfs::Vfs;

use super::RecoverOptions;
use super::chain::{Chain, Link};
use super::replay::Stop;
use crate::header::{HEADER_LEN, LogKind};
use crate::reader::LogReader;
use crate::record::RecordContext;

/// Something that says that the log was durable up to a sequence number.
#[derive(Clone, Debug)]
pub(super) struct Proof {
    pub(super) durable: SequenceNumber,
    /// File and offset of the record that says so; `None` for the manifest.
    record: Option<(PathBuf, u64)>,
}

impl fmt::Display for Proof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.record {
            Some((file, offset)) => {
                write!(f, "the record at {} @ {offset} says {} was synced", file.display(), self.durable)
            }
            None => write!(f, "the manifest says {} was synced", self.durable),
        }
    }
}

/// The first proof that the sequence number at which the replay stopped was durable.
pub(super) fn find(
    vfs: &dyn Vfs,
    options: &RecoverOptions,
    chain: &Chain,
    stop: &Stop,
) -> Result<Option<Proof>> {
    if options.durable >= stop.next {
        return Ok(Some(Proof { durable: options.durable, record: None }));
    }
    for (index, link) in chain.links.iter().enumerate().skip(stop.link) {
        if link.is_missing() {
            continue;
        }
        let from = if index == stop.link { stop.offset.max(HEADER_LEN) } else { HEADER_LEN };
        if let Some(proof) = search_segment(vfs, options, link, from, stop.next)? {
            return Ok(Some(proof));
        }
    }
    Ok(None)
}

/// Looks at every intact record of a segment from offset `from` on, whatever lies between them.
fn search_segment(
    vfs: &dyn Vfs,
    options: &RecoverOptions,
    link: &Link,
    from: u64,
    next: SequenceNumber,
) -> Result<Option<Proof>> {
    let file = vfs.open(&link.path).map_err(|error| Error::io("open", &link.path, error))?;
    let context = RecordContext::new(LogKind::Wal, options.store_id, link.number);
    let mut reader = LogReader::new(file, &link.path, context)?;
    reader.start_at(from);
    loop {
        while let Some(record) = reader.next_record()? {
            if record.fields.durable >= next {
                let record_at = Some((link.path.clone(), record.offset));
                return Ok(Some(Proof { durable: record.fields.durable, record: record_at }));
            }
        }
        if reader.resync()?.is_none() {
            return Ok(None);
        }
    }
}
