//! Removing, with everything below if requested. Links are removed and never followed. One descriptor is open at
//! a time however deep the tree is; the way back up is checked, because user code may move directories meanwhile.

use super::{path::SplitPath, resolve};
use crate::errors::on_path;
use atoll_types::{Error, ErrorCode, Result};
use rustix::{
    fs::{AtFlags, Dir, FileType, Mode, OFlags, fstat, openat, statat, unlinkat},
    io::Errno,
};
use std::{
    ffi::CString,
    os::fd::{AsFd, OwnedFd},
};

/// Deeper trees are refused, so that the way back fits in memory.
const DEEPEST: usize = 4096;

/// Removes a place.
pub(crate) fn remove(place: &SplitPath, recursive: bool) -> Result<()> {
    let (parent, name) = resolve::open_parent(place)?;
    let failed = |e| on_path(e, place.field);
    let stat = statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW).map_err(failed)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
        return unlinkat(&parent, name, AtFlags::empty()).map_err(failed);
    }
    match unlinkat(&parent, name, AtFlags::REMOVEDIR) {
        Err(Errno::NOTEMPTY | Errno::EXIST) if recursive => {
            let top = open(&parent, name).map_err(failed)?;
            resolve::check_filesystem(&top, place)?;
            empty(top, place)?;
            unlinkat(&parent, name, AtFlags::REMOVEDIR).map_err(failed)
        }
        other => other.map_err(failed),
    }
}

fn open(parent: impl AsFd, name: impl rustix::path::Arg) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    openat(parent, name, flags, Mode::empty())
}

/// Which directory this is, whatever it is called.
fn identity(fd: impl AsFd) -> Result<(u64, u64), Errno> {
    let stat = fstat(fd)?;
    Ok((stat.st_dev, stat.st_ino))
}

/// Removes all that is in a directory.
fn empty(top: OwnedFd, place: &SplitPath) -> Result<()> {
    let failed = |e| on_path(e, place.field);
    // The directories above the current one: which one it is, and the name of the next below.
    let mut above: Vec<((u64, u64), CString)> = Vec::new();
    let mut here = top;
    loop {
        if let Some(name) = remove_files(&here).map_err(failed)? {
            if above.len() >= DEEPEST {
                return Err(Error::new(ErrorCode::LimitExceeded, "the directories are nested too deep")
                    .at(place.field));
            }
            let below = open(&here, &name).map_err(failed)?;
            above.push((identity(&here).map_err(failed)?, name));
            here = below;
            continue;
        }
        let Some((parent, name)) = above.pop() else { return Ok(()) };
        here = open(&here, c"..").map_err(failed)?;
        if identity(&here).map_err(failed)? != parent {
            return Err(
                Error::new(ErrorCode::Conflict, "a directory was moved while it was removed").at(place.field)
            );
        }
        match unlinkat(&here, &name, AtFlags::REMOVEDIR) {
            // A user's process has put a file in since: the next round removes it.
            Ok(()) | Err(Errno::NOENT | Errno::NOTEMPTY | Errno::EXIST) => {}
            Err(e) => return Err(failed(e)),
        }
    }
}

/// Removes files and empty directories. Returns the first directory that is not empty.
fn remove_files(directory: &OwnedFd) -> Result<Option<CString>, Errno> {
    let mut entries = Dir::read_from(directory)?;
    while let Some(entry) = entries.read() {
        let entry = entry?;
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        match unlinkat(directory, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            // Linux says EISDIR; POSIX and some filesystems say EPERM.
            Err(e @ (Errno::ISDIR | Errno::PERM)) => match unlinkat(directory, name, AtFlags::REMOVEDIR) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(Errno::NOTEMPTY | Errno::EXIST) => return Ok(Some(name.to_owned())),
                Err(Errno::NOTDIR) => return Err(e),
                Err(other) => return Err(other),
            },
            Err(e) => return Err(e),
        }
    }
    Ok(None)
}
