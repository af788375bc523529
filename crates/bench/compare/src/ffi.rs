//! The C interfaces of RocksDB and LevelDB, and the one unsafe call of LMDB's binding, behind safe types. The only
//! module with unsafe code.
//!
//! RocksDB's C interface grew out of LevelDB's: most functions are the same but for the prefix, so [`c_store`] declares
//! and wraps them once for both. What differs is behind [`Flavour`] in `rocks` and `level`.
//!
//! Invariants: handles are owned by one Rust value and freed once, in its `Drop`; iterators and readers borrow their
//! store, so they end before it; pointers that the library hands out are read before the next call on their handle.
#![allow(unsafe_code)]

/// Declares the functions that both libraries have under one prefix, and the safe types over them. The caller's module
/// defines `open`, `get` and whatever else its library has alone.
#[cfg(any(feature = "rocksdb", feature = "leveldb"))]
macro_rules! c_store {
    ($prefix:literal, $note:expr) => {
        use crate::engine::{Change, Direction, Engine, Reader, Result, Settings, Settle};
        use esker_bench::load::Inside;
        use std::ffi::{CStr, CString, c_char, c_int, c_uchar, c_void};
        use std::ptr;

        /// A handle of the library: opaque.
        type Handle = *mut c_void;

        unsafe extern "C" {
            #[link_name = concat!($prefix, "_close")]
            fn close(db: Handle);
            #[link_name = concat!($prefix, "_put")]
            fn put(
                db: Handle,
                options: Handle,
                key: *const c_char,
                key_len: usize,
                value: *const c_char,
                value_len: usize,
                error: *mut *mut c_char,
            );
            #[link_name = concat!($prefix, "_delete")]
            fn delete(db: Handle, options: Handle, key: *const c_char, len: usize, error: *mut *mut c_char);
            #[link_name = concat!($prefix, "_write")]
            fn write(db: Handle, options: Handle, batch: Handle, error: *mut *mut c_char);
            #[link_name = concat!($prefix, "_compact_range")]
            fn compact_range(
                db: Handle,
                from: *const c_char,
                from_len: usize,
                to: *const c_char,
                to_len: usize,
            );
            #[link_name = concat!($prefix, "_free")]
            fn free(pointer: *mut c_void);

            #[link_name = concat!($prefix, "_property_value")]
            fn property_value(db: Handle, name: *const c_char) -> *mut c_char;

            #[link_name = concat!($prefix, "_options_create")]
            fn options_create() -> Handle;
            #[link_name = concat!($prefix, "_options_destroy")]
            fn options_destroy(options: Handle);
            #[link_name = concat!($prefix, "_options_set_create_if_missing")]
            fn options_set_create_if_missing(options: Handle, on: c_uchar);
            #[link_name = concat!($prefix, "_options_set_write_buffer_size")]
            fn options_set_write_buffer_size(options: Handle, bytes: usize);
            #[link_name = concat!($prefix, "_options_set_compression")]
            fn options_set_compression(options: Handle, kind: c_int);
            #[link_name = concat!($prefix, "_cache_create_lru")]
            fn cache_create_lru(bytes: usize) -> Handle;
            #[link_name = concat!($prefix, "_cache_destroy")]
            fn cache_destroy(cache: Handle);

            #[link_name = concat!($prefix, "_readoptions_create")]
            fn readoptions_create() -> Handle;
            #[link_name = concat!($prefix, "_readoptions_destroy")]
            fn readoptions_destroy(options: Handle);
            #[link_name = concat!($prefix, "_writeoptions_create")]
            fn writeoptions_create() -> Handle;
            #[link_name = concat!($prefix, "_writeoptions_destroy")]
            fn writeoptions_destroy(options: Handle);
            #[link_name = concat!($prefix, "_writeoptions_set_sync")]
            fn writeoptions_set_sync(options: Handle, on: c_uchar);

            #[link_name = concat!($prefix, "_writebatch_create")]
            fn writebatch_create() -> Handle;
            #[link_name = concat!($prefix, "_writebatch_destroy")]
            fn writebatch_destroy(batch: Handle);
            #[link_name = concat!($prefix, "_writebatch_put")]
            fn writebatch_put(
                batch: Handle,
                key: *const c_char,
                key_len: usize,
                value: *const c_char,
                value_len: usize,
            );

            #[link_name = concat!($prefix, "_writebatch_delete")]
            fn writebatch_delete(batch: Handle, key: *const c_char, key_len: usize);

            #[link_name = concat!($prefix, "_create_iterator")]
            fn create_iterator(db: Handle, options: Handle) -> Handle;
            #[link_name = concat!($prefix, "_iter_destroy")]
            fn iter_destroy(iter: Handle);
            #[link_name = concat!($prefix, "_iter_valid")]
            fn iter_valid(iter: Handle) -> c_uchar;
            #[link_name = concat!($prefix, "_iter_seek_to_first")]
            fn iter_seek_to_first(iter: Handle);
            #[link_name = concat!($prefix, "_iter_seek_to_last")]
            fn iter_seek_to_last(iter: Handle);
            #[link_name = concat!($prefix, "_iter_seek")]
            fn iter_seek(iter: Handle, key: *const c_char, len: usize);
            #[link_name = concat!($prefix, "_iter_next")]
            fn iter_next(iter: Handle);
            #[link_name = concat!($prefix, "_iter_prev")]
            fn iter_prev(iter: Handle);
            #[link_name = concat!($prefix, "_iter_key")]
            fn iter_key(iter: Handle, len: *mut usize) -> *const c_char;
            #[link_name = concat!($prefix, "_iter_value")]
            fn iter_value(iter: Handle, len: *mut usize) -> *const c_char;
            #[link_name = concat!($prefix, "_iter_get_error")]
            fn iter_get_error(iter: Handle, error: *mut *mut c_char);
        }

        /// Turns the error string of a call into an error, and frees it.
        fn checked(error: *mut c_char) -> Result<()> {
            if error.is_null() {
                return Ok(());
            }
            // SAFETY: the library set `error` to a string of its own that ends in a zero, ours to free.
            let text = unsafe {
                let text = CStr::from_ptr(error).to_string_lossy().into_owned();
                free(error.cast());
                text
            };
            Err(text.into())
        }

        /// The bytes at a pointer and length that the library returned.
        ///
        /// # Safety
        ///
        /// `pointer` holds `len` bytes that stay as they are while the slice is used.
        unsafe fn bytes<'a>(pointer: *const c_char, len: usize) -> &'a [u8] {
            if len == 0 {
                return &[];
            }
            // SAFETY: promised by the caller.
            unsafe { std::slice::from_raw_parts(pointer.cast(), len) }
        }

        /// An open database.
        pub(crate) struct Store {
            db: Handle,
            write_options: Handle,
            read_options: Handle,
            /// Filter policy, cache and the like: freed after the database.
            parts: Parts,
        }

        // SAFETY: both libraries document that a database may be used by several threads without a lock, and that
        // options are only read by its calls.
        unsafe impl Send for Store {}
        // SAFETY: as above.
        unsafe impl Sync for Store {}

        impl Store {
            /// A number that the database tells of itself.
            fn property(&self, name: &str) -> Option<u64> {
                let name = CString::new(format!("{}.{name}", $prefix)).ok()?;
                // SAFETY: the string that is returned ends in a zero and is ours to free.
                unsafe {
                    let value = property_value(self.db, name.as_ptr());
                    if value.is_null() {
                        return None;
                    }
                    let number = CStr::from_ptr(value).to_string_lossy().trim().parse().ok();
                    free(value.cast());
                    number
                }
            }
        }

        impl Engine for Store {
            const NAME: &'static str = $prefix;
            const LSM: bool = true;
            const NOTE: &'static str = $note;
            type Reader<'a> = &'a Store;

            fn version() -> String {
                version()
            }

            fn open(settings: &Settings) -> Result<Self> {
                let name = CString::new(settings.dir.as_os_str().as_encoded_bytes())?;
                let mut error = ptr::null_mut();
                // SAFETY: the options are made here and given to setters of their kind; `Parts` keeps them. The options
                // that are used by the database are alive as long as it is.
                let store = unsafe {
                    let options = options_create();
                    options_set_create_if_missing(options, 1);
                    options_set_write_buffer_size(options, settings.memtable);
                    options_set_compression(options, 1);
                    let (db, parts) = open(options, settings.cache, &name, &mut error);
                    checked(error)?;
                    let write_options = writeoptions_create();
                    writeoptions_set_sync(write_options, settings.sync.into());
                    Store { db, write_options, read_options: readoptions_create(), parts }
                };
                Ok(store)
            }

            fn write(&self, changes: &[Change<'_>]) -> Result<()> {
                let mut error = ptr::null_mut();
                // SAFETY: the batch is made, filled with copies, written and freed here.
                unsafe {
                    let batch = writebatch_create();
                    for (key, value) in changes {
                        let at = key.as_ptr().cast();
                        match value {
                            Some(value) => {
                                writebatch_put(batch, at, key.len(), value.as_ptr().cast(), value.len());
                            }
                            None => writebatch_delete(batch, at, key.len()),
                        }
                    }
                    write(self.db, self.write_options, batch, &mut error);
                    writebatch_destroy(batch);
                }
                checked(error)
            }

            fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
                let (key_at, value_at, mut error) =
                    (key.as_ptr().cast(), value.as_ptr().cast(), ptr::null_mut());
                // SAFETY: the handles live as long as `self`; the slices outlive the call, which copies them.
                unsafe {
                    put(self.db, self.write_options, key_at, key.len(), value_at, value.len(), &mut error);
                }
                checked(error)
            }

            fn delete(&self, key: &[u8]) -> Result<()> {
                let mut error = ptr::null_mut();
                // SAFETY: as in `put`.
                unsafe { delete(self.db, self.write_options, key.as_ptr().cast(), key.len(), &mut error) };
                checked(error)
            }

            fn reader(&self) -> Result<&Store> {
                Ok(self)
            }

            fn settle(&self, to: Settle) -> Result<bool> {
                if to == Settle::FirstLevel {
                    return self.flush();
                }
                // SAFETY: null bounds mean all keys, as documented.
                unsafe { compact_range(self.db, ptr::null(), 0, ptr::null(), 0) };
                Ok(true)
            }

            fn inside(&self) -> Inside {
                Inside {
                    level0: self.property("num-files-at-level0"),
                    debt: self.property("estimate-pending-compaction-bytes"),
                    memory: self.memory(),
                    stalled: None,
                }
            }

            fn close(self) -> Result<()> {
                Ok(())
            }
        }

        impl Reader for &Store {
            fn get<R>(&mut self, key: &[u8], read: impl FnOnce(&[u8]) -> R) -> Result<Option<R>> {
                Store::get(self, key, read)
            }

            fn multi_get(&mut self, keys: &[&[u8]], each: impl FnMut(usize, &[u8])) -> Result<()> {
                self.several(keys, each)
            }

            fn scan(
                &mut self,
                from: Option<&[u8]>,
                direction: Direction,
                limit: usize,
                mut each: impl FnMut(&[u8], &[u8]),
            ) -> Result<usize> {
                let entries = Entries::new(self);
                let mut count = 0;
                let mut error = ptr::null_mut();
                // SAFETY: the iterator lives to the end of the function. Key and value are asked for while it is
                // valid, and used before it moves.
                unsafe {
                    match (from, direction) {
                        (Some(from), _) => iter_seek(entries.iter, from.as_ptr().cast(), from.len()),
                        (None, Direction::Forward) => iter_seek_to_first(entries.iter),
                        (None, Direction::Reverse) => iter_seek_to_last(entries.iter),
                    }
                    while count < limit && iter_valid(entries.iter) != 0 {
                        let (mut key_len, mut value_len) = (0, 0);
                        let key = iter_key(entries.iter, &mut key_len);
                        let value = iter_value(entries.iter, &mut value_len);
                        each(bytes(key, key_len), bytes(value, value_len));
                        count += 1;
                        match direction {
                            Direction::Forward => iter_next(entries.iter),
                            Direction::Reverse => iter_prev(entries.iter),
                        }
                    }
                    iter_get_error(entries.iter, &mut error);
                }
                checked(error)?;
                Ok(count)
            }
        }

        impl Drop for Store {
            fn drop(&mut self) {
                // SAFETY: each handle was made once and is freed once, the database before what it stands on; what
                // borrows it has ended.
                unsafe {
                    self.parts.before_close();
                    close(self.db);
                    writeoptions_destroy(self.write_options);
                    readoptions_destroy(self.read_options);
                    self.parts.after_close();
                }
            }
        }

        /// An iterator, freed at its end.
        struct Entries {
            iter: Handle,
        }

        impl Entries {
            fn new(store: &Store) -> Self {
                // SAFETY: both handles are alive; the caller keeps the store for longer.
                Entries { iter: unsafe { create_iterator(store.db, store.read_options) } }
            }
        }

        impl Drop for Entries {
            fn drop(&mut self) {
                // SAFETY: made in `new`, freed here only.
                unsafe { iter_destroy(self.iter) };
            }
        }
    };
}

/// LevelDB.
#[cfg(feature = "leveldb")]
pub(crate) mod level;

/// RocksDB.
#[cfg(feature = "rocksdb")]
pub(crate) mod rocks;

/// Opens an LMDB environment, with a sync at each commit or without.
#[cfg(feature = "lmdb")]
pub(crate) fn open_lmdb(
    dir: &std::path::Path,
    map_size: usize,
    sync: bool,
) -> crate::engine::Result<heed::Env<heed::WithTls>> {
    let mut options = heed::EnvOpenOptions::new().read_txn_with_tls();
    options.map_size(map_size);
    // SAFETY: the files belong to this process alone, are changed through LMDB only, and lie on a local file system.
    // Without a sync a loss of power may lose or damage the database: it is a benchmark's.
    unsafe {
        if !sync {
            options.flags(heed::EnvFlags::NO_SYNC);
        }
        Ok(options.open(dir)?)
    }
}
