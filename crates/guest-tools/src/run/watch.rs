//! `watch`: reports what happens in a folder, by inotify. A folder is watched before it is read, so an entry that
//! is made in it meanwhile is reported; once, although both may find it.
//!
//! The tool ends when its stdin does, or when no byte came there for long: the server sends a byte now and then,
//! so that a server that is gone leaves no watch behind.

use super::{
    find::kind_of,
    out::Lines,
    place::{absolute, open, shown_path},
};
use crate::{
    EntryKind, Watch, WatchEvent, WatchEventKind,
    errno::{code, on_path, text},
};
use atoll_types::{Error, Result};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{
        AtFlags, CWD, Dir, Mode, OFlags,
        inotify::{self, CreateFlags, ReadFlags, WatchFlags},
        openat, statat,
    },
    io::Errno,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::{Duration, Instant},
};

const MOST_FOLDERS: usize = 8192;
/// How long changes of one file are gathered, and the other half of a move is waited for.
const GATHER: Duration = Duration::from_millis(50);
/// How long the server may be silent.
const PATIENCE: Duration = Duration::from_secs(90);
/// Paths that are remembered for a moment.
const MOST_REMEMBERED: usize = 50_000;
/// Events that are written at once.
const BATCH: usize = 512;
/// Events that are read before stdin and the waiting changes are checked.
const TURN: usize = 4096;

const WANTED: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::MODIFY)
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MOVE_SELF)
    .union(WatchFlags::ONLYDIR)
    .union(WatchFlags::EXCL_UNLINK);

pub(super) fn run(request: &Watch) -> Result<()> {
    let mut lines = Lines::new();
    watch(request, std::io::stdin().as_fd(), |events| {
        events.iter().try_for_each(|event| lines.tell(event))?;
        lines.flush()
    })
}

fn watch(
    request: &Watch,
    stdin: BorrowedFd<'_>,
    tell: impl FnMut(&[WatchEvent]) -> Result<()>,
) -> Result<()> {
    request.check()?;
    let top = absolute(&request.path);
    // Not held: the kernel reports the folder's deletion only when no process has it open.
    open(&top, OFlags::RDONLY | OFlags::DIRECTORY)?;
    let failed = |e| Error::new(code(e), format!("cannot watch: {}", text(e)));
    let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).map_err(failed)?;
    let mut watcher = Watcher {
        inotify,
        top,
        recursive: request.recursive,
        folders: BTreeMap::new(),
        limited: false,
        found: BTreeSet::new(),
        modified: BTreeSet::new(),
        moves: Vec::new(),
        since: None,
        queue: Vec::new(),
        over: false,
        tell,
    };
    watcher.add(b"").map_err(|e| on_path(e, "path"))?;
    watcher.enter(b"", false)?;
    watcher.queue(WatchEventKind::Ready, None, None, None)?;
    watcher.follow(stdin)
}

/// An event of the kernel's.
struct Raw {
    wd: i32,
    flags: ReadFlags,
    cookie: u32,
    name: Option<Vec<u8>>,
}

/// The first half of a move.
struct Move {
    cookie: u32,
    path: Vec<u8>,
    kind: EntryKind,
}

struct Watcher<F> {
    inotify: OwnedFd,
    top: String,
    recursive: bool,
    /// The folders that are watched, by their numbers, and their paths below the top.
    folders: BTreeMap<i32, Vec<u8>>,
    limited: bool,
    /// Entries that were found in new folders and reported; the kernel may still report them too.
    found: BTreeSet<Vec<u8>>,
    modified: BTreeSet<Vec<u8>>,
    moves: Vec<Move>,
    /// Since when a change waits to be reported.
    since: Option<Instant>,
    queue: Vec<WatchEvent>,
    over: bool,
    tell: F,
}

/// Whether a file has a name that uploads have until they are whole.
fn is_unfinished(path: &[u8]) -> bool {
    path.rsplit(|b| *b == b'/').next().is_some_and(|name| name.starts_with(b".atoll-"))
}

fn join(folder: &[u8], name: &[u8]) -> Vec<u8> {
    if folder.is_empty() { name.to_vec() } else { [folder, b"/", name].concat() }
}

/// What follows `folder` in a path at or below it.
fn below<'a>(path: &'a [u8], folder: &[u8]) -> Option<&'a [u8]> {
    path.strip_prefix(folder).filter(|rest| rest.is_empty() || rest.first() == Some(&b'/'))
}

impl<F: FnMut(&[WatchEvent]) -> Result<()>> Watcher<F> {
    fn follow(&mut self, stdin: BorrowedFd<'_>) -> Result<()> {
        let mut heard = Instant::now();
        while !self.over {
            self.flush()?;
            let gather = self.since.map_or(PATIENCE, |since| GATHER.saturating_sub(since.elapsed()));
            let wait = gather.min(PATIENCE.saturating_sub(heard.elapsed()));
            let wait = Timespec { tv_sec: wait.as_secs().cast_signed(), tv_nsec: wait.subsec_nanos().into() };
            let (input, changes) = {
                let mut fds = [PollFd::new(&stdin, PollFlags::IN), PollFd::new(&self.inotify, PollFlags::IN)];
                match poll(&mut fds, Some(&wait)) {
                    Ok(_) | Err(Errno::INTR) => {}
                    Err(e) => return Err(Error::internal(format!("cannot wait: {e}"))),
                }
                (!fds[0].revents().is_empty(), !fds[1].revents().is_empty())
            };
            if input {
                match rustix::io::read(stdin, &mut [0; 512]) {
                    Ok(0) => return Ok(()),
                    _ => heard = Instant::now(),
                }
            }
            if heard.elapsed() >= PATIENCE {
                return Ok(());
            }
            if changes {
                self.take()?;
            }
            if self.since.is_some_and(|since| since.elapsed() >= GATHER) {
                self.settle()?;
            }
        }
        self.flush()
    }

    /// Reads the kernel's events.
    fn take(&mut self) -> Result<()> {
        let mut taken = 0;
        while taken < TURN {
            let events = self.read();
            if events.is_empty() {
                // All events from while a folder was read have been handled by now.
                self.found.clear();
                break;
            }
            taken += events.len();
            for Raw { wd, flags, cookie, name } in events {
                self.happened(wd, flags, cookie, name)?;
            }
        }
        Ok(())
    }

    fn read(&self) -> Vec<Raw> {
        let mut buffer = [const { MaybeUninit::uninit() }; 16 << 10];
        let mut reader = inotify::Reader::new(&self.inotify, &mut buffer);
        let mut events = Vec::new();
        while events.len() < TURN {
            match reader.next() {
                Ok(event) => events.push(Raw {
                    wd: event.wd(),
                    flags: event.events(),
                    cookie: event.cookie(),
                    name: event.file_name().map(|name| name.to_bytes().to_vec()),
                }),
                Err(Errno::INTR) => {}
                Err(_) => break,
            }
        }
        events
    }

    fn happened(&mut self, wd: i32, flags: ReadFlags, cookie: u32, name: Option<Vec<u8>>) -> Result<()> {
        if flags.contains(ReadFlags::QUEUE_OVERFLOW) {
            self.settle()?;
            self.queue(WatchEventKind::Overflow, None, None, None)?;
            return self.enter(b"", false);
        }
        if flags.contains(ReadFlags::IGNORED) {
            self.folders.remove(&wd);
            return Ok(());
        }
        let Some(folder) = self.folders.get(&wd) else { return Ok(()) };
        let gone = ReadFlags::DELETE_SELF | ReadFlags::MOVE_SELF | ReadFlags::UNMOUNT;
        let Some(name) = name else {
            if flags.intersects(gone) && folder.is_empty() {
                self.settle()?;
                self.over = true;
                return self.queue(WatchEventKind::Deleted, Some(b""), None, Some(EntryKind::Directory));
            }
            return Ok(());
        };
        let path = join(folder, &name);
        let is_folder = flags.contains(ReadFlags::ISDIR);
        let kind = if is_folder { EntryKind::Directory } else { EntryKind::File };
        let moved = flags.intersects(ReadFlags::MOVED_FROM | ReadFlags::MOVED_TO);
        if is_unfinished(&path) && !is_folder && !moved {
            return Ok(());
        }
        if flags.contains(ReadFlags::MODIFY) {
            self.modified.insert(path);
            self.since.get_or_insert_with(Instant::now);
            return if self.modified.len() > MOST_REMEMBERED { self.settle() } else { Ok(()) };
        }
        if flags.contains(ReadFlags::MOVED_TO)
            && let Some(at) = self.moves.iter().position(|m| m.cookie == cookie)
        {
            let Move { path: from, .. } = self.moves.remove(at);
            // An upload was completed.
            if is_unfinished(&from) && !is_folder {
                return if self.found.remove(&path) { Ok(()) } else { self.created(&path, kind) };
            }
            return self.renamed(&from, &path, is_folder);
        }
        self.settle_move(&path)?;
        if flags.contains(ReadFlags::MOVED_FROM) {
            self.settle_modified(&path)?;
            self.moves.push(Move { cookie, path, kind });
            self.since.get_or_insert_with(Instant::now);
        } else if flags.contains(ReadFlags::DELETE) {
            self.found.remove(&path);
            self.modified.remove(&path);
            self.queue(WatchEventKind::Deleted, Some(&path), None, Some(kind))?;
        } else if flags.intersects(ReadFlags::CREATE | ReadFlags::MOVED_TO) && !self.found.remove(&path) {
            self.created(&path, kind)?;
        }
        Ok(())
    }

    fn created(&mut self, path: &[u8], kind: EntryKind) -> Result<()> {
        let seen = self.kind(path).unwrap_or(kind);
        self.queue(WatchEventKind::Created, Some(path), None, Some(seen))?;
        if kind == EntryKind::Directory { self.enter(path, true) } else { Ok(()) }
    }

    fn renamed(&mut self, from: &[u8], to: &[u8], is_folder: bool) -> Result<()> {
        self.found.remove(to);
        let kind = if is_folder { EntryKind::Directory } else { EntryKind::File };
        let kind = self.kind(to).unwrap_or(kind);
        self.queue(WatchEventKind::Renamed, Some(from), Some(to), Some(kind))?;
        if !is_folder || !self.recursive {
            return Ok(());
        }
        for path in self.folders.values_mut() {
            if let Some(rest) = below(path, from) {
                *path = [to, rest].concat();
            }
        }
        // It may have got its new name before its old one could be watched.
        if self.folders.values().any(|path| path == to) { Ok(()) } else { self.enter(to, true) }
    }

    fn kind(&self, path: &[u8]) -> Option<EntryKind> {
        statat(CWD, self.whole(path), AtFlags::SYMLINK_NOFOLLOW).ok().map(|stat| kind_of(&stat))
    }

    /// Reports the changes that have waited.
    fn settle(&mut self) -> Result<()> {
        self.since = None;
        for path in std::mem::take(&mut self.modified) {
            self.queue(WatchEventKind::Modified, Some(&path), None, self.kind(&path))?;
        }
        for half in std::mem::take(&mut self.moves) {
            self.left(&half)?;
        }
        Ok(())
    }

    fn settle_modified(&mut self, path: &[u8]) -> Result<()> {
        if !self.modified.remove(path) {
            return Ok(());
        }
        self.queue(WatchEventKind::Modified, Some(path), None, Some(EntryKind::File))
    }

    /// An event for a name that a pending move has left: the move is reported first.
    fn settle_move(&mut self, path: &[u8]) -> Result<()> {
        match self.moves.iter().position(|half| half.path == path) {
            Some(at) => {
                let half = self.moves.remove(at);
                self.left(&half)
            }
            None => Ok(()),
        }
    }

    /// A move without its other half went out of the folder.
    fn left(&mut self, half: &Move) -> Result<()> {
        if is_unfinished(&half.path) && half.kind != EntryKind::Directory {
            return Ok(());
        }
        if half.kind == EntryKind::Directory {
            let inside = |path: &Vec<u8>| below(path, &half.path).is_some();
            let gone: Vec<i32> = self.folders.iter().filter(|(_, p)| inside(p)).map(|(wd, _)| *wd).collect();
            for wd in gone {
                self.folders.remove(&wd);
                let _ = inotify::remove_watch(&self.inotify, wd);
            }
        }
        self.queue(WatchEventKind::Deleted, Some(&half.path), None, Some(half.kind))
    }

    fn whole(&self, path: &[u8]) -> Vec<u8> {
        [self.top.as_bytes(), b"/", path].concat()
    }

    /// Watches one folder.
    fn add(&mut self, path: &[u8]) -> rustix::io::Result<()> {
        let flags = if path.is_empty() { WANTED } else { WANTED | WatchFlags::DONT_FOLLOW };
        let wd = inotify::add_watch(&self.inotify, self.whole(path), flags)?;
        self.folders.insert(wd, path.to_vec());
        Ok(())
    }

    /// Watches a folder and, if recursive, all below it; reports what is in it, if the folder is new.
    fn enter(&mut self, path: &[u8], new: bool) -> Result<()> {
        if !self.recursive {
            return Ok(());
        }
        let mut waiting = vec![path.to_vec()];
        while let Some(path) = waiting.pop() {
            if self.folders.len() >= MOST_FOLDERS {
                return self.limit(&path);
            }
            match self.add(&path) {
                Ok(()) => {}
                Err(Errno::NOSPC | Errno::NOMEM) => return self.limit(&path),
                // Removed, or not readable by the user.
                Err(_) => continue,
            }
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let folder = openat(CWD, self.whole(&path), flags, Mode::empty());
            let Ok(entries) = folder.and_then(Dir::new) else { continue };
            for entry in entries.flatten() {
                let name = entry.file_name().to_bytes();
                if matches!(name, b"." | b"..") {
                    continue;
                }
                let path = join(&path, name);
                let Some(kind) = self.kind(&path) else { continue };
                if new && (kind == EntryKind::Directory || !is_unfinished(&path)) {
                    self.queue(WatchEventKind::Created, Some(&path), None, Some(kind))?;
                    if self.found.len() < MOST_REMEMBERED {
                        self.found.insert(path.clone());
                    }
                }
                if kind == EntryKind::Directory && waiting.len() <= MOST_FOLDERS {
                    waiting.push(path);
                }
            }
        }
        Ok(())
    }

    fn limit(&mut self, path: &[u8]) -> Result<()> {
        if std::mem::replace(&mut self.limited, true) {
            return Ok(());
        }
        self.queue(WatchEventKind::Limit, Some(path), None, Some(EntryKind::Directory))
    }

    fn queue(
        &mut self,
        event: WatchEventKind,
        path: Option<&[u8]>,
        to: Option<&[u8]>,
        kind: Option<EntryKind>,
    ) -> Result<()> {
        let called = |path: &[u8]| shown_path(&self.top, path);
        self.queue.push(WatchEvent { event, path: path.map(called), to: to.map(called), kind });
        if self.queue.len() >= BATCH { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<()> {
        let queue = std::mem::take(&mut self.queue);
        if queue.is_empty() { Ok(()) } else { (self.tell)(&queue) }
    }
}

#[cfg(test)]
#[path = "watch_tests.rs"]
mod tests;
