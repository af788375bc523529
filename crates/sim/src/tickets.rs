//! [`Tickets`]: commits that nobody waits for at once, and what came of them.
//!
//! A batch is submitted, and its outcome is asked for later: by a callback, or by a wait some operations on, across errors,
//! resumes, flushes, crashes and the end of the database. `Ok` means that it and all before it are durable; `WriteUnknown`,
//! where something may fail, that it may be there or not; nothing else may be said, and every callback must be called, once.

use std::sync::{Arc, Mutex, PoisonError};

use esker::{Commit, Db, ErrorKind, Result};
use esker_base::SplitMix64;
use esker_testkit::{Coverage, History, Promise, WriteOp};

use crate::session::{batch, write_options};

/// Which batch of which life of the history: a resume begins a new one.
#[derive(Clone, Copy, Debug)]
struct Place {
    life: u64,
    count: usize,
}

/// Outcomes in the order in which they came.
type Told = Vec<(Place, Result<()>)>;

/// The tickets of one run.
#[derive(Debug)]
pub struct Tickets {
    rng: SplitMix64,
    may_fail: bool,
    life: u64,
    held: Vec<(Place, Commit)>,
    /// What callbacks were told.
    told: Arc<Mutex<Told>>,
    left: usize,
    called: usize,
}

impl Tickets {
    /// No tickets; what is done with them comes from `seed`. `may_fail` says whether syncs may.
    pub fn new(seed: u64, may_fail: bool) -> Self {
        let rng = SplitMix64::new(seed ^ 0x71c4_e700);
        Tickets { rng, may_fail, life: 0, held: Vec::new(), told: Arc::default(), left: 0, called: 0 }
    }

    /// Whether the next batch, of which this is promised, is to be submitted.
    pub fn wants_next(&mut self, promise: Promise) -> bool {
        [Promise::Default, Promise::Sync].contains(&promise) && self.rng.percent(30)
    }

    /// Submits a batch, and takes its ticket, where nothing fails.
    ///
    /// # Errors
    ///
    /// The database's.
    pub fn submit(
        &mut self,
        db: &Db,
        ops: &[WriteOp],
        promise: Promise,
        history: &mut History,
    ) -> Result<()> {
        // With `Sync` the sync begins by itself. No more is promised at once than that the system has the batch.
        let asked = if promise == Promise::Sync { Promise::Sync } else { Promise::Buffered };
        history.begin(ops, Promise::Buffered);
        let commit = db.submit(batch(ops), &write_options(asked))?;
        history.acknowledge();
        self.take(commit, history);
        Ok(())
    }

    /// Takes the ticket of the batch that `history` has acknowledged last.
    pub fn take(&mut self, commit: Commit, history: &History) {
        let place = Place { life: self.life, count: history.len() };
        if self.rng.percent(50) {
            self.held.push((place, commit));
            return;
        }
        let told = Arc::clone(&self.told);
        self.left += 1;
        commit.on_synced(move |result| {
            told.lock().unwrap_or_else(PoisonError::into_inner).push((place, result));
        });
    }

    /// Waits for some of those that are held, and enters what is known into the history.
    pub fn settle(&mut self, history: &mut History, coverage: &mut Coverage) {
        while !self.held.is_empty() && self.rng.percent(25) {
            let which = self.rng.below(self.held.len() as u64) as usize;
            let (place, commit) = self.held.remove(which);
            let result = commit.wait_synced();
            self.enter(place, &result, history, coverage);
        }
        let told = std::mem::take(&mut *self.told.lock().unwrap_or_else(PoisonError::into_inner));
        for (place, result) in told {
            self.called += 1;
            self.enter(place, &result, history, coverage);
        }
    }

    fn enter(&self, place: Place, result: &Result<()>, history: &mut History, coverage: &mut Coverage) {
        match result.as_ref().map_err(|error| error.kind()) {
            Ok(()) => {
                coverage.hit("ticket durable");
                if place.life == self.life {
                    history.synced_up_to(place.count);
                }
            }
            Err(ErrorKind::WriteUnknown { .. }) if self.may_fail => coverage.hit("ticket unknown"),
            Err(other) => panic!("a ticket was told {other:?}"),
        }
    }

    /// The history began anew, or ends here: what is told from now on of batches before is no promise.
    pub fn restart(&mut self) {
        self.life += 1;
    }

    /// The database is closed: whoever waited has been told.
    pub fn end(&mut self, history: &mut History, coverage: &mut Coverage) -> std::result::Result<(), String> {
        self.settle(history, coverage);
        self.held.clear();
        self.settle(history, coverage);
        match self.left - self.called {
            0 => Ok(()),
            lost => Err(format!("{lost} of {} callbacks were never called", self.left)),
        }
    }
}
