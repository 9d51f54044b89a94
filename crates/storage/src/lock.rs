//! One lock per storage folder, held while space is promised, and one per volume and image, held while its snapshots change or
//! it is copied or removed.
//! They are opened anew each time: a descriptor inherited over fork would share its lock with the parent.

use crate::disk::open_dir;
use crate::error::failed;
use atoll_types::{ImageId, Result, VolumeId};
use rustix::fs::{FlockOperation, flock, fstat, stat};
use rustix::io::{Errno, retry_on_intr};
use std::fs::{File, OpenOptions};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Held until dropped, and given up by the kernel when the holder dies.
pub(crate) struct Lock(#[allow(dead_code)] File);

impl Lock {
    pub(crate) fn take(path: &Path) -> Result<Self> {
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(path)
            .map_err(failed("open the storage lock"))?;
        retry_on_intr(|| flock(&file, FlockOperation::LockExclusive)).map_err(failed("lock the storage"))?;
        Ok(Self(file))
    }
}

/// A volume that is held: no other process makes or deletes its snapshots or exchanges it meanwhile, nor does any do
/// so while it is shared. Given up when dropped, and by the kernel when the holder dies.
///
/// The lock is on the volume's own folder, which no sandbox sees, so nothing has to be cleaned up with the volume.
pub struct HeldVolume {
    pub(crate) volume: VolumeId,
    _folder: OwnedFd,
}

impl HeldVolume {
    /// Waits for the volume; none where there is no such volume.
    pub(crate) fn take(path: &Path, volume: VolumeId, how: FlockOperation) -> Result<Option<Self>> {
        Ok(hold(path, how)?.map(|folder| Self { volume, _folder: folder }))
    }
}

/// An image that is held: no other process removes it meanwhile, nor reads it where it is held to be removed.
pub struct HeldImage {
    pub(crate) image: ImageId,
    _folder: OwnedFd,
}

impl HeldImage {
    /// Waits for the image; none where there is no such image.
    pub(crate) fn take(path: &Path, image: ImageId, how: FlockOperation) -> Result<Option<Self>> {
        Ok(hold(path, how)?.map(|folder| Self { image, _folder: folder }))
    }
}

fn hold(path: &Path, how: FlockOperation) -> Result<Option<OwnedFd>> {
    let same = |folder: &OwnedFd| {
        let (held, there) = (fstat(folder), stat(path));
        held.is_ok_and(|h| there.is_ok_and(|t| (h.st_dev, h.st_ino) == (t.st_dev, t.st_ino)))
    };
    loop {
        let folder = match open_dir(path) {
            Err(Errno::NOENT) => return Ok(None),
            opened => opened.map_err(failed("open the volume"))?,
        };
        retry_on_intr(|| flock(&folder, how)).map_err(failed("hold the volume"))?;
        // It may have been exchanged or removed during the wait.
        if same(&folder) {
            return Ok(Some(folder));
        }
    }
}
