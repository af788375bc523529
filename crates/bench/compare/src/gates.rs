//! What is aimed at: a list of gates, and whether they hold in the figures of some runs. All ratios are between the best
//! of the rounds.

use crate::engine::Result;
use crate::report::{self, Clock, Results, number};
use crate::rows::{ROWS, Row};
use std::fmt::Write;
use std::path::PathBuf;

/// The other merge trees.
const LSM: &[&str] = &["rocksdb", "leveldb", "fjall", "surrealkv"];
/// Those of them with the same compression.
const SNAPPY: &[&str] = &["rocksdb", "leveldb", "surrealkv"];
const LMDB: &[&str] = &["lmdb"];
const ROCKSDB: &[&str] = &["rocksdb"];

/// What a figure is compared with.
#[derive(Clone, Copy, Debug)]
enum Rule {
    /// The best of these engines takes at least so many times as much.
    Ahead(&'static [&'static str], f64),
    /// At most so many times as much as the best of these engines.
    AtMost(&'static [&'static str], f64),
    /// At most so many times as much as another row of our own.
    Own(&'static str, f64),
}

/// Which runs a gate is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scale {
    Any,
    /// Fewer than a million entries.
    Small,
    /// A million entries or more.
    Large,
}

#[derive(Clone, Copy, Debug)]
struct Gate {
    row: &'static str,
    scale: Scale,
    rule: Rule,
}

const GATES: &[Gate] = {
    use Rule::*;
    use Scale::*;
    const fn gate(row: &'static str, scale: Scale, rule: Rule) -> Gate {
        Gate { row, scale, rule }
    }
    &[
        gate("fillrandom", Large, Ahead(LSM, 1.8)),
        gate("fillrandom.last", Large, Own("fillrandom.first", 1.5)),
        gate("p.batch", Any, Ahead(LSM, 4.0)),
        gate("p.batch", Any, Ahead(LMDB, 1.0)),
        gate("batch", Small, Ahead(LSM, 4.0)),
        gate("batch", Small, Ahead(LMDB, 1.0)),
        gate("get.memtable", Any, Ahead(LSM, 5.0)),
        gate("get.memtable", Any, Ahead(LMDB, 2.0)),
        gate("p.get.l0", Any, Ahead(LSM, 3.0)),
        gate("read.warm", Small, Ahead(LSM, 4.0)),
        gate("read.warm", Small, Ahead(LMDB, 1.0)),
        gate("read.warm", Large, Ahead(LSM, 4.0)),
        gate("read.warm", Large, Ahead(LMDB, 1.0)),
        gate("read.missing", Any, Ahead(LSM, 4.0)),
        gate("read.missing", Any, Ahead(LMDB, 1.0)),
        gate("read.missing", Any, Own("read.warm", 1.0 / 3.1)),
        gate("p.miss", Any, Ahead(LSM, 4.0)),
        gate("p.miss", Any, Own("p.get.bottom", 1.0 / 3.1)),
        gate("multiget", Any, Own("read.warm", 0.75)),
        gate("readseq", Any, Ahead(LSM, 5.0)),
        gate("readseq", Any, Ahead(LMDB, 1.0)),
        gate("p.scan", Any, Ahead(LSM, 4.0)),
        gate("readreverse", Any, Own("readseq", 1.4)),
        gate("seek10", Any, Ahead(LSM, 4.0)),
        gate("merge.cpu", Any, Ahead(LSM, 1.5)),
        gate("flush.cpu", Any, Ahead(LSM, 1.5)),
        gate("crash.open", Any, Ahead(LSM, 3.0)),
        gate("read.small", Any, Ahead(LSM, 2.0)),
        gate("size.compacted", Any, AtMost(SNAPPY, 1.0)),
        gate("memory.peak", Any, AtMost(ROCKSDB, 1.25)),
    ]
};

/// How a gate came out.
#[derive(Clone, Debug, PartialEq)]
struct Outcome {
    own: f64,
    other: f64,
    /// The engine or row that the other figure is of.
    of: &'static str,
    ratio: f64,
    holds: bool,
}

impl Gate {
    fn row(row: &str) -> &'static Row {
        ROWS.iter().find(|known| known.id == row).expect("gates are over rows of the report")
    }

    /// The outcome in one run, if it has the figures.
    fn outcome(&self, results: &Results) -> Option<Outcome> {
        let large = results.entries() >= 1_000_000;
        if self.scale == Scale::Large && !large || self.scale == Scale::Small && large {
            return None;
        }
        let best = |row: &str, engine: &str| Some(results.cell(Self::row(row), engine, Clock::Wall)?.best);
        let own = best(self.row, "esker")?;
        let best_of = |engines: &'static [&'static str]| {
            let all = engines.iter().filter_map(|&engine| Some((best(self.row, engine)?, engine)));
            all.min_by(|one, other| one.0.total_cmp(&other.0))
        };
        let (other, of) = match self.rule {
            Rule::Ahead(engines, _) | Rule::AtMost(engines, _) => best_of(engines)?,
            Rule::Own(row, _) => (best(row, "esker")?, Self::row(row).title),
        };
        let (ratio, holds) = match self.rule {
            Rule::Ahead(_, least) => (other / own, other / own >= least),
            Rule::AtMost(_, most) | Rule::Own(_, most) => (own / other, own / other <= most),
        };
        Some(Outcome { own, other, of, ratio, holds })
    }

    fn needed(&self) -> String {
        match self.rule {
            Rule::Ahead(_, least) => format!("{least:.2} times as fast"),
            Rule::AtMost(_, most) | Rule::Own(_, most) => format!("at most {most:.2} times"),
        }
    }
}

/// Prints the table for the runs in some files.
pub(crate) fn print(files: &[PathBuf]) -> Result<()> {
    let runs = files.iter().map(|file| report::read(file)).collect::<Result<Vec<Results>>>()?;
    println!("{}", table(&runs));
    Ok(())
}

/// All gates that the runs have figures for, and how many have none.
pub(crate) fn table(runs: &[Results]) -> String {
    let mut text = String::from(
        "| gate | entries | esker | other | of | ratio of bests | needed | holds |\n|---|--:|--:|--:|---|--:|---|---|\n",
    );
    let (mut missing, mut held, mut count) = (0, 0, 0);
    for gate in GATES {
        let outcomes: Vec<(u64, Outcome)> =
            runs.iter().filter_map(|run| Some((run.entries(), gate.outcome(run)?))).collect();
        missing += usize::from(outcomes.is_empty());
        for (entries, outcome) in outcomes {
            count += 1;
            held += usize::from(outcome.holds);
            let row = Gate::row(gate.row);
            // Writing to a string never fails.
            let _ = writeln!(
                text,
                "| {} ({}) | {entries} | {} | {} | {} | {:.2} | {} | {} |",
                row.title,
                row.unit.sign(),
                number(outcome.own),
                number(outcome.other),
                outcome.of,
                outcome.ratio,
                gate.needed(),
                if outcome.holds { "yes" } else { "**no**" }
            );
        }
    }
    let _ = writeln!(text, "\n{held} of {count} gates hold; {missing} have no figures in these runs.");
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engines::About;
    use crate::report::Setting;
    use crate::rows::Figure;

    fn run(entries: u64, values: &[(&str, &str, f64)]) -> Results {
        let about =
            |name: &str| About { name: name.into(), version: "1".into(), lsm: true, note: "n".into() };
        let setting = Setting { entries, rounds: 1, cache_mib: 1, memtable_mib: 1, synced: 1, seed: 1 };
        let mut results = Results::new(["esker", "rocksdb", "fjall"].map(about).to_vec(), setting);
        for (row, engine, value) in values {
            results.add(engine, vec![Figure { row: (*row).into(), took: (*value).into() }]);
        }
        results
    }

    /// The best round of the best peer counts; a gate of another scale does not.
    #[test]
    fn bests_are_compared() {
        let values = [
            ("readseq", "esker", 20.0),
            ("readseq", "esker", 10.0),
            ("readseq", "rocksdb", 80.0),
            ("readseq", "fjall", 90.0),
            ("readseq", "fjall", 49.0),
            ("readreverse", "esker", 14.0),
            ("fillrandom", "esker", 1.0),
            ("fillrandom", "fjall", 2.0),
        ];
        let text = table(&[run(1_000, &values)]);
        let line =
            |row: &str| text.lines().find(|line| line.starts_with(&format!("| {row}"))).map(str::to_owned);
        assert!(
            line("readseq").unwrap().contains("| 10.0 | 49.0 | fjall | 4.90 | 5.00 times as fast | **no** |")
        );
        assert!(line("readreverse").unwrap().ends_with("| 1.40 | at most 1.40 times | yes |"));
        assert_eq!(line("fillrandom"), None);
        assert!(
            table(&[run(2_000_000, &values)])
                .contains("| fillrandom (ns) | 2000000 | 1.00 | 2.00 | fjall | 2.00 |")
        );
    }

    /// Every gate names rows that exist.
    #[test]
    fn gates_are_over_rows() {
        for gate in GATES {
            Gate::row(gate.row);
            if let Rule::Own(row, _) = gate.rule {
                Gate::row(row);
            }
        }
    }
}
