//! Reads the machine's /etc. Every path is opened without following a link anywhere in it, and a file that is not
//! world-readable is skipped.

use super::allow::{ETC, matches, never};
use super::plan::{Node, Stamp};
use crate::error::failed;
use atoll_types::Result;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, Stat, openat2, readlinkat, statat};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};

const LARGEST_FILE: u64 = 4 << 20;
const LARGEST_IN_ALL: u64 = 64 << 20;
const MOST_ENTRIES: usize = 50_000;
const DEEPEST: usize = 16;
const PRIVATE_KEY: &[u8] = b"PRIVATE KEY-----";

/// Opens a path below a folder, without following links.
pub(super) fn open(root: impl AsFd, path: &str, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let how = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    openat2(root, path, flags | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK, Mode::empty(), how)
}

/// Everything on the list that the machine has, by path.
pub(super) fn etc(root: &OwnedFd) -> Result<BTreeMap<String, Node>> {
    let mut found = Found { root, entries: BTreeMap::new(), bytes: 0 };
    for pattern in ETC {
        let whole = format!("etc/{pattern}");
        let (path, last) = whole.rsplit_once('/').unwrap_or(("etc", pattern));
        let Some(folder) = Folder::open(root, path)? else { continue };
        let names = if last.contains('*') { folder.names()? } else { vec![last.to_owned()] };
        for name in names.iter().filter(|name| matches(last, name)) {
            found.take(&folder, name, 0)?;
        }
    }
    Ok(found.entries)
}

/// The content of a file that the plan names, or nothing if it holds a private key or has changed into
/// something that may not be copied.
pub(super) fn read(root: &OwnedFd, path: &str) -> Result<Option<Vec<u8>>> {
    let Ok(fd) = open(root, path, OFlags::RDONLY) else { return Ok(None) };
    let stat = rustix::fs::fstat(&fd).map_err(failed("look at a file of the machine"))?;
    if !FileType::from_raw_mode(stat.st_mode).is_file() || stat.st_mode & 0o004 == 0 {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    let mut file = std::fs::File::from(fd).take(LARGEST_FILE);
    file.read_to_end(&mut bytes).map_err(failed("read a file of the machine"))?;
    let secret = bytes.windows(PRIVATE_KEY.len()).any(|window| window == PRIVATE_KEY);
    Ok((!secret).then_some(bytes))
}

struct Found<'a> {
    root: &'a OwnedFd,
    entries: BTreeMap<String, Node>,
    bytes: u64,
}

impl Found<'_> {
    fn take(&mut self, folder: &Folder, name: &str, depth: usize) -> Result<()> {
        let path = format!("{}/{name}", folder.path);
        if never(name) || depth > DEEPEST || self.entries.len() >= MOST_ENTRIES {
            return Ok(());
        }
        let Ok(stat) = statat(&folder.fd, name, AtFlags::SYMLINK_NOFOLLOW) else { return Ok(()) };
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => {
                let Some(inside) = Folder::open(self.root, &path)? else { return Ok(()) };
                self.add(&folder.path, path, Node::Directory { mode: 0o755 });
                inside.names()?.iter().try_for_each(|name| self.take(&inside, name, depth + 1))?;
            }
            FileType::RegularFile if stat.st_mode & 0o004 != 0 => self.take_file(&folder.path, path, &stat),
            FileType::Symlink => {
                let target = readlinkat(&folder.fd, name, Vec::new()).map(|target| target.into_string());
                if let Ok(Ok(target)) = target {
                    self.add(&folder.path, path, Node::Link { target });
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn take_file(&mut self, folder: &str, path: String, stat: &Stat) {
        let size = u64::try_from(stat.st_size).unwrap_or(u64::MAX);
        if size > LARGEST_FILE || self.bytes.saturating_add(size) > LARGEST_IN_ALL {
            tracing::warn!(path, size, "too large for the host image");
            return;
        }
        self.bytes += size;
        let stamp = Stamp { size, seconds: stat.st_mtime, nanoseconds: stat.st_mtime_nsec };
        let mode = if stat.st_mode & 0o001 == 0 { 0o644 } else { 0o755 };
        self.add(folder, path, Node::Copy { mode, stamp });
    }

    /// Adds an entry and the directories above it that nothing else brings.
    fn add(&mut self, folder: &str, path: String, node: Node) {
        let ends = folder.match_indices('/').map(|(at, _)| at).chain([folder.len()]);
        for above in ends.map(|end| &folder[..end]).filter(|above| above.contains('/')) {
            self.entries.entry(above.to_owned()).or_insert(Node::Directory { mode: 0o755 });
        }
        self.entries.insert(path, node);
    }
}

/// A directory of the machine that others may list.
struct Folder {
    path: String,
    fd: OwnedFd,
}

impl Folder {
    /// `None` where there is none, or where other users may not read it.
    fn open(root: &OwnedFd, path: &str) -> Result<Option<Self>> {
        let fd = match open(root, path, OFlags::DIRECTORY | OFlags::RDONLY) {
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(None),
            opened => opened.map_err(failed("open a folder of the machine"))?,
        };
        let stat = rustix::fs::fstat(&fd).map_err(failed("look at a folder of the machine"))?;
        Ok((stat.st_mode & 0o005 == 0o005).then(|| Self { path: path.into(), fd }))
    }

    fn names(&self) -> Result<Vec<String>> {
        let mut names = crate::disk::names(&self.fd)?;
        names.sort();
        Ok(names)
    }
}
