//! [`Session`] and [`ModelSession`]: the same operations on a database and on the model, each giving its [`Answer`].
//!
//! The harnesses compare answers: those of the database with the model's, or with those of another database.

use std::ops::Bound;

use esker::{Cursor, Db, DbIterator, Error, Snapshot, WriteBatch, WriteOptions};
use esker_testkit::{
    Direction, KeyRange, Model, ModelCursor, Move, Op, Promise, View, WriteOp, prefix_range,
};

/// All entries of a database.
pub type Content = std::collections::BTreeMap<Vec<u8>, Vec<u8>>;

/// A key and its value, or what is not there.
pub type Entry = Option<(Vec<u8>, Vec<u8>)>;

/// What an operation shows.
pub type Answer = Vec<Entry>;

/// More snapshots than this are not held by one client.
pub const SNAPSHOTS_MAX: usize = 12;

/// What a promise means as options of a write.
pub fn write_options(promise: Promise) -> WriteOptions {
    use esker::Durability;
    match promise {
        Promise::Default => WriteOptions::new(),
        Promise::Memory => WriteOptions::new().with_durability(Durability::Memory),
        Promise::Buffered => WriteOptions::new().with_durability(Durability::Buffered),
        Promise::Sync => WriteOptions::sync(),
        Promise::NoLog => WriteOptions::wal(false),
    }
}

/// Writes operations as one batch; a single one by a plain put or delete, and a synced batch by a commit that is waited for
/// afterwards.
pub fn write(db: &Db, ops: &[WriteOp], promise: Promise) -> esker::Result<()> {
    let options = write_options(promise);
    match ops {
        [WriteOp::Put(key, value)] => db.put_with(key, value, &options),
        [WriteOp::Delete(key)] => db.delete_with(key, &options),
        _ if promise == Promise::Sync => db.submit(batch(ops), &options)?.wait_synced(),
        _ => db.write_with(batch(ops), &options),
    }
}

/// Operations as a batch.
pub fn batch(ops: &[WriteOp]) -> WriteBatch {
    let mut batch = WriteBatch::new();
    for op in ops {
        match op {
            WriteOp::Put(key, value) => batch.put(key, value),
            WriteOp::Delete(key) => batch.delete(key),
        };
    }
    batch
}

/// The bounds of a range, borrowed.
pub fn bounds(range: &KeyRange) -> (Bound<&[u8]>, Bound<&[u8]>) {
    (range.0.as_ref().map(Vec::as_slice), range.1.as_ref().map(Vec::as_slice))
}

/// The directions of the steps of a scan: `true` is from the back.
fn directions(direction: Direction) -> impl Iterator<Item = bool> {
    let mut bits = match direction {
        Direction::Forward => 0,
        Direction::Backward => u64::MAX,
        Direction::Both(bits) => bits,
    };
    std::iter::repeat_with(move || {
        let back = bits & 1 == 1;
        bits = bits.rotate_right(1);
        back
    })
}

/// A client of a database, with what it holds open.
#[derive(Debug)]
pub struct Session {
    db: Db,
    snapshots: Vec<Snapshot>,
    cursor: Option<Cursor>,
}

impl Session {
    /// A client that holds nothing.
    pub fn new(db: Db) -> Self {
        Session { db, snapshots: Vec::new(), cursor: None }
    }

    /// The database.
    pub fn db(&self) -> &Db {
        &self.db
    }

    /// Whether a snapshot, and whether a cursor is held.
    pub fn holds(&self) -> (bool, bool) {
        (!self.snapshots.is_empty(), self.cursor.is_some())
    }

    /// Gives up all that is held, and the handle.
    pub fn let_go(self) -> Db {
        self.db
    }

    /// By one of the two calls that there are for it, one for odd and one for even numbers of keys.
    fn multi_get(&self, keys: &[Vec<u8>]) -> Vec<Result<Option<Vec<u8>>, Error>> {
        let found: Vec<_> = if keys.len().is_multiple_of(2) {
            let found = self.db.multi_get(keys).into_iter();
            found.map(|found| Ok(found?.map(|value| value.to_vec()))).collect()
        } else {
            let mut answers = vec![None; keys.len()];
            self.db.multi_get_with(keys, |number, answer| {
                let before = answers[number].replace(answer.map(|value| value.map(<[u8]>::to_vec)));
                assert!(before.is_none(), "multi_get_with gives two answers for a key");
            });
            answers.into_iter().flatten().collect()
        };
        assert_eq!(found.len(), keys.len(), "multi_get gives an answer for each key");
        found
    }

    fn view(&self, view: View) -> Option<&Snapshot> {
        match view {
            View::Snapshot(index) if !self.snapshots.is_empty() => {
                Some(&self.snapshots[index % self.snapshots.len()])
            }
            _ => None,
        }
    }

    /// Carries out an operation that leaves the database open.
    ///
    /// # Errors
    ///
    /// The database's.
    ///
    /// # Panics
    ///
    /// When an iterator that has ended goes on, and for operations that close the database.
    pub fn run(&mut self, op: &Op) -> Result<Answer, Error> {
        Ok(match op {
            Op::Write(ops, promise) => {
                write(&self.db, ops, *promise)?;
                Vec::new()
            }
            Op::Get(key, view) => {
                let found = match self.view(*view) {
                    Some(snapshot) => snapshot.get(key)?,
                    None => self.db.get(key)?,
                };
                vec![found.map(|value| (key.clone(), value.to_vec()))]
            }
            Op::GetWith(key) => {
                let found = self.db.get_with(key, <[u8]>::to_vec)?;
                assert_eq!(found.is_some(), self.db.contains_key(key)?, "get_with and contains_key differ");
                vec![found.map(|value| (key.clone(), value))]
            }
            Op::MultiGet(keys) => {
                let pairs = keys.iter().zip(self.multi_get(keys));
                pairs
                    .map(|(key, found)| Ok(found?.map(|value| (key.clone(), value))))
                    .collect::<Result<_, Error>>()?
            }
            Op::Scan(range, direction, view, limit) => {
                let iter = match self.view(*view) {
                    Some(snapshot) => snapshot.range::<&[u8], _>(bounds(range)),
                    None => self.db.range::<&[u8], _>(bounds(range)),
                };
                scan(iter, *direction, *limit)?
            }
            Op::Prefix(prefix, direction, view) => {
                let iter = match self.view(*view) {
                    Some(snapshot) => snapshot.prefix(prefix),
                    None => self.db.prefix(prefix),
                };
                scan(iter, *direction, usize::MAX)?
            }
            Op::Cursor(view, moves) => {
                let mut cursor = match self.view(*view) {
                    Some(snapshot) => snapshot.cursor()?,
                    None => self.db.cursor()?,
                };
                moves.iter().map(|step| advance(&mut cursor, step)).collect::<Result<_, Error>>()?
            }
            Op::OpenCursor => {
                self.cursor = Some(self.db.cursor()?);
                Vec::new()
            }
            Op::MoveCursor(moves) => match &mut self.cursor {
                Some(cursor) => {
                    moves.iter().map(|step| advance(cursor, step)).collect::<Result<_, Error>>()?
                }
                None => Vec::new(),
            },
            Op::CloseCursor => {
                self.cursor = None;
                Vec::new()
            }
            Op::TakeSnapshot => {
                if self.snapshots.len() < SNAPSHOTS_MAX {
                    self.snapshots.push(self.db.snapshot());
                }
                Vec::new()
            }
            Op::DropSnapshot(index) => {
                if !self.snapshots.is_empty() {
                    self.snapshots.swap_remove(index % self.snapshots.len());
                }
                Vec::new()
            }
            Op::CheckSnapshot(index) => match self.view(View::Snapshot(*index)) {
                Some(snapshot) => scan(snapshot.iter(), Direction::Forward, usize::MAX)?,
                None => Vec::new(),
            },
            Op::Flush => {
                self.db.flush()?;
                Vec::new()
            }
            Op::Compact(range) => {
                self.db.compact_range::<&[u8], _>(bounds(range))?;
                Vec::new()
            }
            Op::Sync => {
                self.db.sync()?;
                Vec::new()
            }
            Op::Reopen | Op::Crash(_) | Op::Kill => panic!("{op:?} is not an operation of a session"),
        })
    }
}

fn scan(mut iter: DbIterator, direction: Direction, limit: usize) -> Result<Answer, Error> {
    let mut answer = Answer::new();
    for back in directions(direction).take(limit) {
        let found = if back { iter.next_back() } else { iter.next() };
        match found {
            Some(entry) => {
                let (key, value) = entry?;
                answer.push(Some((key.to_vec(), value.to_vec())));
            }
            None => {
                assert!(iter.next().is_none() && iter.next_back().is_none(), "an iterator is fused");
                answer.push(None);
                break;
            }
        }
    }
    Ok(answer)
}

fn advance(cursor: &mut Cursor, step: &Move) -> Result<Entry, Error> {
    match step {
        Move::First => cursor.seek_to_first(),
        Move::Last => cursor.seek_to_last(),
        Move::Next => cursor.next(),
        Move::Prev => cursor.prev(),
        Move::Seek(key) => cursor.seek(key),
        Move::SeekForPrev(key) => cursor.seek_for_prev(key),
    }?;
    Ok(cursor.valid().then(|| (cursor.key().to_vec(), cursor.value().to_vec())))
}

/// What one client holds open in the model.
#[derive(Debug, Default)]
struct Held {
    snapshots: Vec<u64>,
    cursor: Option<ModelCursor>,
}

/// The model, and what each of its clients holds open.
#[derive(Debug)]
pub struct ModelSession {
    /// The right answers.
    pub model: Model,
    clients: Vec<Held>,
}

impl ModelSession {
    /// An empty model for so many clients.
    pub fn new(clients: usize) -> Self {
        ModelSession { model: Model::new(), clients: (0..clients).map(|_| Held::default()).collect() }
    }

    /// Gives up all that is held: the database was closed.
    pub fn let_go(&mut self) {
        self.model.release_all();
        self.clients.iter_mut().for_each(|held| *held = Held::default());
    }

    fn view(&self, client: usize, view: View) -> u64 {
        let snapshots = &self.clients[client].snapshots;
        match view {
            View::Snapshot(index) if !snapshots.is_empty() => snapshots[index % snapshots.len()],
            _ => self.model.now(),
        }
    }

    fn entry(&self, key: &[u8], at: u64) -> Option<(Vec<u8>, Vec<u8>)> {
        self.model.get(key, at).map(|value| (key.to_vec(), value.to_vec()))
    }

    fn scan(&self, range: &KeyRange, direction: Direction, at: u64, limit: usize) -> Answer {
        let mut entries = self.model.range(range, at);
        let mut answer = Answer::new();
        for back in directions(direction).take(limit) {
            let entry = if back { entries.next_back() } else { entries.next() };
            answer.push(entry.map(|(key, value)| (key.to_vec(), value.to_vec())));
            if entry.is_none() {
                break;
            }
        }
        answer
    }

    /// Carries out what [`Session::run`] does.
    pub fn run(&mut self, client: usize, op: &Op) -> Answer {
        let now = self.model.now();
        match op {
            Op::Write(ops, _) => self.model.apply(ops),
            Op::Get(key, view) => return vec![self.entry(key, self.view(client, *view))],
            Op::GetWith(key) => return vec![self.entry(key, now)],
            Op::MultiGet(keys) => return keys.iter().map(|key| self.entry(key, now)).collect(),
            Op::Scan(range, direction, view, limit) => {
                return self.scan(range, *direction, self.view(client, *view), *limit);
            }
            Op::Prefix(prefix, direction, view) => {
                let at = self.view(client, *view);
                return self.scan(&prefix_range(prefix), *direction, at, usize::MAX);
            }
            Op::Cursor(view, moves) => {
                let mut cursor = ModelCursor::new(self.view(client, *view));
                return advance_all(&mut cursor, moves, &self.model);
            }
            Op::OpenCursor => {
                self.close_cursor(client);
                let at = self.model.snapshot();
                self.clients[client].cursor = Some(ModelCursor::new(at));
            }
            Op::MoveCursor(moves) => {
                if let Some(cursor) = &mut self.clients[client].cursor {
                    return advance_all(cursor, moves, &self.model);
                }
            }
            Op::CloseCursor => self.close_cursor(client),
            Op::TakeSnapshot => {
                if self.clients[client].snapshots.len() < SNAPSHOTS_MAX {
                    let at = self.model.snapshot();
                    self.clients[client].snapshots.push(at);
                }
            }
            Op::DropSnapshot(index) => {
                let snapshots = &mut self.clients[client].snapshots;
                if !snapshots.is_empty() {
                    let at = snapshots.swap_remove(index % snapshots.len());
                    self.model.release(at);
                }
            }
            Op::CheckSnapshot(index) => {
                if !self.clients[client].snapshots.is_empty() {
                    let at = self.view(client, View::Snapshot(*index));
                    let all = (Bound::Unbounded, Bound::Unbounded);
                    return self.scan(&all, Direction::Forward, at, usize::MAX);
                }
            }
            Op::Flush | Op::Compact(_) | Op::Sync | Op::Reopen | Op::Crash(_) | Op::Kill => {}
        }
        Answer::new()
    }

    fn close_cursor(&mut self, client: usize) {
        if let Some(cursor) = self.clients[client].cursor.take() {
            self.model.release(cursor.version());
        }
    }
}

fn advance_all(cursor: &mut ModelCursor, moves: &[Move], model: &Model) -> Answer {
    let entry = |cursor: &ModelCursor| cursor.entry(model).map(|(key, value)| (key.to_vec(), value.to_vec()));
    moves
        .iter()
        .map(|step| {
            cursor.apply(step, model);
            entry(cursor)
        })
        .collect()
}

/// Says where two answers differ first.
pub fn difference(found: &Answer, wanted: &Answer) -> String {
    let at = found.iter().zip(wanted).position(|(a, b)| a != b).unwrap_or(found.len().min(wanted.len()));
    let show = |answer: &Answer| match answer.get(at) {
        None => "nothing more".to_owned(),
        Some(None) => "none".to_owned(),
        Some(Some((key, value))) => format!("{} = {}", short(key), short(value)),
    };
    format!("answer {at} of {}: found {}, wanted {}", wanted.len(), show(found), show(wanted))
}

/// The start of some bytes as text.
pub fn short(bytes: &[u8]) -> String {
    let text = bytes[..bytes.len().min(40)].escape_ascii().to_string();
    if bytes.len() > 40 { format!("{text}.. ({} bytes)", bytes.len()) } else { text }
}

/// The content of a database: a scan forward, with which a scan backward and a get of each key must agree (SN15).
///
/// # Errors
///
/// The database's.
///
/// # Panics
///
/// When they disagree.
pub fn content(db: &Db) -> Result<Content, Error> {
    let mut content = Content::new();
    let mut last: Option<Vec<u8>> = None;
    for entry in db.iter() {
        let (key, value) = entry?;
        assert!(last.as_deref().is_none_or(|last| last < &key[..]), "a scan is not in order at {key:?}");
        last = Some(key.to_vec());
        content.insert(key.to_vec(), value.to_vec());
    }
    let mut entries = content.iter().rev();
    for entry in db.iter().rev() {
        let (key, value) = entry?;
        let forward = entries.next().map(|(key, value)| (&key[..], &value[..]));
        assert_eq!(forward, Some((&key[..], &value[..])), "the scans of both directions differ");
    }
    assert_eq!(entries.next(), None, "the scan backward ended early");
    for (key, value) in &content {
        assert_eq!(db.get(key)?.as_deref(), Some(&value[..]), "get and scan differ at {key:?}");
    }
    Ok(content)
}

/// Fails unless `verify` finds nothing.
///
/// # Panics
///
/// With the report.
pub fn assert_sound(db: &Db) {
    let report = db.verify().expect("an open database");
    assert!(report.is_clean(), "{report}");
}
