//! `table-sizes`: bytes of three tables, beside the published sizes of the same tables.
//!
//! Every table holds 2,000 entries with values of 64 bytes and the sequence numbers 1 to 2,000, uncompressed, with 10
//! bits of filter for a key. The published tables have no checksums and no properties; ours have both. Exits with 1
//! when a table is larger than the published one.

use esker_bench::data::{DataSet, ENTRIES};
use esker_bench::table::{build, plain_options};
use std::process::ExitCode;

/// A set of keys with the published sizes of its table, in bytes.
struct Row {
    name: &'static str,
    set: DataSet,
    version2: u64,
    version3: u64,
}

fn rows() -> [Row; 3] {
    [
        Row { name: "`k00000`..", set: DataSet::sequential(), version2: 152_739, version3: 146_325 },
        Row { name: "40-byte prefix", set: DataSet::long_prefix(), version2: 235_248, version3: 153_540 },
        Row { name: "random, 16 bytes", set: DataSet::random(), version2: 173_204, version3: 174_402 },
    ]
}

fn main() -> ExitCode {
    println!("| keys | published v2 | published v3 | esker | to v2 | to v3 | bytes an entry | |");
    println!("|---|---:|---:|---:|---:|---:|---:|---|");
    let mut missed = 0;
    for row in rows() {
        let (_, summary) = build(&row.set, &plain_options());
        let size = summary.file_size;
        let ratio = |published: u64| size as f64 / published as f64;
        let holds = size <= row.version3;
        missed += u32::from(!holds);
        println!(
            "| {} | {} | {} | {size} | {:.3} | {:.3} | {:.2} | {} |",
            row.name,
            row.version2,
            row.version3,
            ratio(row.version2),
            ratio(row.version3),
            size as f64 / ENTRIES as f64,
            if holds { "smaller" } else { "**larger**" },
        );
    }
    if missed > 0 {
        eprintln!("{missed} of 3 tables are larger than the published ones");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
