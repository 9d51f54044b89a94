//! The observer of every other file system: it compares scans. A scan is kept for every watched folder, about 200
//! bytes a file, and a request costs another scan: some 4 µs a file while the kernel has it in memory, so 0.4 s
//! at 100,000 files. A change that leaves no trace in a file's inode, size, owner, mode and times is not found;
//! user code cannot set the ctime, so there is none.

use crate::{
    change::{Changes, Ledger, join},
    found::{self, Found},
    mapped::mapped,
    tree::open_dir,
};
use rustix::{
    fd::{AsFd, OwnedFd},
    fs::{Dir, Mode, OFlags, ResolveFlags, openat2},
    io::Errno,
};
use std::{
    collections::{HashMap, HashSet, hash_map::Entry},
    io,
    path::{Path, PathBuf},
};

/// Further files are not kept.
const MOST: usize = 1_000_000;

/// What a folder held.
#[derive(Default)]
struct Scan {
    files: HashMap<Vec<u8>, Found>,
    /// A part of the folder was not scanned.
    lost: bool,
}

/// Finds changes by comparing scans.
#[derive(Default)]
pub struct Scanner {
    scans: HashMap<(PathBuf, String), Scan>,
}

impl Scanner {
    /// Nothing is watched yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Scans a folder of a tree. Not an error if it is watched.
    pub fn watch(&mut self, tree: &Path, folder: &str) -> io::Result<()> {
        let key = (tree.to_owned(), folder.to_owned());
        if let Entry::Vacant(place) = self.scans.entry(key) {
            place.insert(scan(&open_dir(&tree.join(folder))?));
        }
        Ok(())
    }

    /// Forgets a tree with all its folders.
    pub fn forget(&mut self, tree: &Path) {
        self.scans.retain(|(path, _), _| path != tree);
    }

    /// What changed below a folder of a tree since the last call or since [`Scanner::watch`]. As
    /// [`crate::Observer::take`], but a new link to a file counts as a change of it.
    pub fn take(&mut self, tree: &Path, folder: &str, processes: &[i32]) -> io::Result<Changes> {
        let top = open_dir(&tree.join(folder))?;
        let device = found::look(&top, b"")?.ok_or(Errno::NOENT)?.device;
        let mapped = mapped(processes, device);
        let surely: HashSet<u64> = mapped.files.iter().filter(|file| file.1).map(|file| file.0).collect();
        let now = scan(&top);
        let key = (tree.to_owned(), folder.to_owned());
        let Some(old) = self.scans.get(&key) else {
            self.scans.insert(key, now);
            return Ok(Changes::unknown());
        };
        let mut ledger = Ledger::new("", usize::MAX);
        for path in old.files.keys().filter(|path| !now.files.contains_key(*path)) {
            ledger.before(b"", path);
        }
        for (path, found) in &now.files {
            match old.files.get(path) {
                Some(before) if !differs(before, found) && !surely.contains(&found.inode) => continue,
                Some(_) => ledger.before(b"", path),
                None => {}
            }
            ledger.after(b"", path, found);
        }
        let lost = old.lost || now.lost || mapped.lost;
        self.scans.insert(key, now);
        Ok(ledger.close(lost))
    }
}

/// Every field but the number of links, which the ctime covers.
fn differs(before: &Found, now: &Found) -> bool {
    let Found { device, inode, size, links: _, mode, owner, modified, changed, born: _, kind, is_dir: _ } =
        now;
    let other = (device, inode, size, mode, owner, modified, changed, kind);
    let Found { device, inode, size, links: _, mode, owner, modified, changed, born: _, kind, is_dir: _ } =
        before;
    other != (device, inode, size, mode, owner, modified, changed, kind)
}

fn scan(top: &OwnedFd) -> Scan {
    let mut scan = Scan::default();
    let mut todo = vec![Vec::new()];
    while let Some(dir) = todo.pop() {
        match scan.folder(top, &dir, &mut todo) {
            Ok(()) | Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV) => {}
            Err(_) => scan.lost = true,
        }
    }
    scan
}

impl Scan {
    fn folder(&mut self, top: &OwnedFd, path: &[u8], todo: &mut Vec<Vec<u8>>) -> Result<(), Errno> {
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOATIME | OFlags::NOFOLLOW;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
        let at = if path.is_empty() { b".".as_slice() } else { path };
        let dir = openat2(top, at, flags, Mode::empty(), resolve)?;
        for entry in Dir::read_from(dir.as_fd())? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            if self.files.len() + todo.len() >= MOST {
                self.lost = true;
                return Ok(());
            }
            match found::look(&dir, name)? {
                Some(found) if found.is_dir => todo.push(join(path, name)),
                Some(found) if found.kind.is_some() => _ = self.files.insert(join(path, name), found),
                _ => {}
            }
        }
        Ok(())
    }
}
