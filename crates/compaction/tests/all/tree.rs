//! A database without files: real entries in memory, real versions, the real picker, iterator and splitter.
//!
//! It checks itself against a model of all versions ever written, at the present and at every held snapshot.

use esker_base::{FileNumber, InternalKey, MergingIterator, SequenceNumber, Slice, ValueKind, VecIterator};
use esker_compaction::{
    Compaction, CompactionIterator, CompactionPicker, DeeperKeys, DeeperTables, LeveledOptions,
    LeveledPicker, ManualCompaction, ManualPick, OutputRange, OutputSplitter, PickInput, RewriteStats,
    SnapshotStripes,
};
use esker_manifest::{TableMetadata, Version, VersionEdit};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

pub type Entry = (InternalKey, Slice);

/// A compaction that has started: its snapshots and tables are captured, its result is not installed.
pub struct Running {
    pub compaction: Compaction,
    stripes: SnapshotStripes,
}

pub struct Tree {
    pub version: Version,
    pub options: LeveledOptions,
    pub files: HashMap<FileNumber, Arc<[Entry]>>,
    pub snapshots: Vec<SequenceNumber>,
    pub running: Vec<Running>,
    memtable: BTreeMap<InternalKey, Slice>,
    model: BTreeMap<Vec<u8>, Vec<(SequenceNumber, Option<Slice>)>>,
    last_seq: SequenceNumber,
    last_file: u64,
    pub stats: RewriteStats,
    /// Compactions of level 0 into itself.
    pub merged_runs: u64,
}

/// What an entry adds to the size of a table, besides its key and value.
const ENTRY_OVERHEAD: u64 = 8;

impl Tree {
    pub fn new(options: LeveledOptions) -> Self {
        Tree {
            version: Version::new(),
            options,
            files: HashMap::new(),
            snapshots: Vec::new(),
            running: Vec::new(),
            memtable: BTreeMap::new(),
            model: BTreeMap::new(),
            last_seq: 0,
            last_file: 0,
            stats: RewriteStats::default(),
            merged_runs: 0,
        }
    }

    pub fn put(&mut self, key: &[u8], value: &[u8]) {
        self.write(key, ValueKind::Put, Slice::copy_from(value));
    }

    pub fn delete(&mut self, key: &[u8]) {
        self.write(key, ValueKind::Delete, Slice::copy_from(b""));
    }

    fn write(&mut self, key: &[u8], kind: ValueKind, value: Slice) {
        self.last_seq += 1;
        let versions = self.model.entry(key.to_vec()).or_default();
        versions.push((self.last_seq, (kind == ValueKind::Put).then(|| value.clone())));
        self.memtable.insert(InternalKey::new(key, self.last_seq, kind), value);
    }

    pub fn snapshot(&mut self) -> SequenceNumber {
        self.snapshots.push(self.last_seq);
        self.last_seq
    }

    pub fn stripes(&self) -> SnapshotStripes {
        SnapshotStripes::new(self.snapshots.iter().copied(), self.last_seq)
    }

    pub fn flush(&mut self) {
        let entries: Vec<Entry> = std::mem::take(&mut self.memtable).into_iter().collect();
        let input = MergingIterator::new(vec![VecIterator::new(entries)]);
        let deeper = DeeperTables::below_memtables(&self.version);
        let stripes = self.stripes();
        let mut edit = VersionEdit::new();
        for table in self.rewrite(input, stripes, deeper, OutputSplitter::never(), false) {
            edit.add_table(0, 0, table);
        }
        self.install(&edit);
    }

    /// Puts a table with these versions into a level, past all policy.
    pub fn place(&mut self, level: usize, entries: Vec<Entry>) {
        for (key, value) in &entries {
            self.last_seq = self.last_seq.max(key.seq);
            let versions = self.model.entry(key.user_key.clone()).or_default();
            versions.push((key.seq, (key.kind == ValueKind::Put).then(|| value.clone())));
            versions.sort_by_key(|(seq, _)| *seq);
        }
        let table = self.new_table(entries);
        let mut edit = VersionEdit::new();
        edit.add_table(0, level, table);
        self.install(&edit);
    }

    pub fn pick(&self) -> Option<Compaction> {
        self.with_input(|input| LeveledPicker.pick(input))
    }

    pub fn with_input<R>(&self, use_input: impl FnOnce(&PickInput<'_>) -> R) -> R {
        let busy: BTreeSet<FileNumber> =
            self.running.iter().flat_map(|running| running.compaction.input_numbers()).collect();
        let running: Vec<OutputRange> =
            self.running.iter().map(|running| running.compaction.output_range()).collect();
        use_input(&PickInput {
            version: &self.version,
            busy: &busy,
            running: &running,
            oldest_snapshot: self.stripes().oldest(),
            scanned_tombstones: 0,
            options: &self.options,
        })
    }

    /// Starts a compaction, after checking what holds for every pick.
    pub fn start(&mut self, compaction: Compaction) {
        self.check_pick(&compaction);
        let stripes = self.stripes();
        self.running.push(Running { compaction, stripes });
    }

    /// Executes and installs the running compaction at `index`.
    pub fn finish(&mut self, index: usize) -> Compaction {
        let Running { compaction, stripes } = self.running.swap_remove(index);
        let mut edit = VersionEdit::new();
        compaction.record(0, &mut edit);
        if !compaction.trivial_move {
            // Newer sources come first: level 0 is newest first, upper levels come before lower ones.
            let sources = compaction.input_tables().map(|(_, table)| self.open(table)).collect();
            let splitter = compaction.splitter(&self.options);
            let deeper = compaction.deeper_tables();
            let zero = compaction.zeroes_sequences();
            let outputs = self.rewrite(MergingIterator::new(sources), stripes, deeper, splitter, zero);
            // In level 0 their order is that of the sequence numbers.
            assert!(compaction.output_level > 0 || outputs.iter().all(|table| table.smallest_seq > 0));
            for table in outputs {
                edit.add_table(0, compaction.output_level, table);
            }
        }
        self.install(&edit);
        self.merged_runs += u64::from(compaction.output_level == 0);
        compaction
    }

    /// Picks and executes one compaction; `false` if there is none.
    pub fn step(&mut self) -> bool {
        let Some(compaction) = self.pick() else { return false };
        self.start(compaction);
        self.finish(self.running.len() - 1);
        true
    }

    /// Compacts until the picker is content.
    pub fn settle(&mut self) {
        let mut steps = 0;
        while self.step() {
            steps += 1;
            assert!(steps < 10_000, "the picker finds no end:\n{}\n{:?}", self.version, self.pick());
        }
    }

    pub fn compact_range(&mut self, begin: Option<&[u8]>, end: Option<&[u8]>) {
        self.flush();
        let mut manual =
            ManualCompaction::new(begin.map(<[u8]>::to_vec), end.map(<[u8]>::to_vec), &self.version);
        for _ in 0..10_000 {
            match self.with_input(|input| manual.pick(input)) {
                ManualPick::Compact(compaction) => {
                    self.start(*compaction);
                    let done = self.finish(self.running.len() - 1);
                    manual.completed(&done);
                }
                ManualPick::Wait => drop(self.finish(0)),
                ManualPick::Done => return,
            }
        }
        panic!("the manual compaction finds no end:\n{}", self.version);
    }

    /// Starts the first step of a manual compaction, and leaves it running.
    pub fn start_manual(&mut self, begin: Vec<u8>, end: Vec<u8>) {
        let mut manual = ManualCompaction::new(Some(begin), Some(end), &self.version);
        if let ManualPick::Compact(compaction) = self.with_input(|input| manual.pick(input)) {
            self.start(*compaction);
        }
    }

    fn open(&self, table: &TableMetadata) -> VecIterator {
        VecIterator::new(Arc::clone(&self.files[&table.number]))
    }

    /// What a job does, with tables in memory.
    fn rewrite(
        &mut self,
        input: MergingIterator<VecIterator>,
        stripes: SnapshotStripes,
        deeper: impl DeeperKeys,
        mut splitter: OutputSplitter,
        zero: bool,
    ) -> Vec<Arc<TableMetadata>> {
        let mut iter = CompactionIterator::new(input, stripes, deeper, zero);
        iter.seek_to_first().unwrap();
        let (mut outputs, mut open, mut size) = (Vec::new(), Vec::<Entry>::new(), 0);
        while iter.valid() {
            if iter.first_of_key() && splitter.cut_before(iter.key().user_key, size) {
                outputs.push(std::mem::take(&mut open));
                size = 0;
            }
            open.push((iter.key().to_owned(), Slice::copy_from(iter.value())));
            size += (iter.key().user_key.len() + iter.value().len()) as u64 + ENTRY_OVERHEAD;
            iter.next().unwrap();
        }
        if !open.is_empty() {
            outputs.push(open);
        }
        self.stats += *iter.stats();
        outputs.into_iter().map(|entries| self.new_table(entries)).collect()
    }

    fn new_table(&mut self, entries: Vec<Entry>) -> Arc<TableMetadata> {
        self.last_file += 1;
        let number = FileNumber(self.last_file);
        let size = |(key, value): &Entry| (key.user_key.len() + value.len()) as u64 + ENTRY_OVERHEAD;
        let seqs = || entries.iter().map(|(key, _)| key.seq);
        let table = TableMetadata {
            number,
            file_size: entries.iter().map(size).sum(),
            tail_size: 0,
            smallest: entries.first().unwrap().0.clone(),
            largest: entries.last().unwrap().0.clone(),
            smallest_seq: seqs().min().unwrap(),
            largest_seq: seqs().max().unwrap(),
            entries: entries.len() as u64,
            deletes: entries.iter().filter(|(key, _)| key.kind == ValueKind::Delete).count() as u64,
        };
        self.files.insert(number, entries.into());
        Arc::new(table)
    }

    fn install(&mut self, edit: &VersionEdit) {
        self.version = self.version.apply(0, edit).expect("the edit keeps the invariants");
        let live: BTreeSet<FileNumber> = self.version.tables().map(|(_, table)| table.number).collect();
        self.files.retain(|number, _| live.contains(number));
    }

    /// No input is busy or missing, none is left out that shares a user key.
    fn check_pick(&self, compaction: &Compaction) {
        let mut seen = BTreeSet::new();
        for (level, table) in compaction.input_tables() {
            assert!(seen.insert(table.number), "{compaction}: {} twice", table.number);
            assert!(
                self.version.level(level).tables().contains(table),
                "{compaction}: {} is gone",
                table.number
            );
            for running in &self.running {
                assert!(
                    running.compaction.input_numbers().all(|number| number != table.number),
                    "{compaction}: busy"
                );
            }
        }
        if compaction.output_level == 0 {
            let level0 = self.version.level(0).tables();
            let newest = level0.iter().take_while(|table| seen.contains(&table.number)).count();
            assert_eq!(newest, seen.len(), "{compaction}: not the newest side by side");
        }
        let shares = |a: &TableMetadata, b: &TableMetadata| a.overlaps(b);
        for (level, table) in compaction.input_tables() {
            for other in self.version.level(level).tables() {
                let left_out = !seen.contains(&other.number) && shares(table, other);
                // What is merged inside of level 0 stays above all that is older.
                let older =
                    level > 0 || (other.largest_seq < table.largest_seq && compaction.output_level > 0);
                assert!(!(left_out && older), "{compaction}: leaves out {other}");
            }
        }
    }

    /// Every key reads as in the model, now and at every snapshot; no version lies below an older one of its key.
    pub fn check(&self) {
        self.version.check_invariants().unwrap();
        let present = [self.last_seq];
        for (key, versions) in &self.model {
            for &seq in self.snapshots.iter().chain(&present) {
                let expected =
                    versions.iter().rev().find(|(at, _)| *at <= seq).and_then(|(_, value)| value.as_ref());
                let found = self.read(key, seq);
                assert_eq!(found, expected, "key {} at {seq}\n{}", key.escape_ascii(), self.version);
            }
        }
        self.check_depths();
    }

    /// As a lookup does it: the first version that is visible ends it.
    pub fn read(&self, key: &[u8], seq: SequenceNumber) -> Option<&Slice> {
        let target = InternalKey::new(key, seq, ValueKind::PutExpiring);
        let hit = |(found, value)| ((found as &InternalKey).kind == ValueKind::Put).then_some(value);
        if let Some((found, value)) = self.memtable.range(target.clone()..).next()
            && found.user_key == key
        {
            return hit((found, value));
        }
        for table in self.version.tables_for(key) {
            let entries = &self.files[&table.number];
            let at = entries.partition_point(|(found, _)| *found < target);
            if let Some((found, value)) = entries.get(at).filter(|(found, _)| found.user_key == key) {
                return hit((found, value));
            }
        }
        None
    }

    fn check_depths(&self) {
        let mut oldest: HashMap<&[u8], (SequenceNumber, FileNumber)> = HashMap::new();
        for (level, table) in self.version.tables() {
            let mut here: HashMap<&[u8], SequenceNumber> = HashMap::new();
            for (key, _) in self.files[&table.number].iter() {
                if let Some((above, number)) = oldest.get(key.user_key.as_slice()) {
                    let in_order =
                        key.seq < *above || (key.seq == 0 && *above == 0 && *number == table.number);
                    assert!(in_order, "{key:?} in L{level} {} lies below #{above} in {number}", table.number);
                }
                here.insert(&key.user_key, key.seq);
            }
            for (key, seq) in here {
                oldest.insert(key, (seq, table.number));
            }
        }
    }

    /// Entries in all tables.
    pub fn entries(&self) -> u64 {
        self.version.tables().map(|(_, table)| table.entries).sum()
    }
}
