//! [`Db::repair`](crate::Db::repair): a database that does not open, made anew from what can be read.
//!
//! ```text
//! manifest, as far as it goes --> which tables count, and which log segments
//! readable tables + intact log records --> merged into new tables of the last level
//! new manifest names only these; every old file is moved to a directory `lost-NNNNNN`
//! ```
//!
//! Nothing is deleted. What is lost is reported, and so is what may be wrong: when no manifest can be read to its end,
//! tables that were replaced long ago may be among those that are found, and deleted keys may come back with them.

use crate::memory::Memory;
use crate::recovery::{check_file_numbers, prepare_dir, take_lock};
use crate::sink::{MadeTables, TableSink, sync_dir};
use crate::sources::Child;
use crate::table_cache::TableOpener;
use crate::{Components, Error, Options, Result};
use esker_base::{
    BatchOp, BatchReader, FileKind, FileNumber, KeyspaceId, MAX_SEQUENCE, MergingIterator, SequenceNumber,
    parse_file_name,
};
use esker_compaction::{CompactionJob, DeeperTables, OutputSplitter, SnapshotStripes, Step};
use esker_manifest::{DumpItem, ManifestState, ManifestWriter, NUM_LEVELS, VersionEdit, dump_manifest};
use esker_memtable::Memtable;
use esker_sstable::{OpenTable, TableReader, read_table_properties, verify_table};
use esker_vfs::EntryKind;
use esker_wal::{DumpItem as LogItem, LogKind, RecordType, dump_segment};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The default keyspace, the only one that can hold data so far.
const KEYSPACE: KeyspaceId = 0;

/// What [`Db::repair`](crate::Db::repair) found and made.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct RepairReport {
    /// Whether a manifest could be read to its end, so that it is known which tables count.
    pub manifest_intact: bool,
    /// Tables whose entries were kept.
    pub tables_read: u64,
    /// Batches that were read from the log.
    pub batches_read: u64,
    /// Entries in the repaired database, tombstones included.
    pub entries: u64,
    /// Tables that count and are gone or damaged: their entries are lost, and older versions of their keys may show.
    pub tables_lost: Vec<PathBuf>,
    /// Everything that was found to be wrong.
    pub faults: Vec<Error>,
    /// Where the old files are now.
    pub lost_dir: PathBuf,
}

impl fmt::Display for RepairReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RepairReport { tables_read, batches_read, entries, .. } = self;
        write!(f, "{entries} entries, from {tables_read} tables and {batches_read} batches of the log")?;
        if !self.manifest_intact {
            f.write_str("; no manifest could be read to its end, so deleted keys may be back")?;
        }
        write!(f, "; {} tables lost, {} faults", self.tables_lost.len(), self.faults.len())?;
        self.faults.iter().try_for_each(|fault| write!(f, "\n  {fault}"))?;
        write!(f, "\nthe old files are in {}", self.lost_dir.display())
    }
}

/// Repairs the database in `dir`.
pub(crate) fn repair(dir: &Path, options: &Options, components: &Components) -> Result<RepairReport> {
    options.check()?;
    let components = &components.clone().bounded(options);
    prepare_dir(components.vfs.as_ref(), dir, &Options { create_if_missing: false, ..options.clone() })?;
    let _lock = take_lock(components.vfs.as_ref(), dir)?;
    let files = list(dir, components)?;
    let mut repair = Repair { dir, options, components, files, report: RepairReport::default() };
    let known = repair.read_manifests()?;
    let readers = repair.open_tables(known.as_ref())?;
    let identity = repair.identity(known.as_ref(), &readers)?;
    let (memtable, last_in_log) = repair.read_log(known.as_ref(), identity)?;
    repair.write(&readers, &memtable, last_in_log, identity)?;
    Ok(repair.report)
}

/// Our files, by kind and number.
type Files = Vec<(FileKind, FileNumber)>;

fn list(dir: &Path, components: &Components) -> Result<Files> {
    let entries = components.vfs.list(dir).map_err(|error| Error::io("list", dir, error))?;
    let files = entries.iter().filter(|entry| entry.kind == EntryKind::File);
    let files: Files = files.filter_map(|entry| parse_file_name(&entry.name)).collect();
    let ours = |kind| matches!(kind, FileKind::Table | FileKind::Wal | FileKind::Manifest);
    if files.iter().any(|&(kind, _)| ours(kind)) {
        Ok(files)
    } else {
        Err(Error::invalid_argument(format!("{} has no file of a database", dir.display())))
    }
}

/// Store id and hash seed.
type Identity = (u128, u64);

struct Repair<'a> {
    dir: &'a Path,
    options: &'a Options,
    components: &'a Components,
    files: Files,
    report: RepairReport,
}

impl Repair<'_> {
    fn numbers(&self, wanted: FileKind) -> impl DoubleEndedIterator<Item = FileNumber> + '_ {
        self.files.iter().filter(move |(kind, _)| *kind == wanted).map(|&(_, number)| number)
    }

    fn fault(&mut self, error: Error) {
        self.report.faults.push(error);
    }

    /// The newest manifest that can be read to its end. If there is none: nothing is known.
    fn read_manifests(&mut self) -> Result<Option<ManifestState>> {
        let mut numbers: Vec<FileNumber> = self.numbers(FileKind::Manifest).collect();
        numbers.sort_unstable();
        for number in numbers.into_iter().rev() {
            let path = FileKind::Manifest.path(self.dir, number);
            match dump_manifest(self.components.vfs.as_ref(), &path) {
                Ok(dump) => {
                    for item in dump.items {
                        if let DumpItem::Fault { error, .. } = item {
                            self.fault(error);
                        }
                    }
                    if let Some(state) = dump.state {
                        self.report.manifest_intact = true;
                        return Ok(Some(state));
                    }
                }
                Err(error) if error.io_kind().is_some() => return Err(error),
                Err(error) => self.fault(error),
            }
        }
        Ok(None)
    }

    /// Opens and checks the tables that count, the newest first.
    fn open_tables(&mut self, known: Option<&ManifestState>) -> Result<Vec<Arc<TableReader>>> {
        let mut numbers: Vec<FileNumber> = match known {
            Some(state) => state.table_numbers().collect(),
            None => self.numbers(FileKind::Table).collect(),
        };
        numbers.sort_unstable();
        let mut readers = Vec::new();
        for number in numbers.into_iter().rev() {
            let path = FileKind::Table.path(self.dir, number);
            match self.open_table(&path, number, known)? {
                Some(reader) => {
                    self.report.tables_read += 1;
                    readers.push(reader);
                }
                None => self.report.tables_lost.push(path),
            }
        }
        Ok(readers)
    }

    fn open_table(
        &mut self,
        path: &Path,
        number: FileNumber,
        known: Option<&ManifestState>,
    ) -> Result<Option<Arc<TableReader>>> {
        let file = match self.components.vfs.open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                self.fault(Error::corruption(path, 0, "the manifest names this file, and it is missing"));
                return Ok(None);
            }
            Err(error) => return Err(Error::io("open", path, error)),
        };
        let identity = match read_table_properties(&file, path) {
            Ok((_, properties)) => properties.identity(),
            Err(error) => {
                self.fault(error);
                return Ok(None);
            }
        };
        if identity.number != number || known.is_some_and(|state| state.store_id != identity.store_id) {
            self.fault(Error::corruption(path, 0, "this is a table of another place"));
            return Ok(None);
        }
        let before = self.report.faults.len();
        let open = OpenTable { identity: Some(identity), ..OpenTable::default() };
        let reader = verify_table(&file, path, open, &mut |fault| self.report.faults.push(fault));
        Ok(reader.filter(|_| self.report.faults.len() == before))
    }

    /// The store that the tables belong to: as the manifest says, or most of the tables.
    fn identity(&mut self, known: Option<&ManifestState>, readers: &[Arc<TableReader>]) -> Result<Identity> {
        if let Some(state) = known {
            return Ok((state.store_id, state.hash_seed));
        }
        let mut votes: BTreeMap<Identity, usize> = BTreeMap::new();
        for reader in readers {
            let properties = reader.properties();
            *votes.entry((properties.store_id, properties.hash_seed)).or_default() += 1;
        }
        let winner = votes.into_iter().max_by_key(|&(_, count)| count).map(|(identity, _)| identity);
        winner.ok_or_else(|| Error::corruption(self.dir, 0, "neither a manifest nor a table can be read"))
    }

    /// All intact batches of the log that are not in tables. Behind damage it goes on.
    fn read_log(
        &mut self,
        known: Option<&ManifestState>,
        identity: Identity,
    ) -> Result<(Arc<Memtable>, SequenceNumber)> {
        let memtable = Memtable::new(identity.1, 0);
        let oldest = known.map_or(FileNumber(0), ManifestState::min_log_number);
        let mut segments: Vec<FileNumber> =
            self.numbers(FileKind::Wal).filter(|&number| number >= oldest).collect();
        segments.sort_unstable();
        let mut last = known.map_or(0, |state| state.last_sequence);
        for number in segments {
            let path = FileKind::Wal.path(self.dir, number);
            let file = self.components.vfs.open(&path).map_err(|error| Error::io("open", &path, error))?;
            let (mut batches, mut faults) = (0, Vec::new());
            let context = Some((LogKind::Wal, identity.0, number));
            dump_segment(file, &path, context, |item| {
                match item {
                    LogItem::Record(record) => {
                        last = last.max(record.fields.last());
                        if record.fields.record_type == RecordType::Batch
                            && insert(&memtable, record.payload, record.fields.first)
                        {
                            batches += 1;
                        }
                    }
                    LogItem::Fault { offset, fault, .. } => {
                        faults.push(Error::corruption(&path, offset, format!("{fault}")));
                    }
                    LogItem::HeaderFault(fault) => faults.push(fault.into_error(&path)),
                    LogItem::OutOfOrder { offset, found, expected } => {
                        let what = format!("sequence {found} follows, expected {expected}");
                        faults.push(Error::corruption(&path, offset, what));
                    }
                    LogItem::Header(_) | LogItem::End { .. } => {}
                }
                Ok(())
            })?;
            self.report.batches_read += batches;
            self.report.faults.extend(faults);
        }
        Ok((Arc::new(memtable), last))
    }

    /// Writes everything into new tables and lets a new manifest name them.
    fn write(
        &mut self,
        readers: &[Arc<TableReader>],
        memtable: &Arc<Memtable>,
        last_in_log: SequenceNumber,
        identity: Identity,
    ) -> Result<()> {
        let vfs = Arc::clone(&self.components.vfs);
        let largest = self.files.iter().map(|&(_, number)| number.0).max().unwrap_or(0);
        check_file_numbers(self.dir, largest)?;
        let next_file = Cell::new(largest + 1);
        let new_number = || FileNumber(next_file.replace(next_file.get() + 1));
        self.report.lost_dir = self.new_lost_dir(&new_number)?;
        self.set_aside(&self.report.tables_lost.clone())?;

        let opener = TableOpener {
            vfs: Arc::clone(&vfs),
            dir: self.dir.to_path_buf(),
            store_id: identity.0,
            hash_seed: identity.1,
            memory: Memory::new(&Options::new().cache_size(0), None),
            verify_reads: false,
        };
        let mut sources = vec![Child::Memtable(memtable.iter())];
        sources.extend(readers.iter().map(|reader| Child::Table(reader.iter(false))));
        let input = MergingIterator::new(sources);
        let splitter = OutputSplitter::new(self.options.table_size, u64::MAX, Vec::new());
        let stripes = SnapshotStripes::new([], MAX_SEQUENCE);
        let mut job = CompactionJob::new(input, stripes, DeeperTables::none(), splitter, false);
        let mut made = MadeTables::default();
        let mut sink = TableSink {
            vfs: vfs.as_ref(),
            opener: &opener,
            options: self.options.table_options(),
            created: self.components.clock.unix_millis(),
            new_number: &new_number,
            made: &mut made,
            room: None,
        };
        while job.step(&mut sink, usize::MAX)? == Step::More {}
        self.report.entries = job.stats().entries_out;

        let newest = readers.iter().map(|reader| reader.properties().largest_seq).max().unwrap_or(0);
        let manifest = new_number();
        let mut edit = VersionEdit::new();
        for table in made.finished {
            edit.add_table(KEYSPACE, NUM_LEVELS - 1, table);
        }
        edit.last_sequence = Some(newest.max(last_in_log));
        edit.next_file = Some(FileNumber(next_file.get()));
        let state = ManifestState::new(identity.0, identity.1).apply(&edit)?;
        sync_dir(vfs.as_ref(), self.dir)?;
        ManifestWriter::create(vfs, self.dir, manifest, &state).map_err(|failed| failed.error)?;
        let old: Vec<PathBuf> =
            self.files.iter().filter_map(|&(kind, number)| self.movable(kind, number)).collect();
        self.set_aside(&old)
    }

    fn movable(&self, kind: FileKind, number: FileNumber) -> Option<PathBuf> {
        let path = kind.path(self.dir, number);
        let old = matches!(kind, FileKind::Table | FileKind::Wal | FileKind::Manifest);
        (old && !self.report.tables_lost.contains(&path)).then_some(path)
    }

    /// A path under which there is nothing yet: what is there may be full of files, or a link to another place.
    fn new_lost_dir(&self, new_number: &dyn Fn() -> FileNumber) -> Result<PathBuf> {
        loop {
            let path = self.dir.join(format!("lost-{}", new_number()));
            let there =
                self.components.vfs.kind(&path).map_err(|error| Error::io("look at", &path, error))?;
            if there.is_none() {
                return Ok(path);
            }
        }
    }

    /// Moves old files, as far as they are there, to the directory for them.
    fn set_aside(&self, paths: &[PathBuf]) -> Result<()> {
        if paths.is_empty() {
            return Ok(());
        }
        let vfs = self.components.vfs.as_ref();
        let lost = &self.report.lost_dir;
        vfs.create_dir_all(lost).map_err(|error| Error::io("create", lost, error))?;
        for path in paths {
            let Some(name) = path.file_name() else { continue };
            match vfs.rename(path, &lost.join(name)) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(Error::io("rename", path, error));
                }
                _ => {}
            }
        }
        sync_dir(vfs, lost)?;
        sync_dir(vfs, self.dir)
    }
}

/// Inserts a batch that may be anything: whole, or not at all.
fn insert(memtable: &Memtable, payload: &[u8], first: SequenceNumber) -> bool {
    let payload: Arc<[u8]> = Arc::from(payload);
    let good = |op: BatchOp| op.keyspace == KEYSPACE && op.kind.is_supported();
    let mut count = 0;
    BatchReader::new(&payload).inspect(|_| count += 1).all(|op| op.is_ok_and(good))
        && memtable.writer().insert_batch(&payload, first, count, |_| ()).is_ok()
}
