//! How changes are found: on btrfs the kernel reports them, elsewhere the observer compares scans.

use super::{FOLDER, MOST};
use crate::context::Context;
use atoll_observe::{Changes, Limits, Observer, Scanner};
use atoll_storage::{DriverKind, Tree};
use atoll_types::{ContainerId, Rate};
use rustix::fd::{AsFd, BorrowedFd};
use std::{
    io,
    path::{Path, PathBuf},
};

/// What is kept for one container between two requests: enough for an answer of the most files; and how much of it
/// for how long: about a twentieth of a core. A container that changes more gets `truncated`; its neighbours are not
/// delayed.
const LIMITS: Limits = Limits {
    tree_bytes: 4 << 20,
    all_bytes: 256 << 20,
    tree_events: 250_000,
    tree_rate: Rate { per_second: 20_000.0, burst: 250_000.0 },
    entries: MOST,
};
/// How many names a scan looks at before the next request is served: about a millisecond's work.
const SLICE: usize = 256;

pub(super) enum Finder {
    Fanotify(Box<Observer>),
    Scan(Scanner),
}

impl Finder {
    pub(super) fn new(context: &Context) -> io::Result<Self> {
        match context.storage.kind() {
            DriverKind::Dir => Ok(Self::Scan(Scanner::new(FOLDER, MOST))),
            DriverKind::BtrfsLoop | DriverKind::BtrfsNative => {
                let anywhere = context.storage.path(Tree::Scratch(ContainerId::random()));
                let root = anywhere.ancestors().nth(2).unwrap_or(Path::new("/"));
                Ok(Self::Fanotify(Box::new(Observer::with_limits(root, LIMITS)?)))
            }
        }
    }

    /// Readable when there is something to [`Finder::drain`].
    pub(super) fn fd(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Fanotify(observer) => Some(observer.as_fd()),
            Self::Scan(_) => None,
        }
    }

    pub(super) fn drain(&mut self) -> io::Result<()> {
        match self {
            Self::Fanotify(observer) => observer.drain(),
            Self::Scan(_) => Ok(()),
        }
    }

    /// Begins to watch a tree; none while its scan is in progress.
    pub(super) fn watch(&mut self, tree: &Path) -> io::Result<Option<Changes>> {
        match self {
            Self::Fanotify(observer) => observer.watch(tree).map(|()| Some(Changes::default())),
            Self::Scan(scanner) if scanner.is_watched(tree) => Ok(Some(Changes::default())),
            Self::Scan(scanner) => scanner.begin(tree, &[]).map(|()| None),
        }
    }

    pub(super) fn forget(&mut self, tree: &Path) {
        match self {
            Self::Fanotify(observer) => observer.forget(tree),
            Self::Scan(scanner) => scanner.forget(tree),
        }
    }

    /// What changed in a tree; none while its scan is in progress.
    pub(super) fn take(&mut self, tree: &Path, processes: &[i32]) -> io::Result<Option<Changes>> {
        match self {
            Self::Fanotify(observer) => observer.take(tree, FOLDER, processes).map(Some),
            Self::Scan(scanner) => scanner.begin(tree, processes).map(|()| None),
        }
    }

    /// Runs a slice of the scan whose turn it is. Returns a tree whose scan is complete, and what changed there.
    pub(super) fn advance(&mut self) -> Option<(PathBuf, Changes)> {
        match self {
            Self::Fanotify(_) => None,
            Self::Scan(scanner) => scanner.advance(SLICE),
        }
    }
}
