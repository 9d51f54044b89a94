//! Images that were sealed: volumes as they were, which never change and belong to no volume. `Storage` decides whether
//! there is room, under the lock; drivers do the rest.
//!
//! An image has the layout of a volume that containers attach: its files lie in the folder `data`, whose owners are those
//! that are seen inside. It appears whole or not at all, also when its process is killed: what that leaves is not in place,
//! and the next open frees it. An image is held while it is copied or removed, so neither meets the other.

use crate::error::{below_use, no_image};
use crate::image::{Image, ImageTree};
use crate::lock::{HeldImage, HeldVolume};
use crate::storage::{SMALLEST, Storage};
use crate::tree::{DATA, Origin};
use atoll_types::{Error, ErrorCode, ImageId, ImageName, ImageUsage, Result, VolumeId};
use rustix::fs::FlockOperation;
use std::path::PathBuf;

impl Storage {
    /// Makes an image of a volume, or finds the one that is there. Plain folders are copied, so no process may write to
    /// them meanwhile, which `quiesce` sees to after the room was found; on btrfs the image has all that was synced, and
    /// without a writer everything.
    pub fn seal<Q>(&self, held: &HeldVolume, id: ImageId, quiesce: impl FnOnce() -> Result<Q>) -> Result<()> {
        if self.driver.image_path(id).exists() {
            return self.driver.finish_image(id);
        }
        if !self.driver.path(crate::Tree::Volume(held.volume)).join(DATA).is_dir() {
            let message =
                "this volume holds no files that an image could have: only one that containers attach does";
            return Err(Error::new(ErrorCode::Conflict, message).at("volume"));
        }
        drop(self.fits(self.copied(held.volume)?, 0)?);
        let _quiet = quiesce()?;
        let bytes = self.driver.content(held.volume)?;
        match self.driver.seal(held.volume, &ImageUsage { id, bytes }) {
            // Another process sealed it at the same time.
            Err(error) if error.code == ErrorCode::AlreadyExists => self.driver.finish_image(id),
            sealed => sealed,
        }
    }

    /// Makes a volume that begins with the files of an image, which are counted as used, and has a limit of its own.
    pub fn volume_from_image(&self, held: &HeldImage, into: VolumeId, limit_bytes: u64) -> Result<()> {
        crate::storage::check_limit(limit_bytes)?;
        let images = self.images()?;
        let image = images.iter().find(|image| image.id == held.image).ok_or_else(no_image)?;
        let least = image.bytes.saturating_add(SMALLEST);
        if limit_bytes < least {
            return Err(below_use(limit_bytes, least));
        }
        let _fits = self.fits(image.bytes, limit_bytes)?;
        self.driver.fork(&Origin::Image(image.id), into, limit_bytes, image.bytes, &mut || {})
    }

    /// Every image that was sealed, in no order.
    pub fn images(&self) -> Result<Vec<ImageUsage>> {
        self.driver.images()
    }

    /// The root filesystem of an image that was sealed.
    pub fn sealed_image(&self, id: ImageId) -> Result<Image> {
        let source = self.image_root(id);
        if !source.exists() {
            return Err(no_image());
        }
        let root = ImageTree { source, at: "/".into() };
        Ok(Image { id: ImageName::of(id).to_string(), trees: vec![root] })
    }

    /// Where the root of an image that was sealed is or would be.
    #[must_use]
    pub fn image_root(&self, id: ImageId) -> PathBuf {
        self.driver.image_path(id).join(DATA)
    }

    /// Holds an image so that it can be removed, and waits for those that read it; none where there is no such image.
    pub fn hold_image(&self, id: ImageId) -> Result<Option<HeldImage>> {
        HeldImage::take(&self.driver.image_path(id), id, FlockOperation::LockExclusive)
    }

    /// Holds an image so that it is not removed; others may do the same.
    pub fn share_image(&self, id: ImageId) -> Result<HeldImage> {
        let held = HeldImage::take(&self.driver.image_path(id), id, FlockOperation::LockShared)?;
        held.ok_or_else(no_image)
    }

    /// Removes an image. What volumes share with it stays theirs. No container may use it.
    pub fn remove_image(&self, held: &HeldImage) -> Result<()> {
        self.driver.remove_image(held.image)
    }
}
