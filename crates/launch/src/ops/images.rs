//! Images that were sealed. An image is held before its user is looked for, and a new container's record names its image
//! before it waits for it, so none is removed that a container starts from.

use super::snapshots::quiesce;
use crate::{context::Context, record, trust};
use atoll_launch_proto::{ImageVolumeRequest, SealRequest};
use atoll_types::{Error, ErrorCode, ImageId, ImageName, ImageUsage, Result};

/// Makes an image of a volume, or finds it.
pub(crate) fn seal(context: &Context, asked: SealRequest) -> Result<()> {
    let SealRequest { volume, image } = asked;
    let held = match context.storage.hold(volume) {
        // The request is repeated after its volume was removed.
        Err(error) if error.code == ErrorCode::NotFound && context.storage.sealed_image(image).is_ok() => {
            return Ok(());
        }
        held => held?,
    };
    context.storage.seal(&held, image, || quiesce(context, &held, volume))
}

/// Makes a volume that begins with the files of an image.
pub(crate) fn volume_from_image(context: &Context, asked: ImageVolumeRequest) -> Result<()> {
    let ImageVolumeRequest { image, volume, disk_bytes } = asked;
    let held = context.storage.share_image(image)?;
    context.storage.volume_from_image(&held, volume, disk_bytes)
}

/// Deletes an image that no container uses.
pub(crate) fn remove_image(context: &Context, image: ImageId) -> Result<()> {
    let Some(held) = context.storage.hold_image(image)? else { return Ok(()) };
    let mut records = record::containers(context).into_iter().filter_map(|id| record::load(context, id));
    if let Some(user) = records.find(|record| record.profile.image.id() == Some(image)) {
        let message = format!("container {} uses the image", user.container);
        return Err(Error::new(ErrorCode::Conflict, message).at("image"));
    }
    context.storage.remove_image(&held)?;
    trust::forget(context, ImageName::of(image).as_str());
    Ok(())
}

/// Every image.
pub(crate) fn list_images(context: &Context) -> Result<Vec<ImageUsage>> {
    context.storage.images()
}
