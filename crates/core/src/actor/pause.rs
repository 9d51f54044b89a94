//! Pausing and resuming. A request that needs the container of a paused sandbox resumes it first, and only
//! here; the reason is recorded with the change of status, and so in the event.
//!
//! The actor's own flag is only what it last did. After a restart, or where a reply was lost, it queries the
//! provider.

use super::{SandboxActor, must_allow, reason_to_run};
use crate::lifecycle::ActiveContainer;
use atoll_provider::{Container, State};
use atoll_store::{ActivityKind, Change, SandboxRecord, Status, StatusChange};
use atoll_types::{ContainerId, Error, ErrorCode, LegalStates, Operation, Result, time::now_ms};
use std::sync::Arc;
use tokio::sync::oneshot;

impl SandboxActor {
    /// The container of a running sandbox. A paused one is resumed first.
    pub(super) async fn container(&mut self, by: &str) -> Result<Arc<dyn Container>> {
        let container = self.attached().await?;
        if self.paused {
            self.unpause(&container, format!("resumed by {by}")).await?;
        }
        Ok(container)
    }

    /// The same, for a caller that works with it where the sandbox is in one of these states: it does not count as idle
    /// before that is over.
    pub(super) async fn acquire(&mut self, states: LegalStates, by: &str) -> Result<ActiveContainer> {
        let activity_guard = self.shared.activity_tracker.begin(self.id);
        // A sandbox with a container is ready or paused, which every operation that needs one allows.
        if self.container.is_none() {
            must_allow(states, &self.whole_record().await?)?;
        }
        Ok(ActiveContainer::new(self.container(by).await?, activity_guard))
    }

    /// A handle on the container, with its egress sockets served, and whether it is paused.
    pub(super) async fn find_container(
        &mut self,
        record: &SandboxRecord,
        id: ContainerId,
    ) -> Result<Arc<dyn Container>> {
        let container = self.provider(record)?.attach(id).await?;
        self.paused = container.state().await? == State::Paused;
        let secrets = self.environment(record)?.secret_values().collect();
        // Without egress a sandbox still works; it only reaches nothing.
        if let Err(error) = self.shared.egress_sessions.open(record, &container, secrets, false).await {
            tracing::error!(sandbox = %self.id, %error, "a sandbox's egress sockets cannot be served");
        }
        self.container = Some(Arc::clone(&container));
        Ok(container)
    }

    /// Forgets the container. Callers that wait for it to be resumed get an error.
    pub(super) fn detach(&mut self) {
        self.container = None;
        self.dying = None;
        self.paused = false;
        self.asleep.clear();
    }

    /// Replies when the sandbox is not paused, without resuming it.
    pub(super) async fn awake(&mut self, reply: oneshot::Sender<Result<Arc<dyn Container>>>) {
        match self.attached().await {
            Ok(_) if self.paused => self.asleep.push(reply),
            container => _ = reply.send(container),
        }
    }

    /// Pauses the sandbox, on request or because it was idle.
    pub(super) async fn pause(&mut self, reason: String, idle_pause: bool) -> Result<SandboxRecord> {
        let record = self.whole_record().await?;
        must_allow(LegalStates::NotDestroyed, &record)?;
        if !Operation::SandboxPause.states().allow(record.status) {
            let message = format!("the sandbox is {}; only one that runs can be paused", record.status);
            return Err(Error::new(ErrorCode::NotRunning, message));
        }
        if record.status == Status::Paused {
            return Ok(record);
        }
        let container = self.attached().await?;
        let lacking = || Error::new(ErrorCode::Unsupported, "sandboxes cannot be paused here");
        let power = container.pause().ok_or_else(lacking)?;
        if let Err(error) = power.pause().await {
            // The reply may have been lost after the pause succeeded.
            match container.state().await {
                Ok(State::Paused) => {}
                Ok(_) => return Err(error),
                Err(_) => {
                    self.detach();
                    return Err(error);
                }
            }
        }
        self.paused = true;
        let status = StatusChange { idle_pause, ..StatusChange::new(Status::Paused, Some(reason.clone())) };
        let activity = self.activity(ActivityKind::Pause, reason);
        let written =
            self.change(&record, Change { status: Some(status), activity, ..Change::default() }).await;
        if written.is_err() {
            self.paused = power.resume().await.is_err();
        }
        written
    }

    /// Resumes the sandbox.
    async fn unpause(&mut self, container: &Arc<dyn Container>, reason: String) -> Result<()> {
        let lacking = || Error::internal("what is paused cannot be resumed");
        container.pause().ok_or_else(lacking)?.resume().await?;
        let record = self.record().await?;
        let status = StatusChange::new(Status::Ready, reason_to_run(record.start_due, Some(reason.clone())));
        let activity = self.activity(ActivityKind::Resume, reason);
        let change =
            Change { status: Some(status), last_activity_at: Some(now_ms()), activity, ..Change::default() };
        self.change(&record, change).await?;
        // Only now: where the record could not be written, the next request tries again.
        self.paused = false;
        for waiting in self.asleep.drain(..) {
            let _ = waiting.send(Ok(Arc::clone(container)));
        }
        Ok(())
    }
}
