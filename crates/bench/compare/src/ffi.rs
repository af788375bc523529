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
pub(crate) mod level {
    c_store!(
        "leveldb",
        "the system's library, in Debian compiled with assertions; log handed to the system after each write (its \
         default); Snappy; one background thread; no call that only flushes, so it has no row of level 0"
    );

    #[link(name = "leveldb")]
    unsafe extern "C" {
        fn leveldb_open(options: Handle, name: *const c_char, error: *mut *mut c_char) -> Handle;
        fn leveldb_get(
            db: Handle,
            options: Handle,
            key: *const c_char,
            len: usize,
            value_len: *mut usize,
            error: *mut *mut c_char,
        ) -> *mut c_char;
        fn leveldb_options_set_filter_policy(options: Handle, policy: Handle);
        fn leveldb_options_set_cache(options: Handle, cache: Handle);
        fn leveldb_filterpolicy_create_bloom(bits: c_int) -> Handle;
        fn leveldb_filterpolicy_destroy(policy: Handle);
        fn leveldb_major_version() -> c_int;
        fn leveldb_minor_version() -> c_int;
    }

    /// What a database stands on.
    struct Parts {
        options: Handle,
        cache: Handle,
        filter: Handle,
    }

    impl Parts {
        /// # Safety
        ///
        /// Called once, before the database is closed, and before [`after_close`](Self::after_close).
        unsafe fn before_close(&mut self) {}

        /// # Safety
        ///
        /// Called once, after the database was closed; nothing is used afterwards.
        unsafe fn after_close(&mut self) {
            // SAFETY: called once, after the database was closed.
            unsafe {
                options_destroy(self.options);
                cache_destroy(self.cache);
                leveldb_filterpolicy_destroy(self.filter);
            }
        }
    }

    fn version() -> String {
        // SAFETY: the calls only return constants.
        let (major, minor) = unsafe { (leveldb_major_version(), leveldb_minor_version()) };
        format!("{major}.{minor}")
    }

    /// Opens or creates a database with 10 Bloom bits.
    ///
    /// # Safety
    ///
    /// `options` are the library's own, and the caller's to keep with what is returned.
    unsafe fn open(options: Handle, cache: usize, name: &CStr, error: &mut *mut c_char) -> (Handle, Parts) {
        // SAFETY: every handle is made here and given to setters of its kind; `name` outlives the call.
        unsafe {
            let cache = cache_create_lru(cache);
            let filter = leveldb_filterpolicy_create_bloom(10);
            leveldb_options_set_filter_policy(options, filter);
            leveldb_options_set_cache(options, cache);
            (leveldb_open(options, name.as_ptr(), error), Parts { options, cache, filter })
        }
    }

    impl Store {
        /// There is no such call.
        fn flush(&self) -> Result<bool> {
            Ok(false)
        }

        fn memory(&self) -> Option<u64> {
            self.property("approximate-memory-usage")
        }

        /// There is no call for several keys.
        fn several(&self, keys: &[&[u8]], mut each: impl FnMut(usize, &[u8])) -> Result<()> {
            for (at, key) in keys.iter().enumerate() {
                self.get(key, |value| each(at, value))?;
            }
            Ok(())
        }

        /// Calls `read` with the value of a key.
        fn get<R>(&self, key: &[u8], read: impl FnOnce(&[u8]) -> R) -> Result<Option<R>> {
            let (mut error, mut len) = (ptr::null_mut(), 0);
            // SAFETY: the handles are alive; the value is ours until it is freed, after its last use.
            let result = unsafe {
                let at = key.as_ptr().cast();
                let value = leveldb_get(self.db, self.read_options, at, key.len(), &mut len, &mut error);
                if value.is_null() {
                    None
                } else {
                    let result = read(bytes(value, len));
                    free(value.cast());
                    Some(result)
                }
            };
            checked(error)?;
            Ok(result)
        }
    }
}

/// RocksDB.
#[cfg(feature = "rocksdb")]
pub(crate) mod rocks {
    /// Which library is meant.
    #[cfg(feature = "rocksdb-newest")]
    macro_rules! library {
        () => {
            "a release build by the crate `rocksdb`"
        };
    }
    #[cfg(not(feature = "rocksdb-newest"))]
    macro_rules! library {
        () => {
            "the system's library, in Debian compiled with assertions, which slow it down (put the folder of a release \
             build of the same version into `LD_LIBRARY_PATH`)"
        };
    }

    c_store!(
        "rocksdb",
        concat!(
            library!(),
            "; log handed to the system after each write (its default); Snappy, `max_background_jobs` 2, five write \
             buffers; gets by `get_pinned`, several by `batched_multi_get`"
        )
    );

    /// Only to be linked: the functions below are in the library that it builds.
    #[cfg(feature = "rocksdb-newest")]
    use newest as _;

    #[cfg_attr(not(feature = "rocksdb-newest"), link(name = "rocksdb"))]
    unsafe extern "C" {
        fn rocksdb_open_column_families(
            options: Handle,
            name: *const c_char,
            count: c_int,
            names: *const *const c_char,
            family_options: *const Handle,
            families: *mut Handle,
            error: *mut *mut c_char,
        ) -> Handle;
        fn rocksdb_column_family_handle_destroy(family: Handle);
        fn rocksdb_get_pinned(
            db: Handle,
            options: Handle,
            key: *const c_char,
            len: usize,
            error: *mut *mut c_char,
        ) -> Handle;
        fn rocksdb_pinnableslice_value(slice: Handle, len: *mut usize) -> *const c_char;
        fn rocksdb_pinnableslice_destroy(slice: Handle);
        fn rocksdb_batched_multi_get_cf(
            db: Handle,
            options: Handle,
            family: Handle,
            count: usize,
            keys: *const *const c_char,
            lens: *const usize,
            values: *mut Handle,
            errors: *mut *mut c_char,
            sorted: bool,
        );
        fn rocksdb_flush(db: Handle, options: Handle, error: *mut *mut c_char);
        fn rocksdb_flushoptions_create() -> Handle;
        fn rocksdb_flushoptions_destroy(options: Handle);
        fn rocksdb_options_set_max_background_jobs(options: Handle, jobs: c_int);
        fn rocksdb_options_set_max_write_buffer_number(options: Handle, count: c_int);
        fn rocksdb_options_set_block_based_table_factory(options: Handle, table: Handle);
        fn rocksdb_block_based_options_create() -> Handle;
        fn rocksdb_block_based_options_destroy(table: Handle);
        fn rocksdb_block_based_options_set_filter_policy(table: Handle, policy: Handle);
        fn rocksdb_block_based_options_set_block_cache(table: Handle, cache: Handle);
        fn rocksdb_filterpolicy_create_bloom_full(bits: f64) -> Handle;
    }

    /// What a database stands on. The filter policy belongs to the table options, as documented.
    struct Parts {
        options: Handle,
        cache: Handle,
        table: Handle,
        family: Handle,
    }

    impl Parts {
        /// # Safety
        ///
        /// Called once, before the database is closed, and before [`after_close`](Self::after_close).
        unsafe fn before_close(&mut self) {
            // SAFETY: called once, and nothing uses the handle afterwards.
            unsafe { rocksdb_column_family_handle_destroy(self.family) };
        }

        /// # Safety
        ///
        /// Called once, after the database was closed; nothing is used afterwards.
        unsafe fn after_close(&mut self) {
            // SAFETY: called once, after the database was closed.
            unsafe {
                options_destroy(self.options);
                rocksdb_block_based_options_destroy(self.table);
                cache_destroy(self.cache);
            }
        }
    }

    /// The C interface does not tell; the version of the crate that builds the library ends with that of the library.
    #[cfg(feature = "rocksdb-newest")]
    fn version() -> String {
        let version = crate::versions::locked("librocksdb-sys");
        version.rsplit('+').next().unwrap_or("?").to_owned()
    }

    /// The C interface does not tell; the header that is installed with the library does.
    #[cfg(not(feature = "rocksdb-newest"))]
    fn version() -> String {
        let header = std::fs::read_to_string("/usr/include/rocksdb/version.h").unwrap_or_default();
        let part = |name: &str| {
            let line = header.lines().find(|line| line.contains(name));
            line.and_then(|line| line.split_whitespace().last()).unwrap_or("?").to_owned()
        };
        format!("{}.{}.{}", part("ROCKSDB_MAJOR"), part("ROCKSDB_MINOR"), part("ROCKSDB_PATCH"))
    }

    /// Opens or creates a database with 10 Bloom bits.
    ///
    /// # Safety
    ///
    /// `options` are the library's own, and the caller's to keep with what is returned.
    unsafe fn open(options: Handle, cache: usize, name: &CStr, error: &mut *mut c_char) -> (Handle, Parts) {
        let (family_name, mut family) = (c"default".as_ptr(), ptr::null_mut());
        // SAFETY: every handle is made here and given to setters of its kind; names and arrays of one element outlive
        // the call.
        unsafe {
            let cache = cache_create_lru(cache);
            let table = rocksdb_block_based_options_create();
            let filter = rocksdb_filterpolicy_create_bloom_full(10.0);
            rocksdb_block_based_options_set_block_cache(table, cache);
            rocksdb_block_based_options_set_filter_policy(table, filter);
            rocksdb_options_set_max_write_buffer_number(options, 5);
            rocksdb_options_set_max_background_jobs(options, 2);
            rocksdb_options_set_block_based_table_factory(options, table);
            let names = &family_name;
            let db =
                rocksdb_open_column_families(options, name.as_ptr(), 1, names, &options, &mut family, error);
            (db, Parts { options, cache, table, family })
        }
    }

    impl Store {
        fn memory(&self) -> Option<u64> {
            Some(self.property("cur-size-all-mem-tables")? + self.property("block-cache-usage")?)
        }

        /// Calls `read` with the value of a key, where it lies.
        fn get<R>(&self, key: &[u8], read: impl FnOnce(&[u8]) -> R) -> Result<Option<R>> {
            let mut error = ptr::null_mut();
            // SAFETY: the handles are alive; the slice is pinned until it is destroyed, after its last use.
            let result = unsafe {
                let at = key.as_ptr().cast();
                let slice = rocksdb_get_pinned(self.db, self.read_options, at, key.len(), &mut error);
                pinned(slice, read)
            };
            checked(error)?;
            Ok(result)
        }

        /// The values of several keys in one call.
        fn several(&self, keys: &[&[u8]], mut each: impl FnMut(usize, &[u8])) -> Result<()> {
            let pointers: Vec<*const c_char> = keys.iter().map(|key| key.as_ptr().cast()).collect();
            let lens: Vec<usize> = keys.iter().map(|key| key.len()).collect();
            let mut values = vec![ptr::null_mut(); keys.len()];
            let mut errors = vec![ptr::null_mut(); keys.len()];
            // SAFETY: all arrays have as many elements as the call is told; slices are used as in `get`.
            unsafe {
                rocksdb_batched_multi_get_cf(
                    self.db,
                    self.read_options,
                    self.parts.family,
                    keys.len(),
                    pointers.as_ptr(),
                    lens.as_ptr(),
                    values.as_mut_ptr(),
                    errors.as_mut_ptr(),
                    false,
                );
                for (at, slice) in values.into_iter().enumerate() {
                    pinned(slice, |value| each(at, value));
                }
            }
            errors.into_iter().try_for_each(checked)
        }

        /// Writes the memtable to a table of level 0.
        fn flush(&self) -> Result<bool> {
            let mut error = ptr::null_mut();
            // SAFETY: the options are made and freed here; a flush waits by default.
            unsafe {
                let options = rocksdb_flushoptions_create();
                rocksdb_flush(self.db, options, &mut error);
                rocksdb_flushoptions_destroy(options);
            }
            checked(error)?;
            Ok(true)
        }
    }

    /// Reads a pinned slice, if there is one, and lets it go.
    ///
    /// # Safety
    ///
    /// `slice` is null or a slice that the library has just returned, of an open database.
    unsafe fn pinned<R>(slice: Handle, read: impl FnOnce(&[u8]) -> R) -> Option<R> {
        if slice.is_null() {
            return None;
        }
        let mut len = 0;
        // SAFETY: promised by the caller; the value is not used after the slice is destroyed.
        unsafe {
            let value = rocksdb_pinnableslice_value(slice, &mut len);
            let result = read(bytes(value, len));
            rocksdb_pinnableslice_destroy(slice);
            Some(result)
        }
    }
}

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
