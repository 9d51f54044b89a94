//! Opening places. The kernel walks the path and refuses to leave the area, whatever links user code
//! makes meanwhile; no resolved path is ever compared as text.

use super::path::SplitPath;
use crate::errors::on_path;
use atoll_types::{Error, ErrorCode, Result, files::is_kernels_own};
use rustix::{
    fs::{CWD, FileType, Mode, OFlags, ResolveFlags, fstat, fstatfs, openat, openat2},
    io::Errno,
};
use std::os::fd::{AsFd, OwnedFd};

/// The kernel fails with EAGAIN when a directory is renamed on the way; a retry succeeds.
const TRIES: usize = 32;

const DIRECTORY: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// An area's directory, from which a relative path of it can be opened.
pub(crate) struct Area {
    directory: OwnedFd,
    resolve: ResolveFlags,
}

impl Area {
    pub(crate) fn of(place: &SplitPath) -> Result<Self> {
        let failed = |e| on_path(e, place.field);
        let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        if let Some(tree) = place.tree() {
            let directory = rustix::io::fcntl_dupfd_cloexec(tree, 0).map_err(failed)?;
            return Ok(Self { directory, resolve: beneath });
        }
        let root = openat(CWD, c"/", DIRECTORY, Mode::empty()).map_err(failed)?;
        let in_root = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        let Some(name) = place.area() else { return Ok(Self { directory: root, resolve: in_root }) };
        let directory = openat2(root, name, DIRECTORY, Mode::empty(), in_root).map_err(failed)?;
        Ok(Self { directory, resolve: beneath })
    }

    pub(crate) fn open(&self, relative: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
        let mut result = Err(Errno::AGAIN);
        for _ in 0..TRIES {
            let flags = flags | OFlags::CLOEXEC;
            result = openat2(&self.directory, relative, flags, Mode::empty(), self.resolve);
            if !matches!(result, Err(Errno::AGAIN | Errno::INTR)) {
                break;
            }
        }
        result
    }
}

/// Opens a place that exists, on a filesystem that holds files.
pub(crate) fn open(place: &SplitPath, flags: OFlags) -> Result<OwnedFd> {
    let fd = Area::of(place)?.open(&place.relative(), flags).map_err(|e| on_path(e, place.field))?;
    check_filesystem(&fd, place)?;
    Ok(fd)
}

/// The open directory that holds a place, and its name in there.
pub(crate) fn open_parent(place: &SplitPath) -> Result<(OwnedFd, &str)> {
    let (parent, name) = place.split().ok_or_else(|| is_an_area(place))?;
    let fd = Area::of(place)?.open(&parent, DIRECTORY).map_err(|e| on_path(e, place.field))?;
    check_filesystem(&fd, place)?;
    Ok((fd, name))
}

pub(crate) fn is_an_area(place: &SplitPath) -> Error {
    Error::invalid(place.field, "this directory itself cannot be written, moved or removed")
}

/// Opens without following a link in the last place, for walking step by step.
pub(crate) fn open_directory(parent: impl AsFd, name: &str) -> Result<OwnedFd, Errno> {
    openat(parent, name, DIRECTORY | OFlags::NOFOLLOW, Mode::empty())
}

pub(crate) fn check_filesystem(fd: impl AsFd, place: &SplitPath) -> Result<()> {
    let kind = fstatfs(fd).map_err(|e| on_path(e, place.field))?.f_type as u64;
    if is_kernels_own(kind) {
        let message = "the kernel's own filesystems cannot be reached this way";
        return Err(Error::new(ErrorCode::PermissionDenied, message).at(place.field));
    }
    Ok(())
}

/// Refuses whatever is not a plain file.
pub(crate) fn check_regular(fd: impl AsFd, place: &SplitPath) -> Result<rustix::fs::Stat> {
    let stat = fstat(fd).map_err(|e| on_path(e, place.field))?;
    check_kind(FileType::from_raw_mode(stat.st_mode), place)?;
    Ok(stat)
}

/// The error for whatever is not a plain file.
pub(crate) fn check_kind(kind: FileType, place: &SplitPath) -> Result<()> {
    match kind {
        FileType::RegularFile => Ok(()),
        FileType::Directory => Err(on_path(Errno::ISDIR, place.field)),
        FileType::Symlink => Err(on_path(Errno::LOOP, place.field)),
        _ => Err(on_path(Errno::NXIO, place.field)),
    }
}
