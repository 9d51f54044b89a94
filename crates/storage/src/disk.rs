//! The disk below: its free space, and the part of it that is never promised. Also the few directory operations
//! that every driver shares.

use crate::error::failed;
use atoll_types::Result;
use rustix::fs::{
    AtFlags, FlockOperation, Mode, OFlags, chmod, flock, fstat, mkdirat, open, openat, statat, statvfs,
};
use rustix::io::Errno;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

const DIRECTORY: OFlags = OFlags::DIRECTORY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// The file system that holds the storage folder.
#[derive(Debug)]
pub(crate) struct Disk {
    dir: PathBuf,
    reserve: Option<u64>,
}

impl Disk {
    pub(crate) fn new(dir: &Path, reserve: Option<u64>) -> Self {
        Self { dir: dir.into(), reserve }
    }

    /// What it could hold were it empty.
    pub(crate) fn size(&self) -> Result<u64> {
        let stat = statvfs(&self.dir).map_err(failed("read the disk's size"))?;
        Ok(stat.f_blocks.saturating_mul(stat.f_frsize))
    }

    /// What is free for storage, the reserve left out.
    pub(crate) fn free(&self) -> Result<u64> {
        let stat = statvfs(&self.dir).map_err(failed("read the disk's free space"))?;
        let total = stat.f_blocks.saturating_mul(stat.f_frsize);
        let reserve = self.reserve.unwrap_or_else(|| (total / 50).max((total / 10).min(1 << 30)));
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize).saturating_sub(reserve))
    }
}

/// Opens a directory that must not be a symbolic link.
pub(crate) fn open_dir(path: &Path) -> rustix::io::Result<OwnedFd> {
    open(path, DIRECTORY, Mode::empty())
}

/// The same, below another.
pub(crate) fn open_dir_at(at: impl AsFd, path: &str) -> rustix::io::Result<OwnedFd> {
    openat(at, path, DIRECTORY, Mode::empty())
}

/// Makes a directory that only root can enter, or leaves the one that is there.
pub(crate) fn private_dir(path: &Path) -> Result<()> {
    std::fs::create_dir_all(path).map_err(failed("make the storage folder"))?;
    chmod(path, Mode::RWXU).map_err(failed("close the storage folder to others"))
}

/// The same for the folders of a driver's root.
pub(crate) fn folders(root: impl AsFd, names: &[&str]) -> Result<()> {
    for name in names {
        match mkdirat(&root, *name, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(cause) => return Err(failed("make a folder for volumes")(cause)),
        }
    }
    Ok(())
}

/// Opens a directory that was just made and holds it, so that no other process takes it for a dead one's. `None` where
/// one already has.
pub(crate) fn hold_new(at: impl AsFd, path: &str) -> rustix::io::Result<Option<OwnedFd>> {
    let dir = match open_dir_at(&at, path) {
        Err(Errno::NOENT) => return Ok(None),
        opened => opened?,
    };
    match flock(&dir, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => return Ok(None),
        held => held?,
    }
    let (held, there) = (fstat(&dir)?, statat(at, path, AtFlags::SYMLINK_NOFOLLOW));
    Ok(there.is_ok_and(|there| (there.st_dev, there.st_ino) == (held.st_dev, held.st_ino)).then_some(dir))
}

/// Whether a process holds what it makes under this name.
pub(crate) fn is_being_made(at: impl AsFd, name: &str) -> bool {
    let locked = |dir: OwnedFd| flock(dir, FlockOperation::NonBlockingLockShared) == Err(Errno::WOULDBLOCK);
    open_dir_at(at, name).is_ok_and(locked)
}

/// The names in a directory.
pub(crate) fn names(dir: impl AsFd) -> Result<Vec<String>> {
    let entries = rustix::fs::Dir::read_from(dir).map_err(failed("list a folder"))?;
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.map_err(failed("list a folder"))?;
        // Names of trees are ASCII, so one that is not UTF-8 is not a tree's.
        if let Ok(name) = entry.file_name().to_str()
            && !matches!(name, "." | "..")
        {
            names.push(name.to_owned());
        }
    }
    Ok(names)
}
