//! LevelDB through its C interface.

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
