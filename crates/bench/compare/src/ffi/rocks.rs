//! RocksDB through its C interface.

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
        let db = rocksdb_open_column_families(options, name.as_ptr(), 1, names, &options, &mut family, error);
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
