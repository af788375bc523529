//! `salvage`: every entry of a damaged table that can still be read, in a new table.
//!
//! The only command that writes, and it writes one new file. See [`salvage_plan`](crate::salvage_plan) for how blocks are
//! found; here the identity is settled, and the entries are copied in order.

use crate::block_search::Context;
use crate::fault::{Class, Failure, Fault, name};
use crate::picture::Picture;
use crate::salvage_plan::{By, Plan, plan};
use crate::salvage_report::{KeyBound, LostRange, SalvageReport};
use crate::salvage_scan::Scanner;
use crate::target::{Kind, Target, foreign};
use crate::text::Form;
use esker_base::{Error, FileNumber, InternalKey};
use esker_manifest::dump_manifest;
use esker_sstable::{
    HEADER_LEN, StoredBlocks, TableBuilder, TableIdentity, TableOptions, VERSION, read_table_footer,
};
use esker_vfs::Vfs;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// What is known about the table from elsewhere. It counts before what the file says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SalvageOptions {
    /// The store that the table belongs to.
    pub store_id: Option<u128>,
    /// The number of the table.
    pub number: Option<FileNumber>,
    /// The seed of the store's hash of keys, for the filter.
    pub hash_seed: Option<u64>,
    /// A manifest of the store, which says its id and its hash seed. It counts after what the file says.
    pub manifest: Option<PathBuf>,
}

/// Copies what can be read of the table `input` into the new file `output`, and syncs that.
///
/// When nothing can be read, `output` is not left behind.
///
/// # Errors
///
/// When there is an `output`, when `input` can't be opened or nothing says which table it is, when no entry can be read,
/// and when `output` can't be written.
pub fn salvage(
    vfs: &dyn Vfs,
    input: &Path,
    output: &Path,
    options: &SalvageOptions,
    form: Form,
) -> Result<SalvageReport, Failure> {
    if vfs.kind(output).map_err(|error| Error::io("look at", output, error))?.is_some() {
        return Err(Fault::of(Class::Usage, output, "it exists, and salvage overwrites nothing").into());
    }
    let target = Target::open(vfs, input)?;
    let is_told = options.store_id.is_some() && options.number.is_some();
    match target.kind {
        Kind::Table => {}
        Kind::Foreign if is_told => {}
        Kind::Foreign => return Err(foreign(input).into()),
        kind => {
            let what = format!("it is a {}, not a table", kind.name());
            return Err(Fault::of(Class::Usage, input, what).into());
        }
    }
    let manifest = options.manifest.as_deref().map(|path| store_of(vfs, path)).transpose()?;
    let (store_id, number) = identity(&target, options, manifest)?;
    let plan = plan(&target, store_id, number);
    let stated = plan.properties.as_ref().map(|properties| properties.hash_seed);
    let of_manifest = manifest.filter(|(store, _)| *store == store_id).and_then(|(_, seed)| seed);
    let hash_seed = options.hash_seed.or(stated).or(of_manifest);
    let identity = TableIdentity { store_id, number, hash_seed: hash_seed.unwrap_or(0) };
    let mut copy = Copy::new(&target, &plan, identity, form);
    copy.report.out = name(output);
    copy.report.hash_seed = hash_seed.map(|seed| format!("{seed:016x}"));
    let written = copy.run(vfs, output, hash_seed.is_some());
    if written.is_err() && copy.is_created {
        // What was begun is no table. That it can't be removed is the lesser trouble.
        let _ = vfs.remove(output);
    }
    written?;
    Ok(copy.report)
}

/// Store id and hash seed, as a manifest says.
fn store_of(vfs: &dyn Vfs, path: &Path) -> Result<(u128, Option<u64>), Failure> {
    let picture = Picture::new(&dump_manifest(vfs, path)?);
    let store_id = picture.store_id.ok_or_else(|| Fault::damage(path, 0, "it does not say its store"))?;
    Ok((store_id, picture.hash_seed))
}

/// Which table it is: as the options say, else the footer, which has a checksum, else header, manifest and name. Of
/// several possible ones it is the first under which there is a block behind the header.
fn identity(
    target: &Target,
    options: &SalvageOptions,
    manifest: Option<(u128, Option<u64>)>,
) -> Result<(u128, FileNumber), Failure> {
    let footer = read_table_footer(&target.file, &target.path).ok();
    let header = header(target);
    let footer = footer.map(|footer| (footer.store_id, footer.number));
    let stores = [options.store_id, footer.map(|id| id.0), header.map(|id| id.0), manifest.map(|id| id.0)];
    let numbers = [options.number, footer.map(|id| id.1), header.map(|id| id.1), target.number];
    let pick = |told: bool, from: usize| if told { 0..1 } else { from..4 };
    let mut ids = Vec::new();
    for store in &stores[pick(options.store_id.is_some(), 1)] {
        for number in &numbers[pick(options.number.is_some(), 1)] {
            ids.extend(store.zip(*number).filter(|id| !ids.contains(id)));
        }
    }
    let begins = |&&(store_id, number): &&(u128, FileNumber)| {
        let blocks = StoredBlocks::new(target.file.clone(), target.path.clone(), store_id, number);
        let context = Context::new(store_id, number);
        let mut scanner = Scanner::new(&*target.file, 0, &blocks, context);
        scanner.run(HEADER_LEN as u64..target.size).is_some()
    };
    let sure = if ids.len() > 1 { ids.iter().find(begins) } else { None };
    sure.or(ids.first()).copied().ok_or_else(|| {
        let what = "neither header nor footer says which table of which store it is; --store-id and --number \
                    (or --manifest and the file's own name) can";
        Fault::damage(&target.path, 0, what).into()
    })
}

/// What the header says, if its start is that of a table. It has no checksum.
fn header(target: &Target) -> Option<(u128, FileNumber)> {
    let mut header = [0; HEADER_LEN];
    target.file.read_exact_at(0, &mut header).ok()?;
    let mut reader = esker_base::coding::Reader::new(&header);
    let starts = reader.take(6)? == b"ESKSST" && u32::from(reader.u16()?) == VERSION;
    starts.then_some((reader.u128()?, FileNumber(reader.u64()?)))
}

/// A stretch that is lost and not yet reported, since the key behind it is not known yet.
#[derive(Debug)]
struct Hole {
    range: Range<u64>,
    blocks: u64,
    what: String,
}

struct Copy<'a> {
    target: &'a Target,
    plan: &'a Plan,
    blocks: StoredBlocks,
    identity: TableIdentity,
    form: Form,
    report: SalvageReport,
    holes: Vec<Hole>,
    /// The last key that was copied.
    last: Option<InternalKey>,
    is_created: bool,
}

impl<'a> Copy<'a> {
    fn new(target: &'a Target, plan: &'a Plan, identity: TableIdentity, form: Form) -> Self {
        let TableIdentity { store_id, number, .. } = identity;
        let report = SalvageReport {
            file: name(&target.path),
            size: target.size,
            store_id: format!("{store_id:032x}"),
            number: number.0,
            found_by: match plan.by {
                By::Index => "index",
                By::Scan => "scan",
                By::Both => "index and scan",
            },
            entries_expected: plan.properties.as_ref().map(|properties| properties.entries),
            notes: plan.notes.clone(),
            ..SalvageReport::default()
        };
        let blocks = StoredBlocks::new(target.file.clone(), target.path.clone(), store_id, number);
        let (holes, last) = (Vec::new(), None);
        Copy { target, plan, blocks, identity, form, report, holes, last, is_created: false }
    }

    fn run(&mut self, vfs: &dyn Vfs, output: &Path, with_filter: bool) -> Result<(), Failure> {
        let file = vfs.create_new(output).map_err(|error| Error::io("create", output, error))?;
        self.is_created = true;
        let properties = self.plan.properties.as_deref();
        let mut options = TableOptions::default();
        if let Some(properties) = properties {
            let size = |size: u64| usize::try_from(size).unwrap_or(usize::MAX);
            options.block_size = size(properties.block_size);
            options.restart_interval = size(properties.restart_interval);
            options.compression = properties.compression;
            options.bloom_bits = u32::try_from(properties.bloom_bits).unwrap_or(u32::MAX);
        }
        if !with_filter {
            options.bloom_bits = 0;
        }
        let created = properties.map_or(0, |properties| properties.created_unix_ms);
        let mut builder = TableBuilder::new(file, output.into(), &options, self.identity, created);
        let mut at = HEADER_LEN as u64;
        for block in &self.plan.blocks {
            if at < block.start {
                self.hole(at..block.start, 0, "no block was found in it");
            }
            self.block(block, &mut builder)?;
            at = at.max(block.end);
        }
        self.end(at);
        let expected = self.report.entries_expected;
        if self.report.entries == 0 && (expected != Some(0) || !self.report.gaps.is_empty()) {
            let what = "no entry can be read; nothing was written. If the header is damaged too, --store-id \
                        and --number may help";
            return Err(Fault::damage(&self.target.path, 0, what).into());
        }
        let finished = builder.finish()?;
        self.report.out_size = finished.summary.file_size;
        self.report.has_filter = finished.summary.filter_size > 0;
        let mut file = finished.file;
        let io = |op: &'static str| move |error| Error::io(op, output, error);
        file.sync_all().map_err(io("sync"))?;
        file.close().map_err(io("close"))?;
        let dir = output.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
        vfs.sync_dir(dir).map_err(|error| Error::io("sync", dir, error))?;
        Ok(())
    }

    /// Copies a block, or notes that it is lost.
    fn block(&mut self, range: &Range<u64>, builder: &mut TableBuilder) -> Result<(), Failure> {
        let len = range.end - range.start;
        let (mut first, mut is_supported, mut entries) = (None, true, 0);
        let looked = self.blocks.entries(range.start, len, &mut |entry| {
            first.get_or_insert_with(|| entry.key.to_owned());
            is_supported &= entry.key.kind.is_supported();
            entries += 1;
        });
        let lost = match (looked, &first) {
            (Err(error), _) => Some(Fault::from(error).what),
            (Ok(dump), _) if dump.entries != entries => {
                Some("block with a wrong number of entries".to_owned())
            }
            (Ok(_), None) => Some("data block without entries".to_owned()),
            _ if !is_supported => Some("entries of a kind that this build does not know".to_owned()),
            (Ok(_), Some(first)) if self.last.as_ref().is_some_and(|last| last >= first) => {
                Some("intact, but its keys are not behind those before it: left out".to_owned())
            }
            _ => None,
        };
        if let Some(what) = lost {
            self.hole(range.clone(), 1, &what);
            return Ok(());
        }
        if let Some(first) = &first {
            self.fill_holes(Some(first));
        }
        let mut failed = None;
        let last = self.last.get_or_insert_default();
        self.blocks.entries(range.start, len, &mut |entry| {
            if failed.is_none() {
                failed = builder.add(entry.key, entry.value).err();
                last.assign(entry.key);
            }
        })?;
        if let Some(error) = failed {
            return Err(error.into());
        }
        self.report.blocks += 1;
        self.report.entries += entries as u64;
        Ok(())
    }

    fn hole(&mut self, range: Range<u64>, blocks: u64, what: &str) {
        match self.holes.last_mut() {
            Some(hole) if hole.range.end == range.start => {
                hole.range.end = range.end;
                hole.blocks += blocks;
            }
            _ => self.holes.push(Hole { range, blocks, what: what.to_owned() }),
        }
    }

    /// Reports the holes before a key, or before the end.
    fn fill_holes(&mut self, before: Option<&InternalKey>) {
        for hole in std::mem::take(&mut self.holes) {
            let Range { start, end } = hole.range;
            let gap = LostRange {
                offset: start,
                length: end - start,
                blocks: (hole.blocks > 0).then_some(hole.blocks),
                after: self.last.as_ref().map(|key| KeyBound::new(key, self.form)),
                before: before.map(|key| KeyBound::new(key, self.form)),
                what: hole.what,
            };
            self.report.faults.push(Fault::damage(&self.target.path, start, gap.to_string()));
            self.report.gaps.push(gap);
        }
    }

    /// Behind the last block: what the data end, or its absence, says.
    fn end(&mut self, at: u64) {
        let whole = self.report.entries_expected == Some(self.report.entries);
        match self.plan.data_end {
            Some(end) if at < end => self.hole(at..end, 0, "no block was found in it"),
            None if !whole => {
                let what = "nothing says where the data end; entries may be missing from here on";
                self.hole(at..self.target.size.max(at), 0, what);
            }
            _ => {}
        }
        self.fill_holes(None);
        if let Some(expected) = self.report.entries_expected
            && self.report.gaps.is_empty()
            && !whole
        {
            let what = format!("{} entries, the properties say {expected}", self.report.entries);
            self.report.faults.push(Fault::damage(&self.target.path, 0, what));
        }
    }
}
