//! One file on its way in. It is written under a temporary name beside its place and gets its own name when it is
//! complete; dropped before that, it leaves nothing. Appending goes to the file itself.

use super::{directories, entry, path::SplitPath, resolve};
use crate::{errors::on_path, reserve};
use atoll_guest_proto::v1::{FileEntry, WriteHead};
use atoll_types::{
    Error, ErrorCode, Result,
    files::{NOT_WRITABLE, OVERWRITE},
};
use rustix::{
    fs::{
        Access, AtFlags, FileType, Mode, OFlags, RenameFlags, accessat, fchmod, openat, renameat,
        renameat_with, statat, unlinkat,
    },
    io::Errno,
};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

const DEFAULT_MODE: u32 = 0o644;

pub(crate) struct Upload {
    file: OwnedFd,
    place: SplitPath,
    target: Target,
}

enum Target {
    /// Bytes are written to the file itself.
    InPlace {
        mode: Option<u32>,
    },
    Temporary(Temporary),
}

/// A file that has no name of its own yet.
pub(crate) struct Temporary {
    parent: OwnedFd,
    name: Option<String>,
    mode: u32,
    exclusive: bool,
}

impl Upload {
    pub(crate) fn open(place: SplitPath, head: &WriteHead) -> Result<Self> {
        let (parent, name) = if head.create_parents {
            directories::open_parent_making(&place)?
        } else {
            resolve::open_parent(&place)?
        };
        reserve::check(&parent, reserve::STREAM).map_err(|e| on_path(e, place.field))?;
        let wanted = (head.mode != 0).then_some(head.mode & 0o7777);
        let present = match statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Some((FileType::from_raw_mode(stat.st_mode), stat.st_mode & 0o7777)),
            Err(Errno::NOENT) => None,
            Err(e) => return Err(on_path(e, place.field)),
        };
        if head.exclusive && present.is_some() {
            return Err(on_path(Errno::EXIST, place.field));
        }
        // A link is replaced, or for appending followed as far as its area goes.
        if let Some((kind, _)) = present
            && kind != FileType::Symlink
        {
            resolve::check_kind(kind, &place)?;
        }
        if head.append {
            return Self::append(place, &parent, present.is_some(), wanted, head.exclusive);
        }
        if let Some((FileType::RegularFile, _)) = present
            && !head.force
        {
            check_writable(&parent, name, &place)?;
        }
        let kept = present.filter(|(kind, _)| *kind == FileType::RegularFile).map(|(_, mode)| mode);
        let mode = wanted.or(kept).unwrap_or(DEFAULT_MODE);
        let (file, temporary) =
            Temporary::create(parent, mode, head.exclusive).map_err(|e| on_path(e, place.field))?;
        Ok(Self { file, place, target: Target::Temporary(temporary) })
    }

    fn append(
        place: SplitPath,
        parent: &OwnedFd,
        exists: bool,
        mode: Option<u32>,
        exclusive: bool,
    ) -> Result<Self> {
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = if exists {
            resolve::open(&place, flags)?
        } else {
            let (_, name) = place.split().ok_or_else(|| resolve::is_an_area(&place))?;
            let once = if exclusive { OFlags::EXCL } else { OFlags::empty() };
            let flags = flags | OFlags::CREATE | OFlags::NOFOLLOW | once;
            openat(parent, name, flags, Mode::from_raw_mode(DEFAULT_MODE))
                .map_err(|e| on_path(e, place.field))?
        };
        resolve::check_regular(&file, &place)?;
        Ok(Self { file, place, target: Target::InPlace { mode } })
    }

    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    pub(crate) fn write(self, bytes: &[u8]) -> Result<Self> {
        write_all(&self.file, bytes).map_err(|e| on_path(e, self.place.field))?;
        Ok(self)
    }

    /// Gives the file its mode and its name.
    pub(crate) fn finish(self) -> Result<FileEntry> {
        let Self { file, place, target } = self;
        let failed = |e| on_path(e, place.field);
        match target {
            Target::InPlace { mode: None } => {}
            Target::InPlace { mode: Some(mode) } => {
                fchmod(&file, Mode::from_raw_mode(mode)).map_err(failed)?;
            }
            Target::Temporary(temporary) => {
                let (_, name) = place.split().ok_or_else(|| resolve::is_an_area(&place))?;
                temporary.finish(&file, name).map_err(failed)?;
            }
        }
        entry::of_open(&file, &place)
    }
}

impl Temporary {
    /// A new file in the directory, under a name that no file has.
    pub(crate) fn create(parent: OwnedFd, mode: u32, exclusive: bool) -> Result<(OwnedFd, Self), Errno> {
        let mut random = [0u8; 8];
        rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())?;
        let name = format!(".atoll-{:016x}", u64::from_ne_bytes(random));
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(&parent, &name, flags, Mode::RUSR | Mode::WUSR)?;
        Ok((file, Self { parent, name: Some(name), mode, exclusive }))
    }

    pub(crate) fn finish(mut self, file: &OwnedFd, to: &str) -> Result<(), Errno> {
        fchmod(file, Mode::from_raw_mode(self.mode))?;
        let Some(name) = &self.name else { return Ok(()) };
        if self.exclusive {
            renameat_with(&self.parent, name, &self.parent, to, RenameFlags::NOREPLACE)?;
        } else {
            renameat(&self.parent, name, &self.parent, to)?;
        }
        self.name = None;
        Ok(())
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if let Some(name) = &self.name {
            let _ = unlinkat(&self.parent, name, AtFlags::empty());
        }
    }
}

/// An upload replaces the file, for which only its directory must be writable. A file that the user may not write
/// is refused nevertheless, as writing to it would be.
fn check_writable(parent: &OwnedFd, name: &str, place: &SplitPath) -> Result<()> {
    let flags = AtFlags::EACCESS | AtFlags::SYMLINK_NOFOLLOW;
    match accessat(parent, name, Access::WRITE_OK, flags) {
        Err(Errno::ACCESS | Errno::PERM) => {
            let message = format!("{NOT_WRITABLE}; {OVERWRITE}=force replaces it");
            Err(Error::new(ErrorCode::PermissionDenied, message).at(OVERWRITE))
        }
        other => other.map_err(|e| on_path(e, place.field)),
    }
}

pub(crate) fn write_all(file: &OwnedFd, mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match rustix::io::write(file, bytes) {
            Ok(0) => return Err(Errno::NOSPC),
            Ok(length) => bytes = &bytes[length..],
            Err(Errno::INTR) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}
