//! One file's entry for the host. User code chooses names: they are shown as text as well as they can be, and
//! never used again.

use super::{path::SplitPath, resolve};
use crate::errors::on_path;
use atoll_guest_proto::v1::{FileEntry, FileKind};
use atoll_types::Result;
use rustix::fs::{AtFlags, FileType, OFlags, Stat, fstat, readlinkat, statat};
use std::{ffi::CStr, os::fd::AsFd};

/// Of one place.
pub(crate) fn stat(place: &SplitPath, follow: bool) -> Result<FileEntry> {
    let flags = if follow { OFlags::PATH } else { OFlags::PATH | OFlags::NOFOLLOW };
    let fd = resolve::open(place, flags)?;
    let stat = fstat(&fd).map_err(|e| on_path(e, place.field))?;
    let target = if is_link(&stat) { link_target(&fd, c"") } else { String::new() };
    Ok(entry(place.name().to_owned(), &stat, target))
}

/// Of a name in an open directory; none when it has gone meanwhile.
pub(crate) fn of_name(directory: impl AsFd, name: &CStr) -> Option<FileEntry> {
    let stat = statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    let target = if is_link(&stat) { link_target(&directory, name) } else { String::new() };
    Some(entry(name.to_string_lossy().into_owned(), &stat, target))
}

/// Of an open file.
pub(crate) fn of_open(fd: impl AsFd, place: &SplitPath) -> Result<FileEntry> {
    let stat = fstat(fd).map_err(|e| on_path(e, place.field))?;
    Ok(entry(place.name().to_owned(), &stat, String::new()))
}

fn is_link(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::Symlink
}

fn link_target(directory: impl AsFd, name: &CStr) -> String {
    readlinkat(directory, name, Vec::new())
        .map_or_else(|_| String::new(), |t| t.to_string_lossy().into_owned())
}

fn entry(name: String, stat: &Stat, target: String) -> FileEntry {
    let kind = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => FileKind::File,
        FileType::Directory => FileKind::Directory,
        FileType::Symlink => FileKind::Symlink,
        _ => FileKind::Other,
    };
    let nanos = i64::try_from(stat.st_mtime_nsec).unwrap_or(0);
    FileEntry {
        name,
        kind: kind.into(),
        size: u64::try_from(stat.st_size).unwrap_or(0),
        mode: stat.st_mode & 0o7777,
        uid: stat.st_uid,
        gid: stat.st_gid,
        modified_unix_ns: stat.st_mtime.saturating_mul(1_000_000_000).saturating_add(nanos),
        target,
    }
}
