//! From a closed window to an answer: names first, then folders that moved, then files that were written to.
//! Names are looked up in folders that are opened by inode; no path is walked.

use crate::{
    change::Ledger,
    found::{self, Found},
    life::{Life, Start},
    places::Places,
    reported::ReportedFiles,
    touched,
    tree::Tree,
    walk,
    window::{Ahead, Name, Window},
};
use std::{collections::HashSet, sync::Arc};

/// How many special files are kept.
const MOST_SPECIAL: usize = 4096;
/// How many names are kept from one answer to the next.
pub(crate) const MOST_NAMES: usize = 4096;

/// What is kept of a tree from one window to the next.
pub(crate) struct Memory {
    pub(crate) told: ReportedFiles,
    /// Sockets, pipes and other special files: the deletion of one is not reported.
    pub(crate) special: HashSet<u64>,
}

impl Memory {
    pub(crate) fn new() -> Self {
        Self { told: ReportedFiles::new(), special: HashSet::new() }
    }

    fn note_special(&mut self, inode: u64) {
        if self.special.len() < MOST_SPECIAL {
            self.special.insert(inode);
        }
    }
}

/// The work on one answer.
pub(crate) struct Net<'a> {
    pub(crate) places: Places<'a>,
    pub(crate) window: &'a Window,
    pub(crate) memory: &'a mut Memory,
    pub(crate) ledger: Ledger,
    ahead: Ahead,
    several: Vec<(u64, u32)>,
    surprises: Vec<Surprise>,
}

/// A name that no event of the window names, but that a file has now: it may have got it since.
pub(crate) struct Surprise {
    pub(crate) dir: u64,
    pub(crate) name: Name,
    /// The folder's path now, and before.
    pub(crate) paths: [Option<Arc<[u8]>>; 2],
}

/// The result of a window.
pub(crate) struct Netted {
    pub(crate) ledger: Ledger,
    pub(crate) truncated: bool,
    /// What this answer reports of names, wherever it is ahead of the events.
    pub(crate) ahead: Ahead,
    /// Files with several names, and how many.
    pub(crate) several: Vec<(u64, u32)>,
    pub(crate) surprises: Vec<Surprise>,
}

/// Nets a window.
pub(crate) fn net(tree: &Tree, window: &Window, memory: &mut Memory, ledger: Ledger) -> Netted {
    let places = Places::new(tree, window);
    let (ahead, several, surprises) = (Ahead::new(), Vec::new(), Vec::new());
    let mut net = Net { places, window, memory, ledger, ahead, several, surprises };
    for (dir, names) in &window.names {
        for (name, life) in names {
            net.name(*dir, name, *life);
        }
    }
    walk::moved(&mut net);
    touched::touched(&mut net);
    net.wait_for_events();
    let Net { places, ledger, ahead, several, surprises, .. } = net;
    let truncated = window.over || window.nested || places.lost;
    Netted { ledger, truncated, ahead, several, surprises }
}

impl Net<'_> {
    fn name(&mut self, dir: u64, name: &Name, life: Life) {
        let found = self.look(dir, name).filter(|found| !found.is_dir);
        if found.is_some() != life.there || self.ahead.len() < MOST_NAMES {
            self.ahead.insert((dir, name.clone()), found.as_ref().map(|found| found.inode));
        }
        if let Start::Was(inode) = life.start
            && !self.memory.special.contains(&inode)
        {
            self.before(dir, name);
        }
        if let Some(found) = found.as_ref().filter(|found| found.links > 1) {
            self.several.push((found.inode, found.links));
        }
        match found {
            Some(found) if found.kind.is_some() => self.after(dir, name, &found),
            Some(found) => self.memory.note_special(found.inode),
            None => {}
        }
    }

    /// The file at a name now.
    pub(crate) fn look(&mut self, dir: u64, name: &[u8]) -> Option<Found> {
        let looked = found::look(self.places.open(dir)?, name);
        self.places.known(looked).flatten()
    }

    pub(crate) fn before(&mut self, dir: u64, name: &[u8]) {
        match self.places.before(dir) {
            Some(path) => self.ledger.before(&path, name),
            // A file cannot have been where no folder was: an event is missing.
            None => self.places.lost |= !self.window.dirs.contains_key(&dir),
        }
    }

    pub(crate) fn after(&mut self, dir: u64, name: &[u8], found: &Found) {
        if let Some(path) = self.places.now(dir) {
            self.ledger.after(&path, name, found);
        }
    }

    /// A file that may have come to its name after the last event that was read.
    pub(crate) fn surprise(&mut self, dir: u64, name: &[u8], found: &Found) {
        if self.window.ahead.get(&(dir, name.into())) == Some(&None) {
            return;
        }
        self.before(dir, name);
        self.after(dir, name, found);
        let paths = [self.places.now(dir), self.places.before(dir)];
        self.surprises.push(Surprise { dir, name: name.into(), paths });
    }

    /// After this, the events for every surprise are queued.
    fn wait_for_events(&mut self) {
        let dirs: HashSet<u64> = self.surprises.iter().map(|surprise| surprise.dir).collect();
        dirs.into_iter().for_each(|dir| self.places.tree.wait(dir));
    }

    /// Whether files appeared at this name or left it.
    pub(crate) fn turned(&self, dir: u64, name: &[u8]) -> bool {
        self.window.names.get(&dir).is_some_and(|names| names.contains_key(name))
    }
}
