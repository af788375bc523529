//! [`ModelCursor`]: the cursor of the [`Model`], move by move.

use std::ops::Bound;

use crate::{KeyRange, Model, Move};

/// A position among the keys that a reader at one version sees.
///
/// A new one is not valid, a move past an end makes it so, and from there `next` and `prev` do nothing. Seeks are
/// clamped to the bounds.
#[derive(Clone, Debug)]
pub struct ModelCursor {
    bounds: KeyRange,
    at: u64,
    key: Option<Vec<u8>>,
}

impl ModelCursor {
    /// A cursor at a version, over everything.
    pub fn new(at: u64) -> Self {
        Self::within((Bound::Unbounded, Bound::Unbounded), at)
    }

    /// A cursor at a version, over a range.
    pub fn within(bounds: KeyRange, at: u64) -> Self {
        ModelCursor { bounds, at, key: None }
    }

    /// The version it reads at.
    pub fn version(&self) -> u64 {
        self.at
    }

    /// The entry here.
    pub fn entry<'a>(&'a self, model: &'a Model) -> Option<(&'a [u8], &'a [u8])> {
        let key = self.key.as_deref()?;
        Some((key, model.get(key, self.at).expect("a cursor stands on visible keys only")))
    }

    /// Moves.
    pub fn apply(&mut self, step: &Move, model: &Model) {
        let (lower, upper) = self.bounds.clone();
        self.key = match step {
            Move::First => self.first_in(model, (lower, upper)),
            Move::Last => self.last_in(model, (lower, upper)),
            Move::Next => match self.key.take() {
                Some(key) => self.first_in(model, (Bound::Excluded(key), upper)),
                None => None,
            },
            Move::Prev => match self.key.take() {
                Some(key) => self.last_in(model, (lower, Bound::Excluded(key))),
                None => None,
            },
            Move::Seek(key) => {
                let below = match &lower {
                    Bound::Unbounded => false,
                    Bound::Included(lower) => key < lower,
                    Bound::Excluded(lower) => key <= lower,
                };
                let from = if below { lower } else { Bound::Included(key.clone()) };
                self.first_in(model, (from, upper))
            }
            Move::SeekForPrev(key) => {
                let above = match &upper {
                    Bound::Unbounded => false,
                    Bound::Included(upper) => key > upper,
                    Bound::Excluded(upper) => key >= upper,
                };
                let to = if above { upper } else { Bound::Included(key.clone()) };
                self.last_in(model, (lower, to))
            }
        };
    }

    fn first_in(&self, model: &Model, range: KeyRange) -> Option<Vec<u8>> {
        model.range(&range, self.at).next().map(|(key, _)| key.to_vec())
    }

    fn last_in(&self, model: &Model, range: KeyRange) -> Option<Vec<u8>> {
        model.range(&range, self.at).next_back().map(|(key, _)| key.to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::WriteOp;

    /// The moves by hand, at both ends, over a gap and with bounds.
    #[test]
    fn moves() {
        let mut model = Model::new();
        let put = |key: &str| WriteOp::Put(key.into(), key.into());
        model.apply(&["a", "b", "c", "d"].map(put));
        model.apply(&[WriteOp::Delete(b"b".to_vec())]);
        let run = |cursor: &mut ModelCursor, moves: &[Move]| -> String {
            let mut seen = String::new();
            for step in moves {
                cursor.apply(step, &model);
                seen += cursor.entry(&model).map_or("-", |(key, _)| str::from_utf8(key).unwrap());
            }
            seen
        };
        let (first, last, next, prev) = (Move::First, Move::Last, Move::Next, Move::Prev);
        let seek = |key: &str| Move::Seek(key.into());
        let back = |key: &str| Move::SeekForPrev(key.into());
        let mut cursor = ModelCursor::new(model.now());
        assert_eq!(run(&mut cursor, &[next.clone(), first.clone(), next.clone(), prev.clone()]), "-aca");
        assert_eq!(run(&mut cursor, &[prev.clone(), next.clone(), last.clone(), next.clone()]), "--d-");
        assert_eq!(run(&mut cursor, &[seek("b"), back("b"), seek("e"), back("e"), back("")]), "ca-d-");
        let bounds = (Bound::Excluded(b"a".to_vec()), Bound::Included(b"c".to_vec()));
        let mut cursor = ModelCursor::within(bounds, 1);
        assert_eq!(run(&mut cursor, &[first, seek("a"), last, back("z"), seek("d"), back("a")]), "bbcc--");
    }
}
