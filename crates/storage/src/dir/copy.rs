//! Copies a tree, sharing the blocks of files where the file system can. A sandbox may have planted anything in it, so
//! no link is followed, every directory is opened below its parent, and a file is opened only when it is one. The copy
//! has the owners, modes, times, attributes and, within a bound, the hard links of the original; no process may change
//! that meanwhile.

use crate::tree::DEEPEST;
use rustix::fs::{
    AtFlags, Dir, FileType, Gid, Mode, OFlags, SeekFrom, Stat, Timespec, Timestamps, Uid, XattrFlags,
    chownat, copy_file_range, fchmod, fchown, fgetxattr, flistxattr, fsetxattr, fstat, ftruncate, futimens,
    ioctl_ficlone, linkat, mkdirat, mknodat, openat, readlinkat, seek, statat, symlinkat, utimensat,
};
use rustix::io::{Errno, Result};
use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The most bytes of paths that are remembered of files with several names. Such files beyond that are copied once for
/// each name.
const LINKED_BYTES: usize = 16 << 20;
const DIRECTORY: OFlags = OFlags::DIRECTORY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// One directory that is being copied.
struct Level {
    from: Dir,
    to: OwnedFd,
    stat: Stat,
    /// Its path below the copy's root, with a slash at its end.
    path: Vec<u8>,
}

/// Copies what is in a directory, and the directory's own owner, mode and times, to an empty one.
pub(super) fn copy(from: OwnedFd, to: &OwnedFd) -> Result<()> {
    let stat = fstat(&from)?;
    let root = openat(to, c".", DIRECTORY, Mode::empty())?;
    let mut linked = Linked::default();
    let mut open = vec![Level { from: Dir::new(from)?, to: root, stat, path: Vec::new() }];
    while let Some(level) = open.last_mut() {
        let Some(entry) = level.from.next() else {
            finish(level.from.fd()?, &level.to, &level.stat)?;
            open.pop();
            continue;
        };
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let stat = statat(level.from.fd()?, name, AtFlags::SYMLINK_NOFOLLOW)?;
        if FileType::from_raw_mode(stat.st_mode).is_dir() {
            let below = descend(level, name, stat)?;
            if open.len() == DEEPEST {
                return Err(Errno::NAMETOOLONG);
            }
            open.push(below);
            continue;
        }
        if stat.st_nlink > 1 {
            let path = CString::new([&level.path, name.to_bytes()].concat()).map_err(|_| Errno::INVAL)?;
            match linked.first(&stat).map(|first| linkat(to, first, &level.to, name, AtFlags::empty())) {
                Some(Ok(())) => continue,
                // The first one's path may be too long, and it may have as many names as a file can: then a copy of
                // its own.
                Some(Err(Errno::NAMETOOLONG | Errno::MLINK)) => {}
                Some(Err(cause)) => return Err(cause),
                None => linked.remember(&stat, path),
            }
        }
        one(level.from.fd()?, &level.to, name, &stat)?;
    }
    Ok(())
}

/// Where files with several names were copied to.
#[derive(Default)]
struct Linked {
    first: HashMap<u64, CString>,
    bytes: usize,
}

impl Linked {
    fn first(&self, stat: &Stat) -> Option<&CString> {
        self.first.get(&stat.st_ino)
    }

    fn remember(&mut self, stat: &Stat, path: CString) {
        self.bytes += path.as_bytes().len() + size_of::<(u64, CString)>();
        if self.bytes <= LINKED_BYTES {
            self.first.insert(stat.st_ino, path);
        }
    }
}

fn descend(level: &Level, name: &CStr, stat: Stat) -> Result<Level> {
    let from = openat(level.from.fd()?, name, DIRECTORY, Mode::empty())?;
    mkdirat(&level.to, name, Mode::RWXU)?;
    let to = openat(&level.to, name, DIRECTORY, Mode::empty())?;
    Ok(Level { from: Dir::new(from)?, to, stat, path: [&level.path, name.to_bytes(), b"/"].concat() })
}

/// Copies what is no directory.
fn one(from: BorrowedFd<'_>, to: &OwnedFd, name: &CStr, stat: &Stat) -> Result<()> {
    let kind = FileType::from_raw_mode(stat.st_mode);
    if kind.is_file() {
        // Not blocked by a pipe, should it be one by now.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let source = openat(from, name, flags, Mode::empty())?;
        if !FileType::from_raw_mode(fstat(&source)?.st_mode).is_file() {
            return Err(Errno::STALE);
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let target = openat(to, name, flags, Mode::RUSR | Mode::WUSR)?;
        content(&source, &target)?;
        return finish(source.as_fd(), &target, stat);
    }
    if kind.is_symlink() {
        symlinkat(readlinkat(from, name, Vec::new())?, to, name)?;
    } else {
        // Pipes, sockets, and the whiteouts of an overlay.
        mknodat(to, name, kind, Mode::from_raw_mode(stat.st_mode & 0o7777), stat.st_rdev)?;
    }
    chownat(
        to,
        name,
        Some(Uid::from_raw(stat.st_uid)),
        Some(Gid::from_raw(stat.st_gid)),
        AtFlags::SYMLINK_NOFOLLOW,
    )?;
    utimensat(to, name, &times(stat), AtFlags::SYMLINK_NOFOLLOW)
}

/// Shares the blocks, or copies those that are not holes.
fn content(source: &OwnedFd, target: &OwnedFd) -> Result<()> {
    if ioctl_ficlone(target, source).is_ok() {
        return Ok(());
    }
    let size = u64::try_from(fstat(source)?.st_size).unwrap_or(0);
    let mut at = 0;
    while at < size {
        let mut from = match seek(source, SeekFrom::Data(at)) {
            // Nothing but a hole is left.
            Err(Errno::NXIO) => break,
            found => found?,
        };
        let end = seek(source, SeekFrom::Hole(from))?;
        while from < end {
            let mut to = from;
            let length = usize::try_from(end - from).unwrap_or(usize::MAX).min(1 << 30);
            if copy_file_range(source, Some(&mut from), target, Some(&mut to), length)? == 0 {
                return Err(Errno::STALE);
            }
        }
        at = end;
    }
    ftruncate(target, size)
}

/// Gives a copy the owner, attributes, mode and times of the original, in this order: each resets a later one.
fn finish(from: BorrowedFd<'_>, to: &OwnedFd, stat: &Stat) -> Result<()> {
    fchown(to, Some(Uid::from_raw(stat.st_uid)), Some(Gid::from_raw(stat.st_gid)))?;
    attributes(from, to)?;
    fchmod(to, Mode::from_raw_mode(stat.st_mode & 0o7777))?;
    futimens(to, &times(stat))
}

fn attributes(from: BorrowedFd<'_>, to: &OwnedFd) -> Result<()> {
    let mut names = vec![0_u8; 64 << 10];
    let length = match flistxattr(from, &mut names) {
        Err(Errno::NOTSUP) => return Ok(()),
        listed => listed?,
    };
    for name in names[..length].split_inclusive(|byte| *byte == 0) {
        let name = CStr::from_bytes_with_nul(name).map_err(|_| Errno::INVAL)?;
        let mut value = vec![0_u8; 64 << 10];
        let length = fgetxattr(from, name, &mut value)?;
        fsetxattr(to, name, &value[..length], XattrFlags::empty())?;
    }
    Ok(())
}

fn times(stat: &Stat) -> Timestamps {
    let time = |seconds: i64, nanoseconds: u64| Timespec {
        tv_sec: seconds,
        tv_nsec: nanoseconds.try_into().unwrap_or(0),
    };
    Timestamps {
        last_access: time(stat.st_atime, stat.st_atime_nsec),
        last_modification: time(stat.st_mtime, stat.st_mtime_nsec),
    }
}
