//! A watched tree: a subvolume that is opened for one request. It is held open no longer than that, so that
//! watching keeps no pool from being unmounted.

use crate::{found, sys};
use rustix::{
    fd::{AsFd, OwnedFd},
    fs::{CWD, Dir, Mode, OFlags, open, readlinkat},
    io::Errno,
};
use std::{cell::Cell, io, os::fd::AsRawFd, path::Path};

/// The inode of the root folder of every subvolume.
pub(crate) const TOP: u64 = 256;
/// How many names of files that have no event of their own are looked up for one request.
pub(crate) const LOOKUPS: usize = 100_000;

/// An open subvolume.
pub(crate) struct Tree {
    pub(crate) fd: OwnedFd,
    /// The id of the subvolume.
    pub(crate) root: u64,
    pub(crate) device: (u32, u32),
    /// Its path as the kernel reports it.
    pub(crate) path: Vec<u8>,
    lookups: Cell<usize>,
}

impl Tree {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let fd = open_dir(path)?;
        let (root, inode) = sys::identity(&fd)?;
        if inode != TOP {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a tree must be a whole subvolume"));
        }
        let device = found::look(&fd, b"")?.ok_or(Errno::NOENT)?.device;
        let path = path_of(&fd)?;
        Ok(Self { fd, root, device, path, lookups: Cell::new(LOOKUPS) })
    }

    /// Waits until a change to the names of a folder in progress is complete and its events are queued: the
    /// thread that makes the change holds the folder's lock until then, and reading a folder takes it.
    pub(crate) fn wait(&self, dir: u64) {
        if let Ok(mut listing) = sys::open_folder(&self.fd, self.root, dir).and_then(Dir::read_from) {
            let _ = listing.next();
        }
    }

    /// Whether so many other names of files may still be looked up for this request: a file can have thousands.
    pub(crate) fn afford(&self, lookups: usize) -> bool {
        let left = self.lookups.get().checked_sub(lookups);
        self.lookups.set(left.unwrap_or(0));
        left.is_some()
    }
}

/// Opens a folder of the launcher's.
pub(crate) fn open_dir(path: &Path) -> Result<OwnedFd, Errno> {
    open(path, OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW, Mode::empty())
}

/// The path of an open file, as the kernel reports it.
pub(crate) fn path_of(fd: impl AsFd) -> Result<Vec<u8>, Errno> {
    let link = format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd());
    Ok(readlinkat(CWD, link, Vec::with_capacity(256))?.into_bytes())
}
