//! What the observer of file changes is asked, on a socket of its own. A connection stays open: the
//! question comes after every command, and a worker for each would cost more than the answer.

use atoll_types::{ContainerId, Error};
use serde::{Deserialize, Serialize};

/// Everything that the observer can be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum ObserveRequest {
    /// Whether the observer is the one that a launcher of this fingerprint would start. From root only.
    /// [`ObserveAnswer::Done`].
    Hello(u64),
    /// Begins to watch a container's volume. From root only. [`ObserveAnswer::Done`].
    Watch(ContainerId),
    /// Ends that. From root only. [`ObserveAnswer::Done`].
    Forget(ContainerId),
    /// What changed in its /workspace since the last question. [`ObserveAnswer::Changes`].
    Take(ContainerId),
}

/// What came of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileAction {
    /// It was not there.
    Created,
    /// It is another than it was.
    Modified,
    /// It is not there any more.
    Deleted,
}

/// One file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileChange {
    /// Relative to /workspace; what is no text is replaced.
    pub path: String,
    /// What came of it.
    pub action: FileAction,
    /// Its size now; zero when it is gone.
    pub size_bytes: u64,
}

/// What is answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ObserveAnswer {
    /// It is so.
    Done,
    /// What changed.
    Changes {
        /// By path.
        entries: Vec<FileChange>,
        /// There may be more.
        truncated: bool,
    },
    /// It could not be.
    Err(Error),
}
