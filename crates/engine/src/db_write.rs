//! The writes of [`Db`].

use crate::commit::Request;
use crate::core::Core;
use crate::{Commit, Db, Durability, Error, ErrorKind, Result, WriteBatch, WriteOptions};
use esker_base::coding::{put_bytes, varint_len};
use esker_base::{MAX_KEY_LEN, MAX_VALUE_LEN, ValueKind};
use std::cell::RefCell;
use std::sync::Arc;

fn check_batch(batch: &WriteBatch) -> Result<()> {
    batch.check()?;
    if batch.is_plain() {
        Ok(())
    } else {
        Err(Error::invalid_argument("a batch may hold puts and deletes in the default keyspace only"))
    }
}

/// The default settings of a write.
const DEFAULT: WriteOptions = WriteOptions::new();

impl Db {
    /// Sets the value of a key.
    ///
    /// # Errors
    ///
    /// `TooLarge`, `Closed`, and `NoSpace` while little is free: nothing was written.
    /// [`ReadOnly`](crate::ErrorKind::ReadOnly) after an earlier background error. `Io` and `NoSpace`: the log refused it,
    /// and it is not there.
    /// [`WriteUnknown`](crate::ErrorKind::WriteUnknown): whether it is there shows at the next open. When only its sync has
    /// failed, reads show it already, and [`resume`](Db::resume) makes it durable.
    #[doc(alias = "insert")]
    #[doc(alias = "set")]
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.put_with(key, value, &DEFAULT)
    }

    /// [`put`](Db::put) with settings of its own.
    ///
    /// # Errors
    ///
    /// As [`put`](Db::put).
    pub fn put_with(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        options: &WriteOptions,
    ) -> Result<()> {
        self.write_one(ValueKind::Put, key.as_ref(), value.as_ref(), options)
    }

    /// Removes a key. It need not be there.
    ///
    /// # Errors
    ///
    /// As [`put`](Db::put).
    #[doc(alias = "remove")]
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<()> {
        self.delete_with(key, &DEFAULT)
    }

    /// [`delete`](Db::delete) with settings of its own.
    ///
    /// # Errors
    ///
    /// As [`put`](Db::put).
    pub fn delete_with(&self, key: impl AsRef<[u8]>, options: &WriteOptions) -> Result<()> {
        self.write_one(ValueKind::Delete, key.as_ref(), &[], options)
    }

    /// Applies all operations of a batch, or none. Readers never see a part of it. An empty batch is fine.
    ///
    /// # Errors
    ///
    /// As [`put`](Db::put), for the whole batch.
    pub fn write(&self, batch: WriteBatch) -> Result<()> {
        self.write_with(batch, &DEFAULT)
    }

    /// [`write`](Db::write) with settings of its own. An empty batch with [`Durability::Sync`] makes all earlier writes
    /// durable.
    ///
    /// # Errors
    ///
    /// As [`put`](Db::put), for the whole batch.
    pub fn write_with(&self, batch: WriteBatch, options: &WriteOptions) -> Result<()> {
        check_batch(&batch)?;
        self.commit_and_wait(Arc::from(batch.encoded()), batch.len(), options)
    }

    /// [`write_with`](Db::write_with) for those who don't want to wait for the device: returns as soon as readers see the
    /// batch, and the [`Commit`] tells when it is durable. With [`Durability::Sync`] the sync begins at once, in the
    /// background; with less, when [`Commit::wait_synced`] or [`Commit::on_synced`] asks for it.
    ///
    /// # Errors
    ///
    /// As [`put`](Db::put), for the whole batch: nothing of it is visible then.
    pub fn submit(&self, batch: WriteBatch, options: &WriteOptions) -> Result<Commit> {
        check_batch(&batch)?;
        let (seq, sync) = self.commit(Arc::from(batch.encoded()), batch.len(), options)?;
        if sync {
            self.handle.queue.want(seq);
            self.handle.serve_commits();
        }
        Ok(Commit::new(&self.handle, seq))
    }

    fn write_one(&self, kind: ValueKind, key: &[u8], value: &[u8], options: &WriteOptions) -> Result<()> {
        thread_local! {
            static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
        }
        /// A larger buffer is not kept.
        const SCRATCH_MAX: usize = 64 << 10;
        if key.len() > MAX_KEY_LEN {
            return Err(Error::too_large("a key", key.len() as u64, MAX_KEY_LEN as u64));
        }
        if value.len() > MAX_VALUE_LEN {
            return Err(Error::too_large("a value", value.len() as u64, MAX_VALUE_LEN as u64));
        }
        let payload = SCRATCH.with_borrow_mut(|scratch| {
            scratch.clear();
            scratch.reserve(1 + varint_len(u64::MAX) * 2 + key.len() + value.len());
            scratch.push(kind as u8);
            put_bytes(scratch, key);
            if kind == ValueKind::Put {
                put_bytes(scratch, value);
            }
            let payload = Arc::from(scratch.as_slice());
            if scratch.capacity() > SCRATCH_MAX {
                *scratch = Vec::new();
            }
            payload
        });
        self.commit_and_wait(payload, 1, options)
    }

    /// Commits, and returns the sequence number that is to be synced, and whether that was asked for.
    fn commit(&self, payload: Arc<[u8]>, count: u32, options: &WriteOptions) -> Result<(u64, bool)> {
        let core: &Core = &self.handle;
        core.check_writable()?;
        let durability = options.durability.unwrap_or(core.options.durability);
        let bytes = payload.len();
        let request = Request { payload, count, durability, wal: options.wal };
        // A sync alone needs no room, and must not wait for it.
        let seq = if count == 0 {
            core.visible.load()
        } else if options.no_stall {
            core.check_room(&request, false)?;
            core.admit_at_once(bytes)?;
            core.commit(&request, false)?
        } else {
            core.check_room(&request, true)?;
            core.admit_writer(bytes)?;
            core.commit(&request, true)?
        };
        Ok((seq, durability == Durability::Sync))
    }

    fn commit_and_wait(&self, payload: Arc<[u8]>, count: u32, options: &WriteOptions) -> Result<()> {
        let (seq, sync) = self.commit(payload, count, options)?;
        let core: &Core = &self.handle;
        if !sync {
            return Ok(());
        }
        core.queue.wait(seq, core).map_err(|error| match error.kind() {
            // The log has the batch already.
            ErrorKind::Closed if count > 0 => Error::write_unknown(error),
            _ => error,
        })
    }
}
