//! Following runs and threads.

use super::Agents;
use crate::{Event, EventKind, RunFollow};
use atoll_core::Caller;
use atoll_types::{Error, ErrorCode, Result, RunId, ThreadId, conversation::CheckpointQuery};

impl Agents {
    /// The events of a run after a number (0: all that are kept), to its end. Of a run that ended before the server was
    /// started there are its last state and its end.
    pub async fn follow_run(
        &self,
        caller: &Caller,
        thread: &ThreadId,
        run: RunId,
        after: u64,
    ) -> Result<RunFollow> {
        // The log of a run outlives the thread of a run that was asked for without one.
        if self.logs.has(&caller.owner, thread, run) {
            return Ok(self.logs.follow(&caller.owner, thread, Some(run), after));
        }
        let found = self.store.run(&caller.owner, thread, run).await?;
        let record =
            found.ok_or_else(|| Error::new(ErrorCode::NotFound, "there is no such run").at("run_id"))?;
        if record.status.is_active() {
            return Ok(self.logs.follow(&caller.owner, thread, Some(run), after));
        }
        let query = CheckpointQuery { run: Some(run), limit: 1, ..CheckpointQuery::default() };
        let last = self.store.thread_checkpoints(&caller.owner, thread, &query).await?.pop();
        let kinds = [
            Some(EventKind::Started { attempt: record.attempts.max(1) }),
            last.map(|last| EventKind::Checkpoint(last.into())),
            record.stopped.map(|stopped| EventKind::Finished {
                status: record.status,
                stopped,
                failure: record.failure.clone(),
            }),
        ];
        let event = |(at, kind)| Event { seq: after + 1 + at as u64, at: record.updated_at, run, kind };
        Ok(RunFollow::of_events(kinds.into_iter().flatten().enumerate().map(event).collect()))
    }

    /// The events of all runs of a thread after a number, without an end. The thread need not exist yet.
    pub async fn follow_thread(&self, caller: &Caller, thread: &ThreadId, after: u64) -> Result<RunFollow> {
        Ok(self.logs.follow(&caller.owner, thread, None, after))
    }

    /// The number of a thread's last event; 0 where there is none.
    pub async fn last_seq(&self, caller: &Caller, thread: &ThreadId) -> Result<u64> {
        Ok(self.logs.last_seq(&caller.owner, thread))
    }
}
