//! [`Timeline`]: every state that a small database has been in, and the writes on their way.
//!
//! Twelve keys; a value tells the number of the batch that wrote it, so a state is twelve numbers. Whatever is read, in
//! whatever way, must be one of the states since the read began: whole batches only, and never back.

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
    /// Whether somebody has seen it already, so that it is in the states.
    seen: bool,
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
    /// Writes that were begun and have not returned, the innermost last. Only that one can be visible: those around it
    /// have not been let in yet.
    begun: Vec<Batch>,
    next: u32,
}

impl Default for Timeline {
    fn default() -> Self {
        Timeline { states: vec![[0; KEYS]], begun: Vec::new(), next: 1 }
    }
}

impl Timeline {
    /// The state that all have who look now, but for a write on its way.
    pub fn now(&self) -> State {
        self.states[self.states.len() - 1]
    }

    /// How many states there are: what a read that begins now has to remember.
    pub fn mark(&self) -> usize {
        self.states.len() - 1
    }

    /// A write begins.
    pub fn begin(&mut self, ops: Vec<(usize, bool)>) -> Batch {
        let batch = Batch { number: self.next, ops, seen: false };
        self.next += 1;
        self.begun.push(batch.clone());
        batch
    }

    /// The innermost write has returned; `done` says whether it was acknowledged.
    ///
    /// # Errors
    ///
    /// When a write that failed was seen.
    pub fn end(&mut self, done: bool) -> Result<(), String> {
        let Some(batch) = self.begun.pop() else { return Ok(()) };
        match (done, batch.seen) {
            (true, false) => self.states.push(batch.applied(self.now())),
            (false, true) => return Err(format!("batch {} failed after it was seen", batch.number)),
            _ => {}
        }
        Ok(())
    }

    /// The state with the write that may be visible already.
    fn with_begun(&self) -> Option<State> {
        self.begun.last().filter(|batch| !batch.seen).map(|batch| batch.applied(self.now()))
    }

    fn saw_begun(&mut self) {
        let now = self.now();
        if let Some(batch) = self.begun.last_mut() {
            self.states.push(batch.applied(now));
            batch.seen = true;
        }
    }

    /// The states that a reader which began at `mark` may show.
    pub fn since(&self, mark: usize) -> Vec<State> {
        self.states[mark..].iter().copied().chain(self.with_begun()).collect()
    }

    /// Judges a state that was read since `mark`.
    ///
    /// # Errors
    ///
    /// When it was never there.
    pub fn judge(&mut self, mark: usize, found: &State) -> Result<(), String> {
        if self.states[mark..].contains(found) {
            return Ok(());
        }
        if self.with_begun().as_ref() == Some(found) {
            self.saw_begun();
            return Ok(());
        }
        Err(format!(
            "no state since {mark}: found {found:?}, now {:?}, begun {:?}",
            self.now(),
            self.begun.last()
        ))
    }

    /// Judges one key that was read since `mark`.
    ///
    /// # Errors
    ///
    /// When it never had that value.
    pub fn judge_key(&mut self, mark: usize, index: usize, found: u32) -> Result<(), String> {
        if self.states[mark..].iter().any(|state| state[index] == found) {
            return Ok(());
        }
        if self.with_begun().is_some_and(|state| state[index] == found) {
            self.saw_begun();
            return Ok(());
        }
        let begun = self.begun.last();
        Err(format!("key {index} since {mark}: found {found}, now {:?}, begun {begun:?}", self.now()))
    }
}
