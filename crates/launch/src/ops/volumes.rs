//! Volumes outlive containers; they are deleted only on request.

use crate::{context::Context, images, record::Record, rootfs, trust, volume_users};
use atoll_launch_proto::VolumeStatus;
use atoll_storage::{HeldVolume, Tree, TreeKind};
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
    let tree = Tree::Volume(volume);
    let limit_bytes = context.storage.limit(tree)?;
    let used = context.storage.counted(tree);
    Ok(VolumeStatus { volume, used_bytes: used.unwrap_or(0), counted: used.is_some(), limit_bytes })
}

/// Makes a volume that containers attach, or gives the one that is there another limit, never below what it holds.
pub(crate) fn put_volume(context: &Context, volume: VolumeId, bytes: u64) -> Result<()> {
    let tree = Tree::Volume(volume);
    let _held = hold_if_there(context, volume)?;
    let path = match context.storage.set_limit(tree, bytes) {
        Err(error) if error.code == ErrorCode::NotFound => context.storage.create(tree, bytes)?,
        resized => resized.map(|()| context.storage.path(tree))?,
    };
    rootfs::prepare_attached(&path).map(drop)
}

/// Deletes a volume that no container uses.
pub(crate) fn remove_volume(context: &Context, volume: VolumeId) -> Result<()> {
    // Held until it is removed: a container that is made meanwhile waits for that.
    let _held = hold_if_there(context, volume)?;
    refuse_used(context, volume)?;
    context.storage.remove(Tree::Volume(volume))?;
    trust::forget(context, &images::build_root(volume));
    Ok(())
}

/// Gives a volume another limit, also where containers have it beside their own. The limit of a container's own volume
/// is one of the container's limits.
pub(crate) fn resize_volume(context: &Context, volume: VolumeId, bytes: u64) -> Result<()> {
    // A rollback that is under way would put the former limit back.
    let _held = context.storage.hold(volume)?;
    match volume_users::of(context, volume).find(|user| user.volume == Some(volume)) {
        Some(user) => Err(in_use(&user)),
        None => context.storage.set_limit(Tree::Volume(volume), bytes),
    }
}

/// Holds a volume that is to be removed, which no unfinished rollback keeps: its files are not needed any more.
fn hold_if_there(context: &Context, volume: VolumeId) -> Result<Option<HeldVolume>> {
    match context.storage.hold_unfinished(volume) {
        Err(error) if error.code == ErrorCode::NotFound => Ok(None),
        held => held.map(Some),
    }
}

pub(super) fn refuse_used(context: &Context, volume: VolumeId) -> Result<()> {
    volume_users::of(context, volume).next().map_or(Ok(()), |user| Err(in_use(&user)))
}

fn in_use(user: &Record) -> Error {
    let message = format!("container {} uses the volume", user.container);
    Error::new(ErrorCode::Conflict, message).at("volume")
}
