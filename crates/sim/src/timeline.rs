//! [`Timeline`]: every state that a small database has been in, and the writes on their way.
//!
//! Twelve keys; a value tells the number of the batch that wrote it, so a state is twelve numbers. Whatever is read, in
//! whatever way, must be one of the states since the read began: whole batches only, and never back. A state begins when its
//! batch is published, not when its writer returns: a writer that waits for a sync may return after later ones. What is found
//! after a loss of power must be one of the states since the last that was promised.

/// Keys of the database.
pub const KEYS: usize = 12;

/// The number of the batch that wrote each key last; 0 for a key that is not there.
pub type State = [u32; KEYS];

/// The name of a key.
pub fn key(index: usize) -> [u8; 4] {
    let tens = b'0' + (index / 10) as u8;
    [b'k', tens, b'0' + (index % 10) as u8, b'.']
}

/// Which key this is.
///
/// # Errors
///
/// When nobody has written it.
pub fn index_of(name: &[u8]) -> Result<usize, String> {
    let index = (0..KEYS).find(|&index| key(index) == name);
    index.ok_or_else(|| format!("a key that nobody has written: {}", name.escape_ascii()))
}

/// A value that the batch of this number writes.
pub fn value(number: u32, long: bool) -> Vec<u8> {
    let len = if long && number.is_multiple_of(3) { 3000 } else { 8 + number as usize % 40 };
    let mut value = number.to_le_bytes().to_vec();
    value.resize(len, number as u8);
    value
}

/// The number of the batch that wrote a value.
///
/// # Errors
///
/// When it is no such value.
pub fn number_of(value: &[u8]) -> Result<u32, String> {
    let number = value.first_chunk().map(|bytes| u32::from_le_bytes(*bytes));
    let filled = |number: u32| value[4..].iter().all(|byte| *byte == number as u8);
    let number = number.filter(|number| filled(*number));
    number.ok_or_else(|| format!("a value that nobody has written: {} bytes", value.len()))
}

/// One write.
#[derive(Clone, Debug)]
pub struct Batch {
    /// Its number, from 1.
    pub number: u32,
    /// What it does: a key, and whether it puts it, or else deletes it.
    pub ops: Vec<(usize, bool)>,
    /// The state that it has made, once it is published.
    state: Option<usize>,
}

/// What a writer was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The write is done, and outlives a loss of power if that was asked for.
    Done {
        /// Whether it was asked for.
        synced: bool,
    },
    /// The log or its sync has failed in the middle.
    Unknown,
    /// It was refused, or given up while it waited.
    Refused,
}

impl Batch {
    fn applied(&self, mut state: State) -> State {
        for &(index, puts) in &self.ops {
            state[index] = if puts { self.number } else { 0 };
        }
        state
    }
}

/// All states so far.
#[derive(Debug)]
pub struct Timeline {
    states: Vec<State>,
    /// Writes that were begun and have not returned, the innermost last. Only that one can be published: those around it
    /// have been already, or have not been let in.
    begun: Vec<Batch>,
    next: u32,
    /// States before this one must not come back, whatever happens.
    promised: usize,
}

impl Default for Timeline {
    fn default() -> Self {
        Timeline { states: vec![[0; KEYS]], begun: Vec::new(), next: 1, promised: 0 }
    }
}

impl Timeline {
    /// The state that all have who look now.
    pub fn now(&self) -> State {
        self.states[self.states.len() - 1]
    }

    /// How many states there are: what a read that begins now has to remember.
    pub fn mark(&self) -> usize {
        self.states.len() - 1
    }

    /// A write begins.
    pub fn begin(&mut self, ops: Vec<(usize, bool)>) -> Batch {
        let batch = Batch { number: self.next, ops, state: None };
        self.next += 1;
        self.begun.push(batch.clone());
        batch
    }

    /// The innermost write is published: whoever looks from now on sees it.
    ///
    /// # Errors
    ///
    /// When there is none, or it has been published before.
    pub fn publish(&mut self) -> Result<(), String> {
        let now = self.now();
        match self.begun.last_mut() {
            Some(batch) if batch.state.is_none() => {
                batch.state = Some(self.states.len());
                self.states.push(batch.applied(now));
                Ok(())
            }
            other => Err(format!("published, but not to be: {other:?}")),
        }
    }

    /// The innermost write has returned.
    ///
    /// # Errors
    ///
    /// When it was acknowledged and never published, or refused and published.
    pub fn end(&mut self, outcome: Outcome) -> Result<(), String> {
        let Some(batch) = self.begun.pop() else { return Err("a write ends that was not begun".to_owned()) };
        match (outcome, batch.state) {
            (Outcome::Done { synced }, Some(state)) => {
                if synced {
                    self.promise(state);
                }
                Ok(())
            }
            (Outcome::Done { .. }, None) => {
                Err(format!("batch {} was acknowledged, not published", batch.number))
            }
            (Outcome::Refused, Some(_)) => {
                Err(format!("batch {} was refused after it was seen", batch.number))
            }
            _ => Ok(()),
        }
    }

    /// The state at this mark, and with it all before it, is durable.
    pub fn promise(&mut self, mark: usize) {
        self.promised = self.promised.max(mark);
    }

    /// The states that a reader which began at `mark` may show.
    pub fn since(&self, mark: usize) -> Vec<State> {
        self.states[mark..].to_vec()
    }

    /// Judges a state that was read since `mark`.
    ///
    /// # Errors
    ///
    /// When it was never there.
    pub fn judge(&self, mark: usize, found: &State) -> Result<(), String> {
        if self.states[mark..].contains(found) {
            return Ok(());
        }
        let (now, begun) = (self.now(), self.begun.last());
        Err(format!("no state since {mark}: found {found:?}, now {now:?}, begun {begun:?}"))
    }

    /// Judges one key that was read since `mark`.
    ///
    /// # Errors
    ///
    /// When it never had that value.
    pub fn judge_key(&self, mark: usize, index: usize, found: u32) -> Result<(), String> {
        if self.states[mark..].iter().any(|state| state[index] == found) {
            return Ok(());
        }
        let (now, begun) = (self.now(), self.begun.last());
        Err(format!("key {index} since {mark}: found {found}, now {now:?}, begun {begun:?}"))
    }

    /// Judges what is there after a loss of power.
    ///
    /// # Errors
    ///
    /// When it is no state, or one before what was promised.
    pub fn judge_crashed(&self, found: &State) -> Result<(), String> {
        self.judge(self.promised, found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Twelve numbers of which only the first is of interest.
    fn first(number: u32) -> State {
        let mut state = [0; KEYS];
        state[0] = number;
        state
    }

    /// A writer that waits for its sync returns after one that came later, and whose batch is the newer one all the same. The
    /// timeline once took the order in which writers return.
    #[test]
    fn the_order_is_that_of_publication() {
        let mut timeline = Timeline::default();
        timeline.begin(vec![(0, true)]);
        timeline.publish().expect("the first");
        timeline.begin(vec![(0, true)]);
        timeline.judge(timeline.mark(), &first(1)).expect("the second is not there yet");
        assert!(timeline.judge(timeline.mark(), &first(2)).is_err(), "seen before it was published");
        timeline.publish().expect("the second");
        assert!(timeline.judge(timeline.mark(), &first(1)).is_err(), "time runs backwards");
        timeline.end(Outcome::Done { synced: false }).expect("the second returns");
        timeline.end(Outcome::Done { synced: true }).expect("the first returns");
        assert_eq!(timeline.now(), first(2));
        // Only the first was promised.
        timeline.judge_crashed(&first(2)).expect("both are there");
        timeline.judge_crashed(&first(1)).expect("the first is there");
        assert!(timeline.judge_crashed(&first(0)).is_err(), "the first is lost");
    }

    #[test]
    fn what_writers_are_told_fits_what_is_visible() {
        let mut timeline = Timeline::default();
        assert!(timeline.publish().is_err(), "nobody writes");
        timeline.begin(vec![(0, true)]);
        assert!(timeline.end(Outcome::Done { synced: false }).is_err(), "acknowledged and not there");
        timeline.begin(vec![(0, true)]);
        timeline.publish().expect("once");
        assert!(timeline.publish().is_err(), "twice");
        assert!(timeline.end(Outcome::Refused).is_err(), "refused and there");
        timeline.begin(vec![(0, true)]);
        timeline.end(Outcome::Unknown).expect("its append has failed");
        assert_eq!(timeline.now(), first(2));
    }
}
