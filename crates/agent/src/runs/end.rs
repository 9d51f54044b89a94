//! The end of a run: it is written, its event is sent, and the thread's next run begins.

use super::dispatch::Control;
use crate::{Agents, CancelAction, EventKind, RunOutcome, turn::TurnEnd};
use atoll_core::Caller;
use atoll_store::RunEnd;
use atoll_types::{
    Result,
    conversation::{RunRecord, RunStatus, StopReason, ThreadStatus},
    time::now_ms,
};
use futures_util::FutureExt;
use std::sync::atomic::Ordering;

/// How a run and its thread stand after an end of this kind.
fn statuses(stopped: StopReason) -> (RunStatus, ThreadStatus) {
    match stopped {
        StopReason::Answered | StopReason::Iterations | StopReason::Tokens => {
            (RunStatus::Success, ThreadStatus::Idle)
        }
        StopReason::Time => (RunStatus::Timeout, ThreadStatus::Idle),
        StopReason::Cancelled => (RunStatus::Interrupted, ThreadStatus::Idle),
        StopReason::Approval => (RunStatus::Interrupted, ThreadStatus::Interrupted),
        StopReason::Failed => (RunStatus::Error, ThreadStatus::Error),
    }
}

impl Agents {
    /// Writes how a run ended, tells it, and removes what the run is not to leave behind.
    pub(super) async fn finish(&self, record: &RunRecord, end: TurnEnd, control: &Control) {
        let new = &record.new;
        let (status, thread) = statuses(end.stopped);
        let run_end =
            RunEnd { status, stopped: end.stopped, failure: end.failure.clone(), thread, at: now_ms() };
        let told = match self.store.finish_run(&new.owner, &new.thread, new.id, run_end).await {
            // A request that cancelled it as it began has written its end and sent the event.
            Ok(false) => true,
            Ok(true) => false,
            Err(error) => {
                // The next start of the server finds it running and goes on with it.
                tracing::error!(%error, run = %new.id, "the end of a run cannot be written");
                false
            }
        };
        if new.stateless {
            self.forget(record).boxed().await;
        } else if control.rolls_back.load(Ordering::Acquire)
            && let Err(error) = self.store.roll_back_run(&new.owner, &new.thread, new.id).await
        {
            tracing::error!(%error, run = %new.id, "a run cannot be rolled back");
        }
        if told {
            return;
        }
        if !end.interrupts.is_empty() {
            let interrupts = end.interrupts;
            self.logs.append(&new.owner, &new.thread, new.id, EventKind::Interrupted { interrupts });
        }
        let finished = EventKind::Finished { status, stopped: end.stopped, failure: end.failure };
        self.logs.append(&new.owner, &new.thread, new.id, finished);
    }

    /// Deletes the thread of a run that was asked for without one. What the run came to is kept for those who wait for it.
    pub(super) async fn forget(&self, record: &RunRecord) {
        let new = &record.new;
        let caller = Caller::lifecycle(&new.owner, &new.owner_name);
        let state = self.state(&caller, &new.thread, None).await.ok().flatten();
        let ended = self.store.run(&new.owner, &new.thread, new.id).await.ok().flatten();
        self.active.keep_outcome(RunOutcome { run: ended.unwrap_or_else(|| record.clone()), state });
        let who = atoll_tool_sessions::ToolCaller { caller, thread: new.thread.clone(), address: None };
        if let Err(error) = self.sessions.delete_thread(&who, "its run has ended").await {
            tracing::warn!(%error, "the sessions of a run without a thread stay until they are idle");
        }
        if let Err(error) = self.store.remove_conversation(&new.owner, &new.thread).await {
            tracing::error!(%error, "the thread of a run without one cannot be removed");
        }
    }

    /// Ends a run that waits or is carried out.
    pub(super) async fn stop(&self, record: &RunRecord, action: CancelAction, wait: bool) -> Result<()> {
        let new = &record.new;
        let rolls_back = action == CancelAction::Rollback;
        if self.active.control(new.id).is_none() {
            let control = Control::default();
            control.rolls_back.store(rolls_back, Ordering::Release);
            self.finish(record, TurnEnd::cancelled(), &control).boxed().await;
        }
        // It is carried out, or was begun in this moment.
        if let Some(control) = self.active.control(new.id) {
            control.rolls_back.fetch_or(rolls_back, Ordering::AcqRel);
            control.cancel.cancel();
            if wait {
                control.ended.cancelled().await;
            }
        }
        Ok(())
    }
}
