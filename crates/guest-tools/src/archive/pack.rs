//! Packs a folder, or one file, into an archive: files, folders and symbolic links as they are; sockets, FIFOs,
//! devices and what is in the kernel's own file systems are left out. A file that cannot be read fails the whole
//! archive, so that none is silently incomplete; where that is known before, no byte is written.

use super::{
    folders::{MOST_ENTRIES, too_many},
    write::{About, Archive},
};
use crate::{
    beneath,
    errno::{on_name, shown},
    walk::{Item, Walk},
};
use atoll_types::{Error, ErrorCode, Result, files::is_kernels_own};
use rustix::{
    fs::{Access, AtFlags, FileType, OFlags, accessat, fstat, fstatfs, readlinkat},
    io::Errno,
};
use std::{
    fs::File,
    io::{self, Write},
    os::fd::OwnedFd,
};
use tar::EntryType;

/// Packs what is open. The names begin with `prefix`; for a file that is its whole name, for a folder it
/// may be empty.
pub fn pack(what: OwnedFd, prefix: &[u8], out: impl Write) -> Result<()> {
    let mut archive = Archive::new(out);
    let stat = fstat(&what).map_err(|e| on_name(e, prefix))?;
    if is_kernels_own(fstatfs(&what).map_err(|e| on_name(e, prefix))?.f_type as u64) {
        let message = "the kernel's own filesystems cannot be archived";
        return Err(Error::new(ErrorCode::PermissionDenied, message).at("path"));
    }
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => {
            let about = About { kind: EntryType::Regular, stat: &stat, size: size_of(&stat) };
            archive.head(prefix, b"", &about).map_err(broken)?;
            archive.body(&mut File::from(what), about.size).map_err(broken)?;
        }
        FileType::Directory => {
            check_readable(&what, b"")?;
            pack_top(what, prefix, &mut archive)?;
        }
        _ => return Err(Error::new(ErrorCode::SpecialFile, "it is a device, FIFO or socket").at("path")),
    }
    archive.finish().map_err(broken)
}

/// Packs an open folder and all below it.
pub(super) fn pack_top(folder: OwnedFd, prefix: &[u8], archive: &mut Archive<impl Write>) -> Result<()> {
    let stat = fstat(&folder).map_err(|e| on_name(e, prefix))?;
    let about = About { kind: EntryType::Directory, stat: &stat, size: 0 };
    archive.head(&name_of(prefix, b"", true), b"", &about).map_err(broken)?;
    pack_folder(folder, prefix, archive)
}

fn size_of(stat: &rustix::fs::Stat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or(0)
}

pub(crate) fn broken(error: io::Error) -> Error {
    Error::new(ErrorCode::Unavailable, format!("the archive cannot be written: {error}"))
}

pub(super) fn name_of(prefix: &[u8], path: &[u8], folder: bool) -> Vec<u8> {
    let parts: Vec<&[u8]> = beneath::names(prefix).chain(beneath::names(path)).collect();
    let mut name = parts.join(&b'/');
    if name.is_empty() {
        name.push(b'.');
    }
    if folder {
        name.push(b'/');
    }
    name
}

/// Checks that all of a folder can be read, and counts what is in it. Once the archive has begun, its reader learns of an
/// error only by an archive that breaks off, and never of its reason. An error's names begin with `prefix`.
pub(crate) fn check_readable(top: &OwnedFd, prefix: &[u8]) -> Result<u64> {
    let mut entries = 0;
    let top = top.try_clone().map_err(|e| on_name(Errno::from_io_error(&e).unwrap_or(Errno::IO), b""))?;
    let mut walk = Walk::new(top, u32::MAX).stored_only();
    while let Some(item) = walk.next() {
        complete(&walk, prefix)?;
        let kind = item.kind();
        entries += u64::from(matches!(kind, FileType::RegularFile | FileType::Directory | FileType::Symlink));
        if kind != FileType::RegularFile {
            continue;
        }
        match accessat(walk.top(), &item.path, Access::READ_OK, AtFlags::empty()) {
            // It was removed meanwhile.
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(on_name(errno, &name_of(prefix, &item.path, false))),
        }
    }
    complete(&walk, prefix).map(|()| entries)
}

fn pack_folder(top: OwnedFd, prefix: &[u8], archive: &mut Archive<impl Write>) -> Result<()> {
    let mut walk = Walk::new(top, u32::MAX).stored_only();
    while let Some(item) = walk.next() {
        pack_item(&walk, &item, prefix, archive)?;
        complete(&walk, prefix)?;
        if archive.is_full() {
            return Err(too_many(MOST_ENTRIES));
        }
    }
    complete(&walk, prefix)
}

pub(crate) fn complete(walk: &Walk, prefix: &[u8]) -> Result<()> {
    if let Some((path, errno)) = walk.unreadable.first() {
        return Err(on_name(*errno, &name_of(prefix, path, false)));
    }
    if walk.cut {
        return Err(Error::new(ErrorCode::TooLarge, "a folder has too many entries to be packed"));
    }
    Ok(())
}

pub(super) fn pack_item(
    walk: &Walk,
    item: &Item,
    prefix: &[u8],
    archive: &mut Archive<impl Write>,
) -> Result<()> {
    let failed = |e| on_name(e, &item.path);
    let name = name_of(prefix, &item.path, item.kind() == FileType::Directory);
    match item.kind() {
        FileType::Directory => {
            let about = About { kind: EntryType::Directory, stat: &item.stat, size: 0 };
            archive.head(&name, b"", &about).map_err(broken)
        }
        FileType::Symlink => match readlinkat(walk.top(), &item.path, Vec::new()) {
            Ok(target) => {
                let about = About { kind: EntryType::Symlink, stat: &item.stat, size: 0 };
                archive.head(&name, target.to_bytes(), &about).map_err(broken)
            }
            // It was removed or replaced meanwhile.
            Err(Errno::NOENT | Errno::INVAL) => Ok(()),
            Err(e) => Err(failed(e)),
        },
        FileType::RegularFile => {
            let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
            let file = match beneath::open(walk.top(), &item.path, flags) {
                Err(Errno::NOENT | Errno::LOOP | Errno::NXIO) => return Ok(()),
                other => other.map_err(failed)?,
            };
            let stat = fstat(&file).map_err(failed)?;
            if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
                return Ok(());
            }
            let about = About { kind: EntryType::Regular, stat: &stat, size: size_of(&stat) };
            archive.head(&name, b"", &about).map_err(broken)?;
            archive.body(&mut File::from(file), about.size).map_err(|e| match e.kind() {
                io::ErrorKind::PermissionDenied => failed(Errno::ACCESS),
                _ => broken(e).context(shown(&item.path)),
            })
        }
        _ => Ok(()),
    }
}
