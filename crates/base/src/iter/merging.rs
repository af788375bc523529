//! One sorted sequence out of several.
//!
//! The children are few (memtables, level-0 tables, one a level), so there is no heap: the iterator remembers the
//! winner and the runner-up. While the winner stays ahead of the runner-up, a step costs one comparison; at an overtaking
//! the runner-up follows, and its successor is looked for among the others. Comparisons are of the first 16 bytes of the
//! keys, which are kept beside the children as numbers; whole keys are looked at when these are equal. Order of the
//! children decides ties, newest first.

use super::InternalIterator;
use crate::{InternalKey, InternalKeyRef, Result, Slice, key_head, planted};
use std::cmp::Ordering;

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
    children: Vec<I>,
    /// The heads of the children's keys. Those of children without an entry mean nothing.
    heads: Vec<u128>,
    /// The child with the current entry.
    winner: Option<usize>,
    /// The child that follows; `None` when the others have no entry.
    runner_up: Option<usize>,
    direction: Direction,
    /// The current key, while the direction changes.
    pivot: InternalKey,
}

impl<I: InternalIterator> MergingIterator<I> {
    /// Merges `children`, the one with the newest entries first.
    pub fn new(children: Vec<I>) -> Self {
        MergingIterator {
            heads: vec![0; children.len()],
            children,
            winner: None,
            runner_up: None,
            direction: Direction::Forward,
            pivot: InternalKey::default(),
        }
    }

    /// The children, for inspection.
    pub fn children(&self) -> &[I] {
        &self.children
    }

    /// Whether the child at `a` comes before the one at `b` in the current direction.
    #[inline]
    fn ahead(&self, a: usize, b: usize) -> bool {
        let order = match self.heads[a].cmp(&self.heads[b]) {
            Ordering::Equal => self.children[a].key().cmp(&self.children[b].key()),
            order => order,
        };
        let order = if self.direction == Direction::Forward { order } else { order.reverse() };
        order.then_with(|| a.cmp(&b)).is_lt()
    }

    /// Notes the head of a child that has moved. Whether it has an entry.
    #[inline]
    fn note(&mut self, child: usize) -> bool {
        let valid = self.children[child].valid();
        if valid {
            self.heads[child] = key_head(self.children[child].key().user_key);
        }
        valid
    }

    /// Finds the winner and the runner-up among the children, all of which may have moved.
    fn rank(&mut self) {
        let (mut first, mut second) = (None, None);
        for child in 0..self.children.len() {
            if !self.note(child) {
                continue;
            }
            match (first, second) {
                (None, _) => first = Some(child),
                (Some(best), _) if self.ahead(child, best) => {
                    second = first;
                    first = Some(child);
                }
                (_, None) => second = Some(child),
                (_, Some(next)) if self.ahead(child, next) => second = Some(child),
                _ => {}
            }
        }
        self.winner = first;
        self.runner_up = second;
    }

    /// After the winner has moved: keeps it while it is still ahead. Else the runner-up follows, which is ahead of all
    /// others; only the new runner-up has to be found.
    #[inline]
    fn rank_after_step(&mut self, moved: usize) {
        // Heads are for comparisons: without a runner-up there is nothing to compare with.
        let stays = match self.runner_up {
            None => self.children[moved].valid(),
            Some(_) => self.note(moved),
        };
        match self.runner_up {
            Some(other) if !stays || self.ahead(other, moved) => {
                self.winner = Some(other);
                self.runner_up = self.first_but(other);
            }
            _ => self.winner = stays.then_some(moved),
        }
    }

    /// The child that follows `winner`.
    fn first_but(&self, winner: usize) -> Option<usize> {
        let mut first = None;
        for child in 0..self.children.len() {
            if child != winner
                && self.children[child].valid()
                && first.is_none_or(|best| self.ahead(child, best))
            {
                first = Some(child);
            }
        }
        first
    }

    /// Positions every child by `movement`, then ranks. After an error nothing is valid.
    fn reposition(&mut self, direction: Direction, movement: impl Fn(&mut I) -> Result<()>) -> Result<()> {
        self.winner = None;
        self.direction = direction;
        for child in &mut self.children {
            movement(child)?;
        }
        self.rank();
        Ok(())
    }

    /// Moves all children but the winner to the other side of the current entry.
    fn turn(&mut self, direction: Direction) -> Result<()> {
        let Some(winner) = self.winner.take() else { return Ok(()) };
        let mut pivot = std::mem::take(&mut self.pivot);
        pivot.assign(self.children[winner].key());
        let target = pivot.as_ref();
        for (index, child) in self.children.iter_mut().enumerate() {
            if index == winner {
                continue;
            }
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
        movement(&mut self.children[winner])?;
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
        self.children[self.winner.expect("key needs valid()")].key()
    }

    #[inline]
    fn value(&self) -> &[u8] {
        self.children[self.winner.expect("value needs valid()")].value()
    }

    #[inline]
    fn is_newest(&self) -> bool {
        let Some(winner) = self.winner.filter(|_| self.direction == Direction::Backward) else {
            return false;
        };
        let winner = &self.children[winner];
        // A newer version elsewhere would come next.
        let other = self.runner_up.map(|other| self.children[other].key().user_key);
        other != Some(winner.key().user_key) && winner.is_newest()
    }

    #[inline]
    fn value_slice(&self) -> Slice {
        self.children[self.winner.expect("value_slice needs valid()")].value_slice()
    }
}

#[cfg(test)]
mod tests;
