//! [`Coverage`]: counts what a test exercised, and fails when something that was demanded never happened.
//!
//! A random test that never reaches a flush proves nothing about flushes; this makes such a test fail.

use std::collections::BTreeMap;
use std::fmt;

/// Named counters.
///
/// ```
/// use esker_testkit::Coverage;
///
/// let mut coverage = Coverage::default();
/// coverage.add("flush", 2);
/// coverage.demand(&["flush"]);
/// assert_eq!(coverage.missing(&["flush", "crash"]), ["crash"]);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Coverage {
    counts: BTreeMap<String, u64>,
}

impl Coverage {
    /// Counts one.
    pub fn hit(&mut self, name: &str) {
        self.add(name, 1);
    }

    /// Counts `count`; with 0 the name is only made known.
    pub fn add(&mut self, name: &str, count: u64) {
        match self.counts.get_mut(name) {
            Some(sum) => *sum += count,
            None => {
                self.counts.insert(name.to_owned(), count);
            }
        }
    }

    /// The count of a name.
    pub fn get(&self, name: &str) -> u64 {
        self.counts.get(name).copied().unwrap_or(0)
    }

    /// Adds all counts of another one.
    pub fn merge(&mut self, other: &Coverage) {
        for (name, count) in &other.counts {
            self.add(name, *count);
        }
    }

    /// The demanded names whose count is 0.
    pub fn missing<'a>(&self, demanded: &[&'a str]) -> Vec<&'a str> {
        demanded.iter().copied().filter(|name| self.get(name) == 0).collect()
    }

    /// Fails when the count of a demanded name is 0.
    ///
    /// # Panics
    ///
    /// With the names that are missing and all counts.
    pub fn demand(&self, demanded: &[&str]) {
        let missing = self.missing(demanded);
        assert!(missing.is_empty(), "never exercised: {missing:?}\n{self}");
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for (name, count) in &self.counts {
            write!(f, "{separator}{name} {count}")?;
            separator = ", ";
        }
        Ok(())
    }
}
