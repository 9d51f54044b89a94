//! What the operator decides about MCP.

use atoll_http::Origin;

/// How many MCP sessions one key may have open at once.
pub const SESSIONS_PER_KEY: usize = 64;

/// When a client that left without a word is taken for gone: long enough for a laptop that sleeps for a
/// moment.
pub const VANISHED_SECONDS: u32 = 300;

/// When a session that is not used is ended.
pub const IDLE_SECONDS: u32 = 1800;

/// What the operator decides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct McpSettings {
    /// Whether there are tools beyond the six.
    pub extra_tools: bool,
    /// Origins that may send requests, beside those of this machine and of this server itself.
    pub allowed_origins: Vec<Origin>,
    /// Hosts that requests may name, beside this machine's own. Where there is none, a server that listens
    /// beyond loopback takes any.
    pub allowed_hosts: Vec<String>,
    /// MCP sessions that one key may have open at once.
    pub sessions_per_key: usize,
    /// After how many seconds without a stream or a request a client that listened before has vanished.
    pub vanished_seconds: u32,
    /// After how many seconds without a stream or a request any session is ended.
    pub idle_seconds: u32,
}

impl Default for McpSettings {
    fn default() -> Self {
        Self {
            extra_tools: false,
            allowed_origins: Vec::new(),
            allowed_hosts: Vec::new(),
            sessions_per_key: SESSIONS_PER_KEY,
            vanished_seconds: VANISHED_SECONDS,
            idle_seconds: IDLE_SECONDS,
        }
    }
}
