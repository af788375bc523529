//! One sorted sequence out of several.
//!
//! The children are few (memtables, level-0 tables, one a level), so there is no heap: the iterator remembers the
//! winner and the runner-up. While the winner stays ahead of the runner-up, a step costs one comparison; at an overtaking
//! the runner-up follows, and its successor is looked for among the others. Comparisons are of outlines of the keys, which
//! are kept beside the children; whole keys are looked at when these are equal. Order of the children decides ties, newest
//! first.

use super::InternalIterator;
use crate::{InternalKey, InternalKeyRef, Outline, Result, Slice, planted};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Forward,
    Backward,
}

/// Merges children into one sequence.
///
/// While it goes forward, every child stands at its first entry at or after the current one; while it goes backward,
/// at its last entry at or before it. A change of direction moves the children over.
#[derive(Debug)]
pub struct MergingIterator<I> {
    children: Vec<Child<I>>,
    /// The child with the current entry.
    winner: Option<usize>,
    /// The child that follows; `None` when the others have no entry.
    runner_up: Option<usize>,
    direction: Direction,
    /// Steps since another child had the current entry; 1 after a seek.
    streak: u32,
    /// The current key, while the direction changes.
    pivot: InternalKey,
}

/// A child, and what is known of the key that it stands at. Of the winner that is so only while there is a runner-up.
#[derive(Debug)]
struct Child<I> {
    iter: I,
    here: Option<Outline>,
}

impl<I: InternalIterator> Child<I> {
    /// Notes where the child is.
    #[inline]
    fn note(&mut self) {
        self.here = self.iter.outline();
    }

    /// Whether both stand at the same user key.
    #[inline]
    fn same_key(&self, other: &Self) -> bool {
        match (&self.here, &other.here) {
            (Some(here), Some(there)) if !here.differs(there) => {
                here.is_whole() || self.iter.key().user_key == other.iter.key().user_key
            }
            _ => false,
        }
    }
}

impl<I: InternalIterator> MergingIterator<I> {
    /// Merges `children`, the one with the newest entries first.
    pub fn new(children: Vec<I>) -> Self {
        let mut merged = Self::with_capacity(children.len());
        children.into_iter().for_each(|child| merged.push(child));
        merged
    }

    /// Merges nothing yet; there is room for `children`.
    pub fn with_capacity(children: usize) -> Self {
        MergingIterator {
            children: Vec::with_capacity(children),
            winner: None,
            runner_up: None,
            direction: Direction::Forward,
            streak: 0,
            pivot: InternalKey::default(),
        }
    }

    /// Adds a child whose entries are older than those of the children so far. To be called before the first seek.
    pub fn push(&mut self, child: I) {
        self.children.push(Child { iter: child, here: None });
    }

    /// The child with the current entry, and the entry of the child that follows in the current direction, with the head
    /// of its key. The child may be moved, forward or backward, as long as it stays strictly between its place and that
    /// entry; [`winner_moved`](Self::winner_moved) must be called then.
    #[inline]
    pub fn winner(&mut self) -> Option<(&mut I, Option<(InternalKeyRef<'_>, u128)>)> {
        let winner = self.winner?;
        let Some(other) = self.runner_up else { return Some((&mut self.children[winner].iter, None)) };
        let [winner, other] = self.children.get_disjoint_mut([winner, other]).ok()?;
        let head = other.here?.head;
        Some((&mut winner.iter, Some((other.iter.key(), head))))
    }

    /// The child with the current entry has moved, and no other entry has come between its old place and the new one.
    #[inline]
    pub fn winner_moved(&mut self) {
        if let Some(winner) = self.winner {
            self.children[winner].note();
        }
    }

    /// Steps since another child had the current entry; 1 after a seek, as if this had been a step.
    #[inline]
    pub fn streak(&self) -> u32 {
        self.streak
    }

    /// Whether the child at `a` comes before the one at `b` in the current direction. One without an entry never does.
    #[inline]
    fn ahead(&self, a: usize, b: usize) -> bool {
        let (one, other) = (&self.children[a], &self.children[b]);
        let Some(here) = &one.here else { return false };
        let Some(there) = &other.here else { return true };
        let order = here.order(there).unwrap_or_else(|| one.iter.key().cmp(&other.iter.key()));
        let order = if self.direction == Direction::Forward { order } else { order.reverse() };
        order.then_with(|| a.cmp(&b)).is_lt()
    }

    /// Finds the winner and the runner-up among the children, all of which may have moved.
    fn rank(&mut self) {
        self.children.iter_mut().for_each(Child::note);
        self.winner = self.first_but(None);
        self.runner_up = self.winner.and_then(|winner| self.first_but(Some(winner)));
        self.streak = 1;
    }

    /// After the winner has moved: keeps it while it is still ahead. Else the runner-up follows, which is ahead of all
    /// others; only the new runner-up has to be found.
    #[inline]
    fn rank_after_step(&mut self, moved: usize) {
        self.streak = self.streak.saturating_add(1);
        let Some(other) = self.runner_up else {
            // Outlines are for comparisons: without a runner-up there is nothing to compare with.
            self.winner = self.children[moved].iter.valid().then_some(moved);
            return;
        };
        self.children[moved].note();
        self.winner = Some(moved);
        if self.ahead(other, moved) {
            self.winner = Some(other);
            self.runner_up = self.first_but(Some(other));
            self.streak = 0;
        }
    }

    /// The first of the children, or of all but `winner`.
    #[inline]
    fn first_but(&self, winner: Option<usize>) -> Option<usize> {
        let mut first = None;
        for (index, child) in self.children.iter().enumerate() {
            let comes = Some(index) != winner && child.here.is_some();
            if comes && first.is_none_or(|best| self.ahead(index, best)) {
                first = Some(index);
            }
        }
        first
    }

    /// Positions every child by `movement`, then ranks. After an error nothing is valid.
    fn reposition(&mut self, direction: Direction, movement: impl Fn(&mut I) -> Result<()>) -> Result<()> {
        self.winner = None;
        self.direction = direction;
        for child in &mut self.children {
            movement(&mut child.iter)?;
        }
        self.rank();
        Ok(())
    }

    /// Moves all children but the winner to the other side of the current entry.
    fn turn(&mut self, direction: Direction) -> Result<()> {
        let Some(winner) = self.winner.take() else { return Ok(()) };
        let mut pivot = std::mem::take(&mut self.pivot);
        pivot.assign(self.children[winner].iter.key());
        let target = pivot.as_ref();
        for (index, child) in self.children.iter_mut().enumerate() {
            if index == winner {
                continue;
            }
            let child = &mut child.iter;
            match direction {
                Direction::Forward => child.seek(target)?,
                // In one call: into a memtable, entries may come behind the target between two calls, and a child that
                // stood at one of them would take the merge back over what it has passed.
                Direction::Backward => {
                    child.seek_for_prev(target)?;
                    while child.valid() && child.key() == target {
                        child.prev()?;
                    }
                }
            }
        }
        self.pivot = pivot;
        self.direction = direction;
        self.rank_with(winner);
        Ok(())
    }

    /// Ranks the children, given that the winner is known: the others are all behind it.
    fn rank_with(&mut self, winner: usize) {
        self.rank();
        if self.winner != Some(winner) {
            self.runner_up = self.winner;
            self.winner = Some(winner);
        }
    }

    #[inline]
    fn step(&mut self, direction: Direction, movement: impl Fn(&mut I) -> Result<()>) -> Result<()> {
        if self.winner.is_none() {
            return Ok(());
        }
        if self.direction != direction {
            if planted::is(planted::Fault::TurnForgotten) {
                self.direction = direction;
            } else {
                self.turn(direction)?;
            }
        }
        let Some(winner) = self.winner.take() else { return Ok(()) };
        movement(&mut self.children[winner].iter)?;
        self.rank_after_step(winner);
        Ok(())
    }
}

impl<I: InternalIterator> InternalIterator for MergingIterator<I> {
    fn seek_to_first(&mut self) -> Result<()> {
        self.reposition(Direction::Forward, I::seek_to_first)
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.reposition(Direction::Backward, I::seek_to_last)
    }

    fn seek(&mut self, target: InternalKeyRef<'_>) -> Result<()> {
        self.reposition(Direction::Forward, |child| child.seek(target))
    }

    fn seek_for_prev(&mut self, target: InternalKeyRef<'_>) -> Result<()> {
        self.reposition(Direction::Backward, |child| child.seek_for_prev(target))
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        self.step(Direction::Forward, I::next)
    }

    #[inline]
    fn prev(&mut self) -> Result<()> {
        self.step(Direction::Backward, I::prev)
    }

    #[inline]
    fn valid(&self) -> bool {
        self.winner.is_some()
    }

    #[inline]
    fn key(&self) -> InternalKeyRef<'_> {
        self.children[self.winner.expect("key needs valid()")].iter.key()
    }

    #[inline]
    fn outline(&self) -> Option<Outline> {
        let winner = &self.children[self.winner?];
        if self.runner_up.is_some() { winner.here } else { winner.iter.outline() }
    }

    #[inline]
    fn value(&self) -> &[u8] {
        self.children[self.winner.expect("value needs valid()")].iter.value()
    }

    #[inline]
    fn is_newest(&self) -> bool {
        let Some(winner) = self.winner.filter(|_| self.direction == Direction::Backward) else {
            return false;
        };
        let winner = &self.children[winner];
        // A newer version elsewhere would come next.
        let follows = self.runner_up.is_some_and(|other| self.children[other].same_key(winner));
        !follows && winner.iter.is_newest()
    }

    #[inline]
    fn value_slice(&self) -> Slice {
        self.children[self.winner.expect("value_slice needs valid()")].iter.value_slice()
    }
}

#[cfg(test)]
mod tests;
