//! Keeping the sessions of the console.

use crate::{Millis, Result};
use async_trait::async_trait;
use atoll_types::{ApiKey, ConsoleSession, KeyHash};

/// Sessions of one key that are kept; a further one ends the oldest.
pub const CONSOLE_SESSIONS_PER_KEY: usize = 50;

/// Sessions of the console. An added or removed session stays so after a power cut.
#[async_trait]
pub trait ConsoleSessions: Send + Sync {
    /// Adds a session and removes those that have expired by its beginning; `Conflict(Taken)` when its hash exists,
    /// `NotFound(Key)` when its key does not.
    async fn insert_console_session(&self, session: ConsoleSession) -> Result<()>;
    /// The session with this hash and its key, if both are usable now.
    async fn console_session(&self, hash: KeyHash, now: Millis) -> Result<Option<(ConsoleSession, ApiKey)>>;
    /// Removes a session; false when there was none.
    async fn remove_console_session(&self, hash: KeyHash) -> Result<bool>;
}
