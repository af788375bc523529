//! [`OrderVfs`]: a file system layer that checks, at each call, that things are done in an order that survives a power
//! loss. It goes under every test of the engine: it finds a missing sync in a test that never crashes.
//!
//! The rules, with their ids in the reliability page:
//!
//! - **M1** When an edit of the manifest names a new table, the table's data and its name are durable.
//! - **M2** When a file becomes `CURRENT`, its data is synced, and the manifest that it names is durable with its name.
//! - **M3** When a second piece is appended to a log segment, the segment's name is durable.
//! - **M5** A manifest is not appended to after a failed append.
//! - **M7** A file number is used once, and no new one is below any that was there at the start.
//! - **D1** No table is removed that the manifest names, durably or not; nor a manifest that `CURRENT` names.
//! - **W8** A log segment with content is removed only when a durable edit says that it is no longer needed.
//! - **D2** Names that are not esker's are never created, renamed or removed; `LOCK` and `CURRENT` are never removed.
//!
//! Violations are collected, since a panic on a background thread is only a background error to the engine. Dropping
//! the last clone of the layer fails the test when there are any.
//!
//! Used from many threads at once. One lock; never held while the file system below works.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use esker_base::{FileKind, FileNumber, parse_file_name};
use esker_manifest::{Current, Recovery, VersionEdit};
use esker_vfs::{Call, CallKind, InterceptVfs, Interceptor, RandomAccessFile, Vfs, WritableFile};
use esker_wal::{LogKind, LogReader, RecordContext, SegmentHeader};

/// A file system that checks the order of calls in one database directory. A clone shares the checker.
pub type OrderVfs = InterceptVfs<OrderChecker>;

/// Bytes of a segment's header: a segment with no more holds nothing.
const HEADER_LEN: u64 = 64;

/// The interceptor of an [`OrderVfs`].
#[derive(Debug)]
pub struct OrderChecker {
    dir: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    files: BTreeMap<String, FileState>,
    /// Numbers that a file has or had.
    used: BTreeSet<u64>,
    /// The largest number when the layer was made.
    largest_at_start: u64,
    manifests: BTreeMap<u64, Manifest>,
    /// The manifest that a durable `CURRENT` names, and the one that a renamed but not yet durable one names.
    current: Option<u64>,
    current_pending: Option<u64>,
    violations: Vec<String>,
}

#[derive(Clone, Debug, Default)]
struct FileState {
    /// Appended since the last sync.
    data_pending: bool,
    /// Created since the last sync of the directory.
    name_pending: bool,
    appends: u64,
    len: u64,
    /// The content of a `CURRENT.tmp`.
    text: Vec<u8>,
}

/// What the edits of one manifest say.
#[derive(Clone, Debug, Default)]
struct Manifest {
    store_id: u128,
    len: u64,
    /// An append failed, or was no edit.
    broken: bool,
    /// With all edits that were appended.
    written: Shape,
    /// With those that are synced.
    durable: Shape,
}

#[derive(Clone, Debug, Default)]
struct Shape {
    tables: BTreeSet<u64>,
    /// Oldest log segment needed, by keyspace.
    logs: BTreeMap<u32, u64>,
}

impl OrderChecker {
    /// Puts a checker for the directory `dir` over `inner`. What is there already counts as durable.
    pub fn over(inner: Arc<dyn Vfs>, dir: impl Into<PathBuf>) -> OrderVfs {
        let dir = dir.into();
        let state = Mutex::new(State::scan(&*inner, &dir));
        InterceptVfs::with_interceptor(inner, OrderChecker { dir, state })
    }

    /// What was done wrong so far.
    pub fn violations(&self) -> Vec<String> {
        self.state().violations.clone()
    }

    /// A process starts on the disk: numbers of files that an earlier one made and removed again are free, unless they
    /// lie below what the directory holds.
    pub fn process_starts(&self) {
        let mut state = self.state();
        state.used = state.numbers().collect();
        state.largest_at_start = state.numbers().max().unwrap_or_default();
    }

    /// Forgets all violations, for tests that plant them.
    pub fn take_violations(&self) -> Vec<String> {
        std::mem::take(&mut self.state().violations)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The name of a path in the watched directory.
    fn name<'a>(&self, path: &'a Path) -> Option<&'a str> {
        if path.parent() == Some(&self.dir) { path.file_name()?.to_str() } else { None }
    }

    fn before(&self, call: &Call<'_>) {
        let Some(name) = self.name(call.path) else { return };
        let mut state = self.state();
        match call.kind {
            CallKind::Create => state.check_create(name),
            CallKind::Remove => state.check_remove(name),
            CallKind::Rename => {
                let target = call.target.and_then(|target| self.name(target)).unwrap_or_default();
                state.check_rename(name, target);
            }
            CallKind::Link => {
                // The rest of a log is kept under another name, and the tables of a checkpoint have one elsewhere; nothing
                // else has two.
                let target = call.target.and_then(|target| self.name(target));
                let lost =
                    name.ends_with(".wal") && target.is_some_and(|target| target == format!("{name}.lost"));
                let elsewhere = name.ends_with(".sst") && target.is_none();
                if !lost && !elsewhere {
                    state.violation(format!("D2: {name} gets a second name"));
                }
            }
            _ => {}
        }
    }

    fn after(&self, call: &Call<'_>) {
        let mut state = self.state();
        if call.kind == CallKind::SyncDir && call.path == self.dir {
            state.dir_synced();
            return;
        }
        let Some(name) = self.name(call.path) else { return };
        match call.kind {
            CallKind::Create => {
                state.files.insert(name.to_owned(), FileState { name_pending: true, ..FileState::default() });
            }
            CallKind::SyncData | CallKind::SyncAll => state.synced(name),
            CallKind::Truncate => {
                if let Some(file) = state.files.get_mut(name) {
                    file.len = call.bytes;
                    file.data_pending = true;
                }
            }
            CallKind::Remove => {
                state.files.remove(name);
            }
            CallKind::Rename => state.renamed(name, call.target.and_then(|target| self.name(target))),
            _ => {}
        }
    }
}

impl Drop for OrderChecker {
    fn drop(&mut self) {
        let violations = self.violations();
        if !violations.is_empty() && !std::thread::panicking() {
            panic!("the order of calls does not survive a power loss:\n  {}", violations.join("\n  "));
        }
    }
}

impl Interceptor for OrderChecker {
    fn call<T>(&self, call: &Call<'_>, run: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        self.before(call);
        let result = run();
        match &result {
            Ok(_) => self.after(call),
            Err(error) if call.kind == CallKind::Create && error.kind() == io::ErrorKind::AlreadyExists => {
                self.state().violation(format!("M7: {} is created although it exists", call.path.display()));
            }
            // A failed removal or rename may have happened all the same; what was pending stays so.
            Err(_) => {}
        }
        result
    }

    fn append(&self, call: &Call<'_>, file: &mut dyn WritableFile, data: &[u8]) -> io::Result<()> {
        if let Some(name) = self.name(call.path) {
            self.state().appending(name, data);
        }
        let result = file.append(data);
        if result.is_err()
            && let Some(name) = self.name(call.path)
        {
            self.state().append_failed(name, file.len());
        }
        result
    }

    fn read(
        &self,
        _call: &Call<'_>,
        file: &dyn RandomAccessFile,
        offset: u64,
        buf: &mut [u8],
    ) -> io::Result<usize> {
        file.read_at(offset, buf)
    }
}

impl State {
    /// The state of a directory whose content is all durable.
    fn scan(vfs: &dyn Vfs, dir: &Path) -> Self {
        let mut state = State::default();
        for entry in vfs.list(dir).unwrap_or_default() {
            state.files.insert(entry.name, FileState { len: entry.size, appends: 1, ..FileState::default() });
        }
        state.used = state.numbers().collect();
        state.largest_at_start = state.numbers().max().unwrap_or_default();
        if let Ok(Recovery::Store(store)) = esker_manifest::recover(vfs, dir) {
            let shape = Shape {
                tables: store.state.table_numbers().map(|number| number.0).collect(),
                logs: store
                    .state
                    .keyspaces
                    .iter()
                    .map(|(id, keyspace)| (*id, keyspace.log_number.0))
                    .collect(),
            };
            let manifest = Manifest {
                store_id: store.state.store_id,
                len: u64::MAX,
                broken: false,
                written: shape.clone(),
                durable: shape,
            };
            state.manifests.insert(store.manifest_number.0, manifest);
            state.current = Some(store.manifest_number.0);
        }
        state
    }

    /// The numbers in the names of the files that are there.
    fn numbers(&self) -> impl Iterator<Item = u64> {
        let parsed = self.files.keys().filter_map(|name| parse_file_name(name));
        parsed.map(|(_, number)| number.0).filter(|number| *number > 0)
    }

    fn violation(&mut self, what: String) {
        // Through the capture of a test's output, to stand beside the other output of the failing test.
        println!("order: {what}");
        self.violations.push(what);
    }

    fn check_create(&mut self, name: &str) {
        match parse_file_name(name) {
            None => self.violation(format!("D2: {name} is created, which is no name of ours")),
            Some((_, FileNumber(0))) => {}
            Some((_, FileNumber(number))) => {
                if !self.used.insert(number) {
                    self.violation(format!("M7: {name} is created, and its number was used before"));
                } else if number <= self.largest_at_start {
                    let largest = self.largest_at_start;
                    self.violation(format!("M7: {name} is created, and number {largest} was there before"));
                }
            }
        }
    }

    fn check_remove(&mut self, name: &str) {
        let Some((kind, FileNumber(number))) = parse_file_name(name) else {
            return self.violation(format!("D2: {name} is removed, which is no name of ours"));
        };
        let current = [self.current, self.current_pending];
        let named = self.manifests.iter().filter(|(manifest, _)| current.contains(&Some(**manifest)));
        match kind {
            FileKind::Lock | FileKind::Current | FileKind::LostWal => {
                self.violation(format!("D2: {name} is removed"));
            }
            FileKind::CurrentTemp => {}
            FileKind::Table => {
                let live = |shape: &Shape| shape.tables.contains(&number);
                if named.into_iter().any(|(_, manifest)| live(&manifest.written) || live(&manifest.durable)) {
                    self.violation(format!("D1: {name} is removed, and the manifest names it"));
                }
            }
            FileKind::Wal => {
                let needed = |shape: &Shape| shape.logs.values().min().is_none_or(|oldest| *oldest <= number);
                let is_empty = self.files.get(name).is_none_or(|file| file.len <= HEADER_LEN);
                if !is_empty && named.into_iter().any(|(_, manifest)| needed(&manifest.durable)) {
                    self.violation(format!("W8: {name} is removed, and no durable edit says that it can go"));
                }
            }
            FileKind::Manifest => {
                if current.contains(&Some(number)) {
                    self.violation(format!("D1: {name} is removed, and CURRENT names it"));
                }
            }
        }
    }

    fn check_rename(&mut self, from: &str, to: &str) {
        match (parse_file_name(from), parse_file_name(to)) {
            (Some((FileKind::CurrentTemp, _)), Some((FileKind::Current, _))) => {}
            (Some((FileKind::Wal, a)), Some((FileKind::LostWal, b))) if a == b => return,
            _ => return self.violation(format!("D2: {from} is renamed to {to}")),
        }
        let temp = self.files.get(from).cloned().unwrap_or_default();
        if temp.data_pending {
            self.violation("M2: CURRENT.tmp is renamed before it is synced".to_owned());
        }
        let Ok(current) = Current::decode(&temp.text, Path::new(from)) else {
            return self.violation("M2: CURRENT.tmp is renamed, and can't be read".to_owned());
        };
        let name = FileKind::Manifest.name(current.manifest);
        match self.files.get(&name) {
            Some(file) if !file.data_pending && !file.name_pending => {}
            Some(_) => self.violation(format!("M2: CURRENT is to name {name}, which is not durable")),
            None => self.violation(format!("M2: CURRENT is to name {name}, which is not there")),
        }
    }

    fn renamed(&mut self, from: &str, to: Option<&str>) {
        let Some(file) = self.files.remove(from) else { return };
        if let Ok(current) = Current::decode(&file.text, Path::new(from)) {
            self.current_pending = Some(current.manifest.0);
        }
        if let Some(to) = to {
            self.files.insert(to.to_owned(), FileState { name_pending: true, ..file });
        }
    }

    fn dir_synced(&mut self) {
        self.files.values_mut().for_each(|file| file.name_pending = false);
        self.current = self.current_pending.take().or(self.current);
    }

    fn synced(&mut self, name: &str) {
        if let Some(file) = self.files.get_mut(name) {
            file.data_pending = false;
        }
        if let Some((FileKind::Manifest, FileNumber(number))) = parse_file_name(name)
            && let Some(manifest) = self.manifests.get_mut(&number)
        {
            manifest.durable = manifest.written.clone();
        }
    }

    fn appending(&mut self, name: &str, data: &[u8]) {
        let file = self.files.entry(name.to_owned()).or_default();
        file.data_pending = true;
        file.appends += 1;
        file.len += data.len() as u64;
        let (appends, name_pending) = (file.appends, file.name_pending);
        match parse_file_name(name) {
            Some((FileKind::CurrentTemp, _)) => file.text.extend_from_slice(data),
            Some((FileKind::Wal, _)) if appends > 1 && name_pending => {
                self.violation(format!("M3: {name} gets content before its name is durable"));
            }
            Some((FileKind::Manifest, number)) => self.appending_edit(name, number, data),
            _ => {}
        }
    }

    fn append_failed(&mut self, name: &str, len: u64) {
        if let Some(file) = self.files.get_mut(name) {
            file.len = len;
        }
        if let Some((FileKind::Manifest, FileNumber(number))) = parse_file_name(name)
            && let Some(manifest) = self.manifests.get_mut(&number)
        {
            manifest.broken = true;
        }
    }

    /// An append to a manifest: the header, or one edit.
    fn appending_edit(&mut self, name: &str, number: FileNumber, data: &[u8]) {
        let manifest = self.manifests.entry(number.0).or_default();
        if manifest.broken {
            return self.violation(format!("M5: {name} is appended to after a failed append"));
        }
        let offset = manifest.len;
        manifest.len = manifest.len.saturating_add(data.len() as u64);
        if offset == 0 {
            match SegmentHeader::decode(data) {
                Ok(header) => manifest.store_id = header.store_id,
                Err(_) => manifest.broken = true,
            }
            return;
        }
        let context = RecordContext::new(LogKind::Manifest, manifest.store_id, number);
        // Half a record: a fault above this layer.
        let Some(edit) = decode_edit(name, context, offset, data) else {
            manifest.broken = true;
            return;
        };
        let added: Vec<u64> = edit.added.iter().map(|added| added.table.number.0).collect();
        let shape = &mut manifest.written;
        for deleted in &edit.deleted {
            shape.tables.remove(&deleted.number.0);
        }
        shape.tables.extend(&added);
        for (keyspace, log) in &edit.log_numbers {
            let oldest = shape.logs.entry(*keyspace).or_default();
            *oldest = log.0.max(*oldest);
        }
        for number in added {
            let table = FileKind::Table.name(FileNumber(number));
            let problem = match self.files.get(&table) {
                None => "is not there",
                Some(file) if file.data_pending => "is not synced",
                Some(file) if file.name_pending => "has a name that is not durable",
                Some(_) => continue,
            };
            self.violation(format!("M1: an edit of {name} names {table}, which {problem}"));
        }
    }
}

fn decode_edit(name: &str, context: RecordContext, offset: u64, data: &[u8]) -> Option<VersionEdit> {
    let file = Arc::new(Piece { offset, bytes: data.to_vec() });
    let mut reader = LogReader::new(file, Path::new(name), context).ok()?;
    reader.start_at(offset);
    let record = reader.next_record().ok()??;
    VersionEdit::decode(record.payload, Path::new(name), offset).ok()
}

/// The end of a file, as a file.
#[derive(Debug)]
struct Piece {
    offset: u64,
    bytes: Vec<u8>,
}

impl RandomAccessFile for Piece {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let start = offset.checked_sub(self.offset).and_then(|start| usize::try_from(start).ok());
        let bytes = start.and_then(|start| self.bytes.get(start..)).unwrap_or_default();
        let count = bytes.len().min(buf.len());
        buf[..count].copy_from_slice(&bytes[..count]);
        Ok(count)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.offset + self.bytes.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use esker_base::{InternalKey, ValueKind};
    use esker_manifest::{ManifestState, ManifestWriter, TableMetadata};
    use esker_vfs::MemVfs;

    struct Bench {
        order: OrderVfs,
        vfs: Arc<dyn Vfs>,
    }

    const DIR: &str = "/db";

    impl Bench {
        fn new() -> Self {
            let mem = MemVfs::new();
            mem.create_dir_all(Path::new(DIR)).unwrap();
            let order = OrderChecker::over(Arc::new(mem), DIR);
            let vfs = Arc::new(order.clone());
            Bench { order, vfs }
        }

        fn path(&self, name: &str) -> PathBuf {
            Path::new(DIR).join(name)
        }

        fn write(&self, name: &str, appends: usize, sync: bool) {
            let mut file = self.vfs.create_new(&self.path(name)).unwrap();
            (0..appends).for_each(|_| file.append(&[7; 100]).unwrap());
            if sync {
                file.sync_all().unwrap();
            }
        }

        fn manifest(&self, next_file: u64) -> ManifestWriter {
            let state = ManifestState { next_file: FileNumber(next_file), ..ManifestState::new(1, 1) };
            ManifestWriter::create(Arc::clone(&self.vfs), Path::new(DIR), FileNumber(next_file - 1), &state)
                .unwrap()
        }

        fn found(&self) -> String {
            let found = self.order.interceptor().take_violations();
            let rules = found.iter().map(|violation| violation.split(':').next().unwrap_or_default());
            rules.collect::<Vec<_>>().join(" ")
        }
    }

    fn edit(table: u64) -> VersionEdit {
        let key = InternalKey::new(b"k", 1, ValueKind::Put);
        let table = TableMetadata {
            number: FileNumber(table),
            file_size: 100,
            tail_size: 50,
            smallest: key.clone(),
            largest: key,
            smallest_seq: 1,
            largest_seq: 1,
            entries: 1,
            deletes: 0,
        };
        let mut edit = VersionEdit::new();
        edit.add_table(0, 0, Arc::new(table));
        edit
    }

    /// The right order gives no violation, and each way to get it wrong gives that of its rule.
    #[test]
    fn orders_right_and_wrong() {
        let bench = Bench::new();
        let mut manifest = bench.manifest(2);
        bench.write("000002.sst", 1, true);
        bench.vfs.sync_dir(Path::new(DIR)).unwrap();
        manifest.append(&edit(2)).unwrap();
        assert_eq!(bench.found(), "");
        bench.write("000003.sst", 1, false);
        bench.vfs.sync_dir(Path::new(DIR)).unwrap();
        manifest.append(&edit(3)).unwrap();
        assert_eq!(bench.found(), "M1", "no sync of the table");
        bench.write("000004.sst", 1, true);
        manifest.append(&edit(4)).unwrap();
        assert_eq!(bench.found(), "M1", "no sync of the directory");
        bench.vfs.remove(&bench.path("000002.sst")).unwrap();
        assert_eq!(bench.found(), "D1", "a live table");
        let mut forget = VersionEdit::new();
        forget.delete_table(0, 0, FileNumber(3));
        manifest.append(&forget).unwrap();
        bench.vfs.remove(&bench.path("000003.sst")).unwrap();
        assert_eq!(bench.found(), "");
        bench.vfs.remove(&bench.path("MANIFEST-000001")).unwrap();
        assert_eq!(bench.found(), "D1", "the current manifest");
    }

    #[test]
    fn logs_numbers_and_foreign_names() {
        let bench = Bench::new();
        let mut manifest = bench.manifest(2);
        bench.write("000002.wal", 2, true);
        assert_eq!(bench.found(), "M3", "the name is not durable");
        bench.vfs.remove(&bench.path("000002.wal")).unwrap();
        assert_eq!(bench.found(), "W8");
        bench.write("000003.wal", 1, true);
        bench.vfs.sync_dir(Path::new(DIR)).unwrap();
        let mut flushed = VersionEdit::new();
        flushed.set_log_number(0, FileNumber(4));
        manifest.append(&flushed).unwrap();
        bench.vfs.remove(&bench.path("000003.wal")).unwrap();
        assert_eq!(bench.found(), "");
        bench.write("000003.sst", 1, true);
        assert_eq!(bench.found(), "M7", "a number twice");
        bench.vfs.create_new(&bench.path("000003.sst")).unwrap_err();
        assert_eq!(bench.found(), "M7 M7", "over an existing name");
        bench.write("foreign", 1, false);
        bench.vfs.remove(&bench.path("foreign")).unwrap();
        bench.vfs.remove(&bench.path("CURRENT")).unwrap();
        assert_eq!(bench.found(), "D2 D2 D2");

        let next = OrderChecker::over(Arc::clone(bench.order.inner()), DIR);
        next.create_new(&bench.path("000002.sst")).unwrap();
        assert_eq!(next.interceptor().take_violations().len(), 1, "below the largest number of before");
    }

    #[test]
    fn current_is_renamed_when_it_and_its_manifest_are_durable() {
        let bench = Bench::new();
        let text = Current { manifest: FileNumber(9), closed: None }.encode();
        let mut file = bench.vfs.create_new(&bench.path("CURRENT.tmp")).unwrap();
        file.append(text.as_bytes()).unwrap();
        bench.vfs.rename(&bench.path("CURRENT.tmp"), &bench.path("CURRENT")).unwrap();
        assert_eq!(bench.found(), "M2 M2");
    }
}
