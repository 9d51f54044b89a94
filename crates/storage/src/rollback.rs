//! Rollbacks in place: a volume is made what it was while a container has it, whose processes are all frozen. Folders and
//! files that both states have keep their inodes, so that a process goes on with them when it is thawed.
//!
//! A file is there while that is under way, made before and removed after. Its name is its whole record. Such a file
//! without a holder of its volume was left by a process that was killed: the volume is in between two states, its
//! container is frozen or gone, and the next process that holds the volume completes the rollback.

use crate::copy::{Existing, copy_onto};
use crate::diff::certain_before;
use crate::disk::{names, open_dir};
use crate::error::{copy_failed, failed};
use crate::lock::HeldVolume;
use crate::storage::{START_BYTES, Storage};
use crate::tree::{ROLLBACKS, Tree};
use atoll_types::{Result, Snapshot, SnapshotId, VolumeId};
use rustix::fs::syncfs;
use std::collections::HashSet;
use std::fs;
use std::io::ErrorKind;

fn name(volume: VolumeId, snapshot: SnapshotId) -> String {
    format!("{volume}.{snapshot}")
}

fn named(name: &str) -> Option<(VolumeId, SnapshotId)> {
    let (volume, snapshot) = name.split_once('.')?;
    Some((volume.parse().ok()?, snapshot.parse().ok()?))
}

impl Storage {
    /// Makes a volume what it was, in place. No process may write to it until this succeeds, or until it is rolled back in
    /// the ordinary way: a failure leaves it between two states.
    pub fn rollback_in_place(&self, held: &HeldVolume, id: SnapshotId) -> Result<()> {
        let snapshot = self.find(held.volume, id)?;
        let begun = self.driver.root().join(ROLLBACKS).join(name(held.volume, id));
        fs::write(begun, "").map_err(failed("write down that the volume is rolled back"))?;
        self.make_as_it_was(&snapshot)
    }

    /// The snapshot to which a volume was being rolled back in place when that was interrupted.
    pub fn unfinished_rollback(&self, volume: VolumeId) -> Result<Option<SnapshotId>> {
        let found = self.rollbacks()?.into_iter().find(|(of, _)| *of == volume);
        Ok(found.map(|(_, snapshot)| snapshot))
    }

    pub(crate) fn complete_rollback(&self, held: &HeldVolume) -> Result<()> {
        match self.unfinished_rollback(held.volume)? {
            Some(id) => self.make_as_it_was(&self.find(held.volume, id)?),
            None => Ok(()),
        }
    }

    /// Nothing is left between two states any more.
    pub(crate) fn end_rollback(&self, volume: VolumeId) -> Result<()> {
        self.forget(|of| of == volume)
    }

    /// Forgets those of volumes that are gone.
    pub(crate) fn forget_rollbacks(&self, volumes: &HashSet<Tree>) -> Result<()> {
        self.forget(|of| !volumes.contains(&Tree::Volume(of)))
    }

    fn forget(&self, is_over: impl Fn(VolumeId) -> bool) -> Result<()> {
        for (volume, snapshot) in self.rollbacks()?.into_iter().filter(|(volume, _)| is_over(*volume)) {
            match fs::remove_file(self.driver.root().join(ROLLBACKS).join(name(volume, snapshot))) {
                Err(cause) if cause.kind() != ErrorKind::NotFound => {
                    return Err(failed("write down that the volume was rolled back")(cause));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn rollbacks(&self) -> Result<Vec<(VolumeId, SnapshotId)>> {
        let folder = open_dir(&self.driver.root().join(ROLLBACKS)).map_err(failed("list rollbacks"))?;
        Ok(names(folder)?.iter().filter_map(|name| named(name)).collect())
    }

    fn make_as_it_was(&self, snapshot: &Snapshot) -> Result<()> {
        let tree = Tree::Volume(snapshot.volume);
        let existing = Existing {
            certain_before: certain_before(snapshot.created_unix_ms),
            reflink: self.driver.reflink(),
        };
        let limit = self.limit(tree)?;
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
