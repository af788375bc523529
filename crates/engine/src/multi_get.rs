//! Gets of several keys at once, a few side by side: each step is taken for all of them before the next one, so that
//! they wait for memory together.

use crate::core::Core;
use crate::read::unsupported;
use crate::super_version::SuperVersion;
use crate::table_cache::TableHandle;
use crate::{Error, Result};
use esker_base::{Lookup, MAX_KEY_LEN, SequenceNumber, ValueKind, key_hash, planted, points};
use esker_sstable::Probe;
use std::sync::Arc;

/// Keys side by side. As many blocks of the cache can be lent to a thread without a count of references.
const GROUP: usize = 8;

impl Core {
    /// Lends the values of several keys as of one moment to `each`, with the number of the key, in any order. An error is
    /// the answer for its key only.
    pub(crate) fn multi_get_with<K: AsRef<[u8]>>(
        &self,
        keys: &[K],
        seq: Option<SequenceNumber>,
        mut each: impl FnMut(usize, Result<Option<&[u8]>>),
    ) {
        if let Err(error) = self.check_open() {
            (0..keys.len()).for_each(|number| each(number, Err(error.clone())));
            return;
        }
        let picture = self.super_version.load_full();
        points::here(points::Point::Pictured);
        let seq = seq.unwrap_or_else(|| self.visible.load());
        for (number, keys) in keys.chunks(GROUP).enumerate() {
            let mut answers = Answers {
                first: GROUP * number,
                each: |number, answer: Result<Option<&[u8]>>| {
                    each(number, answer.map_err(|error| self.unless_closed(error)));
                },
            };
            let mut lookups = [Lookup { user_key: &[], hash: 0, seq }; GROUP];
            let mut waiting = Waiting::default();
            for (at, (key, lookup)) in keys.iter().zip(&mut lookups).enumerate() {
                lookup.user_key = key.as_ref();
                if lookup.user_key.len() > MAX_KEY_LEN {
                    answers.give(at, ValueKind::Delete, &[]);
                    continue;
                }
                lookup.hash = key_hash(self.tables.hash_seed, lookup.user_key);
                waiting.add(at);
            }
            let group = Group { lookups: &lookups };
            group.ask_memtables(&picture, &mut waiting, &mut answers);
            group.ask_tables(&picture, &mut waiting, &mut answers);
            waiting.each(|at| answers.give(at, ValueKind::Delete, &[]));
        }
    }
}

/// Which keys of a group have no answer yet: a bit for each.
#[derive(Clone, Copy, Debug, Default)]
struct Waiting(u32);

impl Waiting {
    fn add(&mut self, at: usize) {
        self.0 |= 1 << at;
    }

    fn remove(&mut self, at: usize) {
        self.0 &= !(1 << at);
    }

    #[inline]
    fn each(self, mut visit: impl FnMut(usize)) {
        let mut left = self.0;
        while left != 0 {
            visit(left.trailing_zeros() as usize);
            left &= left - 1;
        }
    }
}

/// Where the answers for a group go.
struct Answers<F> {
    /// The number of the first key of the group.
    first: usize,
    each: F,
}

impl<F: FnMut(usize, Result<Option<&[u8]>>)> Answers<F> {
    /// What an entry means for a reader.
    #[inline]
    fn give(&mut self, at: usize, kind: ValueKind, value: &[u8]) {
        (self.each)(
            self.first + at,
            match kind {
                ValueKind::Put => Ok(Some(value)),
                ValueKind::Delete => Ok(None),
                other => Err(unsupported(other)),
            },
        );
    }

    #[cold]
    fn fail(&mut self, at: usize, error: Error) {
        (self.each)(self.first + at, Err(error));
    }
}

/// Keys side by side.
struct Group<'a> {
    lookups: &'a [Lookup<'a>; GROUP],
}

impl Group<'_> {
    fn ask_memtables<F>(&self, picture: &SuperVersion, waiting: &mut Waiting, answers: &mut Answers<F>)
    where
        F: FnMut(usize, Result<Option<&[u8]>>),
    {
        for generation in std::iter::once(&picture.active).chain(&picture.immutables) {
            let asked = *waiting;
            asked.each(|at| {
                if let Some(found) = generation.memtables[0].get_ref(&self.lookups[at]) {
                    answers.give(at, found.kind, found.value);
                    waiting.remove(at);
                }
            });
        }
    }

    /// Asks the tables, youngest first.
    fn ask_tables<F>(&self, picture: &SuperVersion, waiting: &mut Waiting, answers: &mut Answers<F>)
    where
        F: FnMut(usize, Result<Option<&[u8]>>),
    {
        let tables = &*picture.keyspaces[0];
        for table in &tables.level0 {
            self.ask(waiting, answers, |key| table.meta.covers(key).then_some(table));
        }
        for level in &tables.levels {
            self.ask(waiting, answers, |key| level.find(key));
        }
    }

    /// Asks one table for each key.
    fn ask<'a, F>(
        &self,
        waiting: &mut Waiting,
        answers: &mut Answers<F>,
        table_of: impl Fn(&[u8]) -> Option<&'a Arc<TableHandle>>,
    ) where
        F: FnMut(usize, Result<Option<&[u8]>>),
    {
        let mut probes: [Option<Probe<'_>>; GROUP] = Default::default();
        let failed = |waiting: &mut Waiting, answers: &mut Answers<F>, at, error| {
            // A key that a younger table may hold has no answer in an older one.
            if !planted::is(planted::Fault::UnreadableTableSkipped) {
                waiting.remove(at);
                answers.fail(at, error);
            }
        };
        let asked = *waiting;
        asked.each(|at| {
            let lookup = &self.lookups[at];
            let Some(table) = table_of(lookup.user_key) else { return };
            match table.reader().and_then(|table| table.probe(lookup)) {
                Ok(probe) => probes[at] = probe,
                Err(error) => failed(waiting, answers, at, error),
            }
        });
        probes.iter().flatten().for_each(Probe::touch_block);
        for (probe, lookup) in probes.iter().zip(self.lookups) {
            if let Some(probe) = probe {
                probe.touch_entry(lookup);
            }
        }
        for (at, (probe, lookup)) in probes.into_iter().zip(self.lookups).enumerate() {
            let Some(probe) = probe else { continue };
            match probe.get_with(lookup, |kind, value| answers.give(at, kind, value)) {
                Ok(Some(())) => waiting.remove(at),
                Ok(None) => {}
                Err(error) => failed(waiting, answers, at, error),
            }
        }
    }
}
