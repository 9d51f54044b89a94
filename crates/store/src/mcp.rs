//! Sessions of MCP clients over HTTP: their owners and their `initialize` parameters, so that a restarted
//! server knows them. Their requests are not stored.

use crate::{Millis, Result};
use async_trait::async_trait;

/// A session of an MCP client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct McpSession {
    /// The id that the client sends.
    pub id: String,
    /// The key that began it, which alone may use it.
    pub holder: String,
    /// The owner of that key.
    pub owner: String,
    /// What the owner is called.
    pub owner_name: String,
    /// The thread that was named when it began.
    pub thread: Option<String>,
    /// The parameters of its `initialize`, as JSON.
    pub params: String,
    /// When it was last used.
    pub active_at: Millis,
}

/// Sessions of MCP clients.
#[async_trait]
pub trait McpSessions: Send + Sync {
    /// Stores a session; one of the same id is replaced.
    async fn put_mcp_session(&self, session: McpSession) -> Result<()>;
    /// One session.
    async fn mcp_session(&self, id: &str) -> Result<Option<McpSession>>;
    /// Records that a session was used. Never moves back; an unknown one is ignored.
    async fn touch_mcp_session(&self, id: &str, at: Millis) -> Result<()>;
    /// Removes a session; false when there was none.
    async fn remove_mcp_session(&self, id: &str) -> Result<bool>;
    /// Removes those that were last used before a time, and counts the rest: a holder's, and all of them.
    async fn count_mcp_sessions(&self, holder: &str, since: Millis) -> Result<(u64, u64)>;
}
