//! [`SalvageReport`]: what a salvage kept, and what is lost.

use crate::fault::Fault;
use crate::text::{Form, Safe, Shown};
use esker_base::{FileNumber, InternalKey};
use serde::Serialize;
use std::fmt;

/// What [`salvage`](crate::salvage()) did. Lengths and offsets are in bytes.
#[derive(Clone, Debug, Default, Serialize)]
pub struct SalvageReport {
    /// The damaged table.
    pub file: String,
    /// Its length.
    pub size: u64,
    /// The new table.
    pub out: String,
    /// Its length.
    pub out_size: u64,
    /// The store of both, in hexadecimal digits.
    pub store_id: String,
    /// The number of both.
    pub number: u64,
    /// How blocks were found: `index`, `scan`, or `index and scan`.
    pub found_by: &'static str,
    /// Data blocks that were kept.
    pub blocks: u64,
    /// Entries that were kept.
    pub entries: u64,
    /// Entries that there were, when the properties say that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entries_expected: Option<u64>,
    /// The hash seed of the new table in hexadecimal digits, when it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hash_seed: Option<String>,
    /// Whether the new table has a filter.
    pub has_filter: bool,
    /// What is lost, in the order of the file.
    pub gaps: Vec<LostRange>,
    /// What is wrong with parts of the damaged table that hold no entries.
    pub notes: Vec<String>,
    /// One for each gap, and what else says that entries are missing. The tool prints them at the end of its document.
    #[serde(skip)]
    pub faults: Vec<Fault>,
}

/// A stretch of the damaged table whose entries are lost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LostRange {
    /// Where it starts.
    pub offset: u64,
    /// How long it is; 0 when only the end of the table is missing.
    pub length: u64,
    /// How many data blocks were in it, when the index says that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blocks: Option<u64>,
    /// The last key that was kept before it; `None` when there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<KeyBound>,
    /// The first key that was kept behind it; `None` when there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<KeyBound>,
    /// What is wrong at its start.
    pub what: String,
}

/// A key next to a gap.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KeyBound {
    /// The user key as it is shown.
    pub key: String,
    /// The sequence number.
    pub seq: u64,
    #[serde(skip)]
    quoted: String,
}

impl KeyBound {
    pub(crate) fn new(key: &InternalKey, form: Form) -> Self {
        let shown = Shown::new(&key.user_key, form);
        let quoted = shown.to_string();
        let plain = match form {
            Form::Hex => quoted.as_str(),
            _ => quoted.get(1..quoted.len().saturating_sub(1)).unwrap_or_default(),
        };
        KeyBound { key: plain.to_owned(), seq: key.seq, quoted }
    }
}

impl fmt::Display for KeyBound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} @{}", self.quoted, self.seq)
    }
}

impl fmt::Display for LostRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "lost: {} bytes", self.length)?;
        if let Some(blocks) = self.blocks {
            write!(f, ", {blocks} blocks")?;
        }
        match &self.after {
            Some(key) => write!(f, ", keys after {key}")?,
            None => f.write_str(", keys from the first")?,
        }
        match &self.before {
            Some(key) => write!(f, " and before {key}")?,
            None => f.write_str(" to the last")?,
        }
        write!(f, ": {}", self.what)
    }
}

impl fmt::Display for SalvageReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = FileNumber(self.number);
        writeln!(f, "{}: table {number} of store {}, {} bytes", Safe(&self.file), self.store_id, self.size)?;
        self.notes.iter().try_for_each(|note| writeln!(f, "  {}", Safe(note)))?;
        self.faults.iter().try_for_each(|fault| writeln!(f, "  {fault}"))?;
        let filter = match (self.has_filter, &self.hash_seed) {
            (true, _) => "",
            (false, Some(_)) => ", no filter",
            (false, None) => ", no filter, since the hash seed is not known",
        };
        write!(f, "{}: {} entries", Safe(&self.out), self.entries)?;
        if let Some(expected) = self.entries_expected {
            write!(f, " of {expected}")?;
        }
        writeln!(
            f,
            ", {} blocks, found by {}; {} gaps; {} bytes{filter}",
            self.blocks,
            self.found_by,
            self.gaps.len(),
            self.out_size
        )
    }
}
