//! Folders of an image while a layer is applied. A name is resolved as the kernel would inside of the image: links are
//! followed within the root, `..` stops at it. Each step opens one name without following it, so that no link leads out.

use crate::{
    DEEPEST_ENTRY,
    archive::read::wrong,
    beneath::{FOLDER, names},
    errno::{on_name, shown},
};
use atoll_types::{Error, Result};
use rustix::{
    fs::{AtFlags, Dir, Mode, OFlags, mkdirat, openat, readlinkat, unlinkat},
    io::Errno,
};
use std::{
    collections::{HashSet, VecDeque},
    hash::{BuildHasher, RandomState},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

/// Links on the way to one entry.
const MOST_LINKS: usize = 64;

/// An open folder, and its path in the image without links.
pub(super) struct Folder {
    pub(super) fd: OwnedFd,
    pub(super) path: Vec<u8>,
}

impl Folder {
    pub(super) fn below(&self, name: &[u8]) -> Vec<u8> {
        join(&self.path, name)
    }
}

pub(super) fn join(folder: &[u8], name: &[u8]) -> Vec<u8> {
    if folder.is_empty() { name.to_vec() } else { [folder, b"/", name].concat() }
}

/// The paths that this layer wrote, and the folders above them, as keyed hashes: a whiteout leaves these alone. An image's
/// author does not know the key.
pub(super) struct Written {
    key: RandomState,
    paths: HashSet<u64>,
}

impl Written {
    pub(super) fn new() -> Self {
        Self { key: RandomState::new(), paths: HashSet::new() }
    }

    pub(super) fn add(&mut self, mut path: &[u8]) {
        while self.paths.insert(self.key.hash_one(path)) && !path.is_empty() {
            path = path.iter().rposition(|b| *b == b'/').map_or(b"", |at| &path[..at]);
        }
    }

    fn has(&self, path: &[u8]) -> bool {
        self.paths.contains(&self.key.hash_one(path))
    }
}

/// What resolving a path met.
pub(super) struct Resolved {
    pub(super) folder: Folder,
    /// Folders that were made on the way.
    pub(super) made: Vec<Vec<u8>>,
}

/// Opens the folder of a path. Missing ones are made where `make` says so; otherwise none is the answer.
pub(super) fn resolve(root: &OwnedFd, path: &[u8], make: bool) -> Result<Option<Resolved>> {
    let mut todo: VecDeque<Vec<u8>> = names(path).map(<[u8]>::to_vec).collect();
    let mut above: Vec<(OwnedFd, Vec<u8>)> = Vec::new();
    let (mut links, mut made) = (0, Vec::new());
    while let Some(name) = todo.pop_front() {
        if name == b".." {
            above.pop();
            continue;
        }
        if above.len() >= DEEPEST_ENTRY {
            return Err(wrong(format!("{} lies too deep", shown(path))));
        }
        let at: BorrowedFd<'_> = above.last().map_or(root.as_fd(), |(fd, _)| fd.as_fd());
        let real = join(above.last().map_or(b"", |(_, path)| path), &name);
        let opened = match openat(at, &*name, FOLDER | OFlags::NOFOLLOW, Mode::empty()) {
            Err(Errno::NOENT) if make => {
                mkdirat(at, &*name, Mode::from_raw_mode(0o755)).map_err(|e| on_name(e, &real))?;
                made.push(real.clone());
                openat(at, &*name, FOLDER | OFlags::NOFOLLOW, Mode::empty())
            }
            other => other,
        };
        match opened {
            Ok(fd) => above.push((fd, real)),
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::NOTDIR | Errno::LOOP) => {
                let target = match readlinkat(at, &*name, Vec::new()) {
                    Err(Errno::INVAL) => {
                        return Err(wrong(format!(
                            "{} lies below {}, which is no folder",
                            shown(path),
                            shown(&real)
                        )));
                    }
                    other => other.map_err(|e| on_name(e, &real))?.into_bytes(),
                };
                links += 1;
                if links > MOST_LINKS {
                    return Err(wrong(format!("{} goes through too many symbolic links", shown(path))));
                }
                if target.first() == Some(&b'/') {
                    above.clear();
                }
                for part in names(&target).map(<[u8]>::to_vec).collect::<Vec<_>>().into_iter().rev() {
                    todo.push_front(part);
                }
            }
            Err(e) => return Err(on_name(e, &real)),
        }
    }
    let (fd, path) = match above.pop() {
        Some(last) => last,
        None => (root.try_clone().map_err(|e| io_error(&e, path))?, Vec::new()),
    };
    Ok(Some(Resolved { folder: Folder { fd, path }, made }))
}

pub(super) fn io_error(error: &std::io::Error, path: &[u8]) -> Error {
    on_name(Errno::from_io_error(error).unwrap_or(Errno::IO), path)
}

/// The names in a folder.
pub(super) fn list(folder: &OwnedFd) -> rustix::io::Result<Vec<Vec<u8>>> {
    let mut found = Vec::new();
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    for entry in Dir::new(openat(folder, ".", flags, Mode::empty())?)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if !matches!(name, b"." | b"..") {
            found.push(name.to_vec());
        }
    }
    Ok(found)
}

/// Removes an entry and all below it, but for what this layer wrote, where that is given. Folders are at most
/// [`DEEPEST_ENTRY`] deep, and so is this recursion.
pub(super) fn remove(
    above: &OwnedFd,
    name: &[u8],
    path: &[u8],
    written: Option<&Written>,
) -> rustix::io::Result<()> {
    let stays = written.is_some_and(|written| written.has(path));
    if !stays {
        match unlinkat(above, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => return Ok(()),
            Err(Errno::ISDIR | Errno::PERM) => {}
            Err(e) => return Err(e),
        }
    }
    let folder = match openat(above, name, FOLDER | OFlags::NOFOLLOW, Mode::empty()) {
        Err(Errno::NOTDIR | Errno::NOENT | Errno::LOOP) => return Ok(()),
        other => other?,
    };
    for child in list(&folder)? {
        // Whatever this layer wrote below a folder made that folder its own too.
        remove(&folder, &child, &join(path, &child), written.filter(|_| stays))?;
    }
    if stays { Ok(()) } else { unlinkat(above, name, AtFlags::REMOVEDIR) }
}
