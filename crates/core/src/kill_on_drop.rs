//! A command that is tied to its caller ends when the caller goes away.

use crate::exec::ExecTask;
use atoll_provider::{Container, Guest};
use atoll_types::ExecId;
use std::{sync::Arc, time::Duration};

/// How long a command that was asked to end may take.
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(50);

/// Kills a command when dropped, unless it was disarmed. The command's task, where it has one, writes that
/// its caller went away.
pub(crate) struct KillOnDrop {
    container: Arc<dyn Container>,
    id: Option<ExecId>,
    gently: bool,
    task: Option<Arc<ExecTask>>,
}

impl KillOnDrop {
    pub(crate) fn new(container: &Arc<dyn Container>, id: ExecId) -> Self {
        Self { container: Arc::clone(container), id: Some(id), gently: false, task: None }
    }

    /// Closes its input first, so that it can tidy up.
    pub(crate) fn gently(mut self) -> Self {
        self.gently = true;
        self
    }

    /// The task that writes the command's end.
    pub(crate) fn of(mut self, task: &Arc<ExecTask>) -> Self {
        self.task = Some(Arc::clone(task));
        self
    }

    /// The command has ended, or goes on without its caller.
    pub(crate) fn disarm(&mut self) {
        self.id = None;
    }

    /// It has ended, and no caller knows its id: its output need not stay.
    pub(crate) fn forget(&mut self) {
        if let Some(id) = self.id.take() {
            let guest = self.container.guest().clone();
            tokio::spawn(async move { guest.forget_exec(id).await });
        }
    }
}

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        let Some(id) = self.id.take() else { return };
        if let Some(task) = &self.task {
            task.cancel();
        }
        let (container, gently) = (Arc::clone(&self.container), self.gently);
        tokio::spawn(async move {
            let guest = container.guest();
            if gently && ended_by_itself(guest, id).await {
                return;
            }
            if let Err(error) = guest.kill(id).await {
                tracing::debug!(%error, "a command whose caller went away cannot be killed");
            }
        });
    }
}

/// Closes its input and waits a little.
async fn ended_by_itself(guest: &Guest, id: ExecId) -> bool {
    let ended = async {
        let _ = guest.write_stdin(id, futures_util::stream::empty()).await;
        loop {
            match guest.get_exec(id).await {
                Ok(report) if report.ended => return true,
                Ok(_) => tokio::time::sleep(PAUSE).await,
                Err(_) => return false,
            }
        }
    };
    tokio::time::timeout(PATIENCE, ended).await.unwrap_or(false)
}
