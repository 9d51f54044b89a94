//! Reading a log: followers pull, each at its own pace.

use super::{Event, EventKind, ThreadLog, locked};
use atoll_types::{Result, RunId};
use std::{collections::VecDeque, sync::Arc};
use tokio::sync::watch;

/// Events that are read from a number on, waiting where there are none yet. Dropped, nothing ends.
pub struct RunFollow {
    /// Events that come before those of the log.
    ready: VecDeque<Event>,
    log: Option<(Arc<ThreadLog>, watch::Receiver<u64>)>,
    run: Option<RunId>,
    after: u64,
}

impl RunFollow {
    pub(super) fn of_log(log: Arc<ThreadLog>, run: Option<RunId>, after: u64) -> Self {
        let told = log.last.subscribe();
        Self { ready: VecDeque::new(), log: Some((log, told)), run, after }
    }

    /// Of a run whose log is gone: what is known of it.
    pub(crate) fn of_events(events: Vec<Event>) -> Self {
        Self { ready: events.into(), log: None, run: None, after: 0 }
    }

    /// What comes next; none where the run has ended and everything was read. Cancelling a wait loses nothing.
    pub async fn next(&mut self) -> Result<Option<Event>> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                let last = matches!(event.kind, EventKind::Finished { .. });
                if last && self.run.is_some() {
                    self.log = None;
                }
                return Ok(Some(event));
            }
            let Some((log, told)) = &mut self.log else { return Ok(None) };
            told.mark_unchanged();
            let (found, closed) = take(log, self.run, &mut self.after);
            self.ready = found;
            if !self.ready.is_empty() {
                continue;
            }
            if closed || told.changed().await.is_err() {
                return Ok(None);
            }
        }
    }
}

/// How many events are taken out of a log at a time.
const BATCH: usize = 256;

/// The next events of a log after a number, which is moved, and whether the log is closed.
fn take(log: &ThreadLog, run: Option<RunId>, after: &mut u64) -> (VecDeque<Event>, bool) {
    let kept = locked(&log.kept);
    let mut found = VecDeque::new();
    if kept.forgotten > *after {
        let missed = Event {
            seq: kept.forgotten,
            at: kept.written,
            run: run.unwrap_or_else(no_run),
            kind: EventKind::Missed,
        };
        // The newest checkpoint, unless it comes anyway.
        let checkpoint = kept.checkpoint.clone().filter(|event| event.seq <= kept.forgotten);
        found.push_back(missed);
        found.extend(checkpoint);
        *after = kept.forgotten;
    }
    let begin = kept.events.partition_point(|event| event.seq <= *after);
    for event in kept.events.iter().skip(begin).take(BATCH) {
        *after = event.seq;
        if run.is_none_or(|run| run == event.run) {
            found.push_back(event.clone());
        }
    }
    let more = kept.events.back().is_some_and(|event| event.seq > *after);
    if found.is_empty() && more {
        drop(kept);
        return take(log, run, after);
    }
    (found, kept.closed)
}

/// What was missed is of no run in particular.
fn no_run() -> RunId {
    RunId::from_uuid(uuid::Uuid::nil())
}
