//! Time, rounds and medians.
//!
//! What is compared is measured in turns, round by round, so that a disturbance of the machine falls on all of it; the
//! figure is the median of the rounds.

use esker_base::{Clock, SystemClock};
use std::time::Duration;

/// How long `work` takes.
pub fn time(work: impl FnOnce()) -> Duration {
    let clock = SystemClock::new();
    let start = clock.now();
    work();
    clock.now() - start
}

/// Nanoseconds for one of `operations` that together took `duration`.
pub fn nanos_each(duration: Duration, operations: usize) -> f64 {
    duration.as_nanos() as f64 / operations as f64
}

/// The middle of `values`; the mean of the middle two when their number is even.
///
/// # Panics
///
/// When there is no value.
pub fn median(values: &[f64]) -> f64 {
    assert!(!values.is_empty(), "there is no median of nothing");
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[middle] } else { (sorted[middle - 1] + sorted[middle]) / 2.0 }
}

/// Something that is measured once in every round.
pub struct Series<'a> {
    name: &'static str,
    measure: Box<dyn FnMut() -> f64 + 'a>,
    values: Vec<f64>,
}

impl<'a> Series<'a> {
    /// A series of what `measure` returns: nanoseconds an operation.
    pub fn new(name: &'static str, measure: impl FnMut() -> f64 + 'a) -> Self {
        Series { name, measure: Box::new(measure), values: Vec::new() }
    }

    /// Its name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The median of the rounds.
    pub fn median(&self) -> f64 {
        median(&self.values)
    }

    /// The smallest and the largest of the rounds.
    pub fn spread(&self) -> (f64, f64) {
        let fold = |pick: fn(f64, f64) -> f64, start| self.values.iter().copied().fold(start, pick);
        (fold(f64::min, f64::INFINITY), fold(f64::max, 0.0))
    }
}

impl std::fmt::Debug for Series<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Series")
            .field("name", &self.name)
            .field("values", &self.values)
            .finish_non_exhaustive()
    }
}

/// Measures all series, in turns, `rounds` times, after one round that does not count.
pub fn interleave(series: &mut [Series<'_>], rounds: usize) {
    for round in 0..=rounds {
        for one in &mut *series {
            let value = (one.measure)();
            if round > 0 {
                one.values.push(value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    #[test]
    fn medians_do_not_see_outliers() {
        assert_eq!(median(&[3.0, 1.0, 900.0]), 3.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 900.0]), 3.0);
    }

    /// The series take turns, and the first round is thrown away.
    #[test]
    fn rounds_are_interleaved() {
        let calls = RefCell::new(Vec::new());
        let measure = |name: &'static str, first: f64| {
            let (calls, mut next) = (&calls, first);
            Series::new(name, move || {
                calls.borrow_mut().push(name);
                next += 1.0;
                next
            })
        };
        let mut series = [measure("a", 0.0), measure("b", 10.0)];
        interleave(&mut series, 3);
        assert_eq!(*calls.borrow(), ["a", "b", "a", "b", "a", "b", "a", "b"]);
        assert_eq!((series[0].median(), series[1].median()), (3.0, 13.0));
        assert_eq!(series[0].spread(), (2.0, 4.0));
    }
}
