//! [`Results`]: all figures of a run, and the report built from them.

use crate::chart;
use crate::engine::Result;
use crate::engines::About;
use crate::rows::{Figure, Group, ROWS, Row, Took, Unit};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// What a run was told.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Setting {
    pub(crate) entries: u64,
    pub(crate) rounds: u32,
    pub(crate) cache_mib: usize,
    pub(crate) memtable_mib: usize,
    pub(crate) synced: u64,
    pub(crate) seed: u64,
}

/// All figures of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Results {
    setting: Setting,
    engines: Vec<About>,
    /// By row and engine: the value of each round.
    values: BTreeMap<String, BTreeMap<String, Vec<Took>>>,
    failures: Vec<String>,
}

/// A clock that times are by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clock {
    Wall,
    Cpu,
}

/// The values of one engine in one row, summed up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cell {
    pub(crate) best: f64,
    pub(crate) median: f64,
}

impl Results {
    /// Of a run that has not begun.
    pub(crate) fn new(engines: Vec<About>, setting: Setting) -> Self {
        Results { setting, engines, values: BTreeMap::new(), failures: Vec::new() }
    }

    /// Adds what a child measured.
    pub(crate) fn add(&mut self, engine: &str, figures: Vec<Figure>) {
        for figure in figures {
            self.values.entry(figure.row).or_default().entry(engine.into()).or_default().push(figure.took);
        }
    }

    /// Adds another run of the same settings, of other groups or engines or of more rounds.
    fn join(&mut self, other: Results) -> Result<()> {
        let alike = Setting { rounds: self.setting.rounds, ..other.setting.clone() };
        if alike != self.setting {
            return Err("the runs have different settings".into());
        }
        self.setting.rounds = self.setting.rounds.max(other.setting.rounds);
        let known: Vec<String> = self.engines.iter().map(|engine| engine.name.clone()).collect();
        self.engines.extend(other.engines.into_iter().filter(|engine| !known.contains(&engine.name)));
        for (row, engines) in other.values {
            for (engine, took) in engines {
                self.values.entry(row.clone()).or_default().entry(engine).or_default().extend(took);
            }
        }
        self.failures.extend(other.failures);
        Ok(())
    }

    /// Entries of the larger workloads.
    pub(crate) fn entries(&self) -> u64 {
        self.setting.entries
    }

    /// Notes a child that failed.
    pub(crate) fn fail(&mut self, engine: &str, group: Group, why: &str) {
        eprintln!("    failed: {why}");
        self.failures.push(format!("{engine}, {group:?}: {why}"));
    }

    /// The engines in the order of the columns.
    pub(crate) fn engines(&self) -> &[About] {
        &self.engines
    }

    /// What an engine has in a row by a clock.
    pub(crate) fn cell(&self, row: &Row, engine: &str, clock: Clock) -> Option<Cell> {
        let took = self.values.get(row.id)?.get(engine)?;
        let mut values: Vec<f64> = match clock {
            Clock::Wall => took.iter().map(|took| took.wall).collect(),
            Clock::Cpu => took.iter().filter_map(|took| took.cpu).collect(),
        };
        values.sort_by(f64::total_cmp);
        values.first()?;
        let middle = values.len() / 2;
        let median =
            if values.len() % 2 == 1 { values[middle] } else { (values[middle - 1] + values[middle]) / 2.0 };
        let best = if row.unit == Unit::Percent { *values.last()? } else { *values.first()? };
        Some(Cell { best, median })
    }

    /// The median of the best of the other merge trees, with its name.
    fn best_lsm(&self, row: &Row, clock: Clock) -> Option<(&str, f64)> {
        let peers = self.engines.iter().filter(|engine| engine.lsm && engine.name != "esker");
        let medians =
            peers.filter_map(|peer| Some((peer.name.as_str(), self.cell(row, &peer.name, clock)?.median)));
        medians.min_by(|one, two| one.1.total_cmp(&two.1))
    }

    /// Writes Markdown, CSV, JSON and a chart for each group.
    pub(crate) fn write(&self, out: &Path) -> Result<()> {
        std::fs::create_dir_all(out)?;
        std::fs::write(out.join("results.json"), serde_json::to_string_pretty(self)?)?;
        std::fs::write(out.join("results.csv"), self.csv())?;
        std::fs::write(out.join("results.md"), self.markdown())?;
        chart::draw(self, out)
    }

    /// One line per row, engine and round.
    fn csv(&self) -> String {
        let mut text = String::from("group,row,unit,engine,version,round,wall,cpu\n");
        for row in ROWS {
            for engine in &self.engines {
                let values = self.values.get(row.id).and_then(|engines| engines.get(&engine.name));
                for (round, took) in values.into_iter().flatten().enumerate() {
                    let line = format!(
                        "{:?},{},{},{},{},{},{:.3},{}\n",
                        row.group,
                        row.id,
                        row.unit.sign(),
                        engine.name,
                        engine.version,
                        round + 1,
                        took.wall,
                        took.cpu.map_or(String::new(), |cpu| format!("{cpu:.3}"))
                    );
                    text.push_str(&line);
                }
            }
        }
        text
    }

    /// The tables, with what they were measured under.
    pub(crate) fn markdown(&self) -> String {
        let mut text = String::new();
        let setting = &self.setting;
        // Writing to a string never fails.
        let _ = writeln!(
            text,
            "{} entries, {} rounds, {} MiB cache, {} MiB memtable, seed {}. Each cell: median (best) of the rounds; less \
             is better. In the last columns, esker's median over that of the best other merge tree, and over LMDB's: \
             below 1 esker is ahead.\n",
            setting.entries, setting.rounds, setting.cache_mib, setting.memtable_mib, setting.seed
        );
        for group in Group::all() {
            self.table(&mut text, *group, Clock::Wall);
        }
        let _ = writeln!(
            text,
            "The same by the CPU clock of the thread that makes the calls: without the time that it waits (for background \
             work, for a disk) or that other programs have its core, and without the work of other threads.\n"
        );
        for group in [Group::Published, Group::Fill, Group::Read, Group::Values] {
            self.table(&mut text, group, Clock::Cpu);
        }
        let _ = writeln!(text, "Engines:\n");
        for engine in &self.engines {
            let _ = writeln!(text, "- {} {}: {}.", engine.name, engine.version, engine.note);
        }
        let _ = writeln!(text);
        for failure in &self.failures {
            let _ = writeln!(text, "- failed: {failure}");
        }
        text
    }

    fn table(&self, text: &mut String, group: Group, clock: Clock) {
        let has =
            |row: &&Row| self.engines.iter().any(|engine| self.cell(row, &engine.name, clock).is_some());
        let rows: Vec<&Row> = ROWS.iter().filter(|row| row.group == group).filter(has).collect();
        if rows.is_empty() {
            return;
        }
        let _ = write!(text, "| {} | unit |", group.title());
        for engine in &self.engines {
            let _ = write!(text, " {} |", engine.name);
        }
        let _ = writeln!(text, " ÷ best LSM | ÷ LMDB |");
        let _ = writeln!(text, "|---|---|{}--:|--:|", "--:|".repeat(self.engines.len()));
        for row in rows {
            let _ = write!(text, "| {} | {} |", row.title, row.unit.sign());
            for engine in &self.engines {
                let _ = match self.cell(row, &engine.name, clock) {
                    Some(cell) => write!(text, " {} ({}) |", number(cell.median), number(cell.best)),
                    None => write!(text, " – |"),
                };
            }
            let _ = writeln!(text, " {} | {} |", self.beside_lsm(row, clock), self.beside_lmdb(row, clock));
        }
        text.push('\n');
    }

    fn beside_lsm(&self, row: &Row, clock: Clock) -> String {
        match (self.cell(row, "esker", clock), self.best_lsm(row, clock)) {
            (Some(own), Some((name, peer))) if row.unit != Unit::Percent => {
                format!("{:.2} ({name})", own.median / peer)
            }
            _ => "–".into(),
        }
    }

    fn beside_lmdb(&self, row: &Row, clock: Clock) -> String {
        match (self.cell(row, "esker", clock), self.cell(row, "lmdb", clock)) {
            (Some(own), Some(peer)) if row.unit != Unit::Percent => {
                format!("{:.2}", own.median / peer.median)
            }
            _ => "–".into(),
        }
    }
}

/// The report of earlier runs together.
pub(crate) fn again(files: &[PathBuf], out: &Path) -> Result<()> {
    let mut runs = files.iter().map(|file| read(file)).collect::<Result<Vec<Results>>>()?.into_iter();
    let mut all = runs.next().ok_or("no file")?;
    runs.try_for_each(|run| all.join(run))?;
    println!("{}", all.markdown());
    all.write(out)
}

/// The figures of an earlier run.
pub(crate) fn read(file: &Path) -> Result<Results> {
    let text = std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
    Ok(serde_json::from_str(&text).map_err(|error| format!("{}: {error}", file.display()))?)
}

/// Three digits that count, with commas in the thousands.
pub(crate) fn number(value: f64) -> String {
    if value < 9.995 {
        return format!("{value:.2}");
    }
    if value < 99.95 {
        return format!("{value:.1}");
    }
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn results() -> Results {
        let about = |name: &str, lsm| About { name: name.into(), version: "1".into(), lsm, note: "n".into() };
        let engines = vec![about("esker", true), about("rocksdb", true), about("lmdb", false)];
        let setting = Setting { entries: 1, rounds: 3, cache_mib: 1, memtable_mib: 1, synced: 1, seed: 1 };
        let mut results = Results::new(engines, setting);
        for (engine, values) in [("esker", [30.0, 10.0, 20.0]), ("rocksdb", [40.0; 3]), ("lmdb", [10.0; 3])] {
            for value in values {
                results.add(engine, vec![Figure { row: "fillseq".into(), took: value.into() }]);
            }
        }
        results
    }

    #[test]
    fn a_table_has_medians_bests_and_ratios() {
        let text = results().markdown();
        let line = text.lines().find(|line| line.starts_with("| fillseq")).unwrap();
        assert_eq!(
            line,
            "| fillseq | ns | 20.0 (10.0) | 40.0 (40.0) | 10.0 (10.0) | 0.50 (rocksdb) | 2.00 |"
        );
        assert!(!text.contains("readseq, per entry | ns | 0"), "{text}");
    }

    #[test]
    fn numbers_keep_three_digits_and_have_commas() {
        for (value, text) in
            [(0.5, "0.50"), (12.34, "12.3"), (99.96, "100"), (1234.5, "1,234"), (1e6, "1,000,000")]
        {
            assert_eq!(number(value), text);
        }
    }

    #[test]
    fn json_comes_back() {
        let text = serde_json::to_string(&results()).unwrap();
        let back: Results = serde_json::from_str(&text).unwrap();
        assert_eq!(back.markdown(), results().markdown());
        assert_eq!(back.csv().lines().count(), 1 + 9);
    }
}
