//! Keeping the sessions of MCP clients.

use crate::{Millis, Result};
use async_trait::async_trait;
use atoll_types::McpSession;

/// Sessions of MCP clients.
#[async_trait]
pub trait McpSessions: Send + Sync {
    /// Stores a session; one of the same id is replaced.
    async fn put_mcp_session(&self, session: McpSession) -> Result<()>;
    /// One session.
    async fn mcp_session(&self, id: &str) -> Result<Option<McpSession>>;
    /// Records that sessions were used. Never moves back; an unknown one is ignored.
    async fn touch_mcp_sessions(&self, ids: &[String], at: Millis) -> Result<()>;
    /// Removes a session; false when there was none.
    async fn remove_mcp_session(&self, id: &str) -> Result<bool>;
    /// All sessions.
    async fn mcp_sessions(&self) -> Result<Vec<McpSession>>;
    /// Counts a holder's sessions, and all of them.
    async fn count_mcp_sessions(&self, holder: &str) -> Result<(u64, u64)>;
}
