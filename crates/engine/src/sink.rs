//! [`TableSink`]: where flushes and compactions put their tables.

use crate::core::Core;
use crate::room::{Floor, Room};
use crate::table_cache::TableOpener;
use crate::{Error, Result};
use esker_base::{FileNumber, planted};
use esker_compaction::OutputSink;
use esker_manifest::TableMetadata;
use esker_sstable::{TableBuilder, TableOptions, TableSummary};
use esker_vfs::Vfs;
use std::path::Path;
use std::sync::Arc;

/// Creates numbered table files, syncs each when it is finished, and remembers what was made.
pub(crate) struct TableSink<'a> {
    pub(crate) vfs: &'a dyn Vfs,
    pub(crate) opener: &'a TableOpener,
    pub(crate) options: TableOptions,
    /// Creation time for the tables' properties, in milliseconds since 1970.
    pub(crate) created: u64,
    /// Gives a number that nobody has had.
    pub(crate) new_number: &'a dyn Fn() -> FileNumber,
    pub(crate) made: &'a mut MadeTables,
    /// Keeps to what jobs may take of the device.
    pub(crate) room: Option<(&'a Arc<Room>, Floor)>,
}

/// Tables that were made and that no manifest names yet.
#[derive(Debug, Default)]
pub(crate) struct MadeTables {
    /// All that were created, finished or not: to be removed when the job fails.
    pub(crate) numbers: Vec<FileNumber>,
    /// Those that are finished and synced.
    pub(crate) finished: Vec<Arc<TableMetadata>>,
}

impl OutputSink for TableSink<'_> {
    fn create(&mut self) -> Result<TableBuilder> {
        let number = (self.new_number)();
        let path = self.opener.path(number);
        let file = self.vfs.create_new(&path).map_err(|error| Error::io("create", &path, error))?;
        self.made.numbers.push(number);
        let file = match self.room {
            Some((room, floor)) => room.guard(file, floor),
            None => file,
        };
        Ok(TableBuilder::new(file, path, &self.options, self.opener.identity(number), self.created))
    }

    fn finish(&mut self, builder: TableBuilder) -> Result<()> {
        let finished = builder.finish()?;
        let path = self.opener.path(finished.summary.number);
        let mut file = finished.file;
        file.sync_all().map_err(|error| Error::io("sync", &path, error))?;
        file.close().map_err(|error| Error::io("close", &path, error))?;
        self.made.finished.push(Arc::new(metadata(finished.summary)));
        Ok(())
    }
}

impl MadeTables {
    /// Removes the files of a failed job, as far as that works; the rest is for the next open.
    pub(crate) fn remove_all(&self, vfs: &dyn Vfs, opener: &TableOpener) {
        for &number in &self.numbers {
            let _ = vfs.remove(&opener.path(number));
        }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.finished.iter().map(|table| table.file_size).sum()
    }
}

fn metadata(summary: TableSummary) -> TableMetadata {
    TableMetadata {
        number: summary.number,
        file_size: summary.file_size,
        tail_size: summary.tail_size,
        smallest: summary.smallest,
        largest: summary.largest,
        smallest_seq: summary.smallest_seq,
        largest_seq: summary.largest_seq,
        entries: summary.entries,
        deletes: summary.deletes,
    }
}

/// Makes the names of new files durable.
pub(crate) fn sync_dir(vfs: &dyn Vfs, dir: &Path) -> Result<()> {
    if planted::is(planted::Fault::TableNameNotSynced) {
        return Ok(());
    }
    vfs.sync_dir(dir).map_err(|error| Error::io("sync", dir, error))
}

impl Core {
    /// The creation time that tables get: none when a seed asks for the same files in every run.
    pub(crate) fn created_millis(&self) -> u64 {
        if self.options.seed.is_some() { 0 } else { self.components.clock.unix_millis() }
    }

    /// Runs `work` with a sink that adds to `made` and leaves `floor` free.
    pub(crate) fn with_sink<R>(
        &self,
        made: &mut MadeTables,
        floor: Floor,
        work: impl FnOnce(&mut TableSink<'_>) -> R,
    ) -> R {
        let new_number = || self.new_file_number();
        work(&mut TableSink {
            vfs: self.components.vfs.as_ref(),
            opener: &self.tables,
            options: self.options.table_options(),
            created: self.created_millis(),
            new_number: &new_number,
            made,
            room: Some((&self.room, floor)),
        })
    }
}
