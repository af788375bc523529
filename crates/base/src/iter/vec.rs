//! An iterator over entries held in a vector: for tests, and for small sorted sets.

use super::InternalIterator;
use crate::{InternalKey, InternalKeyRef, Result, Slice};
use std::sync::Arc;

/// Iterates over entries that are already sorted.
#[derive(Clone, Debug)]
pub struct VecIterator {
    entries: Arc<[(InternalKey, Slice)]>,
    /// Index of the entry here; `entries.len()` when there is none.
    at: usize,
}

impl VecIterator {
    /// An iterator over `entries`.
    ///
    /// # Panics
    ///
    /// When they are not strictly ascending.
    pub fn new(entries: impl Into<Arc<[(InternalKey, Slice)]>>) -> Self {
        let entries = entries.into();
        assert!(entries.is_sorted_by(|a, b| a.0 < b.0), "entries must ascend");
        VecIterator { at: entries.len(), entries }
    }
}

impl InternalIterator for VecIterator {
    fn seek_to_first(&mut self) -> Result<()> {
        self.at = 0;
        Ok(())
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.at = self.entries.len().checked_sub(1).unwrap_or(self.entries.len());
        Ok(())
    }

    fn seek(&mut self, target: InternalKeyRef<'_>) -> Result<()> {
        self.at = self.entries.partition_point(|(key, _)| key.as_ref() < target);
        Ok(())
    }

    fn next(&mut self) -> Result<()> {
        self.at = self.entries.len().min(self.at + 1);
        Ok(())
    }

    fn prev(&mut self) -> Result<()> {
        if self.valid() {
            self.at = self.at.checked_sub(1).unwrap_or(self.entries.len());
        }
        Ok(())
    }

    #[inline]
    fn valid(&self) -> bool {
        self.at < self.entries.len()
    }

    #[inline]
    fn key(&self) -> InternalKeyRef<'_> {
        self.entries[self.at].0.as_ref()
    }

    #[inline]
    fn value(&self) -> &[u8] {
        &self.entries[self.at].1
    }

    fn value_slice(&self) -> Slice {
        self.entries[self.at].1.clone()
    }
}
