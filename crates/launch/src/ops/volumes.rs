//! Volumes outlive containers; they are deleted only on request.

use crate::{
    context::Context,
    record::{self, Record},
    rootfs,
};
use atoll_launch_proto::VolumeStatus;
use atoll_storage::{Tree, TreeKind};
use atoll_types::{Error, ErrorCode, Result, VolumeId};

/// Every volume.
pub(crate) fn list_volumes(context: &Context) -> Result<Vec<VolumeStatus>> {
    let mut all = Vec::new();
    for tree in context.storage.list(TreeKind::Volume)? {
        let Tree::Volume(volume) = tree else { continue };
        // A volume may be removed during the listing.
        match inspect_volume(context, volume) {
            Ok(status) => all.push(status),
            Err(error) if error.code == ErrorCode::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(all)
}

/// One volume.
pub(crate) fn inspect_volume(context: &Context, volume: VolumeId) -> Result<VolumeStatus> {
    let usage = context.storage.usage(Tree::Volume(volume))?;
    Ok(VolumeStatus { volume, used_bytes: usage.used_bytes, limit_bytes: usage.limit_bytes })
}

/// Makes a volume that containers attach, or gives the one that is there another limit, never below what it holds.
pub(crate) fn put_volume(context: &Context, volume: VolumeId, bytes: u64) -> Result<()> {
    let tree = Tree::Volume(volume);
    let path = match context.storage.set_limit(tree, bytes) {
        Err(error) if error.code == ErrorCode::NotFound => context.storage.create(tree, bytes)?,
        resized => resized.map(|()| context.storage.path(tree))?,
    };
    rootfs::prepare_attached(&path).map(drop)
}

/// Deletes a volume that no container uses.
pub(crate) fn remove_volume(context: &Context, volume: VolumeId) -> Result<()> {
    // Held until it is removed: a container that is made meanwhile waits for that.
    let _held = match context.storage.hold(volume) {
        Err(error) if error.code == ErrorCode::NotFound => None,
        held => Some(held?),
    };
    refuse_used(context, volume)?;
    context.storage.remove(Tree::Volume(volume))
}

/// Gives a volume that no container uses another limit.
pub(crate) fn resize_volume(context: &Context, volume: VolumeId, bytes: u64) -> Result<()> {
    // A rollback that is under way would put the former limit back.
    let _held = context.storage.hold(volume)?;
    refuse_used(context, volume)?;
    context.storage.set_limit(Tree::Volume(volume), bytes)
}

/// The container that has a volume, which is claimed by the record of a container that is still being made.
pub(super) fn user(context: &Context, volume: VolumeId) -> Option<Record> {
    let mut records = record::containers(context).into_iter().filter_map(|id| record::load(context, id));
    records.find(|r| r.uses(volume))
}

pub(super) fn refuse_used(context: &Context, volume: VolumeId) -> Result<()> {
    if let Some(user) = user(context, volume) {
        let message = format!("container {} uses the volume", user.container);
        return Err(Error::new(ErrorCode::Conflict, message).at("volume"));
    }
    Ok(())
}
