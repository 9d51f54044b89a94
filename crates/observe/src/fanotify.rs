//! The observer of a btrfs file system: one fanotify group with one mark, and a window for every watched tree. It
//! holds only the group open.

use crate::{
    change::{Changes, Ledger},
    doubt,
    event::{Events, METADATA},
    mapped::{Mapped, mapped},
    net::{MOST_NAMES, Memory, Netted, Surprise, net},
    sys,
    tree::{TOP, Tree, open_dir},
    window::Window,
};
use atoll_types::{Rate, TokenBucket};
use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    io::{Errno, ioctl_fionread, read},
};
use std::{
    collections::HashMap,
    io,
    path::{Path, PathBuf},
    time::Instant,
};

const MASK: u64 = libc::FAN_CREATE
    | libc::FAN_DELETE
    | libc::FAN_RENAME
    | libc::FAN_MODIFY
    | libc::FAN_ATTRIB
    | libc::FAN_CLOSE_WRITE
    | libc::FAN_ONDIR;
const TOP_LEVEL: u64 = 5;
/// How often the end of a rename is waited for.
const MOST_WAITS: usize = 2;
const BUFFER: usize = 256 << 10;

/// How much may be kept, whatever sandboxes do.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// Bytes for the events of one tree.
    pub tree_bytes: usize,
    /// Bytes for the events of all trees; the tree with the most loses its own.
    pub all_bytes: usize,
    /// Events that are recorded for one tree between two requests; the rest is dropped.
    pub tree_events: u64,
    /// How often events are recorded for one tree, however often it is asked for, and how many at once; the rest is
    /// dropped. So a sandbox that changes files without pause takes this much of the observer's time and no more.
    pub tree_rate: Rate,
    /// Paths in one answer.
    pub entries: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            tree_bytes: 32 << 20,
            all_bytes: 256 << 20,
            tree_events: 4_000_000,
            tree_rate: Rate { per_second: 1e6, burst: 4e6 },
            entries: 100_000,
        }
    }
}

struct Watched {
    window: Window,
    memory: Memory,
    /// What may still be recorded at the moment. A new window does not fill it.
    allowance: TokenBucket,
}

/// Observes every subvolume of a btrfs file system.
///
/// An answer is `truncated` while a sandbox has subvolumes of its own in its tree, when a path is longer than the
/// kernel can name, when a thread changes a folder's mode and then renames another folder over it, and when the
/// limits are reached. Reported too often: a file of which more than 64 MiB are mapped, at every request.
/// Reported late: a write with the old asynchronous calls, when the file is closed. Not distinguished, of a file
/// that had several names before it was watched: a name that a rename takes counts as new, if the same thread had
/// just linked or deleted another.
pub struct Observer {
    group: OwnedFd,
    limits: Limits,
    paths: HashMap<PathBuf, u64>,
    watched: HashMap<u64, Watched>,
    cost: usize,
    buffer: Vec<u8>,
}

impl AsFd for Observer {
    /// Readable when there is something to [`Observer::drain`].
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.group.as_fd()
    }
}

impl Observer {
    /// Watches the btrfs file system that a folder is on, whichever of its subvolumes that is. An error on
    /// another file system, or where the kernel is older than 5.17.
    pub fn new(pool_root: &Path) -> io::Result<Self> {
        Self::with_limits(pool_root, Limits::default())
    }

    /// The same with other limits.
    pub fn with_limits(pool_root: &Path, limits: Limits) -> io::Result<Self> {
        let folder = open_dir(pool_root)?;
        sys::identity(&folder)?;
        let group = sys::fanotify_group()?;
        // The mark must be on the top level, to which there may be no path.
        let top = sys::open_folder(&folder, TOP_LEVEL, TOP)?;
        sys::mark_filesystem(&group, &top, MASK)?;
        let (paths, watched) = (HashMap::new(), HashMap::new());
        Ok(Self { group, limits, paths, watched, cost: 0, buffer: vec![0; BUFFER] })
    }

    /// Begins to record events in a tree. To be called before its sandbox starts; not an error if it is watched.
    pub fn watch(&mut self, tree: &Path) -> io::Result<()> {
        let opened = Tree::open(tree)?;
        if self.paths.get(tree) == Some(&opened.root) {
            return Ok(());
        }
        self.drain()?;
        self.forget(tree);
        let nested = sys::has_nested(&opened.fd)?;
        let window = Window::new(nested, 0);
        self.paths.insert(tree.to_owned(), opened.root);
        let (memory, allowance) = (Memory::new(), TokenBucket::default());
        self.watched.insert(opened.root, Watched { window, memory, allowance });
        Ok(())
    }

    /// Forgets a tree. Not an error where it is not watched.
    pub fn forget(&mut self, tree: &Path) {
        if let Some(gone) = self.paths.remove(tree).and_then(|root| self.watched.remove(&root)) {
            self.cost -= gone.window.cost;
        }
    }

    /// Reads the events until now. To be called when [`Observer::as_fd`] is readable: the kernel keeps unread
    /// events in the launcher's memory.
    pub fn drain(&mut self) -> io::Result<()> {
        // Events that are added meanwhile wait for the next call, so that no sandbox can keep the launcher here.
        // The kernel reports the queue's size as if events had no handles.
        let mut left = ioctl_fionread(&self.group)? / METADATA as u64;
        let mut buffer = std::mem::take(&mut self.buffer);
        let result = loop {
            match read(&self.group, &mut buffer) {
                Ok(length) => {
                    left = left.saturating_sub(self.fold(buffer.get(..length).unwrap_or_default()));
                    if left == 0 {
                        break Ok(());
                    }
                }
                Err(Errno::AGAIN) => break Ok(()),
                Err(Errno::INTR) => {}
                Err(cause) => break Err(cause.into()),
            }
        };
        self.buffer = buffer;
        result
    }

    /// Records events, and returns how many.
    fn fold(&mut self, events: &[u8]) -> u64 {
        let (mut count, now) = (0, Instant::now());
        for event in Events(events) {
            count += 1;
            if event.has(libc::FAN_Q_OVERFLOW) {
                self.lose_all();
                continue;
            }
            let Some(watched) = event.root().and_then(|root| self.watched.get_mut(&root)) else { continue };
            if watched.window.over {
                continue;
            }
            if watched.allowance.take(1.0, self.limits.tree_rate, now).is_err() {
                watched.window.over = true;
                continue;
            }
            let before = watched.window.cost;
            watched.window.fold(&event);
            self.cost += watched.window.cost - before;
            // Events that it has are valid and stay; further ones are not recorded.
            watched.window.over |= watched.window.cost > self.limits.tree_bytes
                || watched.window.events > self.limits.tree_events;
            if self.cost > self.limits.all_bytes {
                self.lose_largest();
            }
        }
        count
    }

    fn lose_all(&mut self) {
        self.watched.values_mut().for_each(|watched| watched.window.overflow());
        self.cost = 0;
    }

    fn lose_largest(&mut self) {
        if let Some(largest) = self.watched.values_mut().max_by_key(|watched| watched.window.cost) {
            self.cost -= largest.window.cost;
            largest.window.overflow();
        }
    }

    /// What changed below a folder of a tree since the last call or since [`Observer::watch`]; changes elsewhere
    /// in the tree are forgotten. `processes` are the living ones of the sandbox: their mappings are checked,
    /// since writes to those make no event. A tree that is not watched, or was replaced, is watched from now on,
    /// and the answer is `truncated`.
    pub fn take(&mut self, tree: &Path, folder: &str, processes: &[i32]) -> io::Result<Changes> {
        let opened = Tree::open(tree)?;
        if self.paths.get(tree) != Some(&opened.root) {
            self.watch(tree)?;
            return Ok(Changes::unknown());
        }
        // Before the events are read: a process that ends after this leaves one.
        let mapped = mapped(processes, opened.device);
        self.drain()?;
        for _ in 0..MOST_WAITS {
            let waits = self.watched.get(&opened.root).map(|watched| watched.window.waits_for());
            let Some(waits) = waits.filter(|waits| !waits.is_empty()) else { break };
            waits.into_iter().for_each(|dir| opened.wait(dir));
            self.drain()?;
        }
        let ledger = Ledger::new(folder, self.limits.entries);
        Ok(self.answer(&opened, ledger, &mapped).unwrap_or_else(Changes::unknown))
    }

    /// Closes the window of a tree and returns its changes.
    fn answer(&mut self, tree: &Tree, ledger: Ledger, mapped: &Mapped) -> Option<Changes> {
        let Watched { window, memory, .. } = self.watched.get_mut(&tree.root)?;
        let next = Window::new(false, window.highest);
        let mut closed = std::mem::replace(window, next);
        self.cost -= closed.cost;
        closed.finish();
        closed.over |= doubt::settle(tree, &mut closed);
        mapped.files.iter().for_each(|(inode, surely)| closed.suspect(*inode, *surely));
        closed.over |= mapped.lost;
        let Netted { mut ledger, mut truncated, ahead, several, surprises } =
            net(tree, &closed, memory, ledger);
        // A missed event may have changed which file a name holds, how many names a file has, or made a
        // subvolume.
        if !closed.over {
            window.links.several = std::mem::take(&mut closed.links.several);
            window.ahead = std::mem::take(&mut closed.ahead);
        }
        if window.ahead.len() > MOST_NAMES {
            window.ahead.clear();
        }
        window.ahead.extend(ahead);
        several.iter().for_each(|(inode, names)| window.links.remember(*inode, *names));
        // As long as there are subvolumes inside, they may change unseen.
        window.nested = (closed.nested || closed.over) && sys::has_nested(&tree.fd).unwrap_or(true);
        truncated |= !(surprises.is_empty() && several.is_empty()) && self.drain().is_err();
        let Watched { window, memory, .. } = self.watched.get_mut(&tree.root)?;
        several.iter().for_each(|(inode, _)| window.links.doubt_count(*inode));
        for Surprise { name, paths, .. } in surprises.iter().filter(|it| window.is_new(it.dir, &it.name)) {
            // The next answer reports it.
            paths.iter().flatten().for_each(|path| ledger.forget(path, name));
        }
        memory.told.tell(ledger.found());
        Some(ledger.close(truncated))
    }
}
