//! The owners of MCP sessions. The SDK gives a session to every client that knows its id; here only the key
//! that began it may use it. Sessions are in the store, so that a server that starts again goes on with them:
//! the SDK asks here how one began.

use async_trait::async_trait;
use atoll_core::{Caller, Core};
use atoll_tool_sessions::ThreadId;
use atoll_types::{McpSession, Millis, Result, time::now_ms};
use rmcp::transport::streamable_http_server::session::{SessionState, SessionStore, SessionStoreError};
use serde_json::Value;
use std::{sync::Arc, time::Duration};
use tokio::sync::OnceCell;

/// MCP sessions of all keys together.
const MOST: u64 = 4096;
/// How old a note of use may be before it is renewed.
const STALE: Duration = Duration::from_secs(10);

/// A key; or an owner where there are no keys.
fn holder(caller: &Caller) -> String {
    match &caller.key {
        Some(key) => format!("key {key}"),
        None => format!("owner {}", caller.owner),
    }
}

fn ago(time: Duration) -> Millis {
    now_ms().saturating_sub(Millis::try_from(time.as_millis()).unwrap_or(Millis::MAX))
}

/// All of them.
#[derive(Clone)]
pub(super) struct SessionOwners {
    core: Core,
    per_key: u64,
    /// A session that is not used for this long is ended.
    idle: Duration,
    /// Set when the sessions of an earlier server are taken over.
    begun: Arc<OnceCell<()>>,
    /// Held while a session begins: one at a time, so that no key gets more than the limit by parallel
    /// requests.
    opening: Arc<tokio::sync::Mutex<()>>,
}

impl SessionOwners {
    pub(super) fn new(core: Core, per_key: usize, idle: Duration) -> Self {
        Self { core, per_key: per_key as u64, idle, begun: Arc::default(), opening: Arc::default() }
    }

    /// Takes over the sessions of an earlier server: as long as there was none, no client could use its own.
    async fn begin(&self) -> Result<()> {
        let touch = || async {
            let all = self.core.mcp_sessions.all().await?;
            self.touch(&all.into_iter().map(|session| session.id).collect::<Vec<_>>()).await
        };
        self.begun.get_or_try_init(touch).await.map(drop)
    }

    /// Notes that sessions are used.
    pub(super) async fn touch(&self, ids: &[String]) -> Result<()> {
        if ids.is_empty() { Ok(()) } else { self.core.mcp_sessions.touch(ids, now_ms()).await }
    }

    /// The sessions that were not used for too long.
    pub(super) async fn unused(&self) -> Result<Vec<McpSession>> {
        self.begin().await?;
        let mut all = self.core.mcp_sessions.all().await?;
        let oldest = ago(self.idle);
        all.retain(|session| session.active_at < oldest);
        Ok(all)
    }

    /// Whether another session has the same thread.
    pub(super) async fn share_thread(&self, session: &McpSession) -> Result<bool> {
        let all = self.core.mcp_sessions.all().await?;
        let same = |other: &McpSession| other.owner == session.owner && other.thread == session.thread;
        Ok(all.iter().any(|other| other.id != session.id && same(other)))
    }

    /// The session of this id, if it is the caller's and was used not too long ago; it is used now.
    pub(super) async fn find(&self, id: &str, caller: &Caller) -> Result<Option<McpSession>> {
        self.begin().await?;
        let found = self.core.mcp_sessions.get(id).await?.filter(|session| session.holder == holder(caller));
        let Some(session) = found.filter(|session| session.active_at >= ago(self.idle)) else {
            return Ok(None);
        };
        if session.active_at < ago(STALE.min(self.idle / 4)) {
            self.touch(&[id.to_owned()]).await?;
        }
        Ok(Some(session))
    }

    /// Begins a session; waits for the one that begins just now.
    pub(super) async fn opening(&self) -> Opening<'_> {
        Opening { owners: self, _turn: self.opening.lock().await }
    }

    /// The session of this id, of any key.
    pub(super) async fn get(&self, id: &str) -> Result<Option<McpSession>> {
        self.core.mcp_sessions.get(id).await
    }

    /// Forgets one.
    pub(super) async fn remove(&self, id: &str) -> Result<()> {
        self.core.mcp_sessions.remove(id).await
    }
}

/// A session that begins.
pub(super) struct Opening<'a> {
    owners: &'a SessionOwners,
    _turn: tokio::sync::MutexGuard<'a, ()>,
}

impl Opening<'_> {
    /// Whether the caller may have another session.
    pub(super) async fn has_room(&self, caller: &Caller) -> Result<bool> {
        let (own, all) = self.owners.core.mcp_sessions.count(&holder(caller)).await?;
        Ok(own < self.owners.per_key && all < MOST)
    }

    /// Remembers one, with the parameters of its `initialize`.
    pub(super) async fn add(
        &self,
        id: &str,
        caller: &Caller,
        thread: Option<ThreadId>,
        params: &Value,
    ) -> Result<()> {
        let session = McpSession {
            id: id.to_owned(),
            holder: holder(caller),
            owner: caller.owner.clone(),
            owner_name: caller.owner_name.clone(),
            thread: thread.map(|thread| thread.to_string()),
            params: params.to_string(),
            active_at: now_ms(),
        };
        self.owners.core.mcp_sessions.put(session).await
    }
}

/// What the SDK asks. The owner of the session was checked before.
#[async_trait]
impl SessionStore for SessionOwners {
    async fn load(&self, id: &str) -> Result<Option<SessionState>, SessionStoreError> {
        let Some(session) = self.core.mcp_sessions.get(id).await? else { return Ok(None) };
        Ok(Some(SessionState::new(serde_json::from_str(&session.params)?)))
    }

    /// The session is stored when its owner is known.
    async fn store(&self, _: &str, _: &SessionState) -> Result<(), SessionStoreError> {
        Ok(())
    }

    async fn delete(&self, id: &str) -> Result<(), SessionStoreError> {
        Ok(self.remove(id).await?)
    }
}
