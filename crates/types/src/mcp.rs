//! Sessions of MCP clients over HTTP: whose they are and how they began, so that a server that starts again
//! knows them. What a session does is not here.

use crate::Millis;

/// A session of an MCP client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct McpSession {
    /// What the client names it by.
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
