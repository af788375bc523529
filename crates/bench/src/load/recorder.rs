//! [`Recorder`]: a histogram of latencies for each operation, and [`Summary`], what is told of one.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// An operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Op {
    /// A put.
    Put,
    /// A get.
    Get,
    /// A scan of some entries.
    Scan,
    /// A delete.
    Delete,
}

impl Op {
    /// All of them, in the order of the tables.
    pub const ALL: [Op; 4] = [Op::Put, Op::Get, Op::Scan, Op::Delete];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Op::Put => "put",
            Op::Get => "get",
            Op::Scan => "scan",
            Op::Delete => "delete",
        }
    }
}

/// Latencies in nanoseconds, to 1 %, up to a minute; longer ones count as a minute.
#[derive(Clone, Debug)]
pub struct Recorder([Histogram<u64>; 4]);

impl Default for Recorder {
    fn default() -> Self {
        Recorder(std::array::from_fn(|_| {
            Histogram::new_with_bounds(1, 60_000_000_000, 2).expect("the bounds are in order")
        }))
    }
}

impl Recorder {
    /// Adds one operation.
    pub fn record(&mut self, op: Op, took: Duration) {
        self.0[op as usize].saturating_record(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX).max(1));
    }

    /// Adds what another one has, and empties that.
    pub fn take(&mut self, other: &mut Recorder) {
        for (own, other) in self.0.iter_mut().zip(&mut other.0) {
            own.add(&*other).expect("both have the same bounds");
            other.reset();
        }
    }

    /// Adds what another one has.
    pub fn add(&mut self, other: &Recorder) {
        for (own, other) in self.0.iter_mut().zip(&other.0) {
            own.add(other).expect("both have the same bounds");
        }
    }

    /// What is told of an operation.
    pub fn summary(&self, op: Op) -> Summary {
        let histogram = &self.0[op as usize];
        let micros = |share: f64| histogram.value_at_quantile(share) as f64 / 1e3;
        Summary {
            count: histogram.len(),
            mean: histogram.mean() / 1e3,
            p50: micros(0.5),
            p99: micros(0.99),
            p999: micros(0.999),
            max: histogram.max() as f64 / 1e3,
        }
    }
}

/// What is told of a histogram. Times are in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Number of operations.
    pub count: u64,
    /// The mean.
    pub mean: f64,
    /// Half of them took at most this long.
    pub p50: f64,
    /// 99 of a hundred.
    pub p99: f64,
    /// 999 of a thousand.
    pub p999: f64,
    /// The longest.
    pub max: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_what_was_recorded() {
        let (mut all, mut part) = (Recorder::default(), Recorder::default());
        for micros in 1..=1000 {
            part.record(Op::Get, Duration::from_micros(micros));
        }
        all.take(&mut part);
        assert_eq!(part.summary(Op::Get), Summary::default());
        let summary = all.summary(Op::Get);
        let near = |value: f64, expected: f64| (value / expected - 1.0).abs() < 0.02;
        assert_eq!(summary.count, 1000);
        assert!(
            near(summary.p50, 500.0) && near(summary.p99, 990.0) && near(summary.max, 1000.0),
            "{summary:?}"
        );
        assert_eq!(all.summary(Op::Put).count, 0);
    }
}
