//! [`History`]: the oracle of crash tests. It knows every batch in the order of its submission, and how far each was
//! promised to be, and judges whether what is found after a crash is a state that may be there.
//!
//! The rule: the state is that of the first *n* batches for some *n*, at least up to the last one that was promised for
//! this kind of crash, and no batch is there in part. Left out of the rule, each whole or not at all, are batches whose
//! write failed with an unknown outcome and batches that went without the log and are not flushed.

use std::collections::{BTreeMap, BTreeSet};

use crate::{Promise, WriteOp};

type Content = BTreeMap<Vec<u8>, Vec<u8>>;

/// More different states than this are not followed: a test that makes them is wrong.
const STATES_MAX: usize = 4096;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// The call has not returned.
    Pending,
    Acknowledged,
    /// It returned an error: there or not.
    Unknown,
}

#[derive(Clone, Debug)]
struct Batch {
    ops: Vec<WriteOp>,
    promise: Promise,
    outcome: Outcome,
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The state of the first so many batches.
    Prefix(usize),
    /// A state that must not be there, with the reason.
    Wrong(String),
}

/// All batches so far and what was promised about them.
#[derive(Clone, Debug, Default)]
pub struct History {
    batches: Vec<Batch>,
    /// Batches below are there after the process was killed.
    kill_floor: usize,
    /// Batches below are there after a power loss.
    power_floor: usize,
    /// Batches below are in tables, those without the log included.
    flush_floor: usize,
    default: Option<Promise>,
}

impl History {
    /// No batches; `default` is what [`Promise::Default`] stands for.
    pub fn new(default: Promise) -> Self {
        History { default: Some(default), ..Self::default() }
    }

    /// A write is about to be made.
    pub fn begin(&mut self, ops: &[WriteOp], promise: Promise) {
        let promise = match promise {
            Promise::Default => self.default.unwrap_or(Promise::Buffered),
            other => other,
        };
        self.batches.push(Batch { ops: ops.to_vec(), promise, outcome: Outcome::Pending });
    }

    /// The write that began last returned `Ok`.
    pub fn acknowledge(&mut self) {
        let count = self.batches.len();
        let Some(batch) = self.batches.last_mut() else { return };
        batch.outcome = Outcome::Acknowledged;
        match batch.promise {
            // Nothing was written, so nothing has to be anywhere. A sync is a promise about all before it.
            Promise::Buffered | Promise::Default if batch.ops.is_empty() => {}
            Promise::Sync => {
                self.kill_floor = count;
                self.power_floor = count;
            }
            Promise::Buffered | Promise::Default => self.kill_floor = count,
            Promise::Memory | Promise::NoLog => {}
        }
    }

    /// The write that began last returned an error after which it may be there or not.
    pub fn unknown(&mut self) {
        if let Some(batch) = self.batches.last_mut() {
            batch.outcome = Outcome::Unknown;
        }
    }

    /// The write that began last was refused before anything happened.
    pub fn refuse(&mut self) {
        self.batches.pop();
    }

    /// A sync returned `Ok`.
    pub fn synced(&mut self) {
        self.kill_floor = self.batches.len();
        self.power_floor = self.batches.len();
    }

    /// The first `count` batches were said to be durable.
    pub fn synced_up_to(&mut self, count: usize) {
        let count = count.min(self.batches.len());
        self.kill_floor = self.kill_floor.max(count);
        self.power_floor = self.power_floor.max(count);
    }

    /// A flush, or a clean close, returned `Ok`.
    pub fn flushed(&mut self) {
        self.synced();
        self.flush_floor = self.batches.len();
    }

    /// Batches so far.
    pub fn len(&self) -> usize {
        self.batches.len()
    }

    /// Whether there is no batch.
    pub fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    /// How many batches a power loss must leave at least.
    pub fn power_floor(&self) -> usize {
        self.power_floor
    }

    /// Judges the content found after a power loss, or else after a kill.
    pub fn judge(&self, found: &Content, power_loss: bool) -> Verdict {
        let floor = if power_loss { self.power_floor } else { self.kill_floor };
        let mut states: BTreeSet<Content> = BTreeSet::from([Content::new()]);
        for count in 0..=self.batches.len() {
            if count >= floor && states.contains(found) {
                return Verdict::Prefix(count);
            }
            let Some(batch) = self.batches.get(count) else { break };
            let applied = states.iter().map(|state| applied(state, &batch.ops));
            states = if self.is_optional(count) {
                applied.chain(states.iter().cloned()).collect()
            } else {
                applied.collect()
            };
            assert!(states.len() <= STATES_MAX, "too many batches of unknown outcome to follow them all");
        }
        let last = states.into_iter().next_back().unwrap_or_default();
        Verdict::Wrong(self.explain(found, floor, &last))
    }

    fn is_optional(&self, index: usize) -> bool {
        let batch = &self.batches[index];
        batch.outcome != Outcome::Acknowledged
            || (batch.promise == Promise::NoLog && index >= self.flush_floor)
    }

    fn explain(&self, found: &Content, floor: usize, last: &Content) -> String {
        let mut text = format!(
            "not a prefix of whole batches: at least {floor} of {} batches wanted, {} keys found, {} at the end",
            self.batches.len(),
            found.len(),
            last.len()
        );
        let keys: BTreeSet<&Vec<u8>> = found.keys().chain(last.keys()).collect();
        let short = |value: Option<&Vec<u8>>| {
            value.map(|value| String::from_utf8_lossy(&value[..value.len().min(40)]).into_owned())
        };
        for key in keys.into_iter().filter(|key| found.get(*key) != last.get(*key)).take(8) {
            let name = String::from_utf8_lossy(&key[..key.len().min(30)]);
            text += &format!(
                "\n  {name:?}: found {:?}, at the end {:?}",
                short(found.get(key)),
                short(last.get(key))
            );
        }
        for floor in 0..floor {
            if self.content_of(floor) == *found {
                text += &format!(
                    "\n  it is the state of the first {floor} batches: {} are lost",
                    self.batches.len()
                );
            }
        }
        text
    }

    /// The state of the first `count` batches, all of them applied.
    pub fn content_of(&self, count: usize) -> Content {
        self.batches[..count].iter().fold(Content::new(), |state, batch| applied(&state, &batch.ops))
    }

    /// Forgets the batches after the first `count`, which a crash has undone, and everything that was optional before:
    /// the state is now `found`.
    pub fn restart(&mut self, found: &Content) {
        let ops = found.iter().map(|(key, value)| WriteOp::Put(key.clone(), value.clone())).collect();
        let batch = Batch { ops, promise: Promise::Sync, outcome: Outcome::Acknowledged };
        self.batches = vec![batch];
        (self.kill_floor, self.power_floor, self.flush_floor) = (1, 1, 1);
    }
}

fn applied(state: &Content, ops: &[WriteOp]) -> Content {
    let mut state = state.clone();
    for op in ops {
        match op {
            WriteOp::Put(key, value) => {
                state.insert(key.clone(), value.clone());
            }
            WriteOp::Delete(key) => {
                state.remove(key);
            }
        }
    }
    state
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(key: &str) -> Vec<WriteOp> {
        vec![WriteOp::Put(key.into(), b"v".to_vec())]
    }

    fn content(keys: &str) -> Content {
        keys.chars().map(|key| (key.to_string().into_bytes(), b"v".to_vec())).collect()
    }

    /// Losses beyond the promise, holes and halves are told; what is allowed is allowed.
    #[test]
    fn judges() {
        let mut history = History::new(Promise::Buffered);
        for (key, promise) in [("a", Promise::Sync), ("b", Promise::Default), ("c", Promise::Memory)] {
            history.begin(&put(key), promise);
            history.acknowledge();
        }
        history.begin(&[put("d"), put("e")].concat(), Promise::Sync);
        let prefix = |found: &str, power| match history.judge(&content(found), power) {
            Verdict::Prefix(count) => Some(count),
            Verdict::Wrong(_) => None,
        };
        assert_eq!(prefix("", true), None);
        assert_eq!(prefix("a", true), Some(1));
        assert_eq!(prefix("a", false), None);
        assert_eq!(prefix("ab", false), Some(2));
        assert_eq!(prefix("ac", true), None, "a hole");
        assert_eq!(prefix("abc", true), Some(3));
        assert_eq!(prefix("abcd", true), None, "half a batch");
        assert_eq!(prefix("abcde", true), Some(4));
        assert_eq!(prefix("abcdef", true), None);
    }

    /// A failed batch and an unlogged one may be there or not; after a flush the latter must be.
    #[test]
    fn optional_batches() {
        let mut history = History::new(Promise::Buffered);
        history.begin(&put("a"), Promise::NoLog);
        history.acknowledge();
        history.begin(&put("b"), Promise::Sync);
        history.unknown();
        history.begin(&put("c"), Promise::Sync);
        history.acknowledge();
        for found in ["abc", "bc", "ac", "c"] {
            assert!(matches!(history.judge(&content(found), true), Verdict::Prefix(_)), "{found}");
        }
        assert!(matches!(history.judge(&content("ab"), true), Verdict::Wrong(_)));
        history.flushed();
        assert!(matches!(history.judge(&content("c"), true), Verdict::Wrong(_)));
        assert!(matches!(history.judge(&content("ac"), true), Verdict::Prefix(3)));
    }
}
