//! Unpacks an archive into a folder. Each name is walked from the folder without following a link; a file is
//! written under a temporary name and gets its own when it is complete.
//!
//! Folders that existed before keep their mode and time; those made here get theirs last, so that a read-only
//! folder can still be filled.

use super::read::{Entries, Entry, broke_off, wrong};
use crate::{
    Unpacked,
    beneath::{self, FOLDER},
    errno::{on_name, shown},
};
use atoll_types::{Error, ErrorCode, Result};
use rustix::{
    fs::{
        AtFlags, Dir, FileType, Mode, OFlags, Timespec, Timestamps, UTIME_OMIT, fchmod, fstat, futimens,
        linkat, mkdirat, openat, renameat, statat, symlinkat, unlinkat, utimensat,
    },
    io::Errno,
};
use std::{
    collections::BTreeMap,
    io::{self, Read},
    os::fd::{AsFd, OwnedFd},
};
use tar::EntryType;

/// Which symbolic links are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Links {
    /// All; none is followed.
    Any,
    /// Those that stay in the folder, whatever other links there are; others are left out and reported.
    Inside,
}

const LONGEST_NAME: usize = 4096;
/// Folders whose mode and time are set at the end.
const MOST_FOLDERS: usize = 1_000_000;
/// Names of left-out entries that are reported.
const MOST_TOLD: usize = 100;

/// What a folder gets when all else is unpacked.
#[derive(Clone, Copy)]
struct FolderState {
    mode: u32,
    mtime: i64,
}

pub(super) struct Unpacker<'a> {
    folder: &'a OwnedFd,
    new: bool,
    links: Links,
    done: &'a mut Unpacked,
    left_out: &'a mut Vec<String>,
    /// By path; the innermost are the last.
    finish: BTreeMap<Vec<u8>, FolderState>,
    /// Whether the archive changes what is there: folders that it names get their modes and times.
    onto: bool,
    /// The folder that the last entry was in.
    last: Option<(Vec<u8>, OwnedFd)>,
    /// For temporary names: they never collide with what an earlier unpack left behind.
    random: u64,
    serial: u64,
}

/// Unpacks into an open folder. One that is `new` gets its mode and time from the archive. `done` counts as it
/// goes and is valid when this fails; `left_out` gets the links that were not made.
pub fn unpack(
    folder: &OwnedFd,
    new: bool,
    archive: impl Read,
    links: Links,
    done: &mut Unpacked,
    left_out: &mut Vec<String>,
) -> Result<()> {
    let mut entries = Entries::new(archive);
    let mut unpacker = Unpacker::new(folder, new, links, done, left_out)?;
    let result = unpacker.all(&mut entries);
    let finished = unpacker.finish();
    result?;
    entries.drain();
    finished
}

fn random() -> Result<u64> {
    let mut bytes = [0; 8];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
        .map_err(|e| Error::internal(format!("there is no randomness: {e}")))?;
    Ok(u64::from_ne_bytes(bytes))
}

/// A name of the archive as one below the folder.
pub(super) fn inside(name: &[u8]) -> Result<Vec<u8>> {
    if name.first() == Some(&b'/') {
        return Err(wrong(format!("{} is absolute", shown(name))));
    }
    if name.contains(&0) || name.len() > LONGEST_NAME {
        return Err(wrong(format!("{} cannot be a name", shown(name))));
    }
    if name.split(|b| *b == b'/').any(|part| part == b"..") {
        return Err(wrong(format!("{} leads out of the folder", shown(name))));
    }
    Ok(beneath::names(name).collect::<Vec<_>>().join(&b'/'))
}

/// Whether a link stays inside whatever it passes: it climbs only at its start, where the folders are
/// known to be none but folders, and not above the top.
fn stays(path: &[u8], target: &[u8]) -> bool {
    let mut depth = beneath::names(path).count().saturating_sub(1);
    let mut climbing = true;
    if target.first() == Some(&b'/') {
        return false;
    }
    for part in beneath::names(target) {
        match (part, climbing, depth) {
            (b"..", true, 1..) => depth -= 1,
            (b"..", ..) => return false,
            _ => climbing = false,
        }
    }
    true
}

fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|b| *b == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (b"", path),
    }
}

fn failed(path: &[u8]) -> impl Fn(Errno) -> Error + '_ {
    move |errno| match errno {
        Errno::LOOP => {
            let message = format!("{} goes through a symbolic link", shown(path));
            Error::new(ErrorCode::PathOutsideRoot, message)
        }
        errno => on_name(errno, path),
    }
}

fn times(mtime: i64) -> Timestamps {
    Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        last_modification: Timespec { tv_sec: mtime, tv_nsec: 0 },
    }
}

/// Neither set-uid nor sticky.
fn permissions(mode: u32) -> Mode {
    Mode::from_raw_mode(mode & 0o777)
}

impl<'a> Unpacker<'a> {
    pub(super) fn new(
        folder: &'a OwnedFd,
        new: bool,
        links: Links,
        done: &'a mut Unpacked,
        left_out: &'a mut Vec<String>,
    ) -> Result<Self> {
        let (finish, random) = (BTreeMap::new(), random()?);
        let (onto, last, serial) = (false, None, 0);
        Ok(Self { folder, new, links, done, left_out, finish, onto, last, random, serial })
    }

    /// The same for an archive that changes what is there.
    pub(super) fn onto(self) -> Self {
        Self { onto: true, ..self }
    }

    fn all(&mut self, entries: &mut Entries<impl Read>) -> Result<()> {
        while let Some(entry) = entries.next_entry()? {
            self.entry(inside(&entry.name)?, entry, entries)?;
        }
        Ok(())
    }

    /// Unpacks an entry to a path below the folder. Whether it was a file with bytes of its own.
    pub(super) fn entry(
        &mut self,
        path: Vec<u8>,
        entry: Entry,
        entries: &mut Entries<impl Read>,
    ) -> Result<bool> {
        let is_folder = entry.kind == EntryType::Directory || entry.name.ends_with(b"/");
        if path.is_empty() && !is_folder {
            return Err(wrong(format!("{} is the folder itself", shown(&entry.name))));
        }
        let mut is_file = false;
        match entry.kind {
            _ if path.is_empty() => {
                if self.new {
                    let state = FolderState { mode: entry.mode, mtime: entry.mtime };
                    self.finish.entry(path).or_insert(state);
                }
                return Ok(false);
            }
            EntryType::Directory => self.folder(&path, &entry)?,
            EntryType::Regular | EntryType::Continuous if is_folder => self.folder(&path, &entry)?,
            EntryType::Regular | EntryType::Continuous => {
                self.file(&path, &entry, entries)?;
                is_file = true;
            }
            EntryType::Symlink if !self.keeps(&path, &entry) => return Ok(false),
            EntryType::Symlink => self.symlink(&path, &entry)?,
            EntryType::Link => self.hard_link(&path, &entry)?,
            EntryType::Char | EntryType::Block | EntryType::Fifo => {
                return Err(wrong(format!("{} is a device or FIFO", shown(&path))));
            }
            _ => return Err(wrong(format!("{} is of an unknown kind", shown(&path)))),
        }
        self.done.files += 1;
        Ok(is_file)
    }

    /// The open folder of a path, made with all above it where it is missing.
    fn open_folder(&mut self, path: &[u8]) -> Result<OwnedFd> {
        if let Some((last, fd)) = &self.last
            && last == path
        {
            return fd.try_clone().map_err(|e| on_name(Errno::from_io_error(&e).unwrap_or(Errno::IO), path));
        }
        let fd = match beneath::open(self.folder, path, FOLDER) {
            Err(Errno::NOENT) => {
                let (parent, name) = split(path);
                let above = self.open_folder(parent)?;
                self.make(&above, name, path, 0o755, None)?;
                openat(above, name, FOLDER | OFlags::NOFOLLOW, Mode::empty()).map_err(failed(path))?
            }
            // With O_NOFOLLOW and O_DIRECTORY a link is no folder.
            Err(Errno::NOTDIR) => {
                let message = format!("{} goes through a file or a symbolic link", shown(path));
                return Err(Error::new(ErrorCode::NotADirectory, message));
            }
            other => other.map_err(failed(path))?,
        };
        let copy = fd.try_clone().ok();
        self.last = copy.map(|copy| (path.to_vec(), copy));
        Ok(fd)
    }

    /// Makes one folder, unless it is there.
    fn make(
        &mut self,
        above: &OwnedFd,
        name: &[u8],
        path: &[u8],
        mode: u32,
        mtime: Option<i64>,
    ) -> Result<()> {
        match mkdirat(above, name, permissions(mode | 0o700)) {
            Ok(()) => {}
            Err(Errno::EXIST) if !self.onto => return Ok(()),
            Err(Errno::EXIST) => make_writable(above, name, mode).map_err(failed(path))?,
            Err(e) => return Err(failed(path)(e)),
        }
        mtime.map_or(Ok(()), |mtime| self.finish_later(path, FolderState { mode, mtime }))
    }

    fn finish_later(&mut self, path: &[u8], state: FolderState) -> Result<()> {
        if self.finish.len() >= MOST_FOLDERS {
            return Err(Error::new(ErrorCode::TooLarge, "the archive has too many folders"));
        }
        self.finish.insert(path.to_vec(), state);
        Ok(())
    }

    /// Removes what has a path, with all below it. The folder that it is in keeps its mode and time.
    pub(super) fn remove(&mut self, path: &[u8]) -> Result<()> {
        let (parent, name) = split(path);
        if name.is_empty() {
            return Err(wrong("the archive removes a whole folder of the sandbox"));
        }
        let above = match beneath::open(self.folder, parent, OFlags::RDONLY | OFlags::DIRECTORY) {
            Err(Errno::NOENT) => return Ok(()),
            above => above.map_err(failed(path))?,
        };
        let stat = fstat(&above).map_err(failed(path))?;
        if !self.finish.contains_key(parent) {
            self.finish_later(parent, FolderState { mode: stat.st_mode & 0o777, mtime: stat.st_mtime })?;
        }
        self.last = None;
        fchmod(&above, permissions(stat.st_mode | 0o700))
            .and_then(|()| remove_tree(&above, name))
            .map_err(failed(path))
    }

    fn folder(&mut self, path: &[u8], entry: &Entry) -> Result<()> {
        let (parent, name) = split(path);
        let above = self.open_folder(parent)?;
        self.make(&above, name, path, entry.mode, Some(entry.mtime))?;
        // A file or link may have the name.
        openat(&above, name, FOLDER | OFlags::NOFOLLOW, Mode::empty()).map(drop).map_err(failed(path))
    }

    fn temporary(&mut self) -> String {
        self.serial += 1;
        format!(".atoll-{:016x}-{}", self.random, self.serial)
    }

    fn file(&mut self, path: &[u8], entry: &Entry, entries: &mut Entries<impl Read>) -> Result<()> {
        let (parent, name) = split(path);
        let above = self.open_folder(parent)?;
        let temporary = self.temporary();
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(&above, &temporary, flags, permissions(0o600)).map_err(failed(path))?;
        let result = self
            .fill(&file, path, entry, entries)
            .and_then(|()| renameat(&above, &temporary, &above, name).map_err(failed(path)));
        match result {
            Ok(()) => self.done.bytes += entry.size,
            Err(_) => drop(unlinkat(&above, &temporary, AtFlags::empty())),
        }
        result
    }

    fn fill(
        &self,
        file: &OwnedFd,
        path: &[u8],
        entry: &Entry,
        entries: &mut Entries<impl Read>,
    ) -> Result<()> {
        let mut buffer = vec![0; usize::try_from(entry.size).unwrap_or(usize::MAX).clamp(1, 64 << 10)];
        loop {
            let got = match entries.read(&mut buffer) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                other => other.map_err(|e| broke_off(&e).context(shown(path)))?,
            };
            if got == 0 {
                break;
            }
            write_all(file, &buffer[..got]).map_err(failed(path))?;
        }
        fchmod(file, permissions(entry.mode)).map_err(failed(path))?;
        futimens(file, &times(entry.mtime)).map_err(failed(path))
    }

    /// Lets `make` create an entry under a temporary name, then renames it over whatever has the name.
    fn place(&mut self, path: &[u8], make: impl FnOnce(&OwnedFd, &str) -> Result<()>) -> Result<()> {
        let (parent, name) = split(path);
        let above = self.open_folder(parent)?;
        let temporary = self.temporary();
        make(&above, &temporary)?;
        let renamed = renameat(&above, &temporary, &above, name);
        // A rename between two links to one file does nothing, so the temporary one is still there.
        let _ = unlinkat(&above, &temporary, AtFlags::empty());
        renamed.map_err(failed(path))
    }

    /// Whether a link is made; one that is not is reported.
    fn keeps(&mut self, path: &[u8], entry: &Entry) -> bool {
        let kept = self.links == Links::Any || stays(path, &entry.target);
        if !kept && self.left_out.len() < MOST_TOLD {
            self.left_out.push(format!("{} -> {}", shown(path), shown(&entry.target)));
        }
        kept
    }

    fn symlink(&mut self, path: &[u8], entry: &Entry) -> Result<()> {
        let target = entry.target.as_slice();
        if target.is_empty() || target.contains(&0) || target.len() > LONGEST_NAME {
            return Err(wrong(format!("{} leads nowhere", shown(path))));
        }
        let mtime = entry.mtime;
        self.place(path, |above, temporary| {
            symlinkat(target, above, temporary).map_err(failed(path))?;
            // A file system that keeps no times for links keeps none.
            let _ = utimensat(above, temporary, &times(mtime), AtFlags::SYMLINK_NOFOLLOW);
            Ok(())
        })
    }

    fn hard_link(&mut self, path: &[u8], entry: &Entry) -> Result<()> {
        let to = inside(&entry.target)?;
        let (parent, name) = split(&to);
        let refused = || wrong(format!("{} is a hard link to no file of the archive", shown(path)));
        let from = beneath::open(self.folder, parent, FOLDER).map_err(|_| refused())?;
        let stat = statat(&from, name, AtFlags::SYMLINK_NOFOLLOW).map_err(|_| refused())?;
        // A hard link to a symbolic link would be the same link in another place, with another target.
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(refused());
        }
        self.place(path, |above, temporary| {
            linkat(&from, name, above, temporary, AtFlags::empty()).map_err(failed(path))
        })
    }

    /// Gives the folders that were made their modes and times, the innermost first.
    pub(super) fn finish(&mut self) -> Result<()> {
        let mut result = Ok(());
        while let Some((path, FolderState { mode, mtime })) = self.finish.pop_last() {
            let set = beneath::open(self.folder, &path, OFlags::RDONLY | OFlags::DIRECTORY).and_then(|fd| {
                futimens(&fd, &times(mtime))?;
                fchmod(fd.as_fd(), permissions(mode))
            });
            match set {
                // User code may have removed it meanwhile.
                Ok(()) | Err(Errno::NOENT) => {}
                Err(e) => result = Err(failed(&path)(e)),
            }
        }
        result
    }
}

/// Lets the user change what is in a folder that is there.
fn make_writable(above: &OwnedFd, name: &[u8], mode: u32) -> rustix::io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    fchmod(openat(above, name, flags, Mode::empty())?, permissions(mode | 0o700))
}

/// Removes a file, or a folder with all in it. Not an error where there is none.
fn remove_tree(above: &OwnedFd, name: &[u8]) -> rustix::io::Result<()> {
    match unlinkat(above, name, AtFlags::empty()) {
        Err(Errno::ISDIR) => {}
        Err(Errno::NOENT) => return Ok(()),
        other => return other,
    }
    make_writable(above, name, 0)?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = openat(above, name, flags, Mode::empty())?;
    for entry in Dir::read_from(&folder)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if !matches!(name, b"." | b"..") {
            remove_tree(&folder, name)?;
        }
    }
    unlinkat(above, name, AtFlags::REMOVEDIR)
}

fn write_all(file: &OwnedFd, mut bytes: &[u8]) -> rustix::io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::write(file, bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(Errno::INTR) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_that_climb_in_their_middle_do_not_stay() {
        for (path, target) in
            [("a", "b"), ("a/l", "../b"), ("a/b/l", "../../c/d"), ("l", "."), ("l", "a/./b")]
        {
            assert!(stays(path.as_bytes(), target.as_bytes()), "{path} -> {target}");
        }
        for (path, target) in [("l", ".."), ("a/l", "../../b"), ("l", "/b"), ("l", "a/../b"), ("a/l", "b/..")]
        {
            assert!(!stays(path.as_bytes(), target.as_bytes()), "{path} -> {target}");
        }
    }

    #[test]
    fn names_stay_below() {
        assert_eq!(inside(b"./a//b/./c/").unwrap(), b"a/b/c");
        assert_eq!(inside(b"./").unwrap(), b"");
        for bad in [&b"/a"[..], b"..", b"a/../b", b"a\0b", b"//", &[b'a'; 5000]] {
            assert!(inside(bad).is_err(), "{bad:?}");
        }
    }
}
