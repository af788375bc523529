//! Which of the versions that the merge yields a cursor shows, in both directions.

use super::{Cursor, Place};
use crate::read::unsupported;
use crate::{Error, Result};
use esker_base::{InternalIterator, InternalKeyRef, Outline, ValueKind, planted};

/// Versions of one key that are stepped over before the cursor seeks past the rest.
const STEPS_BEFORE_SEEK: u32 = 8;

impl Cursor {
    /// Keeps the present key of the merged iterator in `key` if its outline, `here`, is not all of it.
    #[inline]
    pub(super) fn keep_long(&mut self, here: Option<Outline>) {
        if here.is_some_and(|here| !here.is_whole()) {
            self.keep_key();
        }
    }

    /// Keeps the present key of the merged iterator in `key`.
    pub(super) fn keep_key(&mut self) {
        self.key.clear();
        self.key.extend_from_slice(self.merged.key().user_key);
    }

    /// Whether the merged iterator, at a key with the outline `here`, stands on a version of the key that was `passed`.
    #[inline]
    pub(super) fn is_passed(&self, passed: Option<Outline>, here: &Outline) -> bool {
        passed.is_some_and(|passed| !passed.differs(here))
            && (here.is_whole() || self.merged.key().user_key == self.key.as_slice())
    }

    /// From the present entry of the merged iterator on: shows the first visible one. The versions of the key that was
    /// `passed` are stepped over first; if it is long, it is in `key`.
    #[inline]
    pub(super) fn show_forward(&mut self, mut passed: Option<Outline>) -> Result<()> {
        self.place = Place::Nowhere;
        let mut steps = 0;
        while let Some(here) = self.merged.outline() {
            let hidden = here.seq > self.seq && !planted::is(planted::Fault::CursorSeesNewer);
            let was_passed = self.is_passed(passed, &here);
            if was_passed || hidden {
                steps += 1;
                if steps > STEPS_BEFORE_SEEK {
                    steps = 0;
                    self.skip_versions(was_passed)?;
                    if !was_passed {
                        passed = None;
                    }
                    continue;
                }
            } else {
                if self.bounds.has_upper() && self.bounds.above(self.merged.key().user_key) {
                    return Ok(());
                }
                match here.kind {
                    ValueKind::Put => {
                        self.place = Place::On;
                        self.enter_run(true);
                        return Ok(());
                    }
                    ValueKind::Delete => {
                        passed = Some(here);
                        self.keep_long(passed);
                        steps = 0;
                        if self.met.tombstone(here.seq) {
                            self.handle.0.tombstones_met(&self.picture, &mut self.met);
                        }
                    }
                    other => return Err(unsupported(other)),
                }
            }
            self.merged.next()?;
        }
        Ok(())
    }

    /// Seeks past all versions of the present key, or past those that the cursor does not see.
    #[cold]
    fn skip_versions(&mut self, all: bool) -> Result<()> {
        self.keep_key();
        let target = if all {
            InternalKeyRef::behind(&self.key)
        } else {
            InternalKeyRef::seek_to(&self.key, self.seq)
        };
        self.merged.seek(target)
    }

    /// Moves the merged iterator before all versions of `self.key`, on which it stands.
    pub(super) fn leave_key_backward(&mut self) -> Result<()> {
        let mut steps = 0;
        while self.merged.valid() && self.merged.key().user_key == self.key.as_slice() {
            steps += 1;
            if steps > STEPS_BEFORE_SEEK {
                return self.merged.seek_for_prev(InternalKeyRef::before(&self.key));
            }
            self.merged.prev()?;
        }
        Ok(())
    }

    /// From the present entry of the merged iterator back: shows the last visible key.
    pub(super) fn show_backward(&mut self) -> Result<()> {
        self.place = Place::Nowhere;
        while let Some(here) = self.merged.outline() {
            if self.bounds.has_lower() && self.bounds.below(self.merged.key().user_key) {
                return Ok(());
            }
            if here.kind == ValueKind::Put && here.seq <= self.seq && self.merged.is_newest() {
                // The key's only version.
                self.place = Place::On;
                self.enter_run(false);
                return Ok(());
            }
            self.keep_key();
            if self.newest_version_backward()? {
                self.place = Place::Before;
                return Ok(());
            }
        }
        Ok(())
    }

    /// The merged iterator stands on the oldest version of `self.key`: takes the newest visible one, and moves before
    /// the key. Returns whether it is a value.
    fn newest_version_backward(&mut self) -> Result<bool> {
        let mut newest = None;
        let mut steps = 0;
        while self.merged.valid() {
            let entry = self.merged.key();
            if entry.user_key != self.key.as_slice() || entry.seq > self.seq {
                break;
            }
            newest = Some(entry.kind);
            match entry.kind {
                ValueKind::Put => self.value = self.merged.value_slice(),
                _ if self.met.tombstone(entry.seq) => {
                    self.handle.0.tombstones_met(&self.picture, &mut self.met);
                }
                _ => {}
            }
            steps += 1;
            if steps > STEPS_BEFORE_SEEK {
                // Many versions: the newest visible one is where a seek lands.
                self.merged.seek(InternalKeyRef::seek_to(&self.key, self.seq))?;
                if !self.merged.valid() {
                    return Err(Error::fatal("a version that was just read is gone"));
                }
                newest = Some(self.merged.key().kind);
                self.value = self.merged.value_slice();
                self.merged.seek_for_prev(InternalKeyRef::before(&self.key))?;
                break;
            }
            self.merged.prev()?;
        }
        self.leave_key_backward()?;
        match newest {
            Some(ValueKind::Put) => Ok(true),
            Some(ValueKind::Delete) | None => Ok(false),
            Some(other) => Err(unsupported(other)),
        }
    }
}
