//! Runs as a service: asked for, queued, carried out each by one task, cancelled, waited for, and gone on with after a restart
//! of the server.
//!
//! A run is a row before it is carried out, and the store decides which run of a thread is next, so two of one thread never
//! run at once. A run's end is written before its last event is sent. Dropping the task of a run, as the end of the server
//! does, leaves the row running: the next start lets it wait again and goes on with it.

mod dispatch;
mod end;
mod start;

use crate::{Agents, CancelAction, EventKind, RunOutcome, service::no_thread};
use atoll_core::{Caller, ExtensionOperation};
use atoll_tool_sessions::ToolCaller;
use atoll_types::{
    Error, ErrorCode, Operation, Result, RunId, ThreadId,
    conversation::{CheckpointQuery, RunRecord, RunStatus},
};
pub(crate) use dispatch::ActiveRuns;
use futures_util::FutureExt;
use std::time::Duration;

/// How long a request waits before it reads the store again for an end whose event it has seen.
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);
/// The most runs of a thread that are looked at to end them.
const MOST_ENDED: u32 = 1000;

pub(crate) fn no_run() -> Error {
    Error::new(ErrorCode::NotFound, "there is no such run").at("run_id")
}

impl Agents {
    /// The runs of a thread, the newest first.
    pub async fn runs(
        &self,
        caller: &Caller,
        thread: &ThreadId,
        status: Option<RunStatus>,
        limit: u32,
        offset: u32,
    ) -> Result<Vec<RunRecord>> {
        if self.store.conversation(&caller.owner, thread).await?.is_none() {
            return Err(no_thread());
        }
        Ok(self.store.runs(&caller.owner, thread, status, limit, offset).await?)
    }

    /// One of them.
    pub async fn run(&self, caller: &Caller, thread: &ThreadId, run: RunId) -> Result<RunRecord> {
        match self.store.run(&caller.owner, thread, run).await? {
            Some(record) => Ok(record),
            None => self.active.outcome(&caller.owner, run).map(|outcome| outcome.run).ok_or_else(no_run),
        }
    }

    /// Waits for the end of a run. The state is the last checkpoint of that run.
    pub async fn wait(&self, caller: &Caller, thread: &ThreadId, run: RunId) -> Result<RunOutcome> {
        let (mut follow, mut looks) = (None, 0_u32);
        loop {
            if looks > 1 {
                // The end is written before its event is sent; that it cannot be read yet is an outage of the store.
                tokio::time::sleep(BETWEEN_LOOKS).await;
            }
            looks = looks.saturating_add(1);
            if let Some(outcome) = self.active.outcome(&caller.owner, run) {
                return Ok(outcome);
            }
            let Some(record) = self.store.run(&caller.owner, thread, run).await? else {
                // Between both looks its thread may have been deleted with its end.
                return self.active.outcome(&caller.owner, run).ok_or_else(no_run);
            };
            if !record.status.is_active() {
                let query = CheckpointQuery { run: Some(run), limit: 1, ..CheckpointQuery::default() };
                let own = self.store.thread_checkpoints(&caller.owner, thread, &query).await?.pop();
                let state = match own {
                    Some(own) => Some(own),
                    None => self.state(caller, thread, None).await?,
                };
                return Ok(RunOutcome { run: record, state });
            }
            let follow = follow.get_or_insert_with(|| self.logs.follow(&caller.owner, thread, Some(run), 0));
            while let Some(event) = follow.next().await? {
                if matches!(event.kind, EventKind::Finished { .. }) {
                    break;
                }
            }
        }
    }

    /// Cancels a run and what its tools run; with `wait`, returns after its end.
    pub async fn cancel_run(
        &self,
        caller: &Caller,
        thread: &ThreadId,
        run: RunId,
        action: CancelAction,
        wait: bool,
    ) -> Result<()> {
        let record = self.run(caller, thread, run).await?;
        if !record.status.is_active() {
            return Err(Error::new(ErrorCode::Conflict, "the run has ended"));
        }
        let operation =
            ExtensionOperation::new(Operation::RunCancel).with(run.to_string()).and("thread", thread);
        let work = self.stop(&record, action, wait).boxed();
        self.core.operations.carry_out(caller, operation, work).await
    }

    /// Removes the record of a run that has ended.
    pub async fn delete_run(&self, caller: &Caller, thread: &ThreadId, run: RunId) -> Result<()> {
        let record = self.run(caller, thread, run).await?;
        if record.status.is_active() {
            return Err(Error::new(ErrorCode::Conflict, "the run has not ended; cancel it first"));
        }
        let operation =
            ExtensionOperation::new(Operation::RunDelete).with(run.to_string()).and("thread", thread);
        let work = async {
            match self.store.remove_run(&caller.owner, thread, run).await? {
                true => Ok(()),
                false => Err(no_run()),
            }
        };
        self.core.operations.carry_out(caller, operation, work).await
    }

    /// Ends the runs of a thread that have not ended, and waits for it.
    pub(crate) async fn stop_all(&self, owner: &str, thread: &ThreadId, action: CancelAction) -> Result<()> {
        for status in [RunStatus::Pending, RunStatus::Running] {
            for record in self.store.runs(owner, thread, Some(status), MOST_ENDED, 0).await? {
                self.stop(&record, action, true).await?;
            }
        }
        Ok(())
    }

    /// Cancels its runs and deletes it with its checkpoints, sessions, uploads and exports.
    pub async fn delete_thread(&self, caller: &Caller, id: &ThreadId) -> Result<()> {
        if self.store.conversation(&caller.owner, id).await?.is_none() {
            return Err(no_thread());
        }
        // The operation in the audit trail is that of the tools, whose thread is the same.
        let who = ToolCaller { caller: caller.clone(), thread: id.clone(), address: None };
        self.stop_all(&caller.owner, id, CancelAction::Interrupt).await?;
        self.sessions.delete_thread(&who, "its conversation was deleted").await?;
        self.store.remove_conversation(&caller.owner, id).await?;
        self.logs.close(&caller.owner, id);
        Ok(())
    }
}
