//! Loop devices: find the one that serves a file, or set one up. A file is known by its device and inode
//! numbers, never by its name.

use super::loop_ioctl as ioctl;
use crate::error::{failed, unsupported};
use atoll_types::{Error, ErrorCode, Result};
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

const ATTEMPTS: u32 = 64;

/// An open loop device; it cannot free itself while this lives.
pub(super) struct Device {
    file: File,
    path: PathBuf,
}

impl Device {
    fn open(path: PathBuf) -> std::io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(&path)?;
        Ok(Self { file, path })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Takes over the size of the file behind it.
    pub(super) fn read_size(&self) -> rustix::io::Result<()> {
        ioctl::read_size(&self.file)
    }
}

/// Whether a device is backed by this very file.
pub(super) fn serves(device: &Path, file: &File) -> bool {
    Device::open(device.into()).is_ok_and(|device| backed_by(&device, file))
}

fn backed_by(device: &Device, file: &File) -> bool {
    let Ok(meta) = file.metadata() else { return false };
    ioctl::backing(&device.file).is_ok_and(|backing| backing == (meta.dev(), meta.ino()))
}

/// The device that serves a file, if there is one.
pub(super) fn find(file: &File) -> Result<Option<Device>> {
    let devices = std::fs::read_dir("/sys/block").map_err(failed("list the block devices"))?;
    for name in devices.flatten().map(|entry| entry.file_name()) {
        // Devices of other files are not opened: closing one could free it.
        let named = Path::new("/sys/block").join(&name).join("loop/backing_file");
        let ours = std::fs::read_to_string(named).is_ok_and(|path| path.trim_end().ends_with(super::IMAGE));
        if !ours {
            continue;
        }
        let device = Device::open(Path::new("/dev").join(name)).ok().filter(|device| backed_by(device, file));
        if device.is_some() {
            return Ok(device);
        }
    }
    Ok(None)
}

/// The device that serves a file, set up if there is none. It frees itself after its last use.
pub(super) fn attach(file: &File) -> Result<Device> {
    if let Some(device) = find(file)? {
        tracing::info!("the pool has a loop device already");
        ioctl::set_autoclear(&device.file).map_err(failed("take over the pool's loop device"))?;
        return Ok(device);
    }
    let missing =
        |_| unsupported("loop devices are missing: load the `loop` module, or choose the driver `dir`");
    let control = OpenOptions::new().read(true).write(true).open("/dev/loop-control").map_err(missing)?;
    for _ in 0..ATTEMPTS {
        let number = ioctl::free_number(&control).map_err(failed("find a free loop device"))?;
        let device = Device::open(format!("/dev/loop{number}").into()).map_err(missing)?;
        match ioctl::configure(&device.file, file) {
            Ok(()) => return Ok(device),
            // Another process took this number between the two calls.
            Err(Errno::BUSY) => std::thread::yield_now(),
            Err(cause) => return Err(failed("set up a loop device")(cause)),
        }
    }
    Err(Error::new(ErrorCode::Unavailable, "every free loop device was taken by another process"))
}
