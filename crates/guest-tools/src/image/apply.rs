//! Applies one layer onto a folder that has the layers below it, as umoci does: an entry replaces what has its name unless
//! both are folders; a whiteout removes what lower layers left and nothing of its own; a folder that a layer changes without
//! naming it keeps its time.

use super::{
    decode::Decoded,
    folder::{Folder, Written, io_error, list, remove, resolve},
};
use crate::{
    AppliedLayer, Compression, DEEPEST_ENTRY, ID_LIMIT, ImageLimits, LONGEST_ENTRY, LONGEST_NAME, LeftOut,
    archive::read::{Entries, Entry, broke_off, wrong},
    beneath::{self, names},
    errno::{on_name, shown},
};
use atoll_types::{Error, ErrorCode, Result};
use rustix::{
    fs::{
        AtFlags, FileType, Gid, Mode, OFlags, Stat, Timespec, Timestamps, UTIME_OMIT, Uid, XattrFlags,
        chmodat, chownat, fchmod, fchown, flistxattr, fremovexattr, fsetxattr, fstat, futimens, linkat,
        mkdirat, mknodat, openat, statat, symlinkat, utimensat,
    },
    io::Errno,
};
use std::{
    collections::HashMap,
    fs::File,
    io::{self, Read},
    os::{
        fd::{AsFd, OwnedFd},
        unix::fs::FileExt,
    },
    rc::Rc,
};
use tar::EntryType;

const WHITEOUT: &[u8] = b".wh.";
const OPAQUE: &[u8] = b".wh..opq";
/// Folders whose times are set at the end.
const MOST_FOLDERS: usize = 1_000_000;
const BUFFER: usize = 128 << 10;

/// How a layer comes.
#[derive(Debug, Clone, Copy, Default)]
pub struct LayerOptions {
    /// How it is compressed.
    pub compression: Compression,
    /// What it may hold.
    pub limits: ImageLimits,
    /// Whether it must have the end mark of an archive: nothing else says that it is whole.
    pub needs_end: bool,
    /// Whether it is an ordinary archive, in which no name is a whiteout.
    pub plain: bool,
}

/// Applies a layer to an open folder.
pub fn apply_layer(root: &OwnedFd, input: impl Read, options: &LayerOptions) -> Result<AppliedLayer> {
    let decoded = Decoded::new(input, options.compression, options.limits).map_err(|e| broke_off(&e))?;
    let mut entries = Entries::new(decoded).of_image(!options.needs_end);
    let mut layer = Layer::new(root, options)?;
    layer.all(&mut entries)?;
    layer.finish()?;
    let Layer { count, left_out, .. } = layer;
    let mut decoded = entries.into_input();
    // What follows the end mark belongs to the digest.
    io::copy(&mut decoded, &mut io::sink()).map_err(|e| broke_off(&e))?;
    let (bytes, compression) = (decoded.count, decoded.compression);
    let (digest, diff_id) = decoded.finish().map_err(|e| broke_off(&e))?;
    Ok(AppliedLayer { digest, diff_id, compression, entries: count, bytes, left_out })
}

type Moment = (i64, u32);

struct Layer<'a> {
    root: &'a OwnedFd,
    limits: ImageLimits,
    plain: bool,
    count: u64,
    left_out: LeftOut,
    /// None where nothing lies below this layer, and so nothing can be whited out.
    written: Option<Written>,
    /// Times that folders get at the end.
    times: HashMap<Vec<u8>, Moment>,
    /// The folder of the last entry, by its name in the archive.
    last: Option<(Vec<u8>, Rc<Folder>)>,
    buffer: Vec<u8>,
}

/// A name of a layer as one below the root. A slash in front means the root, as everywhere in an image.
fn inside(name: &[u8]) -> Result<Vec<u8>> {
    let refused = |why: &str| Err(wrong(format!("{} {why}", shown(name))));
    let parts: Vec<&[u8]> = names(name).collect();
    if name.contains(&0) || parts.iter().any(|part| part.len() > LONGEST_NAME) || name.len() > LONGEST_ENTRY {
        return refused("cannot be a name");
    }
    if parts.contains(&&b".."[..]) {
        return refused("leads out of the image");
    }
    if parts.len() > DEEPEST_ENTRY {
        return refused("lies too deep");
    }
    Ok(parts.join(&b'/'))
}

fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|b| *b == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (b"", path),
    }
}

fn failed(path: &[u8]) -> impl Fn(Errno) -> Error + '_ {
    move |errno| on_name(errno, path)
}

fn times((seconds, nanoseconds): Moment) -> Timestamps {
    Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        last_modification: Timespec { tv_sec: seconds, tv_nsec: nanoseconds.into() },
    }
}

fn moment_of(stat: &Stat) -> Moment {
    (stat.st_mtime, u32::try_from(stat.st_mtime_nsec).unwrap_or(0))
}

fn mode_of(entry: &Entry) -> Mode {
    Mode::from_raw_mode(entry.mode & 0o7777)
}

fn owner_of(entry: &Entry) -> Result<(Option<Uid>, Option<Gid>)> {
    let id = |what: &str, id: u64| match u32::try_from(id) {
        Ok(small) if id < ID_LIMIT => Ok(small),
        _ => Err(wrong(format!(
            "{} belongs to {what} {id}, and files of an image have ids below {ID_LIMIT}",
            shown(&entry.name)
        ))),
    };
    Ok((Some(Uid::from_raw(id("user", entry.uid)?)), Some(Gid::from_raw(id("group", entry.gid)?))))
}

/// Whether an image's file may have an extended attribute: others belong to the machine that made the archive.
pub(super) fn is_kept(name: &[u8]) -> bool {
    (name.starts_with(b"user.") && name.len() > 5 && name.len() <= LONGEST_NAME)
        || name == b"security.capability"
}

impl<'a> Layer<'a> {
    fn new(root: &'a OwnedFd, options: &LayerOptions) -> Result<Self> {
        let empty = list(root).map_err(failed(b""))?.is_empty();
        Ok(Self {
            root,
            limits: options.limits,
            plain: options.plain,
            count: 0,
            left_out: LeftOut::default(),
            written: (!empty).then(Written::new),
            times: HashMap::new(),
            last: None,
            buffer: vec![0; BUFFER],
        })
    }

    fn all(&mut self, entries: &mut Entries<impl Read>) -> Result<()> {
        while let Some(entry) = entries.next_entry()? {
            self.count += 1;
            if self.count > self.limits.entries {
                let message = format!("the layers have more than {} entries", self.limits.entries);
                return Err(Error::new(ErrorCode::TooLarge, message));
            }
            self.entry(&entry, entries)?;
        }
        Ok(())
    }

    fn entry(&mut self, entry: &Entry, entries: &mut Entries<impl Read>) -> Result<()> {
        let path = inside(&entry.name)?;
        let (above, name) = split(&path);
        if !self.plain {
            if names(&path).any(|part| part.starts_with(b".wh..wh.") && part != b".wh..wh..opq") {
                self.left_out.notes += 1;
                return Ok(());
            }
            if names(above).any(|part| part.starts_with(WHITEOUT)) {
                return Err(wrong(format!("{} lies below a whiteout", shown(&path))));
            }
            if let Some(hidden) = name.strip_prefix(WHITEOUT) {
                return self.whiteout(above, hidden, &path);
            }
        }
        let folder = match entry.kind {
            EntryType::Directory => true,
            // As archives from before there were types say it.
            EntryType::Regular | EntryType::Continuous => entry.name.ends_with(b"/") && entry.size == 0,
            _ => false,
        };
        if path.is_empty() {
            return if folder {
                self.set_folder(b"", entry, true)
            } else {
                Err(wrong("the root of the layer is no folder"))
            };
        }
        match entry.kind {
            _ if folder => self.folder(&path, entry),
            EntryType::Regular | EntryType::Continuous => self.file(&path, entry, entries),
            EntryType::Symlink => self.symlink(&path, entry),
            EntryType::Link => self.hard_link(&path, entry),
            EntryType::Fifo => self.fifo(&path, entry),
            EntryType::Char | EntryType::Block if names(&path).next() == Some(b"dev") => {
                self.left_out.devices += 1;
                Ok(())
            }
            EntryType::Char | EntryType::Block => Err(wrong(format!("{} is a device", shown(&path)))),
            _ => Err(wrong(format!("{} is of an unknown kind", shown(&path)))),
        }
    }

    /// The folder of a path as the archive names it; where it is missing it is made, with the time of the entry.
    fn open(&mut self, path: &[u8], make: Option<Moment>) -> Result<Option<Rc<Folder>>> {
        if let Some((last, folder)) = &self.last
            && last == path
        {
            return Ok(Some(Rc::clone(folder)));
        }
        let Some(resolved) = resolve(self.root, path, make.is_some())? else { return Ok(None) };
        for made in resolved.made {
            chmodat(self.root, &*made, Mode::from_raw_mode(0o755), AtFlags::empty())
                .map_err(failed(&made))?;
            if let Some(moment) = make {
                self.keep_time(made, || Ok(moment))?;
            }
        }
        let folder = Rc::new(resolved.folder);
        self.keep_time(folder.path.clone(), || {
            fstat(&folder.fd).map(|stat| moment_of(&stat)).map_err(failed(path))
        })?;
        // With a link on the way, an entry could change where it leads.
        self.last = (folder.path == path).then(|| (path.to_vec(), Rc::clone(&folder)));
        Ok(Some(folder))
    }

    /// Remembers the time that a folder gets at the end, unless it has one.
    fn keep_time(&mut self, path: Vec<u8>, moment: impl FnOnce() -> Result<Moment>) -> Result<()> {
        if !self.times.contains_key(&path) {
            if self.times.len() >= MOST_FOLDERS {
                return Err(Error::new(ErrorCode::TooLarge, "the layer has too many folders"));
            }
            let moment = moment()?;
            self.times.insert(path, moment);
        }
        Ok(())
    }

    /// The open folder of an entry, and the entry's name in it.
    fn parent<'p>(&mut self, path: &'p [u8], entry: &Entry) -> Result<(Rc<Folder>, &'p [u8])> {
        let (above, name) = split(path);
        let folder = self.open(above, Some((entry.mtime, entry.nanoseconds)))?;
        let folder = folder.ok_or_else(|| Error::internal(format!("{} was not made", shown(above))))?;
        if let Some(written) = &mut self.written {
            written.add(&folder.below(name));
        }
        Ok((folder, name))
    }

    /// Removes what has the name of a new entry.
    fn clear(folder: &Folder, name: &[u8]) -> Result<()> {
        remove(&folder.fd, name, b"", None).map_err(failed(&folder.below(name)))
    }

    fn folder(&mut self, path: &[u8], entry: &Entry) -> Result<()> {
        let (folder, name) = self.parent(path, entry)?;
        let real = folder.below(name);
        let there = match statat(&folder.fd, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Directory => true,
            Ok(_) => {
                Self::clear(&folder, name)?;
                false
            }
            Err(Errno::NOENT) => false,
            Err(e) => return Err(failed(&real)(e)),
        };
        if !there {
            mkdirat(&folder.fd, name, Mode::from_raw_mode(0o700)).map_err(failed(&real))?;
        }
        self.set_folder(&real, entry, there)
    }

    /// Gives a folder what its entry says.
    fn set_folder(&mut self, real: &[u8], entry: &Entry, there: bool) -> Result<()> {
        let fd = beneath::open(self.root, real, OFlags::RDONLY | OFlags::DIRECTORY).map_err(failed(real))?;
        let (user, group) = owner_of(entry)?;
        fchown(&fd, user, group).map_err(failed(real))?;
        fchmod(&fd, mode_of(entry)).map_err(failed(real))?;
        if there {
            for name in xattr_names(&fd).map_err(failed(real))? {
                if is_kept(&name) {
                    fremovexattr(&fd, &*name).map_err(failed(real))?;
                }
            }
        }
        self.set_xattrs(&fd, real, entry)?;
        self.keep_time(real.to_vec(), || Ok((0, 0)))?;
        self.times.insert(real.to_vec(), (entry.mtime, entry.nanoseconds));
        Ok(())
    }

    fn set_xattrs(&mut self, file: &OwnedFd, path: &[u8], entry: &Entry) -> Result<()> {
        for (name, value) in &entry.xattrs {
            let set = match is_kept(name) && !name.contains(&0) {
                true => fsetxattr(file, name.as_slice(), value, XattrFlags::empty()),
                false => Err(Errno::OPNOTSUPP),
            };
            match set {
                Ok(()) => {}
                Err(Errno::OPNOTSUPP | Errno::PERM) => self.left_out.xattrs += 1,
                Err(e) => return Err(failed(path)(e)),
            }
        }
        Ok(())
    }

    fn file(&mut self, path: &[u8], entry: &Entry, entries: &mut Entries<impl Read>) -> Result<()> {
        let (user, group) = owner_of(entry)?;
        let (folder, name) = self.parent(path, entry)?;
        Self::clear(&folder, name)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = openat(&folder.fd, name, flags, Mode::from_raw_mode(0o600)).map_err(failed(path))?;
        let file = File::from(fd);
        self.fill(&file, path, entry, entries)?;
        let fd = OwnedFd::from(file);
        fchown(&fd, user, group).map_err(failed(path))?;
        // A change of the owner takes the set-uid bits and capabilities away, so these come after it.
        fchmod(&fd, mode_of(entry)).map_err(failed(path))?;
        self.set_xattrs(&fd, path, entry)?;
        futimens(&fd, &times((entry.mtime, entry.nanoseconds))).map_err(failed(path))
    }

    fn fill(
        &mut self,
        file: &File,
        path: &[u8],
        entry: &Entry,
        entries: &mut Entries<impl Read>,
    ) -> Result<()> {
        let whole = [(0, entry.size)];
        let pieces = entry.sparse.as_ref().map_or(&whole[..], |map| &map.pieces);
        for (offset, length) in pieces {
            let (mut at, end) = (*offset, offset + length);
            while at < end {
                let most = usize::try_from(end - at).unwrap_or(usize::MAX).min(self.buffer.len());
                let got = match entries.read(&mut self.buffer[..most]) {
                    Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                    other => other.map_err(|e| broke_off(&e).context(shown(path)))?,
                };
                file.write_all_at(&self.buffer[..got], at).map_err(|e| io_error(&e, path))?;
                at += got as u64;
            }
        }
        match &entry.sparse {
            Some(map) if map.size > self.limits.bytes => {
                let message = format!("{} has more than {} bytes", shown(path), self.limits.bytes);
                Err(Error::new(ErrorCode::TooLarge, message))
            }
            Some(map) => file.set_len(map.size).map_err(|e| io_error(&e, path)),
            None => Ok(()),
        }
    }

    fn symlink(&mut self, path: &[u8], entry: &Entry) -> Result<()> {
        let target = entry.target.as_slice();
        if target.is_empty() || target.contains(&0) || target.len() > LONGEST_ENTRY {
            return Err(wrong(format!("{} leads nowhere", shown(path))));
        }
        let (folder, name) = self.parent(path, entry)?;
        Self::clear(&folder, name)?;
        symlinkat(target, &folder.fd, name).map_err(failed(path))?;
        self.set_special(&folder, name, path, entry)
    }

    fn fifo(&mut self, path: &[u8], entry: &Entry) -> Result<()> {
        let (folder, name) = self.parent(path, entry)?;
        Self::clear(&folder, name)?;
        mknodat(&folder.fd, name, FileType::Fifo, Mode::from_raw_mode(0o600), 0).map_err(failed(path))?;
        self.set_special(&folder, name, path, entry)?;
        chmodat(&folder.fd, name, mode_of(entry), AtFlags::empty()).map_err(failed(path))
    }

    /// Gives a link or a FIFO its owner and time; neither can have attributes of a user.
    fn set_special(&mut self, folder: &Folder, name: &[u8], path: &[u8], entry: &Entry) -> Result<()> {
        let (user, group) = owner_of(entry)?;
        let no_follow = AtFlags::SYMLINK_NOFOLLOW;
        chownat(&folder.fd, name, user, group, no_follow).map_err(failed(path))?;
        let moment = times((entry.mtime, entry.nanoseconds));
        utimensat(&folder.fd, name, &moment, no_follow).map_err(failed(path))?;
        self.left_out.xattrs += entry.xattrs.len() as u64;
        Ok(())
    }

    fn hard_link(&mut self, path: &[u8], entry: &Entry) -> Result<()> {
        let refused = || wrong(format!("{} is a hard link to no file of the image", shown(path)));
        let target = inside(&entry.target).map_err(|_| refused())?;
        let (above, to) = split(&target);
        let from = self.open(above, None)?.ok_or_else(refused)?;
        let stat = statat(&from.fd, to, AtFlags::SYMLINK_NOFOLLOW).map_err(|_| refused())?;
        if to.is_empty() || FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
            return Err(refused());
        }
        let (folder, name) = self.parent(path, entry)?;
        if folder.below(name) == from.below(to) {
            return Ok(());
        }
        Self::clear(&folder, name)?;
        linkat(&from.fd, to, &folder.fd, name, AtFlags::empty()).map_err(failed(path))
    }

    fn whiteout(&mut self, above: &[u8], hidden: &[u8], path: &[u8]) -> Result<()> {
        let opaque = hidden == OPAQUE;
        if !opaque && matches!(hidden, b"" | b"." | b"..") {
            return Err(wrong(format!("{} hides no entry of its folder", shown(path))));
        }
        if self.written.is_none() {
            return Ok(());
        }
        let Some(folder) = self.open(above, None)? else { return Ok(()) };
        let gone = match opaque {
            true => list(&folder.fd).map_err(failed(above))?,
            false => vec![hidden.to_vec()],
        };
        for name in gone {
            let real = folder.below(&name);
            remove(&folder.fd, &name, &real, self.written.as_ref()).map_err(failed(&real))?;
        }
        Ok(())
    }

    /// Gives the folders their times.
    fn finish(&mut self) -> Result<()> {
        for (path, moment) in std::mem::take(&mut self.times) {
            let set = beneath::open(self.root, &path, OFlags::RDONLY | OFlags::DIRECTORY)
                .and_then(|fd| futimens(fd.as_fd(), &times(moment)));
            match set {
                // It was replaced or hidden after it was written.
                Ok(()) | Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
                Err(e) => return Err(failed(&path)(e)),
            }
        }
        Ok(())
    }
}

/// The names of a file's extended attributes, in their order.
pub(super) fn xattr_names(file: &OwnedFd) -> rustix::io::Result<Vec<Vec<u8>>> {
    let mut buffer = vec![0; 64 << 10];
    let length = match flistxattr(file, buffer.as_mut_slice()) {
        Err(Errno::OPNOTSUPP) => 0,
        other => other?,
    };
    let mut names: Vec<Vec<u8>> =
        buffer[..length].split(|b| *b == 0).filter(|name| !name.is_empty()).map(<[u8]>::to_vec).collect();
    names.sort_unstable();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_in_the_image() {
        assert_eq!(inside(b"./a//b/./c/").unwrap(), b"a/b/c");
        assert_eq!(inside(b"/a/b").unwrap(), b"a/b");
        assert_eq!(inside(b"./").unwrap(), b"");
        let deep = "d/".repeat(DEEPEST_ENTRY + 1);
        for bad in [&b".."[..], b"a/../b", b"/..", b"a\0b", &[b'a'; 256], deep.as_bytes()] {
            assert!(inside(bad).is_err(), "{bad:?}");
        }
    }
}
