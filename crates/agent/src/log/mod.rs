//! The events of a thread's runs, numbered and kept in memory within bounds.
//!
//! A number is greater than that of every earlier event of its thread, also of one before a restart: the first of a log is
//! made of the time. A log that is full forgets its oldest events; a follower that had not read them is told so and gets the
//! newest checkpoint. Followers pull: a slow one holds no writer up. A log whose runs have ended, that has no follower and that
//! has been silent for a while is dropped as a whole; what it held is in the store as checkpoints. Bytes are counted as they are
//! in memory (`weight`), of one log and of all together.

mod event;
mod follow;
mod weight;

pub use event::{Event, EventKind, OutputStream};
pub use follow::RunFollow;

use atoll_types::{Millis, RunId, ThreadId, time::now_ms};
use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicI64, AtomicUsize, Ordering},
    },
};
use tokio::sync::watch;
use weight::Held;

/// The most events that one thread's log keeps.
const MOST_EVENTS: usize = 16 * 1024;
/// The most bytes of one log's events; of the last one, however large it is, the log keeps the whole.
const MOST_BYTES: usize = 8 << 20;
/// The most bytes of all logs. Beyond it those that are not needed are dropped, and the others keep less.
const MOST_OF_ALL: usize = 256 << 20;
const MOST_BYTES_THEN: usize = 1 << 20;
/// How long a log is kept that is silent and has no follower.
const SILENT: Millis = 10 * 60 * 1000;
/// How often logs are looked through; and how often where they are too large together.
const BETWEEN_SWEEPS: Millis = 60 * 1000;
const BETWEEN_SWEEPS_THEN: Millis = 1000;
/// Numbers of one millisecond: below 2^53 together with the time until 2039.
const PER_MILLI: u64 = 1 << 12;

/// Logs by owner and thread.
type LogsByThread = HashMap<(String, ThreadId), Arc<ThreadLog>>;

/// The logs of all threads. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct ThreadLogs(Arc<AllLogs>);

#[derive(Default)]
struct AllLogs {
    logs: Mutex<LogsByThread>,
    /// The bytes of all of them.
    bytes: Arc<AtomicUsize>,
    /// When they were last looked through.
    swept: AtomicI64,
}

/// The log of one thread.
struct ThreadLog {
    kept: Mutex<LogState>,
    /// The number of the last event; closed with the thread.
    last: watch::Sender<u64>,
}

struct LogState {
    events: VecDeque<Event>,
    held: Held,
    /// The bytes of all logs, which those of this one are a part of.
    of_all: Arc<AtomicUsize>,
    /// The number of the last event that was forgotten; 0 where none was.
    forgotten: u64,
    /// The newest checkpoint, whether it is among the events or not.
    checkpoint: Option<Event>,
    written: Millis,
    /// Whether no run is under way.
    ended: bool,
    closed: bool,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl LogState {
    fn new(of_all: Arc<AtomicUsize>) -> Self {
        Self {
            events: VecDeque::new(),
            held: Held::default(),
            of_all,
            forgotten: 0,
            checkpoint: None,
            written: now_ms(),
            ended: true,
            closed: false,
        }
    }

    fn push(&mut self, event: Event) {
        let before = self.held.bytes();
        self.held.add(&event.kind);
        self.ended = matches!(event.kind, EventKind::Finished { .. });
        if matches!(event.kind, EventKind::Checkpoint(_)) {
            self.held.add(&event.kind);
            if let Some(old) = self.checkpoint.replace(event.clone()) {
                self.held.remove(&old.kind);
            }
        }
        self.written = event.at;
        self.events.push_back(event);
        let crowded = self.of_all.load(Ordering::Relaxed) > MOST_OF_ALL;
        let most = if crowded { MOST_BYTES_THEN } else { MOST_BYTES };
        while self.events.len() > MOST_EVENTS || (self.held.bytes() > most && self.events.len() > 1) {
            let Some(old) = self.events.pop_front() else { break };
            self.held.remove(&old.kind);
            self.forgotten = old.seq;
        }
        let after = self.held.bytes();
        self.of_all.fetch_add(after, Ordering::Relaxed);
        self.of_all.fetch_sub(before, Ordering::Relaxed);
    }
}

impl Drop for LogState {
    fn drop(&mut self) {
        self.of_all.fetch_sub(self.held.bytes(), Ordering::Relaxed);
    }
}

impl ThreadLog {
    fn new(of_all: Arc<AtomicUsize>) -> Self {
        Self { kept: Mutex::new(LogState::new(of_all)), last: watch::Sender::new(0) }
    }

    fn append(&self, run: RunId, kind: EventKind) -> u64 {
        let mut kept = locked(&self.kept);
        let at = now_ms();
        let fresh = u64::try_from(at).unwrap_or(0) * PER_MILLI;
        let seq = fresh.max(*self.last.borrow() + 1);
        kept.push(Event { seq, at, run, kind });
        drop(kept);
        self.last.send_replace(seq);
        seq
    }

    /// When it was last written, where no run and no follower needs it.
    fn unneeded_since(self: &Arc<Self>) -> Option<Millis> {
        let used = Arc::strong_count(self) > 1 || self.last.receiver_count() > 0;
        let kept = locked(&self.kept);
        (!used && kept.ended).then_some(kept.written)
    }
}

impl AllLogs {
    /// Drops logs that are not needed: silent ones, and where all are too large together the oldest.
    fn sweep(&self, logs: &mut LogsByThread) {
        let (now, crowded) = (now_ms(), self.bytes.load(Ordering::Relaxed) > MOST_OF_ALL);
        let wait = if crowded { BETWEEN_SWEEPS_THEN } else { BETWEEN_SWEEPS };
        if now - self.swept.load(Ordering::Relaxed) < wait {
            return;
        }
        self.swept.store(now, Ordering::Relaxed);
        logs.retain(|_, log| log.unneeded_since().is_none_or(|written| now - written <= SILENT));
        if !crowded {
            return;
        }
        let mut unneeded: Vec<_> =
            logs.iter().filter_map(|(of, log)| Some((log.unneeded_since()?, of.clone()))).collect();
        unneeded.sort_unstable();
        for (_, of) in unneeded {
            if self.bytes.load(Ordering::Relaxed) <= MOST_OF_ALL {
                break;
            }
            logs.remove(&of);
        }
    }
}

impl ThreadLogs {
    fn of(&self, owner: &str, thread: &ThreadId) -> Arc<ThreadLog> {
        let mut logs = locked(&self.0.logs);
        self.0.sweep(&mut logs);
        let new = || Arc::new(ThreadLog::new(Arc::clone(&self.0.bytes)));
        Arc::clone(logs.entry((owner.to_owned(), thread.clone())).or_insert_with(new))
    }

    fn known(&self, owner: &str, thread: &ThreadId) -> Option<Arc<ThreadLog>> {
        locked(&self.0.logs).get(&(owner.to_owned(), thread.clone())).map(Arc::clone)
    }

    /// Writes what happened in a run and returns its number.
    pub(crate) fn append(&self, owner: &str, thread: &ThreadId, run: RunId, kind: EventKind) -> u64 {
        self.of(owner, thread).append(run, kind)
    }

    /// The number of a thread's last event; 0 where there is none.
    pub(crate) fn last_seq(&self, owner: &str, thread: &ThreadId) -> u64 {
        self.known(owner, thread).map_or(0, |log| *log.last.borrow())
    }

    /// The events of a thread after a number, of one run or of all.
    pub(crate) fn follow(&self, owner: &str, thread: &ThreadId, run: Option<RunId>, after: u64) -> RunFollow {
        RunFollow::of_log(self.of(owner, thread), run, after)
    }

    /// Whether there is anything of a run.
    pub(crate) fn has(&self, owner: &str, thread: &ThreadId, run: RunId) -> bool {
        let log = self.known(owner, thread);
        log.is_some_and(|log| locked(&log.kept).events.iter().any(|event| event.run == run))
    }

    /// Ends the log of a thread that is deleted, and with it its followers.
    pub(crate) fn close(&self, owner: &str, thread: &ThreadId) {
        let log = locked(&self.0.logs).remove(&(owner.to_owned(), thread.clone()));
        if let Some(log) = log {
            locked(&log.kept).closed = true;
            log.last.send_modify(|_| ());
        }
    }
}

#[cfg(test)]
mod tests;
