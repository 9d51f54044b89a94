//! A loop-backed pool: one sparse file, one loop device, one mount. The btrfs driver manages what is inside. The
//! invariants: the file is attached at most once, the device frees itself with its last mount, and the file
//! system on it is no larger than what the disk below can give it.

mod device;
mod loop_ioctl;
mod make;
mod mounts;

use crate::config::StorageConfig;
use crate::disk::{Disk, private_dir};
use crate::error::{failed, unsupported};
use atoll_types::{Error, ErrorCode, Result};
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

pub(crate) use make::IMAGE;

#[derive(Debug, Clone)]
pub(crate) struct Pool {
    image: PathBuf,
    mount_at: PathBuf,
    /// Whether this open made the pool.
    fresh: bool,
}

impl Pool {
    /// Makes the pool if there is none, and mounts it if it is not mounted. Called under the lock.
    pub(crate) fn open(config: &StorageConfig, disk: &Disk) -> Result<Self> {
        private_dir(&config.mount_at)?;
        let mount_at = config.mount_at.canonicalize().map_err(failed("find the mount point"))?;
        let image = config.dir.join(IMAGE);
        let fresh = !image.exists();
        let pool = Self { image, mount_at, fresh };
        if fresh {
            make::make(config, disk)?;
        }
        let ready = pool.ensure_mounted();
        if ready.is_err() {
            pool.abandon();
        }
        ready.map(|()| pool)
    }

    /// Gives up: unmounts, and removes a pool that was made just now, since an existing one must open.
    pub(crate) fn abandon(&self) {
        // The failure that led here is the one to report, and the next open cleans up what stays.
        if self.is_mounted().unwrap_or(false) {
            let _ = self.unmount();
        }
        if self.fresh {
            let _ = std::fs::remove_file(&self.image);
        }
    }

    fn is_mounted(&self) -> Result<bool> {
        let device = mounts::device_at(&self.mount_at)?;
        Ok(device
            .is_some_and(|device| self.file().is_ok_and(|file| device::serves(Path::new(&device), &file))))
    }

    fn ensure_mounted(&self) -> Result<()> {
        if self.is_mounted()? {
            tracing::info!("the pool is mounted already");
            return Ok(());
        }
        if mounts::device_at(&self.mount_at)?.is_some_and(|device| is_orphan(Path::new(&device))) {
            tracing::warn!("the pool that was mounted here is deleted; it is unmounted");
            self.unmount()?;
        }
        if mounts::device_at(&self.mount_at)?.is_some() {
            let message =
                "something else is mounted where the pool belongs: unmount it, or choose another place";
            return Err(Error::new(ErrorCode::Conflict, message));
        }
        self.mount()
    }

    fn file(&self) -> Result<File> {
        OpenOptions::new().read(true).write(true).open(&self.image).map_err(failed("open the pool"))
    }

    fn mount(&self) -> Result<()> {
        let device = device::attach(&self.file()?)?;
        let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOATIME;
        // The device frees itself when its last user closes it: it is held until the mount holds it.
        match mount(device.path(), &self.mount_at, "btrfs", flags, Some(c"discard=async")) {
            Err(Errno::NODEV) => {
                Err(unsupported("the kernel has no btrfs: load its module, or choose the driver `dir`"))
            }
            done => done.map_err(failed("mount the pool (the kernel's log says why)")),
        }
    }

    /// Blocks of the disk below that the pool has already.
    pub(crate) fn allocated(&self) -> Result<u64> {
        let meta = self.image.metadata().map_err(failed("look at the pool"))?;
        Ok(meta.blocks().saturating_mul(512))
    }

    /// Gives a range of the file blocks of the disk below, so that writing there cannot fail for want of them.
    pub(crate) fn back(&self, range: &std::ops::Range<u64>) -> Result<()> {
        let length = range.end.saturating_sub(range.start);
        fallocate(self.file()?, FallocateFlags::KEEP_SIZE, range.start, length)
            .map_err(failed("keep space for the pool's own records"))
    }

    /// Makes the device at least this large; the file system on it grows after that.
    pub(crate) fn extend(&self, bytes: u64) -> Result<()> {
        let file = self.file()?;
        let size = file.metadata().map_err(failed("look at the pool"))?.len();
        if size < bytes {
            file.set_len(bytes).map_err(failed("make the pool larger"))?;
        }
        let device =
            device::find(&file)?.ok_or_else(|| Error::internal("the pool has lost its loop device"))?;
        device.read_size().map_err(failed("make the pool's device larger"))
    }

    pub(crate) fn unmount(&self) -> Result<()> {
        unmount(&self.mount_at, UnmountFlags::NOFOLLOW).map_err(failed("unmount the pool"))
    }
}

/// Whether a loop device's file was deleted, so that its data can be reached only by the mount.
fn is_orphan(device: &Path) -> bool {
    let Some(name) = device.file_name() else { return false };
    let backing = Path::new("/sys/block").join(name).join("loop/backing_file");
    std::fs::read(backing).is_ok_and(|file| file.trim_ascii_end().ends_with(b" (deleted)"))
}
