//! Sessions of MCP clients, as the store keeps them. The MCP front checks whose request may use one: only it
//! knows the session that a request names.

use atoll_store::Store;
use atoll_types::{McpSession, Millis, Result};
use std::sync::Arc;

/// The sessions of MCP clients.
#[derive(Clone)]
pub struct McpSessions {
    pub(crate) store: Arc<dyn Store>,
}

impl McpSessions {
    /// The MCP session of this id.
    pub async fn get(&self, id: &str) -> Result<Option<McpSession>> {
        Ok(self.store.mcp_session(id).await?)
    }

    /// Remembers an MCP session.
    pub async fn put(&self, session: McpSession) -> Result<()> {
        Ok(self.store.put_mcp_session(session).await?)
    }

    /// Notes that MCP sessions were used.
    pub async fn touch(&self, ids: &[String], at: Millis) -> Result<()> {
        Ok(self.store.touch_mcp_sessions(ids, at).await?)
    }

    /// Forgets an MCP session.
    pub async fn remove(&self, id: &str) -> Result<()> {
        self.store.remove_mcp_session(id).await?;
        Ok(())
    }

    /// All MCP sessions.
    pub async fn all(&self) -> Result<Vec<McpSession>> {
        Ok(self.store.mcp_sessions().await?)
    }

    /// Counts the MCP sessions: a holder's, and all of them.
    pub async fn count(&self, holder: &str) -> Result<(u64, u64)> {
        Ok(self.store.count_mcp_sessions(holder).await?)
    }
}
