//! Rollbacks in place: a volume is made what it was while a container has it, whose processes are all frozen. Folders and
//! files that both states have keep their inodes, so that a process goes on with them when it is thawed.
//!
//! A file is there while that is under way, made before and removed after. Its name is its whole record: volume, snapshot
//! and the volume's limit, which is raised meanwhile. Such a file
//! without a holder of its volume was left by a process that was killed: the volume is in between two states, its
//! container is frozen or gone, and the next process that holds the volume completes the rollback.

use crate::copy::{Existing, copy_onto};
use crate::diff::certain_before;
use crate::disk::{names, open_dir};
use crate::error::{copy_failed, failed};
use crate::lock::HeldVolume;
use crate::storage::{START_BYTES, Storage};
use crate::tree::{ROLLBACKS, Tree};
use atoll_types::{Error, ErrorCode, Result, Snapshot, SnapshotId, VolumeId};
use rustix::fs::syncfs;
use std::collections::HashSet;
use std::fs;
use std::io::ErrorKind;

/// A rollback in place that began.
pub(crate) struct Begun {
    volume: VolumeId,
    snapshot: SnapshotId,
    /// The limit of the volume. Older releases did not write it down.
    limit: Option<u64>,
}

impl Begun {
    fn name(&self) -> String {
        let limit = self.limit.map(|limit| format!(".{limit}")).unwrap_or_default();
        format!("{}.{}{limit}", self.volume, self.snapshot)
    }

    fn named(name: &str) -> Option<Self> {
        let mut parts = name.split('.');
        let (volume, snapshot) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        Some(Self { volume, snapshot, limit: parts.next().and_then(|limit| limit.parse().ok()) })
    }
}

fn lost(snapshot: SnapshotId) -> Error {
    let message = format!(
        "the volume is between two states, and the snapshot {snapshot} that it was being rolled back to is gone; roll it \
         back to another one"
    );
    Error::new(ErrorCode::Conflict, message)
}

impl Storage {
    /// Makes a volume what it was, in place. No process may write to it until this succeeds, or until it is rolled back in
    /// the ordinary way: a failure leaves it between two states.
    pub fn rollback_in_place(&self, held: &HeldVolume, id: SnapshotId) -> Result<()> {
        let snapshot = self.find(held.volume, id)?;
        let limit = self.limit(Tree::Volume(held.volume))?;
        let begun = Begun { volume: held.volume, snapshot: id, limit: Some(limit) };
        fs::write(self.driver.root().join(ROLLBACKS).join(begun.name()), "")
            .map_err(failed("write down that the volume is rolled back"))?;
        self.make_as_it_was(&snapshot, limit)
    }

    /// The snapshot to which a volume was being rolled back in place when that was interrupted.
    pub fn unfinished_rollback(&self, volume: VolumeId) -> Result<Option<SnapshotId>> {
        Ok(self.begun(volume)?.map(|begun| begun.snapshot))
    }

    fn begun(&self, volume: VolumeId) -> Result<Option<Begun>> {
        Ok(self.rollbacks()?.into_iter().find(|begun| begun.volume == volume))
    }

    pub(crate) fn complete_rollback(&self, held: &HeldVolume) -> Result<()> {
        let Some(Begun { volume, snapshot, limit }) = self.begun(held.volume)? else { return Ok(()) };
        match self.find(volume, snapshot) {
            // Not an error of its own code, which says that there is no such volume.
            Err(error) if error.code == ErrorCode::NotFound => Err(lost(snapshot)),
            found => {
                let limit = limit.map_or_else(|| self.limit(Tree::Volume(volume)), Ok)?;
                self.make_as_it_was(&found?, limit)
            }
        }
    }

    /// Takes back what a rollback in place that was interrupted gave its volume.
    pub(crate) fn restore_limit(&self, volume: VolumeId) -> Result<()> {
        match self.begun(volume)?.and_then(|begun| begun.limit) {
            Some(limit) => self.driver.set_limit(Tree::Volume(volume), limit),
            None => Ok(()),
        }
    }

    /// Nothing is left between two states any more.
    pub(crate) fn end_rollback(&self, volume: VolumeId) -> Result<()> {
        self.forget(self.rollbacks()?.into_iter().filter(|begun| begun.volume == volume))
    }

    /// Forgets those of these whose volumes were gone after they were listed.
    pub(crate) fn forget_rollbacks(&self, listed: Vec<Begun>, volumes: &HashSet<Tree>) -> Result<()> {
        self.forget(listed.into_iter().filter(|begun| !volumes.contains(&Tree::Volume(begun.volume))))
    }

    fn forget(&self, over: impl IntoIterator<Item = Begun>) -> Result<()> {
        for begun in over {
            match fs::remove_file(self.driver.root().join(ROLLBACKS).join(begun.name())) {
                Err(cause) if cause.kind() != ErrorKind::NotFound => {
                    return Err(failed("write down that the volume was rolled back")(cause));
                }
                _ => {}
            }
        }
        Ok(())
    }

    pub(crate) fn rollbacks(&self) -> Result<Vec<Begun>> {
        let folder = open_dir(&self.driver.root().join(ROLLBACKS)).map_err(failed("list rollbacks"))?;
        Ok(names(folder)?.iter().filter_map(|name| Begun::named(name)).collect())
    }

    /// With this limit afterwards.
    fn make_as_it_was(&self, snapshot: &Snapshot, limit: u64) -> Result<()> {
        let tree = Tree::Volume(snapshot.volume);
        let existing = Existing {
            certain_before: certain_before(snapshot.created_unix_ms),
            reflink: self.driver.reflink(),
        };
        // What a full volume needs for its folders meanwhile.
        self.driver.set_limit(tree, limit.saturating_add(START_BYTES))?;
        let copied = open_dir(&self.driver.snapshot_path(snapshot))
            .and_then(|from| copy_onto(&from, &open_dir(&self.driver.path(tree))?, &existing));
        self.driver.set_limit(tree, limit)?;
        copied.map_err(copy_failed)?;
        // The files are on the disk before nothing says any more that they are to be completed.
        open_dir(&self.driver.path(tree)).and_then(syncfs).map_err(failed("write the files"))?;
        self.end_rollback(snapshot.volume)
    }
}
