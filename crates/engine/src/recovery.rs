//! Opening: from the files of a directory to a running [`Core`].
//!
//! ```text
//! lock -> CURRENT -> manifest -> log, replayed, sorted, and written to tables
//!      -> new log segment -> new manifest with all of that -> CURRENT -> old files removed
//! ```
//!
//! Nothing of the old state is touched before the new manifest is durable, so a crash at any point of an open leaves
//! what the next open needs. What was replayed is written anew, since what the page cache shows after a crash need not be
//! on the device.

use crate::core::{Core, CoreParts};
use crate::event::{Event, RecoveryReport};
use crate::memory::Memory;
use crate::replayed::{Replayed, Unsorted};
use crate::room::{Room, fitted};
use crate::sink::{MadeTables, TableSink, sync_dir};
use crate::state::{Keyspace, State};
use crate::super_version::{Generation, KeyspaceTables};
use crate::table_cache::{TableHandle, TableOpener};
use crate::version_set::VersionSet;
use crate::write::LogEnd;
use crate::{Components, Error, ErrorKind, Options, RecoveryMode, Result};
use esker_base::{FileKind, FileNumber, LAST_SEQUENCE, SequenceNumber, SplitMix64, parse_file_name, planted};
use esker_compaction::{CompactionJob, DeeperTables, SnapshotStripes, Step};
use esker_manifest::{ManifestState, ManifestWriter, Recovery, TableMetadata, VersionEdit};
use esker_vfs::{EntryKind, FileLock, OpenFiles, Vfs};
use esker_wal::{LogKind, LogReplay, LogWriter, Record, RecordType, RecoverOptions, SegmentHeader};
use std::collections::BTreeSet;
use std::hash::{BuildHasher, Hasher};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of replayed operations from which on two tables are written at the same time.
const WRITTEN_IN_TWO: usize = 2 << 20;

impl Core {
    /// Opens the database in `dir`.
    pub(crate) fn open(dir: PathBuf, options: Options, components: Components) -> Result<Arc<Core>> {
        options.check()?;
        let components = components.bounded(&options);
        components.scheduler.start()?;
        let opened = Self::open_started(dir, &options, &components);
        if opened.is_err() {
            components.scheduler.stop();
        }
        opened
    }

    fn open_started(dir: PathBuf, options: &Options, components: &Components) -> Result<Arc<Core>> {
        let vfs = Arc::clone(&components.vfs);
        prepare_dir(vfs.as_ref(), &dir, options)?;
        let lock = take_lock(vfs.as_ref(), &dir)?;
        let found = Found::read(vfs.as_ref(), &dir, options)?;
        let available = available_space(vfs.as_ref(), &dir, &found.state);
        let options = &fitted(options, available);
        let mut opening = Opening::new(&dir, options, components, found, available);
        let replay = opening.replay_log()?;
        let report = opening.report(&replay);
        let core = opening.finish(&replay, lock, report)?;
        core.emit(&Event::Opened { report: core.recovery.clone() });
        core.work_available();
        Ok(core)
    }
}

/// Makes sure that there is a directory, if one may be made.
pub(crate) fn prepare_dir(vfs: &dyn Vfs, dir: &Path, options: &Options) -> Result<()> {
    if dir.as_os_str().is_empty() {
        return Err(Error::invalid_argument("the path of the database is empty"));
    }
    match vfs.kind(dir).map_err(|error| Error::io("look at", dir, error))? {
        Some(EntryKind::File) => {
            return Err(Error::invalid_argument(format!("{} is a file, not a directory", dir.display())));
        }
        // A link to a directory is fine; what it leads to shows when the lock is taken.
        Some(_) => return Ok(()),
        None => {}
    }
    if !options.create_if_missing {
        return Err(no_database(dir));
    }
    vfs.create_dir_all(dir).map_err(|error| Error::io("create", dir, error))
}

/// Makes the names of the directory and of those above it durable before a store is created in it. They may be those of
/// an earlier open, which made them and died before it could sync them.
pub(crate) fn sync_names(vfs: &dyn Vfs, dir: &Path) -> Result<()> {
    use std::io::ErrorKind::{InvalidInput, PermissionDenied, ReadOnlyFilesystem, Unsupported};
    for parent in dir.ancestors().skip(1) {
        let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
        if let Err(error) = vfs.sync_dir(parent) {
            // Whoever may not do that did not make a directory there either, or made it where only writing is allowed: then
            // nobody here can make the name durable, and a refusal would only come once (docs/RELIABILITY.md).
            let foreign = [InvalidInput, PermissionDenied, ReadOnlyFilesystem, Unsupported];
            if !foreign.contains(&error.kind()) {
                return Err(Error::io("sync", parent, error));
            }
        }
    }
    Ok(())
}

/// Fails when file numbers would come near their end, so that no later addition can overflow. Honest numbers never do.
pub(crate) fn check_file_numbers(dir: &Path, largest: u64) -> Result<()> {
    const FILE_NUMBER_MAX: u64 = u64::MAX / 2;
    if largest > FILE_NUMBER_MAX {
        return Err(Error::corruption(
            dir,
            0,
            format!("file number {largest} is out of reach of any database"),
        ));
    }
    Ok(())
}

/// Fails when no sequence number is left: such a database would open and then refuse every write. It is the work of damage or of
/// a stranger, whose numbers can't be believed either.
fn check_sequences(dir: &Path, manifest: FileNumber, state: &ManifestState) -> Result<()> {
    let tables = state.keyspaces.values().flat_map(|keyspace| keyspace.version.tables());
    let last = tables.map(|(_, table)| table.largest_seq).fold(state.last_sequence, SequenceNumber::max);
    if last > LAST_SEQUENCE {
        let path = FileKind::Manifest.path(dir, manifest);
        return Err(Error::corruption(path, 0, format!("sequence {last} is out of reach of any database")));
    }
    Ok(())
}

fn no_database(dir: &Path) -> Error {
    Error::invalid_argument(format!(
        "there is no database in {}, and create_if_missing is off",
        dir.display()
    ))
}

pub(crate) fn take_lock(vfs: &dyn Vfs, dir: &Path) -> Result<Box<dyn FileLock>> {
    let path = FileKind::Lock.path(dir, FileNumber(0));
    vfs.lock(&path).map_err(|error| {
        if error.kind() != std::io::ErrorKind::WouldBlock {
            return Error::io("lock", &path, error);
        }
        // The message of a lock on disk ends with the holder's number.
        let text = error.to_string();
        let pid = text.rsplit(|c: char| !c.is_ascii_digit()).find(|digits| !digits.is_empty());
        Error::new(ErrorKind::Locked { path, pid: pid.and_then(|digits| digits.parse().ok()) })
    })
}

/// What the manifest says, or what a new store starts with.
struct Found {
    state: ManifestState,
    /// A damaged last edit was left out: nothing that looks like an orphan may go.
    keep_orphans: bool,
    /// There was no store. Log segments that are there nevertheless have no record: a creation that was interrupted left
    /// them, under a store id that nobody knows.
    created: bool,
}

impl Found {
    fn read(vfs: &dyn Vfs, dir: &Path, options: &Options) -> Result<Self> {
        match esker_manifest::recover(vfs, dir)? {
            Recovery::Store(_) if options.error_if_exists => {
                Err(Error::invalid_argument(format!("there is a database in {} already", dir.display())))
            }
            Recovery::Store(found) => {
                check_file_numbers(dir, found.state.next_file.0)?;
                check_sequences(dir, found.manifest_number, &found.state)?;
                Ok(Found { keep_orphans: found.torn_tail.is_some(), created: false, state: found.state })
            }
            Recovery::Missing { .. } if !options.create_if_missing => Err(no_database(dir)),
            Recovery::Missing { max_file_number_seen } => {
                check_file_numbers(dir, max_file_number_seen.0)?;
                sync_names(vfs, dir)?;
                let mut rng = SplitMix64::new(options.seed.unwrap_or_else(entropy));
                let store_id = u128::from(rng.next_u64()) << 64 | u128::from(rng.next_u64());
                let mut state = ManifestState::new(store_id, rng.next_u64());
                state.next_file = FileNumber(max_file_number_seen.0 + 1).max(state.next_file);
                Ok(Found { state, keep_orphans: false, created: true })
            }
        }
    }
}

/// A number from the operating system: the standard library seeds its hashers with it.
fn entropy() -> u64 {
    std::hash::RandomState::new().build_hasher().finish()
}

/// What the device has free, and what the database has on it, where that is known.
fn available_space(vfs: &dyn Vfs, dir: &Path, state: &ManifestState) -> Option<u64> {
    let free = vfs.free_space(dir).ok().flatten()?;
    let tables = state.keyspaces.values().flat_map(|keyspace| keyspace.version.tables());
    Some(tables.fold(free, |sum, (_, table)| sum.saturating_add(table.file_size)))
}

/// An open in progress.
struct Opening<'a> {
    dir: &'a Path,
    options: &'a Options,
    components: &'a Components,
    tables: Arc<TableOpener>,
    /// The state that the new manifest will start with.
    state: ManifestState,
    keep_orphans: bool,
    created: bool,
    /// Bytes that the device has for the database, where that is known.
    available: Option<u64>,
    replayed: Replayed,
    next_file: u64,
    last_seq: SequenceNumber,
    batches: u64,
}

impl<'a> Opening<'a> {
    fn new(
        dir: &'a Path,
        options: &'a Options,
        components: &'a Components,
        found: Found,
        available: Option<u64>,
    ) -> Self {
        let tables = Arc::new(TableOpener {
            vfs: Arc::clone(&components.vfs),
            dir: dir.to_path_buf(),
            store_id: found.state.store_id,
            hash_seed: found.state.hash_seed,
            memory: Memory::new(options, components.cache.clone()),
            verify_reads: options.verify_reads,
        });
        Opening {
            dir,
            options,
            components,
            replayed: Replayed::default(),
            next_file: found.state.next_file.0,
            last_seq: found.state.last_sequence,
            batches: 0,
            state: found.state,
            keep_orphans: found.keep_orphans,
            created: found.created,
            available,
            tables,
        }
    }

    fn new_number(&mut self) -> FileNumber {
        let number = FileNumber(self.next_file);
        self.next_file += 1;
        number
    }

    /// Replays the log into tables: all that was in memory when the database was closed, or crashed.
    fn replay_log(&mut self) -> Result<LogReplay> {
        let vfs = Arc::clone(&self.components.vfs);
        let oldest = self.state.min_log_number();
        let entries = vfs.list(self.dir).map_err(|error| Error::io("list", self.dir, error))?;
        let named = entries.iter().filter_map(|entry| {
            let (kind, number) = parse_file_name(&entry.name)?;
            (kind == FileKind::Wal && number >= oldest && !self.created).then_some((entry.kind, number))
        });
        let (files, others): (Vec<_>, Vec<_>) = named.partition(|(kind, _)| *kind == EntryKind::File);
        // It can't be told from a segment that somebody has moved and left a link for. To pass over the last one would lose it
        // without a word.
        if let Some(&(_, number)) = others.first()
            && self.options.recovery == RecoveryMode::Strict
        {
            let path = FileKind::Wal.path(self.dir, number);
            return Err(Error::corruption(
                path,
                0,
                "it has the name of a log segment, and is no regular file",
            ));
        }
        let segments: Vec<FileNumber> = files.into_iter().map(|(_, number)| number).collect();
        // Its name was durable before the manifest named it, so no crash takes it away (DW22).
        let missing = oldest.0 != 0 && !segments.contains(&oldest);
        if missing && self.options.recovery == RecoveryMode::Strict {
            let path = FileKind::Wal.path(self.dir, oldest);
            return Err(Error::corruption(path, 0, "the manifest needs this log segment, and it is missing"));
        }
        let recover = RecoverOptions {
            dir: self.dir.to_path_buf(),
            store_id: self.state.store_id,
            segments,
            durable: self.state.durable_sequence,
            first_needed: self.state.last_sequence + 1,
            last_max: LAST_SEQUENCE,
            mode: match self.options.recovery {
                RecoveryMode::Strict => esker_wal::RecoveryMode::Strict,
                RecoveryMode::PointInTime => esker_wal::RecoveryMode::PointInTime,
            },
        };
        let replay = esker_wal::recover(vfs.as_ref(), &recover, |record| self.replay_record(record))?;
        self.flush()?;
        Ok(replay)
    }

    fn replay_record(&mut self, record: Record<'_>) -> Result<()> {
        let fields = record.fields;
        if fields.record_type == RecordType::Batch {
            self.replayed.add(fields.first, fields.count, record.payload, self.dir)?;
            self.batches += 1;
        }
        self.last_seq = self.last_seq.max(fields.last());
        if self.replayed.memory_usage() >= self.options.effective_memtable_size() {
            self.flush()?;
        }
        Ok(())
    }

    /// Writes what was replayed to a level-0 table, or to two with half of the keys each. Only the new manifest, at the end,
    /// will name it.
    fn flush(&mut self) -> Result<()> {
        if self.replayed.is_empty() {
            return Ok(());
        }
        let replayed = std::mem::take(&mut self.replayed);
        let scheduler = &self.components.scheduler;
        let in_two = scheduler.is_parallel() && replayed.memory_usage() >= WRITTEN_IN_TWO;
        let mut lower = replayed.into_unsorted();
        let upper = if in_two { lower.split_off_half() } else { None };
        let numbers = AtomicU64::new(self.next_file);
        let made = match upper {
            None => self.write_tables(lower, &numbers)?,
            Some(upper) => {
                let (mut lower, mut upper) = (Some(lower), Some(upper));
                let (mut made, mut others) = (Ok(Vec::new()), Ok(Vec::new()));
                let this = &*self;
                let write = |part: &mut Option<Unsorted>| match part.take() {
                    Some(part) => this.write_tables(part, &numbers),
                    None => Ok(Vec::new()),
                };
                scheduler.both(&mut || made = write(&mut lower), &mut || others = write(&mut upper));
                let mut made = made?;
                made.append(&mut others?);
                made
            }
        };
        self.next_file = numbers.into_inner();
        let mut edit = VersionEdit::new();
        for table in made {
            edit.add_table(0, 0, table);
        }
        self.state = self.state.apply(&edit)?;
        Ok(())
    }

    /// Sorts operations and writes them to a table.
    fn write_tables(&self, part: Unsorted, numbers: &AtomicU64) -> Result<Vec<Arc<TableMetadata>>> {
        let Some(keyspace) = self.state.keyspaces.get(&0) else {
            return Err(Error::fatal("the default keyspace is missing"));
        };
        let deeper = DeeperTables::below_memtables(&keyspace.version);
        // Nobody reads yet, so only the newest versions count.
        let stripes = SnapshotStripes::new([], self.last_seq);
        let mut job = CompactionJob::flush(part.sorted(), stripes, deeper);
        let mut made = MadeTables::default();
        let new_number = || FileNumber(numbers.fetch_add(1, Ordering::Relaxed));
        let mut sink = TableSink {
            vfs: self.components.vfs.as_ref(),
            opener: &self.tables,
            options: self.options.table_options(),
            created: if self.options.seed.is_some() { 0 } else { self.components.clock.unix_millis() },
            new_number: &new_number,
            made: &mut made,
            room: None,
        };
        while job.step(&mut sink, usize::MAX)? == Step::More {}
        Ok(made.finished)
    }

    fn report(&self, replay: &LogReplay) -> RecoveryReport {
        let dropped = replay.dropped.as_ref();
        let lost = dropped.filter(|_| self.options.recovery == RecoveryMode::PointInTime);
        let lost_files = lost.iter().flat_map(|dropped| &dropped.segments);
        RecoveryReport {
            replayed_batches: self.batches,
            replayed_bytes: replay.bytes,
            dropped_bytes: dropped.map_or(0, |dropped| dropped.bytes),
            dropped_from: dropped.map(|dropped| (dropped.file.clone(), dropped.offset, dropped.what.clone())),
            promised: dropped.and_then(|dropped| dropped.promised),
            lost_files: lost_files.map(|segment| FileKind::LostWal.path(self.dir, segment.number)).collect(),
            manifest_tail_dropped: self.keep_orphans,
            last_sequence: self.last_seq,
        }
    }

    /// Starts the new segment and the new manifest, then lets go of what came before.
    fn finish(
        mut self,
        replay: &LogReplay,
        lock: Box<dyn FileLock>,
        report: RecoveryReport,
    ) -> Result<Arc<Core>> {
        self.keep_lost_segments(replay)?;
        let writer = self.start_log(replay)?;
        let log_number = writer.header().number;
        let manifest_number = self.new_number();
        let ids: Vec<_> = self.state.keyspaces.keys().copied().collect();
        let mut edit = VersionEdit::new();
        for &id in &ids {
            edit.set_log_number(id, log_number);
        }
        edit.last_sequence = Some(self.last_seq);
        edit.durable_sequence = Some(writer.durable_sequence());
        edit.next_file = Some(FileNumber(self.next_file));
        self.state = self.state.apply(&edit)?;
        let vfs = Arc::clone(&self.components.vfs);
        sync_dir(vfs.as_ref(), self.dir)?;
        let manifest = ManifestWriter::create(Arc::clone(&vfs), self.dir, manifest_number, &self.state)
            .map_err(|failed| failed.error)?;
        let obsolete = self.remove_orphans(log_number, manifest_number);
        let memtable_size = self.options.effective_memtable_size();
        let active =
            Generation::new(log_number, self.last_seq, self.state.hash_seed, ids.len(), memtable_size);
        let keyspaces = self.state.keyspaces.iter().map(|(&id, keyspace)| {
            let handle = |meta: &Arc<_>| TableHandle::new(Arc::clone(meta), &self.tables);
            let tables = Arc::new(KeyspaceTables::new(Arc::clone(&keyspace.version), handle));
            Keyspace { id, tables, running: Vec::new() }
        });
        let mut state = State::new(Arc::clone(&active), keyspaces.collect());
        let some_left = !obsolete.is_empty();
        state.obsolete_files = obsolete;
        let durable = writer.durable_sequence();
        let log = LogEnd {
            writer,
            unsynced: Vec::new(),
            last_seq: self.last_seq,
            skipped: None,
            look_for_room_at: 0,
            lacks_some: false,
            resumes: 0,
            active,
            ended: false,
        };
        let core = Core::new(CoreParts {
            dir: self.dir.to_path_buf(),
            options: self.options.clone(),
            components: self.components.clone(),
            tables: self.tables,
            log,
            manifest: VersionSet { state: self.state, writer: Some(manifest), in_doubt: false },
            state,
            visible: self.last_seq,
            durable,
            next_file: self.next_file,
            lock,
            recovery: report,
            room: Arc::new(Room::new(self.options, self.available, &vfs, self.dir)),
            open_files: self.components.open_files.clone().unwrap_or_else(|| Arc::new(OpenFiles::new(1))),
        });
        core.set_leftovers(some_left);
        Ok(core)
    }

    /// Never appends to an old segment: what follows its good part may be garbage.
    fn start_log(&mut self, replay: &LogReplay) -> Result<LogWriter> {
        let number = self.new_number();
        let previous = replay.end;
        let header = SegmentHeader { kind: LogKind::Wal, store_id: self.state.store_id, number, previous };
        let path = FileKind::Wal.path(self.dir, number);
        let vfs = self.components.vfs.as_ref();
        let mut writer = LogWriter::create(vfs, &path, header, previous.last_sequence)?;
        writer.keep_buffer(self.options.log_buffer_kept());
        if self.last_seq > previous.last_sequence {
            // Tables hold numbers that the log never had, or lost.
            writer.append_skip(previous.last_sequence + 1, self.last_seq - previous.last_sequence)?;
        }
        writer.previous_is_durable();
        writer.sync()?;
        Ok(writer)
    }

    /// After a point-in-time recovery, what was left out of the log stays under another name. It gets that name before the
    /// new segment is there, whose header will say where the log ends: what lies behind that end is a leftover for the
    /// next open.
    fn keep_lost_segments(&self, replay: &LogReplay) -> Result<()> {
        let Some(dropped) = &replay.dropped else { return Ok(()) };
        if self.options.recovery != RecoveryMode::PointInTime {
            return Ok(());
        }
        for segment in &dropped.segments {
            let lost = FileKind::LostWal.path(self.dir, segment.number);
            match self.components.vfs.link(&segment.path, &lost) {
                // An earlier open that died has done it.
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                linked => linked.map_err(|error| Error::io("link", &segment.path, error))?,
            }
        }
        sync_dir(self.components.vfs.as_ref(), self.dir)
    }

    /// Removes what earlier processes left: files of ours, by their exact names, that nothing refers to. A failure is
    /// left for the next open.
    ///
    /// Returns log segments that the background removes, where that does not wait to be asked: they are large, and to free their
    /// pages takes a tenth of an open.
    fn remove_orphans(&self, log: FileNumber, manifest: FileNumber) -> Vec<(FileKind, FileNumber)> {
        let mut later = Vec::new();
        if self.keep_orphans {
            return later;
        }
        let live: BTreeSet<FileNumber> = self.state.table_numbers().collect();
        let Ok(entries) = self.components.vfs.list(self.dir) else { return later };
        for entry in entries.iter().filter(|entry| entry.kind == EntryKind::File) {
            let orphan = match parse_file_name(&entry.name) {
                Some((FileKind::Table, number)) if planted::is(planted::Fault::LiveTableRemoved) => {
                    live.last() == Some(&number)
                }
                Some((FileKind::Table, number)) => !live.contains(&number),
                Some((FileKind::Wal, number)) if number < log && self.components.scheduler.is_parallel() => {
                    later.push((FileKind::Wal, number));
                    false
                }
                Some((FileKind::Wal, number)) => number < log,
                Some((FileKind::Manifest, number)) => number < manifest,
                Some((FileKind::CurrentTemp, _)) => true,
                _ => false,
            };
            if orphan {
                let _ = self.components.vfs.remove(&self.dir.join(&entry.name));
            }
        }
        later
    }
}
