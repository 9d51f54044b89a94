//! Snapshots, rollbacks, forks and diffs of volumes. A container is frozen while its volume is copied, which on btrfs is
//! a moment: what is dirty is written back before. A volume is held before its user is looked for, and a new container's
//! record claims its volume before it waits for it, so no container begins to write to what is copied or exchanged.

use super::{pause::Frozen, volumes::refuse_used};
use crate::{context::Context, volume_users};
use atoll_launch_proto::{DiffRequest, ForkRequest, LauncherReply, SnapshotRequest};
use atoll_storage::{DriverKind, HeldVolume};
use atoll_types::{Error, ErrorCode, Result, RootMode, Snapshot, VolumeId, files::Changed};

/// Makes a snapshot of a volume, or finds it.
pub(crate) fn snapshot(context: &Context, asked: SnapshotRequest) -> Result<Snapshot> {
    let held = context.storage.hold(asked.volume)?;
    context.storage.snapshot(&held, asked.snapshot, || quiesce(context, &held, asked.volume))
}

/// The snapshots of a volume, oldest first.
pub(crate) fn list_snapshots(context: &Context, volume: VolumeId) -> Result<Vec<Snapshot>> {
    context.storage.snapshots(volume)
}

/// Deletes a snapshot; succeeds when there is none.
pub(crate) fn delete_snapshot(context: &Context, asked: SnapshotRequest) -> Result<()> {
    match context.storage.hold(asked.volume) {
        Ok(held) => context.storage.delete_snapshot(&held, asked.snapshot),
        Err(error) if error.code == ErrorCode::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// Makes a volume that no container uses what it was. Whether there is room is found out first, so that the server can ask before
/// it ends the container.
pub(crate) fn rollback(context: &Context, asked: SnapshotRequest) -> Result<()> {
    let held = context.storage.hold_unfinished(asked.volume)?;
    context.storage.rollback(&held, asked.snapshot, || refuse_used(context, asked.volume))
}

/// Makes the volume of a container what it was while the container stays, frozen. Where that fails the container stays
/// frozen: its files are between two states, and its owner ends it.
pub(crate) fn rollback_in_place(context: &Context, asked: SnapshotRequest) -> Result<()> {
    let held = context.storage.hold(asked.volume)?;
    // All that could write to the volume is frozen: one container has it, as its own.
    let mut all = volume_users::of(context, asked.volume);
    let record = all.next().filter(|record| record.pid > 0 && record.volume == Some(asked.volume));
    let record = record.ok_or_else(|| Error::new(ErrorCode::NotRunning, "no container has the volume"))?;
    if all.next().is_some() {
        return Err(Error::new(ErrorCode::Conflict, "several containers have the volume"));
    }
    if record.profile.root == RootMode::Writable {
        let message =
            "the kernel does not let the files below a writable root be changed while it is mounted";
        return Err(Error::new(ErrorCode::Unsupported, message));
    }
    // The rollback ends with a sync of the whole file system, for which the container would otherwise stand still.
    context.storage.write_back()?;
    let frozen = Frozen::new(context, record.container)?;
    let rolled = context.storage.rollback_in_place(&held, asked.snapshot);
    if !context.storage.unfinished_rollback(asked.volume).is_ok_and(|unfinished| unfinished.is_none()) {
        frozen.stay();
    }
    rolled
}

/// Makes a volume of a snapshot, or of a volume as it is now.
pub(crate) fn fork(context: &Context, asked: ForkRequest) -> Result<()> {
    let ForkRequest { volume, snapshot, into, disk_bytes } = asked;
    if snapshot.is_some() {
        let shared = context.storage.share(volume)?;
        return context.storage.fork(&shared, snapshot, into, disk_bytes, || Ok(()));
    }
    let held = context.storage.hold(volume)?;
    context.storage.fork(&held, None, into, disk_bytes, || quiesce(context, &held, volume))
}

/// What changed from a snapshot to another, or to the volume as it is now.
pub(crate) fn diff(context: &Context, asked: DiffRequest) -> Result<LauncherReply> {
    let shared = context.storage.share(asked.volume)?;
    let Changed { files, truncated } = context.storage.diff(&shared, asked.from, asked.to)?;
    Ok(LauncherReply::Diff { files, truncated })
}

/// Lets no process write to a volume that is held, until the answer is dropped. What is dirty is written back before, so
/// that a container is frozen for a moment, and where files are copied, for as long as that takes. A container that
/// cannot be frozen, or that writes as fast as the disk does, writes on where no file is copied: the kernel would write
/// back for as long as it is frozen. The snapshot is then what a loss of power would have left.
pub(super) fn quiesce<'a>(
    context: &'a Context,
    held: &HeldVolume,
    volume: VolumeId,
) -> Result<Vec<Frozen<'a>>> {
    let copies = context.storage.kind() == DriverKind::Dir;
    let mut all_frozen = Vec::new();
    for record in volume_users::of(context, volume) {
        if record.pid == 0 {
            if copies {
                // The worker that makes it holds its lock and may be waiting for the volume.
                let message = "a container of this volume is being made; try again";
                return Err(Error::new(ErrorCode::NotRunning, message));
            }
            continue;
        }
        if !context.storage.flush(held)? && !copies {
            tracing::debug!(container = %record.container, "a snapshot is made while it writes");
            continue;
        }
        match Frozen::new(context, record.container) {
            Err(error) if !copies => {
                tracing::warn!(container = %record.container, %error, "a snapshot is made while it runs");
            }
            frozen => all_frozen.push(frozen?),
        }
    }
    Ok(all_frozen)
}
