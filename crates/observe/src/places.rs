//! The paths of folders, now and before. A folder is opened by inode, so no path of the sandbox's making is
//! walked; its path when the window opened is derived from the window's own record.

use crate::{
    change::join,
    found, sys,
    tree::{TOP, Tree, path_of},
    window::{Name, Window},
};
use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::{Mode, OFlags, openat},
    io::Errno,
};
use std::{collections::HashMap, sync::Arc};

/// The kernel's longest path.
const LONGEST: usize = 4096;

type Path = Option<Arc<[u8]>>;

/// Where a folder was: at a path, nowhere, or by a name in another.
enum Origin {
    Known(Path),
    In(u64, Name),
}

/// Paths of folders, relative to the tree.
pub(crate) struct Places<'a> {
    pub(crate) tree: &'a Tree,
    window: &'a Window,
    last: Option<(u64, OwnedFd)>,
    now: HashMap<u64, Path>,
    before: HashMap<u64, Path>,
    /// A path could not be determined.
    pub(crate) lost: bool,
}

impl<'a> Places<'a> {
    pub(crate) fn new(tree: &'a Tree, window: &'a Window) -> Self {
        Self { tree, window, last: None, now: HashMap::new(), before: HashMap::new(), lost: false }
    }

    /// A folder, `None` when it is gone.
    pub(crate) fn open(&mut self, dir: u64) -> Option<BorrowedFd<'_>> {
        if self.last.as_ref().is_none_or(|(last, _)| *last != dir) {
            let opened = sys::open_folder(&self.tree.fd, self.tree.root, dir);
            self.last = self.known(opened).map(|fd| (dir, fd));
        }
        self.last.as_ref().map(|(_, fd)| fd.as_fd())
    }

    /// Where a folder is, `None` when it is gone.
    pub(crate) fn now(&mut self, dir: u64) -> Path {
        if !self.now.contains_key(&dir) {
            let path = if dir == TOP { Some(Arc::from([])) } else { self.find(dir) };
            self.now.insert(dir, path);
        }
        self.now.get(&dir).cloned().flatten()
    }

    fn find(&mut self, dir: u64) -> Path {
        let fd = self.open(dir)?;
        // A folder that is a process's working directory outlives its name.
        let found =
            found::look(fd, b"").and_then(|found| Ok((found.is_some_and(|f| f.links > 0), path_of(fd)?)));
        let (linked, path) = self.known(found)?;
        let relative = path.strip_prefix(self.tree.path.as_slice()).and_then(|path| path.strip_prefix(b"/"));
        self.lost |= linked && relative.is_none();
        relative.filter(|_| linked).map(Arc::from)
    }

    /// A folder's path when the window opened, `None` when it did not exist.
    pub(crate) fn before(&mut self, dir: u64) -> Path {
        let mut names: Vec<(u64, Name)> = Vec::new();
        let mut at = dir;
        let mut path = loop {
            match self.origin(at) {
                Origin::Known(path) => break path,
                Origin::In(..) if names.len() > LONGEST => break self.lose(),
                Origin::In(parent, name) => names.push((std::mem::replace(&mut at, parent), name)),
            }
        };
        for (dir, name) in names.into_iter().rev() {
            path = path.map(|path| join(&path, &name).into());
            if path.as_ref().is_some_and(|path| path.len() > LONGEST) {
                path = self.lose();
            }
            self.before.insert(dir, path.clone());
        }
        path
    }

    fn origin(&mut self, dir: u64) -> Origin {
        if let Some(known) = self.before.get(&dir) {
            return Origin::Known(known.clone());
        }
        match self.window.dirs.get(&dir) {
            Some(None) => Origin::Known(None),
            Some(Some((parent, name))) => Origin::In(*parent, name.clone()),
            None if dir == TOP => Origin::Known(self.now(dir)),
            None => match (self.now(dir), self.window.replaced.get(&dir)) {
                (None, Some((parent, name))) => Origin::In(*parent, name.clone()),
                (now, _) if now.is_none() || self.window.moved.is_empty() => Origin::Known(now),
                _ => self.parent(dir).map_or(Origin::Known(None), |(parent, name)| Origin::In(parent, name)),
            },
        }
    }

    /// The folder that a folder is in, and its name there.
    fn parent(&mut self, dir: u64) -> Option<(u64, Name)> {
        let path = self.now(dir)?;
        let name = Name::from(path.rsplit(|byte| *byte == b'/').next()?);
        let fd = self.open(dir)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let parent = openat(fd, "..", flags, Mode::empty()).and_then(sys::identity);
        self.known(parent).map(|(_, parent)| (parent, name))
    }

    fn lose<T>(&mut self) -> Option<T> {
        self.lost = true;
        None
    }

    /// A result; that the folder is gone is a result too.
    pub(crate) fn known<T>(&mut self, answer: Result<T, Errno>) -> Option<T> {
        match answer {
            Ok(known) => Some(known),
            Err(Errno::NOENT) => None,
            Err(_) => self.lose(),
        }
    }
}
