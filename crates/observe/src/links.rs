//! Which file's link count changed, and by which thread. The kernel reports a changed count without a name: once
//! for a new link, before the event that names it; once for a deleted one, likewise; and once for the victim of a
//! rename, without such an event. Each of these may have been merged into an earlier event of the same thread;
//! what is then uncertain is kept here until the window closes.

use crate::{
    event::{Event, Thread},
    window::Name,
};
use std::collections::HashMap;

/// How many threads are kept for one file.
const MOST: usize = 8;
/// How many files with several names are kept.
const MOST_SEVERAL: usize = 65_536;

/// A file that may have had a name that no event names.
#[derive(Debug, Default)]
pub(crate) struct Suspect {
    /// The threads that changed its link count.
    pub(crate) threads: Vec<Thread>,
    /// It got a link before any other event on its names, so it existed before.
    pub(crate) older: bool,
}

/// A name to which a file was renamed, by folder.
pub(crate) type RenamedName = (u64, Name);

/// What is uncertain.
#[derive(Default)]
pub(crate) struct Links {
    last: HashMap<Thread, u64>,
    pub(crate) suspects: HashMap<u64, Suspect>,
    /// Renames by the victim that was reported, which had other turns.
    victims: HashMap<u64, Vec<RenamedName>>,
    /// Renames without a reported victim, by thread.
    unnamed: HashMap<Thread, Vec<RenamedName>>,
    /// How many names files had when the window opened, of those that are known to have had several.
    pub(crate) several: HashMap<u64, u32>,
}

/// Whether an event is a changed count of links.
pub(crate) fn is_count(event: &Event<'_>) -> bool {
    event.at.is_none() && event.has(libc::FAN_ATTRIB) && !event.has(libc::FAN_ONDIR)
}

impl Links {
    /// Records an event before it is folded; `turned` returns which files had turns before it.
    pub(crate) fn see(&mut self, event: &Event<'_>, turned: impl Fn(u64) -> bool) {
        if let Some(counted) = self.last.remove(&event.thread) {
            let named = event.has(libc::FAN_CREATE | libc::FAN_DELETE)
                && event.inode.is_some_and(|inode| inode.number == counted);
            let linked = named && event.has(libc::FAN_CREATE) && !turned(counted);
            if linked || !named {
                self.suspect(counted, event.thread, linked);
            }
        }
        if let (true, Some(inode)) = (is_count(event), event.inode) {
            self.last.insert(event.thread, inode.number);
            if self.suspects.contains_key(&inode.number) || self.several.contains_key(&inode.number) {
                self.suspect(inode.number, event.thread, false);
            }
        }
    }

    fn suspect(&mut self, inode: u64, thread: Thread, older: bool) {
        let suspect = self.suspects.entry(inode).or_default();
        suspect.older |= older;
        if !suspect.threads.contains(&thread) && suspect.threads.len() < MOST {
            suspect.threads.push(thread);
        }
    }

    /// A rename may have had one of the suspects as its victim.
    pub(crate) fn doubt(&mut self, thread: Thread, victim: Option<u64>, place: RenamedName) {
        match victim {
            Some(victim) => self.victims.entry(victim).or_default().push(place),
            None => self.unnamed.entry(thread).or_default().push(place),
        }
    }

    pub(crate) fn has_doubts(&self) -> bool {
        !self.victims.is_empty() || !self.unnamed.is_empty()
    }

    /// A rename that may have had this file as its victim; preferably one that names it.
    pub(crate) fn take_doubt(&mut self, inode: u64, suspect: &Suspect) -> Option<RenamedName> {
        let named = self.victims.get_mut(&inode).and_then(Vec::pop);
        named.or_else(|| suspect.threads.iter().find_map(|thread| self.unnamed.get_mut(thread)?.pop()))
    }

    /// How much is kept of this window's events.
    pub(crate) fn len(&self) -> usize {
        self.last.len() + self.suspects.len()
    }

    /// Stores how many names a file has now.
    pub(crate) fn remember(&mut self, inode: u64, names: u32) {
        if names < 2 {
            self.several.remove(&inode);
        } else if self.several.len() < MOST_SEVERAL || self.several.contains_key(&inode) {
            self.several.insert(inode, names);
        }
    }

    /// A count that was taken just now is not that of the window's opening, if it has changed since.
    pub(crate) fn doubt_count(&mut self, inode: u64) {
        if self.suspects.contains_key(&inode) {
            self.several.remove(&inode);
        }
    }

    /// No more events will come.
    pub(crate) fn finish(&mut self) {
        for (thread, inode) in std::mem::take(&mut self.last) {
            self.suspect(inode, thread, false);
        }
    }
}
