//! What differs between two states of a sandbox's folders, as a part of an archive that makes the later one the earlier
//! one: the names of what is to go, in batches, and then every folder, file and link that is to become another.
//!
//! A file is the same where inode, size, mode and times are: btrfs keeps them all in a snapshot, and no program can set a
//! ctime. One that was changed within a tick of the kernel's clock before the earlier state was made is compared byte by
//! byte, and so is one of the same size and time that is another inode, as every file of a copy is.

use super::{
    folders::{BATCH, MOST_ENTRIES, too_many},
    pack::{broken, complete, name_of, pack_item},
    split::part_folder,
    write::{About, Archive},
};
use crate::{
    beneath::{self, FOLDER},
    errno::on_name,
    walk::{Item, Walk},
};
use atoll_types::Result;
use rustix::{
    fs::{AtFlags, FileType, OFlags, Stat, fstat, readlinkat, statat},
    io::Errno,
};
use std::{
    fs::File,
    io::{Read, Write},
    os::fd::OwnedFd,
};
use tar::EntryType;

/// The folder of the lists of what is to go, in the folder of a part.
pub(super) const REMOVED: &[u8] = b"removed";
/// The longest tick of the kernel's clock, twice.
const TICK_MS: i64 = 20;

/// Packs what makes the later folders the earlier ones, which were made at `made_ms`.
pub(super) fn pack_changes(
    later: &[(String, OwnedFd)],
    earlier: &[(String, OwnedFd)],
    number: u32,
    made_ms: i64,
    archive: &mut Archive<impl Write>,
) -> Result<()> {
    let part = part_folder(number);
    archive.part(part.as_bytes()).map_err(broken)?;
    let mut removed = Removed { part: &part, text: Vec::new(), written: 0 };
    for ((name, later), (_, earlier)) in later.iter().zip(earlier) {
        removed.all(name.as_bytes(), later, earlier, archive)?;
    }
    removed.write(archive)?;
    for ((name, later), (_, earlier)) in later.iter().zip(earlier) {
        let prefix = format!("{part}{name}");
        let changes = Changes { later: Lookup::new(later)?, certain_before: made_ms - TICK_MS };
        changes.pack(prefix.as_bytes(), earlier, archive)?;
    }
    Ok(())
}

fn clone(folder: &OwnedFd) -> Result<OwnedFd> {
    folder.try_clone().map_err(broken)
}

/// What an archive holds of it; a device, a FIFO and a socket are as nothing.
fn kind_of(stat: &Stat) -> Option<FileType> {
    let kind = FileType::from_raw_mode(stat.st_mode);
    matches!(kind, FileType::Directory | FileType::RegularFile | FileType::Symlink).then_some(kind)
}

/// Looks for paths in a tree, through no symbolic link.
struct Lookup {
    top: OwnedFd,
    /// The folder of the last path, if there is one.
    last: Option<(Vec<u8>, Option<OwnedFd>)>,
}

impl Lookup {
    fn new(top: &OwnedFd) -> Result<Self> {
        Ok(Self { top: clone(top)?, last: None })
    }

    /// The folder that a path is in, and its name there.
    fn place<'a>(&mut self, path: &'a [u8]) -> Option<(&OwnedFd, &'a [u8])> {
        let at = path.iter().rposition(|b| *b == b'/');
        let (parent, name) = at.map_or((&b""[..], path), |at| (&path[..at], &path[at + 1..]));
        if self.last.as_ref().is_none_or(|(last, _)| last != parent) {
            self.last = Some((parent.to_vec(), beneath::open(&self.top, parent, FOLDER).ok()));
        }
        self.last.as_ref()?.1.as_ref().map(|folder| (folder, name))
    }

    fn stat(&mut self, path: &[u8]) -> Option<Stat> {
        let (folder, name) = self.place(path)?;
        statat(folder, name, AtFlags::SYMLINK_NOFOLLOW).ok().filter(|stat| kind_of(stat).is_some())
    }
}

/// The names of what is to go.
struct Removed<'a> {
    part: &'a str,
    text: Vec<u8>,
    written: u32,
}

impl Removed<'_> {
    /// Lists what the later folder has and the earlier one has not, and what is a folder in one of the two alone.
    fn all(
        &mut self,
        name: &[u8],
        later: &OwnedFd,
        earlier: &OwnedFd,
        archive: &mut Archive<impl Write>,
    ) -> Result<()> {
        let mut earlier = Lookup::new(earlier)?;
        let mut walk = Walk::new(clone(later)?, u32::MAX).stored_only();
        while let Some(item) = walk.next() {
            complete(&walk, name)?;
            let is_folder = |stat: &Stat| kind_of(stat) == Some(FileType::Directory);
            let stays = earlier.stat(&item.path).is_some_and(|was| is_folder(&was) == is_folder(&item.stat));
            if stays || kind_of(&item.stat).is_none() {
                continue;
            }
            if is_folder(&item.stat) {
                walk.stay_out();
            }
            self.text.extend(name_of(name, &item.path, false));
            self.text.push(0);
            if self.text.len() > BATCH {
                self.write(archive)?;
            }
        }
        complete(&walk, name)
    }

    fn write(&mut self, archive: &mut Archive<impl Write>) -> Result<()> {
        if self.text.is_empty() {
            return Ok(());
        }
        self.written += 1;
        let name = [self.part.as_bytes(), REMOVED, format!("/{:06}", self.written).as_bytes()].concat();
        archive.list(&name, &std::mem::take(&mut self.text)).map_err(broken)
    }
}

struct Changes {
    later: Lookup,
    /// A file with a ctime after this may differ although its times do not.
    certain_before: i64,
}

impl Changes {
    /// Packs all that is not in the later folder as it is in the earlier one. The folders above it go before it, so that
    /// they are as they were when it is unpacked.
    fn pack(mut self, prefix: &[u8], earlier: &OwnedFd, archive: &mut Archive<impl Write>) -> Result<()> {
        let mut walk = Walk::new(clone(earlier)?, u32::MAX).stored_only();
        let mut above = vec![(Vec::new(), fstat(earlier).map_err(|e| on_name(e, prefix))?)];
        while let Some(item) = walk.next() {
            complete(&walk, prefix)?;
            above.retain(|(folder, _)| contains(folder, &item.path));
            if kind_of(&item.stat).is_none() {
                continue;
            }
            if self.is_same(&walk, &item)? {
                if item.kind() == FileType::Directory {
                    above.push((item.path, item.stat));
                }
                continue;
            }
            for (path, stat) in above.drain(..) {
                let about = About { kind: EntryType::Directory, stat: &stat, size: 0 };
                archive.head(&name_of(prefix, &path, true), b"", &about).map_err(broken)?;
            }
            pack_item(&walk, &item, prefix, archive)?;
            if archive.is_full() {
                return Err(too_many(MOST_ENTRIES));
            }
        }
        complete(&walk, prefix)
    }

    /// Whether the later folder has the same in the same place, as far as an archive tells.
    fn is_same(&mut self, walk: &Walk, item: &Item) -> Result<bool> {
        let Some(later) = self.later.stat(&item.path) else { return Ok(false) };
        let shape = |stat: &Stat| (kind_of(stat), stat.st_mode & 0o777, stat.st_mtime);
        if shape(&later) != shape(&item.stat) {
            return Ok(false);
        }
        let failed = |errno: Errno| on_name(errno, &item.path);
        match item.kind() {
            FileType::Symlink => {
                let was = readlinkat(walk.top(), &item.path, Vec::new()).map_err(failed)?;
                let is =
                    self.later.place(&item.path).map(|(folder, name)| readlinkat(folder, name, Vec::new()));
                Ok(is.is_some_and(|is| is.is_ok_and(|is| is == was)))
            }
            FileType::RegularFile if later.st_size != item.stat.st_size => Ok(false),
            FileType::RegularFile if untouched(&later, &item.stat, self.certain_before) => Ok(true),
            FileType::RegularFile => {
                let open = |top| beneath::open(top, &item.path, OFlags::RDONLY | OFlags::NONBLOCK);
                // One that the user may not read cannot be compared, and is packed.
                let Ok(is) = open(&self.later.top) else { return Ok(false) };
                let was = open(walk.top()).map_err(failed)?;
                same_content(File::from(is), File::from(was)).map_err(broken)
            }
            _ => Ok(true),
        }
    }
}

fn contains(folder: &[u8], path: &[u8]) -> bool {
    folder.is_empty() || path.strip_prefix(folder).is_some_and(|rest| rest.first() == Some(&b'/'))
}

fn untouched(a: &Stat, b: &Stat, certain_before: i64) -> bool {
    let of =
        |s: &Stat| (s.st_ino, s.st_size, s.st_mode, s.st_ctime, s.st_ctime_nsec, s.st_mtime, s.st_mtime_nsec);
    let changed_ms = b.st_ctime.saturating_mul(1000).saturating_add((b.st_ctime_nsec / 1_000_000) as i64);
    of(a) == of(b) && changed_ms < certain_before
}

fn same_content(mut a: File, mut b: File) -> std::io::Result<bool> {
    let (mut left, mut right) = (vec![0; 64 << 10], vec![0; 64 << 10]);
    loop {
        let (read, also) = (fill(&mut a, &mut left)?, fill(&mut b, &mut right)?);
        if left[..read] != right[..also] {
            return Ok(false);
        }
        if read < left.len() {
            return Ok(true);
        }
    }
}

/// Reads until the buffer is full or the file ends.
fn fill(file: &mut impl Read, buffer: &mut [u8]) -> std::io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(filled)
}
