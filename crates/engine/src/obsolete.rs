//! The one place that deletes files of an open database, and frees flushed memtables.
//!
//! A file gets here only after the manifest that no longer needs it was synced. Tables wait until no picture shows
//! them. In an error state nothing is deleted: the manifest on the disk may be an older one than we think.

use crate::core::Core;
use crate::table_cache::TableHandle;
use esker_base::{FileKind, FileNumber, planted, points};
use std::sync::Arc;

impl Core {
    /// Removes what nobody reads any more. Called in the background, without a lock.
    pub(crate) fn sweep(&self) {
        if !self.has_leftovers() || self.has_failed() || points::log_is_held() {
            return;
        }
        let (tables, files, memtables) = {
            let mut state = self.state.lock();
            // The list holds one reference; while it is the only one, no picture can get at the table again.
            let (gone, kept): (Vec<_>, Vec<_>) =
                state.obsolete_tables.drain(..).partition(|table| Arc::strong_count(table) == 1);
            state.obsolete_tables = kept;
            let (freed, held): (Vec<_>, Vec<_>) =
                state.retired.drain(..).partition(|generation| Arc::strong_count(generation) == 1);
            state.retired = held;
            let files = std::mem::take(&mut state.obsolete_files);
            self.set_leftovers(!(state.obsolete_tables.is_empty() && state.retired.is_empty()));
            (gone, files, freed)
        };
        if files.iter().any(|(kind, _)| *kind == FileKind::Wal) {
            let reversed = planted::is(planted::Fault::LocksReversed).then(|| self.state.lock());
            let mut log = self.log.lock();
            drop(reversed);
            self.drop_flushed_segments(&mut log);
        }
        points::here(points::Point::Obsolete);
        let retry_tables: Vec<Arc<TableHandle>> =
            tables.into_iter().filter(|table| !self.remove(FileKind::Table, table.meta.number)).collect();
        let retry_files: Vec<(FileKind, FileNumber)> =
            files.into_iter().filter(|&(kind, number)| !self.remove(kind, number)).collect();
        if !(retry_tables.is_empty() && retry_files.is_empty()) {
            let mut state = self.state.lock();
            state.obsolete_tables.extend(retry_tables);
            state.obsolete_files.extend(retry_files);
            self.set_leftovers(true);
        }
        drop(memtables);
    }

    /// Whether the file is gone. A failure is no error: it is tried again later, and by the next open.
    fn remove(&self, kind: FileKind, number: FileNumber) -> bool {
        match self.components.vfs.remove(&self.file_path(kind, number)) {
            Ok(()) => true,
            Err(error) => error.kind() == std::io::ErrorKind::NotFound,
        }
    }
}
