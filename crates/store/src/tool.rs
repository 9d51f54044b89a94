//! Tool sessions: the threads of owners, the sessions of each thread, and their exports. The crate
//! `tool-sessions` decides when a session ends; here it is stored, and the limit on their number is checked
//! in the same transaction that adds one.

use crate::{Millis, Result, SandboxId};
use async_trait::async_trait;
use atoll_types::{KernelId, names};
use std::{collections::BTreeMap, fmt, str::FromStr};

/// A tool session, known by eight hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ToolSessionId(pub u32);

/// Why a text is no id of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected eight lower-case hexadecimal digits")]
pub struct ToolSessionIdError;

impl fmt::Display for ToolSessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0)
    }
}

impl FromStr for ToolSessionId {
    type Err = ToolSessionIdError;

    fn from_str(text: &str) -> Result<Self, ToolSessionIdError> {
        let plain = text.len() == 8 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        let number = plain.then(|| u32::from_str_radix(text, 16).ok()).flatten();
        number.map(Self).ok_or(ToolSessionIdError)
    }
}

names!(
    /// The status of a session.
    ToolStatus {
        /// It is being made.
        Starting = "starting",
        /// It can be used.
        Running = "running",
        /// Its interpreter or its sandbox is lost.
        Dead = "dead",
    }
);

/// A session of a thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolSession {
    /// Which.
    pub id: ToolSessionId,
    /// Its owner.
    pub owner: String,
    /// The owner's display name.
    pub owner_name: String,
    /// Of which conversation.
    pub thread: String,
    /// Its sandbox.
    pub sandbox: SandboxId,
    /// Its interpreter, once there is one.
    pub kernel: Option<KernelId>,
    /// Its language.
    pub language: String,
    /// The requested packages.
    pub dependencies: BTreeMap<String, String>,
    /// Its status.
    pub status: ToolStatus,
    /// Why, where that needs a word.
    pub reason: Option<String>,
    /// When it was made.
    pub created_at: Millis,
    /// When it was last used.
    pub active_at: Millis,
}

/// A conversation of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolThread {
    /// Its owner.
    pub owner: String,
    /// Which.
    pub thread: String,
    /// When it was first seen.
    pub created_at: Millis,
    /// When it was last used.
    pub active_at: Millis,
    /// How many sessions it has.
    pub sessions: u64,
}

/// An export of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolExport {
    /// The session.
    pub session: ToolSessionId,
    /// Its path in the session.
    pub path: String,
    /// Whether it is a folder.
    pub folder: bool,
    /// The size of a file when it was exported.
    pub size: Option<u64>,
    /// When.
    pub exported_at: Millis,
}

/// The limits on the number of sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionLimits {
    /// Of one owner.
    pub of_owner: u32,
    /// Of one thread.
    pub of_thread: u32,
}

/// The result of adding a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionSlot {
    /// It was added.
    Taken,
    /// The owner has reached its limit.
    Full,
    /// The thread has reached its limit.
    ThreadFull,
}

/// Tool sessions.
#[async_trait]
pub trait ToolSessions: Send + Sync {
    /// Adds a session if the limits allow it, and its thread if it is new; `Conflict(Taken)` when the id
    /// exists. Dead sessions do not count.
    async fn insert_tool_session(&self, session: ToolSession, limits: SessionLimits) -> Result<SessionSlot>;
    /// One session.
    async fn tool_session(&self, id: ToolSessionId) -> Result<Option<ToolSession>>;
    /// All of them, or of an owner's thread, the oldest first.
    async fn tool_sessions(&self, of: Option<(&str, &str)>) -> Result<Vec<ToolSession>>;
    /// Sets the status of a session, and why; false when there is none.
    async fn set_tool_session(
        &self,
        id: ToolSessionId,
        status: ToolStatus,
        reason: Option<&str>,
    ) -> Result<bool>;
    /// Marks a session as running, with its interpreter; false when there is none.
    async fn start_tool_session(&self, id: ToolSessionId, kernel: KernelId) -> Result<bool>;
    /// Records the use of a session, and so of its thread. Never moves back; an unknown one is ignored.
    async fn touch_tool_session(&self, id: ToolSessionId, at: Millis) -> Result<()>;
    /// Removes a session and its exports; false when there was none.
    async fn remove_tool_session(&self, id: ToolSessionId) -> Result<bool>;
    /// Records the use of a thread, which is made if it is new. Never moves back.
    async fn touch_tool_thread(&self, owner: &str, thread: &str, at: Millis) -> Result<()>;
    /// All threads, the least recently used first.
    async fn tool_threads(&self) -> Result<Vec<ToolThread>>;
    /// Removes a thread with its sessions and their exports; false when there was none.
    async fn remove_tool_thread(&self, owner: &str, thread: &str) -> Result<bool>;
    /// Stores an export; one of the same path is replaced. `NotFound(Session)` where there is no session.
    async fn put_tool_export(&self, export: ToolExport) -> Result<()>;
    /// The exports of a session, by path.
    async fn tool_exports(&self, session: ToolSessionId) -> Result<Vec<ToolExport>>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_lead_back() {
        for status in ToolStatus::ALL {
            assert_eq!(ToolStatus::from_name(status.as_str()), Some(*status));
        }
    }

    #[test]
    fn an_id_has_eight_digits() {
        for id in [ToolSessionId(0), ToolSessionId(0xab), ToolSessionId(u32::MAX)] {
            assert_eq!(id.to_string().len(), 8);
            assert_eq!(id.to_string().parse(), Ok(id));
        }
        for text in ["", "abcdef0", "abcdef012", "ABCDEF01", "+bcdef01", "abcdefg1"] {
            assert_eq!(text.parse::<ToolSessionId>(), Err(ToolSessionIdError), "{text}");
        }
    }
}
