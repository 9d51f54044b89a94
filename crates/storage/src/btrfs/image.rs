//! Images on btrfs: read-only snapshots of volumes that belong to no volume. One is made writable in `new`, gets what an
//! image has, is renamed into its place and made read-only there, since the kernel moves nothing that is read-only. The
//! blocks of an image stay charged to the subvolume that wrote them, which counts among all volumes also when it is gone.

use super::quota::{self, SHARED};
use super::{Btrfs, ioctl};
use crate::disk::{names, open_dir_at};
use crate::driver::ImageDriver;
use crate::error::{failed, no_image, no_tree};
use crate::report::QuotaKind;
use crate::tree::{DATA, IMAGES, STAGING, Tree, image_place};
use atoll_types::{Error, ErrorCode, ImageId, ImageUsage, Result, VolumeId};
use rustix::fs::{Gid, Mode, RenameFlags, Uid, XattrFlags, fchmod, fchown, fsetxattr, renameat_with};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

impl ImageDriver for Btrfs {
    fn images(&self) -> Result<Vec<ImageUsage>> {
        let folder = self.folder(IMAGES)?;
        let names = names(&folder)?;
        let ids = names.iter().filter_map(|name| name.parse::<ImageId>().ok());
        // One may be removed meanwhile.
        let read = |id: ImageId| {
            let image = open_dir_at(&folder, &id.to_string()).ok()?;
            Some(ImageUsage { id, bytes: super::snapshot::shared(image) })
        };
        Ok(ids.filter_map(read).collect())
    }

    fn image_path(&self, id: ImageId) -> PathBuf {
        self.root.join(image_place(id))
    }

    fn seal(&self, volume: VolumeId, image: &ImageUsage) -> Result<()> {
        self.quota.ready(&self.fd)?;
        let source = self.open_source(&Tree::Volume(volume).relative(), no_tree)?;
        let group = (self.quota.kind == QuotaKind::Simple).then_some(quota::VOLUMES);
        let (name, staged) = self.stage_snapshot(source, "", group)?;
        let (path, place) = (format!("{STAGING}/{name}"), image_place(image.id));
        let made = prepare(&staged, image.bytes)
            .and_then(|()| renameat_with(&self.fd, &path, &self.fd, place, RenameFlags::NOREPLACE));
        if made.is_err() {
            // The first failure is the one to report; the next open sweeps what is left.
            let _ = self.discard(&path);
        }
        made.map_err(|cause| match cause {
            Errno::EXIST => Error::new(ErrorCode::AlreadyExists, "there is such an image").at("image"),
            cause => failed("seal the image")(cause),
        })?;
        self.finish_image(image.id)
    }

    fn finish_image(&self, id: ImageId) -> Result<()> {
        let image = self.open_source(&image_place(id), no_image)?;
        ioctl::make_read_only(&image).and_then(|()| ioctl::sync(&image)).map_err(failed("seal the image"))
    }

    fn remove_image(&self, id: ImageId) -> Result<()> {
        self.destroy_in_place(IMAGES, &id.to_string())
    }
}

/// Gives the copy of a volume what an image has: a top that is root's, and how much it holds.
fn prepare(staged: &OwnedFd, bytes: u64) -> rustix::io::Result<()> {
    let data = open_dir_at(staged, DATA)?;
    fchown(&data, Some(Uid::ROOT), Some(Gid::ROOT))?;
    fchmod(&data, Mode::from_raw_mode(0o755))?;
    fsetxattr(staged, SHARED, bytes.to_string().as_bytes(), XattrFlags::empty())
}
