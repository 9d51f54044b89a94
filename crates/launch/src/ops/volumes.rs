//! Volumes outlive containers; they are deleted only on request.

use crate::{context::Context, record};
use atoll_launch_proto::VolumeStatus;
use atoll_storage::{Tree, TreeKind};
use atoll_types::{Error, ErrorCode, Result, VolumeId};

/// Every volume.
pub(crate) fn list_volumes(context: &Context) -> Result<Vec<VolumeStatus>> {
    let mut all = Vec::new();
    for tree in context.storage.list(TreeKind::Volume)? {
        let Tree::Volume(volume) = tree else { continue };
        // A volume may be removed during the listing.
        match context.storage.usage(tree) {
            Ok(usage) => {
                all.push(VolumeStatus {
                    volume,
                    used_bytes: usage.used_bytes,
                    limit_bytes: usage.limit_bytes,
                });
            }
            Err(error) if error.code == ErrorCode::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(all)
}

/// Deletes a volume that no container uses.
pub(crate) fn remove_volume(context: &Context, volume: VolumeId) -> Result<()> {
    refuse_used(context, volume)?;
    context.storage.remove(Tree::Volume(volume))
}

/// Gives a volume that no container uses another limit.
pub(crate) fn resize_volume(context: &Context, volume: VolumeId, bytes: u64) -> Result<()> {
    refuse_used(context, volume)?;
    context.storage.set_limit(Tree::Volume(volume), bytes)
}

fn refuse_used(context: &Context, volume: VolumeId) -> Result<()> {
    let records = record::containers(context).into_iter().filter_map(|id| record::load(context, id));
    if let Some(user) = records.into_iter().find(|r| r.volume == Some(volume)) {
        let message = format!("container {} uses the volume", user.container);
        return Err(Error::new(ErrorCode::Conflict, message).at("volume"));
    }
    Ok(())
}
