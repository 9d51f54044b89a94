//! The observer of every other file system: it compares scans. What a scan found is kept for every watched tree,
//! about 200 bytes a file, and a request costs another scan: some 4 µs a file while the kernel has it in memory,
//! so 0.4 s at 100,000 files. Scans run in slices and take turns, so that a large tree delays no other. A change
//! that leaves no trace in a file's inode, size, owner, mode and times is not found; user code cannot set the
//! ctime, so there is none.

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
    collections::{HashMap, HashSet, VecDeque, hash_map::Entry},
    io,
    path::{Path, PathBuf},
};

/// Further files are not kept.
const MOST: usize = 1_000_000;

type Files = HashMap<Vec<u8>, Found>;

/// What a scan found.
struct Known {
    files: Files,
    /// A part of the folder was not scanned.
    lost: bool,
}

/// Finds changes below one folder of every watched tree, by comparing scans.
pub struct Scanner {
    folder: String,
    entries: usize,
    known: HashMap<PathBuf, Known>,
    /// The scans in progress; it is the first one's turn.
    running: VecDeque<Scan>,
}

impl Scanner {
    /// Nothing is watched yet. An answer has at most so many entries.
    #[must_use]
    pub fn new(folder: &str, entries: usize) -> Self {
        Self { folder: folder.to_owned(), entries, known: HashMap::new(), running: VecDeque::new() }
    }

    /// Whether a scan of a tree is complete, with which the next one is compared.
    #[must_use]
    pub fn is_watched(&self, tree: &Path) -> bool {
        self.known.contains_key(tree)
    }

    /// Begins a scan of a tree, of which none is in progress. `processes` are the living ones of the sandbox, as
    /// for [`crate::Observer::take`].
    pub fn begin(&mut self, tree: &Path, processes: &[i32]) -> io::Result<()> {
        let top = open_dir(&tree.join(&self.folder))?;
        let device = found::look(&top, b"")?.ok_or(Errno::NOENT)?.device;
        let mapped = mapped(processes, device);
        let written = mapped.files.iter().filter(|file| file.1).map(|file| file.0).collect();
        let before = self.known.remove(tree);
        self.running.push_back(Scan {
            tree: tree.to_owned(),
            top,
            written,
            doubtful: mapped.lost || before.as_ref().is_some_and(|before| before.lost),
            missing: before.map(|before| before.files),
            found: Known { files: HashMap::new(), lost: false },
            ledger: Ledger::new("", self.entries),
            todo: vec![Vec::new()],
            open: None,
        });
        Ok(())
    }

    /// Whether no scan is in progress.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.running.is_empty()
    }

    /// Looks at so many names for the scan whose turn it is. Returns a tree whose scan is complete, and what
    /// changed there since its scan before; `truncated` where there was none. As [`crate::Observer::take`], but a
    /// new link to a file counts as a change of it.
    pub fn advance(&mut self, names: usize) -> Option<(PathBuf, Changes)> {
        let mut scan = self.running.pop_front()?;
        if !scan.advance(names) {
            self.running.push_back(scan);
            return None;
        }
        let Scan { tree, doubtful, missing, found, mut ledger, .. } = scan;
        let lost = doubtful || found.lost;
        self.known.insert(tree.clone(), found);
        let Some(missing) = missing else { return Some((tree, Changes::unknown())) };
        for path in missing.keys() {
            ledger.before(b"", path);
            if ledger.is_full() {
                break;
            }
        }
        Some((tree, ledger.close(lost)))
    }

    /// Forgets a tree, and ends its scan.
    pub fn forget(&mut self, tree: &Path) {
        self.known.remove(tree);
        self.running.retain(|scan| scan.tree != tree);
    }
}

/// A scan in progress.
struct Scan {
    tree: PathBuf,
    top: OwnedFd,
    /// Files that count as modified: too much of them is mapped to be sure.
    written: HashSet<u64>,
    /// The scan before was not complete, or not all mappings were checked.
    doubtful: bool,
    /// What the scan before found and this one has not found yet; none where there was no scan before.
    missing: Option<Files>,
    found: Known,
    ledger: Ledger,
    /// Folders that are still to be listed.
    todo: Vec<Vec<u8>>,
    open: Option<Folder>,
}

/// A folder that is being listed.
struct Folder {
    path: Vec<u8>,
    dir: OwnedFd,
    listing: Dir,
}

impl Scan {
    /// Looks at so many names. True: there are no more.
    fn advance(&mut self, names: usize) -> bool {
        for _ in 0..names {
            let looked = if let Some(folder) = self.open.take() {
                self.look(folder)
            } else if let Some(path) = self.todo.pop() {
                self.enter(path)
            } else {
                return true;
            };
            match looked {
                Ok(()) | Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV) => {}
                Err(_) => self.found.lost = true,
            }
        }
        false
    }

    fn enter(&mut self, path: Vec<u8>) -> Result<(), Errno> {
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOATIME | OFlags::NOFOLLOW;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
        let at = if path.is_empty() { b".".as_slice() } else { &path };
        let dir = openat2(&self.top, at, flags, Mode::empty(), resolve)?;
        let listing = Dir::read_from(dir.as_fd())?;
        self.open = Some(Folder { path, dir, listing });
        Ok(())
    }

    /// Looks at the next name in a folder, which stays open until there is none.
    fn look(&mut self, mut folder: Folder) -> Result<(), Errno> {
        let Some(entry) = folder.listing.next() else { return Ok(()) };
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            if self.found.files.len() + self.todo.len() >= MOST {
                self.found.lost = true;
                self.todo.clear();
                return Ok(());
            }
            match found::look(&folder.dir, name)? {
                Some(found) if found.is_dir => self.todo.push(join(&folder.path, name)),
                Some(found) if found.kind.is_some() => self.compare(join(&folder.path, name), found),
                _ => {}
            }
        }
        self.open = Some(folder);
        Ok(())
    }

    fn compare(&mut self, path: Vec<u8>, found: Found) {
        // A name that is moved while its folder is listed may be listed twice.
        let Entry::Vacant(place) = self.found.files.entry(path) else { return };
        if let Some(missing) = &mut self.missing {
            let path = place.key();
            let before = missing.remove(path);
            let same = before.as_ref().is_some_and(|before| !differs(before, &found));
            if !same || self.written.contains(&found.inode) {
                if before.is_some() {
                    self.ledger.before(b"", path);
                }
                self.ledger.after(b"", path, &found);
            }
        }
        place.insert(found);
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
