//! What is aimed at under load, and whether a run reached it.

use super::kind::Load;
use super::recorder::Op;
use super::run::{Outcome, Sample};

/// One line of a verdict.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// What was looked at.
    pub what: String,
    /// What was found.
    pub found: f64,
    /// What is aimed at, in words; empty where nothing is.
    pub aim: &'static str,
    /// Whether it is reached, where something is aimed at.
    pub holds: Option<bool>,
}

impl Outcome {
    /// Seconds of the intervals in which not one operation ended.
    pub fn seconds_without_progress(&self) -> f64 {
        let stands = |sample: &&Sample| sample.ops.iter().all(|op| op.count == 0);
        self.samples
            .iter()
            .filter(stands)
            .map(|sample| sample.seconds)
            .fold(0.0, |sum, seconds| sum + seconds)
    }

    /// Operations a second in the last quarter of the run by those in the first. For a load whose writer starts late
    /// the first quarter is that after its start.
    pub fn steadiness(&self) -> f64 {
        let skip = if self.setting.load == Load::ReadWhileWriting { self.samples.len() / 4 } else { 0 };
        let samples = &self.samples[skip..];
        let quarter = samples.len() / 4;
        let rate = |part: &[Sample]| {
            let count: f64 = part.iter().map(|sample| sample.per_second() * sample.seconds).sum();
            count / part.iter().map(|sample| sample.seconds).sum::<f64>()
        };
        rate(&samples[samples.len() - quarter..]) / rate(&samples[..quarter])
    }

    /// MiB of resident memory at the fullest sample.
    pub fn peak_resident_mib(&self) -> f64 {
        self.samples.iter().map(|sample| sample.resident_mib).fold(0.0, f64::max)
    }

    /// Bytes given to write calls for each byte of keys and values; 0 when nothing was written.
    pub fn write_amplification(&self) -> f64 {
        if self.user_bytes == 0 { 0.0 } else { self.written_bytes / self.user_bytes as f64 }
    }

    /// The most tables of level 0, where the engine tells.
    pub fn level0_max(&self) -> Option<u64> {
        self.samples.iter().filter_map(|sample| sample.inside.level0).max()
    }
}

/// Looks at a run, and at the runs of other engines under the same load.
pub fn judge(outcome: &Outcome, peers: &[Outcome]) -> Vec<Line> {
    let mut lines = Vec::new();
    let mut line = |what: &str, found: f64, aim: &'static str, holds: Option<bool>| {
        // A ratio of two times that did not come about is no figure.
        if found.is_finite() {
            lines.push(Line { what: what.into(), found, aim, holds });
        }
    };
    let stands = outcome.seconds_without_progress();
    line("seconds without progress", stands, "0", Some(stands == 0.0));
    line("wrong answers", outcome.wrong as f64, "0", Some(outcome.wrong == 0));
    let steady = outcome.steadiness();
    line("throughput, last quarter by first", steady, "at least 0.80", Some(steady >= 0.8));
    if outcome.idle_gets.count > 0 && outcome.busy_gets.count > 0 {
        let ratio = outcome.busy_gets.p99 / outcome.idle_gets.p99;
        line("p99 of get, beside writes by without", ratio, "at most 1.20", Some(ratio <= 1.2));
    }
    let limit = outcome.setting.memory_limit as f64 / f64::from(1 << 20);
    let memory = outcome.peak_resident_mib() / limit;
    line("peak resident memory by memory limit", memory, "at most 1.25", Some(memory <= 1.25));
    let written = outcome.write_amplification();
    line("bytes written for a byte of entries", written, "", None);
    let put = outcome.ops[Op::Put as usize];
    line("p99.9 of put, us", put.p999, "", None);
    for peer in peers.iter().filter(|peer| peer.engine != outcome.engine) {
        let peer_put = peer.ops[Op::Put as usize];
        if put.count > 0 && peer_put.count > 0 {
            let ratio = put.p999 / peer_put.p999;
            line(&format!("p99.9 of put by {}'s", peer.engine), ratio, "at most 1.00", Some(ratio <= 1.0));
        }
        if peer.engine == "rocksdb" {
            let ratio = written / peer.write_amplification();
            line("bytes written by rocksdb's", ratio, "at most 1.00", Some(ratio <= 1.0));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::recorder::Summary;
    use crate::load::{Inside, Setting};

    fn outcome(engine: &str, counts: &[u64], p999: f64) -> Outcome {
        let put = |count| Summary { count, p999, ..Summary::default() };
        let ops = |count| [put(count), Summary::default(), Summary::default(), Summary::default()];
        let sample = |(at, &count): (usize, &u64)| Sample {
            at: at as f64 + 1.0,
            seconds: 1.0,
            ops: ops(count),
            inside: Inside::default(),
            resident_mib: 100.0 + at as f64,
        };
        Outcome {
            engine: engine.into(),
            setting: Setting {
                load: Load::Fill,
                seconds: counts.len() as f64,
                interval_millis: 1000,
                threads: 1,
                keys: 1,
                value_len: 100,
                rate: 0,
                memory_limit: 64 << 20,
                seed: 1,
            },
            samples: counts.iter().enumerate().map(sample).collect(),
            ops: ops(counts.iter().sum()),
            idle_gets: Summary::default(),
            busy_gets: Summary::default(),
            user_bytes: 100,
            written_bytes: if engine == "esker" { 300.0 } else { 400.0 },
            wrong: 0,
        }
    }

    #[test]
    fn verdicts_follow_the_figures() {
        let own = outcome("esker", &[100, 100, 0, 90, 80, 70, 60, 50], 9.0);
        let lines = judge(&own, &[own.clone(), outcome("rocksdb", &[1; 8], 10.0)]);
        let find =
            |what: &str| lines.iter().find(|line| line.what == what).map(|line| (line.found, line.holds));
        assert_eq!(find("seconds without progress"), Some((1.0, Some(false))));
        assert_eq!(find("throughput, last quarter by first"), Some((0.55, Some(false))));
        assert_eq!(find("peak resident memory by memory limit"), Some((107.0 / 64.0, Some(false))));
        assert_eq!(find("bytes written by rocksdb's"), Some((0.75, Some(true))));
        assert_eq!(find("p99.9 of put by rocksdb's"), Some((0.9, Some(true))));
        assert_eq!(find("p99.9 of put by esker's"), None);
    }
}
