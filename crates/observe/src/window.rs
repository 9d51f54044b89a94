//! The events in one tree since the last request, folded as they come: bounded, keyed by inode, without a path.
//! Paths are looked up at the end, for the files that are reported.
//!
//! The kernel merges what one thread does to one name into the first such event. So an event's place in the queue
//! is that of its first part, and only the first event on a name shows reliably what was there before.

use crate::{
    event::{Event, Named, Thread},
    found::{Found, Moment, now},
    life::{Life, Start, Turn},
    links::Links,
};
use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

pub(crate) type Name = Arc<[u8]>;
/// What the last answers reported about some names: which file is there, if one is.
pub(crate) type Ahead = HashMap<(u64, Name), Option<u64>>;

/// The size of an entry beside its name; an estimate.
const ENTRY: usize = 96;
/// How many renames are waited for.
const MOST_WAITING: usize = 16;
/// The file system's clock may be late by this many nanoseconds.
const TICK: i128 = 20_000_000;
const CONTENT: u64 = libc::FAN_MODIFY | libc::FAN_ATTRIB;

/// A file that was written to, or may have been.
#[derive(Debug, Default)]
pub(crate) struct Touch {
    /// It was; otherwise a process that had it open for writing has closed it.
    pub(crate) surely: bool,
    /// The folder and name it was reached by, which it may not have any more.
    pub(crate) by: Option<(u64, Name)>,
}

/// A rename whose victim, if there is one, is the next event of its thread.
struct Pending {
    dir: u64,
    name: Name,
    is_dir: bool,
    victim: Option<u64>,
}

/// The events in one tree.
#[derive(Default)]
pub(crate) struct Window {
    /// Names at which files appeared or from which they left, by folder.
    pub(crate) names: HashMap<u64, HashMap<Name, Life>>,
    /// Folders that were made (`None`) or moved or deleted, with the place where they were before.
    pub(crate) dirs: HashMap<u64, Option<(u64, Name)>>,
    /// Folders that were there before and have been renamed.
    pub(crate) moved: HashSet<u64>,
    /// Folders that another replaced, if they are gone: a change of mode looks the same.
    pub(crate) replaced: HashMap<u64, (u64, Name)>,
    pub(crate) touched: HashMap<u64, Touch>,
    /// Files that appeared at a name or left one.
    turned: HashSet<u64>,
    pending: HashMap<Thread, Pending>,
    pub(crate) links: Links,
    pub(crate) ahead: Ahead,
    /// A subvolume was made inside this one, whose events are not seen.
    pub(crate) nested: bool,
    /// Events are missing.
    pub(crate) over: bool,
    pub(crate) cost: usize,
    /// How many were recorded.
    pub(crate) events: u64,
    /// When it opened, and the highest inode that had been given to a file by then.
    opened: Moment,
    older: u64,
    pub(crate) highest: u64,
}

impl Window {
    /// A window that opens now.
    pub(crate) fn new(nested: bool, highest: u64) -> Self {
        Self { nested, opened: now(), older: highest, highest, ..Self::default() }
    }

    /// Whether a file existed when the window opened. Inode numbers only grow, but not all have been seen.
    pub(crate) fn is_older(&self, found: &Found) -> bool {
        let nanos = |(seconds, nanos): Moment| i128::from(seconds) * 1_000_000_000 + i128::from(nanos);
        found.inode <= self.older || nanos(found.born) + TICK < nanos(self.opened)
    }

    /// Whether a name got a file in this window and had none before.
    pub(crate) fn is_new(&self, dir: u64, name: &[u8]) -> bool {
        let life = self.names.get(&dir).and_then(|names| names.get(name));
        life.is_some_and(|life| !matches!(life.start, Start::Was(_)))
    }

    /// Events were lost: anything may have happened.
    pub(crate) fn overflow(&mut self) {
        *self = Self { over: true, ..Self::new(self.nested, self.highest) };
    }

    /// Records one event of this tree.
    pub(crate) fn fold(&mut self, event: &Event<'_>) {
        self.events += 1;
        let known = self.links.len();
        self.links.see(event, |inode| self.turned.contains(&inode));
        self.cost += self.links.len().saturating_sub(known) * ENTRY;
        if self.settle(event) {
            return;
        }
        let Some(inode) = event.inode else { return };
        self.highest = self.highest.max(inode.number);
        let is_dir = event.has(libc::FAN_ONDIR);
        if event.at.is_some_and(|at| at.dir.root != inode.root) {
            return self.nested = true;
        }
        match (event.at, event.to) {
            (Some(from), Some(to)) if is_dir => self.move_dir(from, to, inode.number, event),
            (Some(from), Some(to)) => {
                self.turn(from, inode.number, Turn::MovedAway(inode.number));
                if self.turn(to, inode.number, Turn::MovedHere(inode.number)) {
                    self.expect_victim(to, event.thread, false);
                }
            }
            (Some(at), None) if is_dir => self.turn_dir(at, inode.number, event),
            (Some(at), None) => {
                if let Some(turn) = turn_of(event, inode.number) {
                    self.turn(at, inode.number, turn);
                }
                if event.has(CONTENT | libc::FAN_CLOSE_WRITE) {
                    self.touch(inode.number, Some(at), event.has(CONTENT));
                }
            }
            _ if is_dir => {}
            _ if event.has(libc::FAN_MODIFY | libc::FAN_CLOSE_WRITE) => {
                self.touch(inode.number, None, event.has(libc::FAN_MODIFY));
            }
            _ => {}
        }
    }

    /// True: it is the first turn of this name.
    fn turn(&mut self, at: Named<'_>, inode: u64, turn: Turn) -> bool {
        self.cost += if self.turned.insert(inode) { ENTRY / 2 } else { 0 };
        let names = self.names.entry(at.dir.number).or_default();
        if let Some(life) = names.get_mut(at.name) {
            life.add_turn(turn);
            return false;
        }
        let name = Name::from(at.name);
        self.cost += ENTRY + name.len();
        let told = self.ahead.get(&(at.dir.number, name.clone())).copied();
        names.insert(name, Life::begin(turn, told));
        true
    }

    fn turn_dir(&mut self, at: Named<'_>, inode: u64, event: &Event<'_>) {
        if !event.has(libc::FAN_CREATE | libc::FAN_DELETE) || self.dirs.contains_key(&inode) {
            return;
        }
        self.cost += ENTRY + at.name.len();
        let before = !event.has(libc::FAN_CREATE);
        self.dirs.insert(inode, before.then(|| (at.dir.number, Name::from(at.name))));
    }

    fn move_dir(&mut self, from: Named<'_>, to: Named<'_>, inode: u64, event: &Event<'_>) {
        let cost = ENTRY * 2 + from.name.len();
        let before = self.dirs.entry(inode).or_insert_with(|| {
            self.cost += cost;
            Some((from.dir.number, Name::from(from.name)))
        });
        if before.is_some() {
            self.moved.insert(inode);
        }
        self.expect_victim(to, event.thread, true);
    }

    fn touch(&mut self, inode: u64, at: Option<Named<'_>>, surely: bool) {
        let touch = self.touched.entry(inode).or_insert_with(|| {
            self.cost += ENTRY + at.map_or(0, |at| at.name.len());
            Touch::default()
        });
        touch.surely |= surely;
        if let Some(at) = at
            && touch.by.as_ref().is_none_or(|(dir, name)| (*dir, &**name) != (at.dir.number, at.name))
        {
            touch.by = Some((at.dir.number, Name::from(at.name)));
        }
    }

    /// A living process may have written to this file without an event.
    pub(crate) fn suspect(&mut self, inode: u64, surely: bool) {
        self.touch(inode, None, surely);
    }

    fn expect_victim(&mut self, to: Named<'_>, thread: Thread, is_dir: bool) {
        let pending = Pending { dir: to.dir.number, name: to.name.into(), is_dir, victim: None };
        self.cost += ENTRY + to.name.len();
        self.pending.insert(thread, pending);
    }

    /// After a rename over another file, the kernel reports that the other has one link less, by the same thread
    /// and without a name. Creating and deleting a link report the same, but then name the file.
    fn settle(&mut self, event: &Event<'_>) -> bool {
        let Some(pending) = self.pending.get_mut(&event.thread) else { return false };
        let nameless =
            event.at.is_none() && event.has(libc::FAN_ATTRIB) && event.has(libc::FAN_ONDIR) == pending.is_dir;
        if let (true, None, Some(inode)) = (nameless, pending.victim, event.inode) {
            pending.victim = Some(inode.number);
            return !event.has(libc::FAN_MODIFY | libc::FAN_CLOSE_WRITE);
        }
        let renamed = event.has(libc::FAN_CREATE | libc::FAN_DELETE).then_some(event.inode).flatten();
        if let Some(pending) = self.pending.remove(&event.thread) {
            self.conclude(event.thread, pending, renamed.map(|inode| inode.number));
        }
        false
    }

    fn conclude(&mut self, thread: Thread, pending: Pending, renamed: Option<u64>) {
        let Pending { dir, name, is_dir, victim } = pending;
        let victim = victim.filter(|victim| renamed != Some(*victim));
        match victim {
            Some(victim) if is_dir => _ = self.replaced.insert(victim, (dir, name)),
            Some(victim) if !self.turned.contains(&victim) => {
                if let Some(life) = self.names.get_mut(&dir).and_then(|names| names.get_mut(&name)) {
                    life.was(victim);
                }
            }
            _ if !is_dir && !self.links.suspects.is_empty() => {
                self.cost += ENTRY + name.len();
                self.links.doubt(thread, victim, (dir, name));
            }
            _ => {}
        }
    }

    /// The folders of renames whose victims may have been cut off by the end of the events.
    pub(crate) fn waits_for(&self) -> HashSet<u64> {
        let waiting = self.pending.values().filter(|pending| pending.victim.is_none());
        waiting.map(|pending| pending.dir).take(MOST_WAITING).collect()
    }

    /// No more events will come.
    pub(crate) fn finish(&mut self) {
        for (thread, pending) in std::mem::take(&mut self.pending) {
            self.conclude(thread, pending, None);
        }
        self.links.finish();
    }
}

fn turn_of(event: &Event<'_>, inode: u64) -> Option<Turn> {
    match (event.has(libc::FAN_CREATE), event.has(libc::FAN_DELETE)) {
        (true, true) => Some(Turn::CreatedAndDeleted(inode)),
        (true, false) if event.has(CONTENT | libc::FAN_CLOSE_WRITE) => Some(Turn::CreatedMaybeAgain(inode)),
        (true, false) => Some(Turn::Created),
        (false, true) => Some(Turn::Deleted(inode)),
        (false, false) => None,
    }
}
