//! [`VersionSet`]: the manifest's end, and how an edit becomes the present version.
//!
//! The order is: check the edit against the state, append it to the manifest and sync, put the new version in place,
//! and only then let go of what it no longer needs.

use crate::core::Core;
use crate::state::State;
use crate::{Error, Result};
use esker_base::{FileKind, FileNumber, points};
use esker_manifest::{ManifestState, ManifestWriter, VersionEdit};
use std::sync::Arc;

/// The manifest. Guarded by [`Core::manifest`].
#[derive(Debug)]
pub(crate) struct VersionSet {
    /// Everything that was logged.
    pub(crate) state: ManifestState,
    /// `None` after a clean close.
    pub(crate) writer: Option<ManifestWriter>,
    /// Set when it is not known which manifest `CURRENT` names on the device.
    pub(crate) in_doubt: bool,
}

impl Core {
    /// Logs `edit` and puts what follows from it in place; `change` runs in the same critical section of the state.
    ///
    /// After an error of the manifest nothing is known about what a later open will find, so the database latches and
    /// no file is deleted any more. `doubt` is set before that can happen: until then nothing is written, and where the
    /// device has no room for the edit nothing ever is.
    pub(crate) fn install(
        &self,
        mut edit: VersionEdit,
        doubt: &mut bool,
        change: impl FnOnce(&mut State),
    ) -> Result<()> {
        let mut versions = self.manifest.lock();
        edit.next_file = Some(FileNumber(self.next_file_number()));
        let new = versions.state.apply(&edit)?;
        if let Some(writer) = &mut versions.writer {
            writer.make_room(&edit, self.room.manifest_ahead())?;
        }
        *doubt = true;
        points::here(points::Point::EditMade);
        self.log_edit(&mut versions, &edit, &new).inspect_err(|error| self.fail(error))?;
        points::here(points::Point::EditLogged);
        let mut state = self.state.lock();
        for position in 0..state.keyspaces.len() {
            let id = state.keyspaces[position].id;
            if let Some(keyspace) = new.keyspaces.get(&id)
                && !Arc::ptr_eq(&keyspace.version, &state.keyspaces[position].tables.version)
            {
                state.install(position, Arc::clone(&keyspace.version), &self.tables);
            }
        }
        change(&mut state);
        self.set_leftovers(true);
        self.publish(&mut state);
        drop(state);
        versions.state = new;
        Ok(())
    }

    fn log_edit(&self, versions: &mut VersionSet, edit: &VersionEdit, new: &ManifestState) -> Result<()> {
        let Some(writer) = &mut versions.writer else { return Err(Error::closed()) };
        if writer.is_oversized() {
            match self.roll_manifest(versions, new) {
                // The old one still is the current one, and good: it only gets longer.
                Err(_) if !versions.in_doubt => {}
                rolled => return rolled,
            }
        }
        match &mut versions.writer {
            Some(writer) => writer.append(edit),
            None => Err(Error::closed()),
        }
    }

    /// Starts a new manifest with all of `state`. The old one can go then.
    pub(crate) fn roll_manifest(&self, versions: &mut VersionSet, state: &ManifestState) -> Result<()> {
        let number = self.new_file_number();
        let mut snapshot = state.clone();
        snapshot.next_file = FileNumber(self.next_file_number());
        let fresh = ManifestWriter::create(Arc::clone(&self.components.vfs), &self.dir, number, &snapshot);
        let fresh = fresh.map_err(|failed| {
            versions.in_doubt |= !failed.old_is_current;
            // On a full disk, half a manifest must not be what fills it. One that was there is not ours.
            if failed.old_is_current && failed.error.io_kind() != Some(std::io::ErrorKind::AlreadyExists) {
                let _ = self.components.vfs.remove(&self.file_path(FileKind::Manifest, number));
            }
            failed.error
        })?;
        versions.in_doubt = false;
        if let Some(old) = versions.writer.replace(fresh) {
            self.state.lock().obsolete_files.push((FileKind::Manifest, old.number()));
        }
        Ok(())
    }
}
