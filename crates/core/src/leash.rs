//! A command ends when whoever waits for it goes away.

use atoll_provider::{Container, Guest};
use atoll_types::ExecId;
use std::{sync::Arc, time::Duration};

/// How long a command that was asked to end may take.
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(50);

/// Kills a command when dropped, unless it has ended.
pub(crate) struct Leash {
    container: Arc<dyn Container>,
    id: Option<ExecId>,
    gently: bool,
}

impl Leash {
    pub(crate) fn new(container: &Arc<dyn Container>, id: ExecId) -> Self {
        Self { container: Arc::clone(container), id: Some(id), gently: false }
    }

    /// Lets it see the end of its input first, so that it can tidy up.
    pub(crate) fn gently(mut self) -> Self {
        self.gently = true;
        self
    }

    /// It has ended, and nobody can ask for it again: its output need not stay.
    pub(crate) fn forget(&mut self) {
        if let Some(id) = self.id.take() {
            let guest = self.container.guest().clone();
            tokio::spawn(async move { guest.forget_exec(id).await });
        }
    }
}

impl Drop for Leash {
    fn drop(&mut self) {
        if let Some(id) = self.id.take() {
            let (container, gently) = (Arc::clone(&self.container), self.gently);
            tokio::spawn(async move {
                let guest = container.guest();
                if gently && ended_by_itself(guest, id).await {
                    return;
                }
                if let Err(error) = guest.kill(id).await {
                    tracing::debug!(%error, "cannot kill a command that nobody waits for");
                }
            });
        }
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
