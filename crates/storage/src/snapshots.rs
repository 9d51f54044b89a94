//! Snapshots, forks and rollbacks of volumes. A snapshot belongs to its volume: what only it still holds counts against
//! the volume's limit, and it goes with the volume. A fork is a volume of its own. `Storage` decides whether there is
//! room, under the lock; drivers do the rest.
//!
//! Every operation is done whole or not at all, also when its process is killed: what that leaves is not in place, and
//! the next open frees it.

use crate::diff;
use crate::driver::RoomAccuracy;
use crate::error::{below_use, disk_full, no_snapshot, no_tree};
use crate::lock::{HeldVolume, Lock};
use crate::storage::{SMALLEST, Storage, check_limit};
use crate::tree::{Origin, Tree, TreeKind};
use atoll_types::files::Changed;
use atoll_types::{Error, ErrorCode, Result, Snapshot, SnapshotId, VolumeId, time::now_ms};
use rustix::fs::FlockOperation;
use std::collections::HashSet;

/// The most snapshots of one volume: one more than the setting `snapshots.max` may be, since what gives way to a new one goes after it.
const MOST: usize = 1001;

impl Storage {
    /// Holds a volume for a change of its snapshots or of itself, and waits for other holders. A rollback in place that a
    /// killed process left is completed first.
    pub fn hold(&self, volume: VolumeId) -> Result<HeldVolume> {
        let held = self.hold_unfinished(volume)?;
        self.complete_rollback(&held)?;
        Ok(held)
    }

    /// The same, and leaves such a rollback as it is: what the volume holds is to be replaced.
    pub fn hold_unfinished(&self, volume: VolumeId) -> Result<HeldVolume> {
        self.lock_volume(volume, FlockOperation::LockExclusive)?.ok_or_else(no_tree)
    }

    /// Holds a volume so that neither it nor its snapshots go away; others may do the same.
    pub fn share(&self, volume: VolumeId) -> Result<HeldVolume> {
        self.lock_volume(volume, FlockOperation::LockShared)?.ok_or_else(no_tree)
    }

    /// Waits until no process holds the volume, if there is one, and completes a rollback in place.
    pub fn wait_for(&self, volume: VolumeId) -> Result<()> {
        if self.unfinished_rollback(volume)?.is_none() {
            return self.lock_volume(volume, FlockOperation::LockShared).map(drop);
        }
        let held = self.lock_volume(volume, FlockOperation::LockExclusive)?;
        held.map_or(Ok(()), |held| self.complete_rollback(&held))
    }

    fn lock_volume(&self, volume: VolumeId, how: FlockOperation) -> Result<Option<HeldVolume>> {
        HeldVolume::take(&self.driver.path(Tree::Volume(volume)), volume, how)
    }

    /// Makes a snapshot, or finds the one that is there. On btrfs a sandbox may write meanwhile, and the snapshot has all
    /// that was synced, as after a loss of power; without a writer it has everything. Plain folders are copied, so no
    /// process may write to them. `quiesce` stops writers until its answer is dropped; it is called after the room was
    /// found, which may wait until the whole pool is written back.
    pub fn snapshot<Q>(
        &self,
        held: &HeldVolume,
        id: SnapshotId,
        quiesce: impl FnOnce() -> Result<Q>,
    ) -> Result<Snapshot> {
        let all = self.snapshots(held.volume)?;
        if let Some(there) = all.iter().find(|snapshot| snapshot.id == id) {
            return Ok(*there);
        }
        if all.len() >= MOST {
            let message =
                format!("the volume has {MOST} snapshots, and none may be added before one is deleted");
            return Err(Error::new(ErrorCode::Conflict, message).at("snapshot"));
        }
        drop(self.fits(self.copied(held.volume)?, 0)?);
        let mut quiet = Some(quiesce()?);
        let size_bytes = self.driver.content(held.volume)?;
        // Two of one millisecond keep their order.
        let after = all.last().map_or(0, |last| last.created_unix_ms.saturating_add(1));
        let created_unix_ms = now_ms().unsigned_abs().max(after);
        let snapshot = Snapshot { id, volume: held.volume, created_unix_ms, size_bytes };
        self.driver.snapshot(&snapshot, &mut || drop(quiet.take()))?;
        Ok(snapshot)
    }

    /// Writes back most of what is dirty of a volume, while sandboxes write. Returns whether a snapshot that comes next
    /// waits for little: not where a sandbox writes as fast as the disk does.
    pub fn flush(&self, held: &HeldVolume) -> Result<bool> {
        self.driver.flush(held.volume)
    }

    /// The snapshots of a volume, oldest first.
    pub fn snapshots(&self, volume: VolumeId) -> Result<Vec<Snapshot>> {
        let mut all = self.driver.snapshots(Some(volume))?;
        all.sort_unstable_by_key(|snapshot| (snapshot.created_unix_ms, snapshot.id));
        Ok(all)
    }

    /// Deletes a snapshot. Not an error where there is none.
    pub fn delete_snapshot(&self, held: &HeldVolume, id: SnapshotId) -> Result<()> {
        match self.find(held.volume, id) {
            Ok(snapshot) => self.driver.delete_snapshot(&snapshot),
            Err(error) if error.code == ErrorCode::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Makes a volume what it was, at once. Its limit and its snapshots stay. Refused where there is no room: where files are
    /// copied, both states are there for a moment. `unused` is asked after that, and refuses where a container uses the volume.
    pub fn rollback(
        &self,
        held: &HeldVolume,
        id: SnapshotId,
        unused: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let snapshot = self.find(held.volume, id)?;
        if !self.driver.reflink() {
            drop(self.fits(snapshot.size_bytes, 0)?);
        }
        unused()?;
        self.driver.rollback(&snapshot)?;
        self.restore_limit(held.volume)?;
        self.end_rollback(held.volume)
    }

    /// Makes a volume of a snapshot, or of a volume as it is now. It begins with what it shares counted as used, and
    /// has a limit of its own. Plain folders are copied: no process may write to them meanwhile, which `quiesce` sees to
    /// as for a snapshot.
    pub fn fork<Q>(
        &self,
        held: &HeldVolume,
        snapshot: Option<SnapshotId>,
        into: VolumeId,
        limit_bytes: u64,
        quiesce: impl FnOnce() -> Result<Q>,
    ) -> Result<()> {
        check_limit(limit_bytes)?;
        let origin = match snapshot {
            Some(id) => Origin::Snapshot(self.find(held.volume, id)?),
            None => Origin::Volume(held.volume),
        };
        let shared = || {
            let shared = match &origin {
                Origin::Snapshot(snapshot) => snapshot.size_bytes,
                _ => self.driver.content(held.volume)?,
            };
            let least = shared.saturating_add(SMALLEST);
            if limit_bytes < least { Err(below_use(limit_bytes, least)) } else { Ok(shared) }
        };
        let is_promise = self.fits(shared()?, limit_bytes)?.is_some();
        let mut quiet = Some(quiesce()?);
        let shared = shared()?;
        let _promise = if is_promise { self.promise(limit_bytes)? } else { None };
        self.driver.fork(&origin, into, limit_bytes, shared, &mut || drop(quiet.take()))
    }

    /// What changed from a snapshot to another, or to the volume as it is now. Paths begin at the volume's root.
    pub fn diff(&self, held: &HeldVolume, from: SnapshotId, to: Option<SnapshotId>) -> Result<Changed> {
        let old = self.find(held.volume, from)?;
        let mut oldest = old.created_unix_ms;
        let new = match to {
            Some(id) => {
                let new = self.find(held.volume, id)?;
                oldest = oldest.min(new.created_unix_ms);
                self.driver.snapshot_path(&new)
            }
            None => self.driver.path(Tree::Volume(held.volume)),
        };
        diff::diff(&self.driver.snapshot_path(&old), &new, oldest)
    }

    /// What waits to be written back, where a snapshot has to wait for that. Cheap, and never waits.
    #[must_use]
    pub fn dirty(&self) -> u64 {
        self.driver.dirty()
    }

    /// Writes it back, so that the next snapshot need not.
    pub fn write_back(&self) -> Result<()> {
        self.driver.write_back()
    }

    /// Deletes every snapshot and every image: what is read-only cannot be deleted file by file with the storage folder.
    pub fn delete_read_only(&self) -> Result<()> {
        self.driver.snapshots(None)?.iter().try_for_each(|snapshot| self.driver.delete_snapshot(snapshot))?;
        self.driver.images()?.iter().try_for_each(|image| self.driver.remove_image(image.id))
    }

    /// Deletes the snapshots of volumes that are gone.
    pub(crate) fn delete_orphans(&self) -> Result<()> {
        // What is made meanwhile has its volume in the second list: a snapshot is never there before its volume.
        let (snapshots, rollbacks) = (self.driver.snapshots(None)?, self.rollbacks()?);
        let volumes: HashSet<Tree> = self.driver.list(TreeKind::Volume)?.into_iter().collect();
        let orphans = snapshots.iter().filter(|one| !volumes.contains(&Tree::Volume(one.volume)));
        orphans.into_iter().try_for_each(|orphan| self.driver.delete_snapshot(orphan))?;
        self.forget_rollbacks(rollbacks, &volumes)
    }

    pub(crate) fn find(&self, volume: VolumeId, id: SnapshotId) -> Result<Snapshot> {
        self.snapshots(volume)?.into_iter().find(|snapshot| snapshot.id == id).ok_or_else(no_snapshot)
    }

    /// What a copy of a volume takes of the disk.
    pub(crate) fn copied(&self, volume: VolumeId) -> Result<u64> {
        if self.driver.reflink() { Ok(0) } else { self.driver.content(volume) }
    }

    /// Holds the lock while a promise is made, where limits are promises. Never waits for space, as [`Self::fits`] may.
    fn promise(&self, limit: u64) -> Result<Option<Lock>> {
        let held = Lock::take(&self.lock)?;
        let room = self.driver.room(RoomAccuracy::Quick)?;
        if room.fits(limit) { Ok(Some(held)) } else { Err(disk_full(limit, room.for_new())) }
    }

    /// Refuses where so little is free that nothing new is made, where a copy would take more than there is, and where
    /// limits are promises, one that cannot be kept. The lock is held on only in the last case.
    pub(crate) fn fits(&self, copied: u64, limit: u64) -> Result<Option<Lock>> {
        let copied = if self.driver.reflink() { 0 } else { copied };
        let mut free = 0;
        for accuracy in [RoomAccuracy::Quick, RoomAccuracy::Exact] {
            if accuracy == RoomAccuracy::Exact {
                self.driver.settle();
            }
            let held = Lock::take(&self.lock)?;
            let room = self.driver.room(accuracy)?;
            if room.fits(limit) && room.for_new() >= copied {
                return Ok(room.low.is_none().then_some(held));
            }
            free = room.for_new();
        }
        Err(disk_full(copied.max(limit), free))
    }
}
