//! Copies a tree, sharing the blocks of files where the file system can. A sandbox may have planted anything in it, so
//! no link is followed, every directory is opened below its parent, and a file is opened only when it is one. The copy
//! has the owners, modes, times, attributes and, within a bound, the hard links of the original; no process may change
//! that meanwhile.
//!
//! A copy may also be made onto a tree that is there ([`copy_onto`]). Folders and files that both trees have keep their
//! inodes then, so a process with one of them open, or in it, goes on with what it was.

use crate::diff;
use crate::remove;
use crate::tree::DEEPEST;
use rustix::fs::{
    AtFlags, Dir, FileType, Gid, Mode, OFlags, ResolveFlags, SeekFrom, Stat, Timespec, Timestamps, Uid,
    XattrFlags, chownat, copy_file_range, fchmod, fchown, fgetxattr, flistxattr, fremovexattr, fsetxattr,
    fstat, ftruncate, futimens, ioctl_ficlone, linkat, mkdirat, mknodat, openat, openat2, readlinkat,
    renameat, seek, statat, symlinkat, unlinkat, utimensat,
};
use rustix::io::{Errno, Result};
use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use uuid::Uuid;

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

/// Where what a copy replaces waits to be freed: in the tree's own root, because a rename does not leave a subvolume.
pub(crate) const REPLACED: &CStr = c"replaced";

/// The tree that a copy is made onto.
pub(crate) struct Existing {
    /// A file that both trees have with the same inode and times is the same, where it was changed before this, in
    /// milliseconds: see [`diff`].
    pub(crate) certain_before: i64,
    /// Whether files can share blocks: then sharing them costs less than comparing.
    pub(crate) reflink: bool,
}

/// Copies what is in a directory, and the directory's own owner, mode and times, to an empty one.
pub(crate) fn copy(from: OwnedFd, to: &OwnedFd) -> Result<()> {
    copy_tree(from, to, None)
}

/// Makes what is in a directory the same as what is in another. Its own owner, mode, times and attributes stay. May be
/// repeated after a failure, or when the process was killed. What is to go goes first, so that it makes room.
pub(crate) fn copy_onto(from: &OwnedFd, to: &OwnedFd, existing: &Existing) -> Result<()> {
    match mkdirat(to, REPLACED, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(cause) => return Err(cause),
    }
    let replaced = openat(to, REPLACED, DIRECTORY, Mode::empty())?;
    let again = |fd: &OwnedFd| openat(fd, c".", DIRECTORY, Mode::empty());
    discard_others(again(from)?, again(to)?, &replaced)?;
    remove::empty(&replaced)?;
    unlinkat(to, REPLACED, AtFlags::REMOVEDIR)?;
    copy_tree(again(from)?, to, Some(existing))
}

/// Discards what is in a tree and not in the other, and what is a directory in one of the two alone.
fn discard_others(from: OwnedFd, to: OwnedFd, replaced: &OwnedFd) -> Result<()> {
    let is_dir = |stat: Stat| FileType::from_raw_mode(stat.st_mode).is_dir();
    let mut open = vec![(from, Dir::new(to)?)];
    loop {
        let depth = open.len();
        let Some((from, to)) = open.last_mut() else { return Ok(()) };
        let Some(entry) = to.next() else {
            open.pop();
            continue;
        };
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") || depth == 1 && name == REPLACED {
            continue;
        }
        let (wanted, there) = (look(&*from, name)?.map(is_dir), look(to.fd()?, name)?.map(is_dir));
        match (wanted, there) {
            (_, None) | (Some(false), Some(false)) => {}
            (Some(true), Some(true)) => {
                let below = (
                    openat(&*from, name, DIRECTORY, Mode::empty())?,
                    Dir::new(openat(to.fd()?, name, DIRECTORY, Mode::empty())?)?,
                );
                if depth == DEEPEST {
                    return Err(Errno::NAMETOOLONG);
                }
                open.push(below);
            }
            (_, Some(false)) => unlinkat(to.fd()?, name, AtFlags::empty())?,
            (_, Some(true)) => {
                renameat(to.fd()?, name, replaced, Uuid::new_v4().simple().to_string().as_str())?;
            }
        }
    }
}

fn look(folder: impl AsFd, name: &CStr) -> Result<Option<Stat>> {
    match statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => Ok(None),
        found => found.map(Some),
    }
}

fn copy_tree(from: OwnedFd, to: &OwnedFd, existing: Option<&Existing>) -> Result<()> {
    let stat = fstat(&from)?;
    let root = openat(to, c".", DIRECTORY, Mode::empty())?;
    let mut linked = Linked::default();
    let mut open = vec![Level { from: Dir::new(from)?, to: root, stat, path: Vec::new() }];
    while let Some(level) = open.last_mut() {
        let Some(entry) = level.from.next() else {
            // The root of a tree that is there keeps what it has.
            if existing.is_none() || !level.path.is_empty() {
                finish(level.from.fd()?, &level.to, &level.stat)?;
            }
            open.pop();
            continue;
        };
        let entry = entry?;
        let name = entry.file_name();
        // A snapshot of a tree onto which a copy was being made may have one.
        if matches!(name.to_bytes(), b"." | b"..") || level.path.is_empty() && name == REPLACED {
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
        if let Some(existing) = existing
            && existing.has(level.from.fd()?, &level.to, name, &stat)?
        {
            continue;
        }
        if stat.st_nlink > 1 {
            let path = [&level.path, name.to_bytes()].concat();
            match linked.first(&stat).map(|first| link(to, first, &level.to, name)) {
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
    first: HashMap<u64, Vec<u8>>,
    bytes: usize,
}

impl Linked {
    fn first(&self, stat: &Stat) -> Option<&[u8]> {
        self.first.get(&stat.st_ino).map(Vec::as_slice)
    }

    fn remember(&mut self, stat: &Stat, path: Vec<u8>) {
        self.bytes += path.len() + size_of::<(u64, Vec<u8>)>();
        if self.bytes <= LINKED_BYTES {
            self.first.insert(stat.st_ino, path);
        }
    }
}

/// Gives a file of the copy, by its path below the copy's root, another name. No symbolic link on the way is followed: a tree
/// that a copy is made onto may have one where the copy does not.
fn link(root: &OwnedFd, first: &[u8], to: &OwnedFd, name: &CStr) -> Result<()> {
    let at = first.iter().rposition(|b| *b == b'/').map_or(0, |at| at + 1);
    let (folder, file) = first.split_at(at);
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let folder = if folder.is_empty() { b"." } else { folder };
    let folder = openat2(root, folder, OFlags::PATH | DIRECTORY, Mode::empty(), resolve)?;
    linkat(folder, file, to, name, AtFlags::empty())
}

fn descend(level: &Level, name: &CStr, stat: Stat) -> Result<Level> {
    let from = openat(level.from.fd()?, name, DIRECTORY, Mode::empty())?;
    match mkdirat(&level.to, name, Mode::RWXU) {
        // Of a tree that is there.
        Ok(()) | Err(Errno::EXIST) => {}
        Err(cause) => return Err(cause),
    }
    let to = openat(&level.to, name, DIRECTORY, Mode::empty())?;
    Ok(Level { from: Dir::new(from)?, to, stat, path: [&level.path, name.to_bytes(), b"/"].concat() })
}

impl Existing {
    /// Makes what is there under a name the same, where that can keep its inode. Otherwise it is removed: a file with several
    /// names, one that is executed, and what is no file.
    fn has(&self, from: BorrowedFd<'_>, to: &OwnedFd, name: &CStr, stat: &Stat) -> Result<bool> {
        let Some(there) = look(to, name)? else { return Ok(false) };
        if stat.st_nlink == 1 && there.st_nlink == 1 {
            if diff::untouched(stat, &there, self.certain_before) {
                return Ok(true);
            }
            let is_file = |stat: &Stat| FileType::from_raw_mode(stat.st_mode).is_file();
            if is_file(stat) && is_file(&there) && self.rewrite(from, to, name, stat)? {
                return Ok(true);
            }
        }
        unlinkat(to, name, AtFlags::empty())?;
        Ok(false)
    }

    fn rewrite(&self, from: BorrowedFd<'_>, to: &OwnedFd, name: &CStr, stat: &Stat) -> Result<bool> {
        let source = open_file(from, name, OFlags::RDONLY)?;
        let target = match open_file(to.as_fd(), name, OFlags::RDWR) {
            Err(Errno::TXTBSY) => return Ok(false),
            opened => opened?,
        };
        let same = !self.reflink
            && fstat(&target)?.st_size == stat.st_size
            && diff::same_content(&source, &target, |_| true)?;
        if !same {
            ftruncate(&target, 0)?;
            content(&source, &target)?;
        }
        finish(source.as_fd(), &target, stat)?;
        Ok(true)
    }
}

/// Opens what must be a file.
fn open_file(at: BorrowedFd<'_>, name: &CStr, how: OFlags) -> Result<OwnedFd> {
    // Not blocked by a pipe, should it be one by now.
    let flags = how | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = openat(at, name, flags, Mode::empty())?;
    if FileType::from_raw_mode(fstat(&file)?.st_mode).is_file() { Ok(file) } else { Err(Errno::STALE) }
}

/// Copies what is no directory.
fn one(from: BorrowedFd<'_>, to: &OwnedFd, name: &CStr, stat: &Stat) -> Result<()> {
    let kind = FileType::from_raw_mode(stat.st_mode);
    if kind.is_file() {
        let source = open_file(from, name, OFlags::RDONLY)?;
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

/// Gives a copy the attributes of the original, and takes away others.
fn attributes(from: BorrowedFd<'_>, to: &OwnedFd) -> Result<()> {
    let (wanted, there) = (attribute_names(from)?, attribute_names(to.as_fd())?);
    for name in there.iter().filter(|name| !wanted.contains(name)) {
        fremovexattr(to, name.as_c_str())?;
    }
    for name in wanted {
        let mut value = vec![0_u8; 64 << 10];
        let length = fgetxattr(from, name.as_c_str(), &mut value)?;
        fsetxattr(to, name.as_c_str(), &value[..length], XattrFlags::empty())?;
    }
    Ok(())
}

fn attribute_names(of: BorrowedFd<'_>) -> Result<Vec<CString>> {
    let mut names = vec![0_u8; 64 << 10];
    let length = match flistxattr(of, &mut names) {
        Err(Errno::NOTSUP) => return Ok(Vec::new()),
        listed => listed?,
    };
    let name = |name: &[u8]| CString::from_vec_with_nul(name.to_vec()).map_err(|_| Errno::INVAL);
    names[..length].split_inclusive(|byte| *byte == 0).map(name).collect()
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
