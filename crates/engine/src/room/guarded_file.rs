//! [`GuardedFile`]: a table that keeps to the room that there is.

use super::{Floor, Room};
use esker_vfs::{FileSync, WritableFile};
use std::io;
use std::sync::Arc;

/// A table that a job writes.
#[derive(Debug)]
pub(super) struct GuardedFile {
    pub(super) file: Box<dyn WritableFile>,
    pub(super) room: Arc<Room>,
    pub(super) floor: Floor,
}

impl WritableFile for GuardedFile {
    fn append(&mut self, data: &[u8]) -> io::Result<()> {
        self.room.take(data.len() as u64, self.floor)?;
        self.file.append(data)
    }

    fn sync_data(&mut self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn sync_all(&mut self) -> io::Result<()> {
        self.file.sync_all()
    }

    fn len(&self) -> u64 {
        self.file.len()
    }

    fn truncate(&mut self, len: u64) -> io::Result<()> {
        self.file.truncate(len)
    }

    fn preallocate(&mut self, len: u64) -> io::Result<()> {
        self.file.preallocate(len)
    }

    fn syncer(&self) -> Arc<dyn FileSync> {
        self.file.syncer()
    }

    fn close(self: Box<Self>) -> io::Result<()> {
        self.file.close()
    }
}
