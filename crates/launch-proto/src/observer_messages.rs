//! The protocol of the observer of file changes, on a socket of its own. A connection stays open: the server
//! sends a request after every command, and a worker for each would cost more than the answer.

use atoll_types::{ContainerId, Error};
use serde::{Deserialize, Serialize};

/// Every request to the observer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum ObserveRequest {
    /// Whether the observer is the one that a launcher of this fingerprint would start. From root only.
    /// [`ObserveAnswer::Done`].
    Hello(u64),
    /// Begins to watch a container's volume. From root only. [`ObserveAnswer::Done`].
    Watch(ContainerId),
    /// Stops watching it. From root only. [`ObserveAnswer::Done`].
    Forget(ContainerId),
    /// What changed in its /workspace since the last request. [`ObserveAnswer::Changes`].
    Take(ContainerId),
}

/// What happened to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileAction {
    /// It did not exist before.
    Created,
    /// It differs from before.
    Modified,
    /// It no longer exists.
    Deleted,
}

/// One file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileChange {
    /// Relative to /workspace; bytes that are not UTF-8 are replaced.
    pub path: String,
    /// What happened to it.
    pub action: FileAction,
    /// Its size now; zero when it was deleted.
    pub size_bytes: u64,
}

/// The answer to a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ObserveAnswer {
    /// The request succeeded.
    Done,
    /// What changed.
    Changes {
        /// By path.
        entries: Vec<FileChange>,
        /// There may be more.
        truncated: bool,
    },
    /// The request failed.
    Err(Error),
}
