//! Moving. Within a filesystem it is one rename; across two a plain file is copied and the original
//! removed, and anything else is refused with a reason.

use super::{
    entry,
    path::SplitPath,
    resolve,
    upload::{Temporary, write_all},
};
use crate::errors::on_path;
use atoll_guest_proto::v1::FileEntry;
use atoll_types::{Error, ErrorCode, Result};
use rustix::{
    fs::{AtFlags, FileType, Mode, OFlags, RenameFlags, fstat, openat, renameat_with, statat, unlinkat},
    io::Errno,
};
use std::os::fd::OwnedFd;

const BUFFER: usize = 128 * 1024;

/// Moves one place to another, which must be free unless it may be overwritten.
pub(crate) fn rename(from: &SplitPath, to: &SplitPath, overwrite: bool) -> Result<FileEntry> {
    let (source, old) = resolve::open_parent(from)?;
    let (target, new) = resolve::open_parent(to)?;
    // The rename's own error would not say which of the two is missing.
    let stat = statat(&source, old, AtFlags::SYMLINK_NOFOLLOW).map_err(|e| on_path(e, from.field))?;
    let flags = if overwrite { RenameFlags::empty() } else { RenameFlags::NOREPLACE };
    match renameat_with(&source, old, &target, new, flags) {
        Ok(()) => {}
        Err(Errno::XDEV) if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile => {
            copy(&source, old, from, target, new, overwrite).map_err(|e| e.at(to.field))?;
            unlinkat(&source, old, AtFlags::empty()).map_err(|e| on_path(e, from.field))?;
        }
        Err(Errno::XDEV) => {
            let message = "only plain files can be moved to another filesystem";
            return Err(Error::new(ErrorCode::Unsupported, message).at(to.field));
        }
        Err(Errno::INVAL) => return Err(Error::invalid(to.field, "a directory cannot be moved into itself")),
        Err(e) => return Err(on_path(e, to.field)),
    }
    entry::stat(to, false)
}

fn copy(
    source: &OwnedFd,
    old: &str,
    from: &SplitPath,
    target: OwnedFd,
    new: &str,
    overwrite: bool,
) -> Result<()> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let failed = |e| on_path(e, from.field);
    let input = openat(source, old, flags, Mode::empty()).map_err(failed)?;
    resolve::check_regular(&input, from)?;
    let mode = fstat(&input).map_err(failed)?.st_mode & 0o7777;
    let (output, temporary) = Temporary::create(target, mode, !overwrite).map_err(failed)?;
    let mut buffer = vec![0; BUFFER];
    loop {
        match rustix::io::read(&input, &mut buffer[..]) {
            Ok(0) => break,
            Ok(length) => write_all(&output, &buffer[..length]).map_err(failed)?,
            Err(Errno::INTR) => {}
            Err(e) => return Err(failed(e)),
        }
    }
    temporary.finish(&output, new).map_err(failed)
}
