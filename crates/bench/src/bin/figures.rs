//! `figures`: the published rows, measured in one run, beside the published figures and the floors.
//!
//! Prints four Markdown tables: speed, ratios between our own rows, allocations, and memory at most. In a round every row makes four
//! passes over the 2,000 entries, of which the fastest counts; the figure is the median of the rounds. With `--check` the
//! exit code is 1 when a floor is missed; `--rounds N` sets the number of rounds (at least 7, 21 without).
//!
//! The allocator of this program counts, which costs a put 2 to 3 %.

use esker::vfs::{CrashMode, MemVfs};
use esker::{Batch, Cursor, Db, WriteBatch};
use esker_bench::data::{DataSet, ENTRIES};
use esker_bench::fixture::{self, BeforeCompaction};
use esker_bench::measure::{Series, interleave, nanos_each, time};
use std::hint::black_box;
use std::process::ExitCode;
use std::time::Duration;

const ROUNDS: usize = 21;
/// Puts in a batch.
const BATCH: usize = 500;
/// Passes over the set in one round, of which the fastest counts: the others were disturbed.
const PASSES: usize = 4;

const PUT: &str = "put into memtable";
const MEMTABLE_GET: &str = "get from memtable";
const L0_GET: &str = "get from L0 sstable";
const L0_LONG_GET: &str = "get from L0 sstable v3 long shared prefix keys";
const L2_GET: &str = "get from L2 sstable";
const MISS: &str = "get miss";
const MULTI_GET: &str = "multi_get of 250 from memtable, per key";
const MULTI_GET_WITH: &str = "multi_get_with of 250 from L0 sstable, per key";
const SCAN: &str = "scan 2000 entries memtable + L0, per entry";
const CURSOR: &str = "the same with a cursor";
const BATCHES: &str = "the same by batches of a cursor";
const REVERSE: &str = "scan reverse, per entry";
const WRITE_BATCH: &str = "WriteBatch 500 puts, per put";
const COMPACT: &str = "compact L1 merge, per entry";
const RECOVER: &str = "open after an unclean end, per entry";

/// The figure that was published for a row, in nanoseconds, and how many times faster we must be.
const PUBLISHED: [(&str, f64, f64); 7] = [
    (PUT, 784.0, 1.0),
    (MEMTABLE_GET, 370.0, 2.0),
    (L0_GET, 2_600.0, 2.0),
    (L2_GET, 2_680.0, 2.0),
    (SCAN, 154.0, 2.0),
    (WRITE_BATCH, 738.0, 2.0),
    (COMPACT, 570.0, 2.0),
];

/// A row may take at most so many times as long as another one. Those that are not a floor are printed only.
const RATIOS: [(&str, &str, f64, bool); 10] = [
    (L2_GET, L0_GET, 1.10, true),
    (WRITE_BATCH, PUT, 0.94, true),
    (L0_GET, MEMTABLE_GET, 7.0, false),
    (L0_LONG_GET, L0_GET, 1.38, false),
    (MISS, L0_GET, 1.0 / 3.1, false),
    (MULTI_GET, MEMTABLE_GET, 0.75, false),
    (MULTI_GET_WITH, L0_GET, 0.75, false),
    (SCAN, MEMTABLE_GET, 0.42, false),
    (COMPACT, SCAN, 3.7, false),
    (RECOVER, PUT, 1.0, false),
];

fn main() -> ExitCode {
    let (rounds, check) = match arguments() {
        Ok(arguments) => arguments,
        Err(problem) => {
            eprintln!("{problem}\nusage: figures [--check] [--rounds N]");
            return ExitCode::from(2);
        }
    };
    let databases = Databases::new();
    let mut series = databases.series();
    interleave(&mut series, rounds);
    println!("Medians of {rounds} interleaved rounds, nanoseconds.\n");
    let missed = print_speed(&series) + print_ratios(&series) + print_allocations(&databases);
    print_heap(&databases);
    if missed > 0 {
        eprintln!("{missed} floors missed");
    }
    if check && missed > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Number of rounds, and whether to check.
fn arguments() -> Result<(usize, bool), String> {
    let (mut rounds, mut check) = (ROUNDS, false);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--check" => check = true,
            "--rounds" => {
                let number = arguments.next().and_then(|number| number.parse().ok());
                rounds =
                    number.filter(|rounds| *rounds >= 7).ok_or("--rounds needs a number of at least 7")?;
            }
            other => return Err(format!("unknown argument {other}")),
        }
    }
    Ok((rounds, check))
}

/// What the rows read from.
struct Databases {
    set: DataSet,
    long: DataSet,
    memtable: Db,
    level0: Db,
    level0_long: Db,
    level2: Db,
    mixed: Db,
    before_compaction: BeforeCompaction,
    unclean: MemVfs,
}

impl Databases {
    fn new() -> Self {
        let (set, long) = (DataSet::sequential(), DataSet::long_prefix());
        Databases {
            memtable: fixture::in_memtable(&set),
            level0: fixture::in_level0(&set),
            level0_long: fixture::in_level0(&long),
            level2: fixture::in_level2(&set),
            mixed: fixture::in_memtable_and_level0(&set),
            before_compaction: BeforeCompaction::new(&set, fixture::options()),
            unclean: fixture::unclean_end(ENTRIES),
            set,
            long,
        }
    }

    fn series(&self) -> Vec<Series<'_>> {
        let set = &self.set;
        vec![
            Series::new(PUT, || fresh(|db| fixture::put_all(db, set))),
            Series::new(MEMTABLE_GET, || gets(&self.memtable, &set.shuffled, true)),
            Series::new(L0_GET, || gets(&self.level0, &set.shuffled, true)),
            Series::new(L0_LONG_GET, || gets(&self.level0_long, &self.long.shuffled, true)),
            Series::new(L2_GET, || gets(&self.level2, &set.shuffled, true)),
            Series::new(MISS, || gets(&self.level0, &set.absent, false)),
            Series::new(MULTI_GET, || multi_gets(&self.memtable, &set.shuffled)),
            Series::new(MULTI_GET_WITH, || multi_gets_with(&self.level0, &set.shuffled)),
            Series::new(SCAN, || passes(|| scan(self.mixed.iter()))),
            Series::new(CURSOR, || passes(|| cursor_scan(&self.mixed))),
            Series::new(BATCHES, || passes(|| batch_scan(&mut self.mixed.cursor().expect("open")))),
            Series::new(REVERSE, || passes(|| scan(self.mixed.iter().rev()))),
            Series::new(WRITE_BATCH, || fresh(|db| fixture::write_batches(db, set, BATCH))),
            Series::new(COMPACT, || self.compaction()),
            Series::new(RECOVER, || self.recovery()),
        ]
    }

    fn recovery(&self) -> f64 {
        fastest(|| {
            let vfs = self.unclean.crash_clone_with(CrashMode::Keep);
            let mut db = None;
            let took = time(|| db = Some(fixture::open_on(vfs, fixture::options())));
            assert_eq!(db.map(|db| db.stats().last_sequence), Some(ENTRIES as u64));
            took
        })
    }

    fn compaction(&self) -> f64 {
        fastest(|| {
            let db = self.before_compaction.open();
            let took = time(|| fixture::compact(&db));
            fixture::assert_compacted(&db, ENTRIES);
            took
        })
    }
}

/// Nanoseconds an entry of the fastest of some passes over all entries.
fn fastest(pass: impl FnMut() -> Duration) -> f64 {
    let took = std::iter::repeat_with(pass).take(PASSES).min().expect("there are passes");
    nanos_each(took, ENTRIES)
}

/// Writes the set, each time into a new database.
fn fresh(write: impl Fn(&Db)) -> f64 {
    fastest(|| {
        let db = fixture::open(fixture::options());
        let took = time(|| write(&db));
        assert_eq!(db.stats().memtable_entries, ENTRIES as u64);
        took
    })
}

fn passes(mut pass: impl FnMut()) -> f64 {
    fastest(|| time(&mut pass))
}

fn gets(db: &Db, keys: &[Vec<u8>], hits: bool) -> f64 {
    passes(|| {
        for key in keys {
            let value = db.get(key).expect("tables are sound");
            assert_eq!(black_box(value).is_some(), hits);
        }
    })
}

fn multi_gets(db: &Db, keys: &[Vec<u8>]) -> f64 {
    passes(|| {
        for keys in keys.chunks(250) {
            black_box(db.multi_get(keys));
        }
    })
}

fn multi_gets_with(db: &Db, keys: &[Vec<u8>]) -> f64 {
    passes(|| {
        for keys in keys.chunks(250) {
            db.multi_get_with(keys, |_, answer| {
                assert!(black_box(answer.expect("tables are sound")).is_some());
            });
        }
    })
}

fn scan(entries: impl Iterator<Item = esker::Result<(esker::Slice, esker::Slice)>>) {
    let mut count = 0;
    for entry in entries {
        black_box(entry.expect("tables are sound"));
        count += 1;
    }
    assert_eq!(count, ENTRIES);
}

fn cursor_scan(db: &Db) {
    let mut count = 0;
    let mut cursor = db.cursor().expect("tables are sound");
    cursor.seek_to_first().expect("tables are sound");
    while cursor.valid() {
        black_box((cursor.key(), cursor.value()));
        count += 1;
        cursor.next().expect("tables are sound");
    }
    assert_eq!(count, ENTRIES);
}

fn batch_scan(cursor: &mut Cursor) {
    let mut count = 0;
    cursor.seek_to_first().expect("tables are sound");
    while cursor.valid() {
        let read = |batch: &Batch<'_>| batch.iter().map(black_box).count();
        count += cursor.next_batch(usize::MAX, read).expect("tables are sound");
    }
    assert_eq!(count, ENTRIES);
}

/// Allocations of a scan by batches with a cursor that has made one.
fn batch_allocations(db: &Db) -> (f64, f64) {
    let mut cursor = db.cursor().expect("open");
    batch_scan(&mut cursor);
    allocations(ENTRIES, || batch_scan(&mut cursor))
}

fn median_of(series: &[Series<'_>], name: &str) -> f64 {
    series.iter().find(|one| one.name() == name).expect("all rows are measured").median()
}

fn verdict(holds: bool) -> &'static str {
    if holds { "yes" } else { "**no**" }
}

/// Prints all rows. Returns how many floors are missed.
fn print_speed(series: &[Series<'_>]) -> usize {
    println!("| row | published | esker | spread | times as fast | floor | holds |");
    println!("|---|---:|---:|---:|---:|---:|---|");
    let mut missed = 0;
    for one in series {
        let (name, median, (least, most)) = (one.name(), one.median(), one.spread());
        print!("| {name} ");
        match PUBLISHED.iter().find(|(row, ..)| *row == name) {
            Some((_, published, floor)) => {
                let times = published / median;
                missed += usize::from(times < *floor);
                print!("| {published:.0} | {median:.1} | {least:.0}-{most:.0} | {times:.2} | {floor:.1} ");
                println!("| {} |", verdict(times >= *floor));
            }
            None => println!("| | {median:.1} | {least:.0}-{most:.0} | | | |"),
        }
    }
    println!();
    missed
}

/// Prints the ratios between rows. Returns how many floors are missed.
fn print_ratios(series: &[Series<'_>]) -> usize {
    println!("| row | by | ratio | at most | holds |");
    println!("|---|---|---:|---:|---|");
    let mut missed = 0;
    for (row, by, most, is_floor) in RATIOS {
        let ratio = median_of(series, row) / median_of(series, by);
        missed += usize::from(is_floor && ratio > most);
        let note = if is_floor { "" } else { " (not a floor)" };
        println!("| {row} | {by} | {ratio:.3} | {most:.2} | {}{note} |", verdict(ratio <= most));
    }
    println!();
    missed
}

/// Allocations and bytes of one of `operations` that `work` does.
fn allocations(operations: usize, work: impl FnOnce()) -> (f64, f64) {
    let info = allocation_counter::measure(work);
    let each = |total: u64| total as f64 / operations as f64;
    (each(info.count_total), each(info.bytes_total))
}

/// Prints allocations of an operation. Returns how many operations allocate that must not.
fn print_allocations(databases: &Databases) -> usize {
    let set = &databases.set;
    let reads = |db: &Db, keys: &[Vec<u8>]| {
        allocations(ENTRIES, || {
            for key in keys {
                black_box(db.get_with(key, <[u8]>::len).expect("tables are sound"));
            }
        })
    };
    let (put_db, batch_db) = (fixture::open(fixture::options()), fixture::open(fixture::options()));
    let mut batches = Vec::new();
    for entries in set.entries.chunks(BATCH) {
        let mut batch = WriteBatch::new();
        for (key, value) in entries {
            batch.put(key, value);
        }
        batches.push(batch);
    }
    let rows = [
        ("get_with, memtable hit", reads(&databases.memtable, &set.shuffled), true),
        ("get_with, hit in a cached table of level 0", reads(&databases.level0, &set.shuffled), true),
        ("get_with, hit in a cached table of level 2", reads(&databases.level2, &set.shuffled), true),
        ("get_with, miss in a cached table", reads(&databases.level0, &set.absent), true),
        ("put", allocations(ENTRIES, || fixture::put_all(&put_db, set)), false),
        (
            "write of a batch of 500, per put",
            {
                allocations(ENTRIES, || {
                    for batch in batches {
                        batch_db.write(batch).expect("memory can be written to");
                    }
                })
            },
            false,
        ),
        ("scan with an iterator, per entry", allocations(ENTRIES, || scan(databases.mixed.iter())), false),
        ("next_batch over memtable and level 0, per entry", batch_allocations(&databases.mixed), true),
        ("next_batch over a table of level 0, per entry", batch_allocations(&databases.level0), true),
        ("scan with a cursor, per scan", allocations(1, || cursor_scan(&databases.mixed)), false),
    ];
    println!("| operation | allocations | bytes | must be 0 |");
    println!("|---|---:|---:|---|");
    let mut missed = 0;
    for (name, (count, bytes), must_be_0) in rows {
        missed += usize::from(must_be_0 && count > 0.0);
        let holds = if must_be_0 { verdict(count == 0.0) } else { "" };
        println!("| {name} | {count:.3} | {bytes:.1} | {holds} |");
    }
    missed
}

/// Prints how much more memory than before was allocated at once while something was done, in bytes for an entry.
fn print_heap(databases: &Databases) {
    let set = &databases.set;
    let peak = |work: &mut dyn FnMut()| allocation_counter::measure(work).bytes_max as f64 / ENTRIES as f64;
    let (put_db, flush_db) = (fixture::open(fixture::options()), fixture::in_memtable(set));
    let compact_db = databases.before_compaction.open();
    let rows = [
        ("puts", peak(&mut || fixture::put_all(&put_db, set))),
        ("flush", peak(&mut || flush_db.flush().expect("memory can be written to"))),
        ("compaction", peak(&mut || fixture::compact(&compact_db))),
        ("scan with an iterator", peak(&mut || scan(databases.mixed.iter()))),
        ("open after an unclean end", {
            let vfs = databases.unclean.crash_clone_with(CrashMode::Keep);
            peak(&mut || drop(fixture::open_on(vfs.clone(), fixture::options())))
        }),
    ];
    println!(
        "\n| over 2,000 entries of 70 bytes, files in memory included | allocated at most, bytes an entry |"
    );
    println!("|---|---:|");
    for (name, bytes) in rows {
        println!("| {name} | {bytes:.0} |");
    }
}
