//! The end of sessions whose clients have gone without a word: one that listened and has no connection any more,
//! and any that was not used for long. A session with an open stream or request is in use.

use super::{Inner, presence::Left, thread_of};
use atoll_core::Caller;
use atoll_tool_sessions::{CancellationToken, ToolCaller};
use atoll_types::{McpSession, Result};
use rmcp::transport::streamable_http_server::session::SessionManager;
use std::{
    sync::{Arc, Weak},
    time::Duration,
};

/// The longest time between two looks at the sessions.
const LOOK: Duration = Duration::from_secs(60);

/// Ends the session of a client that opens nothing of it for so long.
pub(super) fn left(inner: Weak<Inner>, patience: Duration) -> Left {
    Arc::new(move |session, since| {
        let (inner, Ok(runtime)) = (inner.clone(), tokio::runtime::Handle::try_current()) else { return };
        runtime.spawn(async move {
            tokio::time::sleep(patience).await;
            let Some(inner) = inner.upgrade().filter(|inner| inner.presence.forget_gone(&session, since))
            else {
                return;
            };
            if let Err(error) = inner.vanished(&session).await {
                tracing::warn!(%error, "the MCP session of a client that vanished cannot be ended");
            }
        });
    })
}

/// Looks after the sessions until the server ends.
pub(super) async fn keep(inner: Weak<Inner>, idle: Duration, end: CancellationToken) {
    let pause = (idle / 4).min(LOOK);
    loop {
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = end.cancelled() => return,
        }
        let Some(inner) = inner.upgrade() else { return };
        if let Err(error) = inner.sweep().await {
            tracing::warn!(%error, "MCP sessions cannot be seen to");
        }
    }
}

impl Inner {
    /// Notes the use of sessions that have a stream or request open, and ends those that were not used for too
    /// long.
    pub(super) async fn sweep(&self) -> Result<()> {
        self.owners.touch(&self.presence.open()).await?;
        for session in self.owners.unused().await? {
            if self.presence.is_open(&session.id) {
                continue;
            }
            // One that cannot be ended is tried again by the next sweep, and keeps none of the others.
            if let Err(error) = self.gone(&session).await {
                tracing::warn!(%error, "an MCP session that is not used cannot be ended");
            }
        }
        Ok(())
    }

    async fn vanished(&self, id: &str) -> Result<()> {
        match self.owners.get(id).await? {
            Some(session) => self.gone(&session).await,
            None => Ok(()),
        }
    }

    /// Ends a session whose client has gone.
    async fn gone(&self, session: &McpSession) -> Result<()> {
        let closed = self.manager.close_session(&session.id.clone().into()).await;
        if let Err(error) = closed {
            tracing::debug!(%error, "an MCP session ended by itself");
        }
        self.presence.forget(&session.id);
        self.owners.remove(&session.id).await?;
        self.leave_thread(session, Caller::lifecycle(&session.owner, &session.owner_name)).await;
        Ok(())
    }

    /// The client of a session that has ended is with its thread no more. A thread that belonged to the session alone
    /// ends with it: no client could reach it again. One that has a name waits for the next client that names it.
    pub(super) async fn leave_thread(&self, session: &McpSession, caller: Caller) {
        let Some(thread) = thread_of(session) else { return };
        let (who, sessions) = (ToolCaller { caller, thread, address: None }, &self.face.sessions);
        let done = match session.thread {
            None => sessions.delete_thread(&who, "its MCP session was ended").await.map(drop),
            Some(_) => match self.owners.share_thread(session).await {
                Ok(false) => sessions.client_left(&who).await,
                shared => shared.map(drop),
            },
        };
        if let Err(error) = done {
            tracing::warn!(%error, "the sessions of an MCP session cannot be ended");
        }
    }
}
