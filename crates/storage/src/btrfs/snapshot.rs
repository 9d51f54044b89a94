//! Snapshots, rollbacks and forks on btrfs. Each changes what is in place by one call that the kernel does whole or not
//! at all: a snapshot is made in its place, a rollback exchanges two subvolumes, a fork is renamed into its place.
//! What a process that is killed in between leaves is in `new` or in the trash, and the next open frees it.
//! Whose quota counts what is told in [`super::quota`].

use super::quota::SHARED;
use super::{Btrfs, REPLACED, ioctl};
use crate::disk::{hold_new, names, open_dir_at};
use crate::driver::{Driver, SnapshotDriver};
use crate::error::{failed, no_image, no_snapshot, no_tree};
use crate::report::QuotaKind;
use crate::tree::{
    Origin, SNAPSHOTS, STAGING, TRASH, Tree, TreeKind, image_place, snapshot_name, snapshot_place,
    snapshots_named,
};
use atoll_types::{Error, ErrorCode, Result, Snapshot, VolumeId};
use rustix::fs::{RenameFlags, XattrFlags, fgetxattr, fsetxattr, renameat_with};
use rustix::io::Errno;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use uuid::Uuid;

/// What is written back in no time.
const LITTLE: u64 = 4 << 20;
/// A sandbox that writes as fast as the disk does is not waited for any longer.
const FLUSHES: usize = 3;

/// How much of a volume's limit is taken by what it shared when it was made.
pub(super) fn shared(root: impl AsFd) -> u64 {
    let mut text = [0_u8; 20];
    let length = fgetxattr(root, SHARED, &mut text).unwrap_or(0);
    text.get(..length).and_then(|text| std::str::from_utf8(text).ok()?.parse().ok()).unwrap_or(0)
}

impl SnapshotDriver for Btrfs {
    fn content(&self, volume: VolumeId) -> Result<u64> {
        Ok(self.usage(Tree::Volume(volume))?.used_bytes)
    }

    fn snapshots(&self, of: Option<VolumeId>) -> Result<Vec<Snapshot>> {
        Ok(snapshots_named(&names(self.folder(SNAPSHOTS)?)?, of))
    }

    fn snapshot_path(&self, snapshot: &Snapshot) -> PathBuf {
        self.root.join(snapshot_place(snapshot))
    }

    /// The kernel writes back what is dirty while the sandbox runs, and puts the snapshot into the volume's group.
    fn snapshot(&self, snapshot: &Snapshot, _copied: &mut dyn FnMut()) -> Result<()> {
        self.quota.ready(&self.fd)?;
        let volume = Tree::Volume(snapshot.volume);
        let source = self.open_source(&volume.relative(), no_tree)?;
        let group = self.inherited(volume)?;
        ioctl::snapshot(self.folder(SNAPSHOTS)?, &snapshot_name(snapshot), source, true, group)
            .map_err(failed("make the snapshot"))
    }

    /// The kernel has no other way to write back one subvolume than to make a snapshot, which is thrown away. Again while
    /// the sandbox dirties much during that.
    fn flush(&self, volume: VolumeId) -> Result<bool> {
        let volume = Tree::Volume(volume);
        let (trash, group) = (self.folder(TRASH)?, self.group(volume)?);
        for _ in 0..FLUSHES {
            if self.quota.dirty(group) < LITTLE {
                return Ok(true);
            }
            let source = self.open_source(&volume.relative(), no_tree)?;
            let name = Uuid::new_v4().simple().to_string();
            ioctl::snapshot(&trash, &name, source, true, None).map_err(failed("write back what is dirty"))?;
            self.destroy(&trash, &name)?;
        }
        Ok(self.quota.dirty(group) < LITTLE)
    }

    /// The kernel moves nothing that is read-only into another directory, so a snapshot is removed where it is. There
    /// are no subvolumes in it: a snapshot does not have those of its volume.
    fn delete_snapshot(&self, snapshot: &Snapshot) -> Result<()> {
        self.destroy_in_place(SNAPSHOTS, &snapshot_name(snapshot))
    }

    fn rollback(&self, snapshot: &Snapshot) -> Result<()> {
        let volume = Tree::Volume(snapshot.volume);
        let source = self.open_source(&snapshot_place(snapshot), no_snapshot)?;
        let group = self.inherited(volume)?;
        let (name, staged) = self.stage_snapshot(source, REPLACED, group)?;
        let path = format!("{STAGING}/{name}");
        let exchanged = self.keep_limit(volume, &staged).and_then(|()| {
            renameat_with(&self.fd, &path, &self.fd, volume.relative(), RenameFlags::EXCHANGE)
                .map_err(failed("exchange the volume"))
        });
        // What was the volume, or on a failure what did not become it. The next open sweeps what is left.
        if let Err(error) = self.discard(&path) {
            tracing::warn!(%error, "what a rollback replaced is not freed yet");
        }
        exchanged
    }

    fn fork(
        &self,
        from: &Origin,
        to: VolumeId,
        limit: u64,
        shared: u64,
        _copied: &mut dyn FnMut(),
    ) -> Result<()> {
        self.quota.ready(&self.fd)?;
        let source = match from {
            Origin::Volume(volume) => self.open_source(&Tree::Volume(*volume).relative(), no_tree)?,
            Origin::Snapshot(snapshot) => self.open_source(&snapshot_place(snapshot), no_snapshot)?,
            Origin::Image(image) => self.open_source(&image_place(*image), no_image)?,
        };
        // Classic quotas count what is shared in every subvolume that refers to it.
        let shared = if self.quota.kind == QuotaKind::Simple { shared } else { 0 };
        let (name, staged) = self.stage_snapshot(source, "", None)?;
        let path = format!("{STAGING}/{name}");
        let made = fsetxattr(&staged, SHARED, shared.to_string().as_bytes(), XattrFlags::empty())
            .and_then(|()| ioctl::subvolume_id(&staged))
            .and_then(|id| {
                let own = limit.saturating_sub(shared).max(1);
                self.quota.set_up(&self.fd, TreeKind::Volume, id, own)
            })
            .and_then(|()| {
                let place = Tree::Volume(to).relative();
                renameat_with(&self.fd, &path, &self.fd, place, RenameFlags::NOREPLACE)
            });
        if made.is_err() {
            // The first failure is the one to report; the next open sweeps what is left.
            let _ = self.discard(&path);
        }
        made.map_err(|cause| match cause {
            Errno::EXIST => Error::new(ErrorCode::AlreadyExists, "there is such a volume").at("into"),
            cause => failed("fork the volume")(cause),
        })
    }

    fn dirty(&self) -> u64 {
        self.quota.all_dirty()
    }

    fn write_back(&self) -> Result<()> {
        ioctl::sync(&self.fd).map_err(failed("write back what is dirty"))
    }
}

impl Btrfs {
    /// Removes what is read-only where it is.
    pub(super) fn destroy_in_place(&self, folder: &str, name: &str) -> Result<()> {
        self.rescued(|| {
            let Some(id) = self.subvolume(&format!("{folder}/{name}"))? else { return Ok(()) };
            self.quota.take_down(&self.fd, id).map_err(failed("give back the snapshot's quota"))?;
            match ioctl::destroy(self.folder(folder)?, name) {
                Ok(()) | Err(Errno::NOENT) => Ok(()),
                Err(cause) => Err(failed("delete the snapshot")(cause)),
            }
        })
    }

    pub(super) fn open_source(&self, path: &str, missing: fn() -> Error) -> Result<OwnedFd> {
        open_dir_at(&self.fd, path).map_err(|cause| match cause {
            Errno::NOENT => missing(),
            cause => failed("open the volume")(cause),
        })
    }

    /// The group that a subvolume of this volume must be in from the beginning, where there are such.
    fn inherited(&self, volume: Tree) -> Result<Option<u64>> {
        if self.quota.kind == QuotaKind::Simple { self.group(volume).map(Some) } else { Ok(None) }
    }

    /// Makes a writable snapshot outside its final place, and holds it.
    pub(super) fn stage_snapshot(
        &self,
        source: OwnedFd,
        end: &str,
        group: Option<u64>,
    ) -> Result<(String, OwnedFd)> {
        let new = self.folder(STAGING)?;
        loop {
            let name = format!("{}{end}", Uuid::new_v4().simple());
            ioctl::snapshot(&new, &name, &source, false, group).map_err(failed("copy the volume"))?;
            // A sweep may have been faster; then there is nothing left of it.
            if let Some(staged) = hold_new(&new, &name).map_err(failed("copy the volume"))? {
                return Ok((name, staged));
            }
        }
    }

    /// With classic quotas the limit is the subvolume's own.
    fn keep_limit(&self, volume: Tree, staged: &OwnedFd) -> Result<()> {
        if self.quota.kind == QuotaKind::Simple {
            return Ok(());
        }
        let group = self.group(volume)?;
        let joined = ioctl::subvolume_id(staged).and_then(|id| self.quota.join(&self.fd, id, group));
        joined.map_err(failed("set the disk limit"))
    }
}
