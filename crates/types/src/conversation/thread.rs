//! Threads: conversations of owners.

use super::Metadata;
use crate::{Error, Millis, Result, ThreadCheckpointId, names};
use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};

/// A conversation: 1 to 128 of letters, digits, `.`, `_`, `:` and `-`, beginning with a letter or a digit, so
/// that it is safe in an address and as the name of a folder.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ThreadId(String);

impl ThreadId {
    /// The longest.
    pub const LONGEST: usize = 128;
    /// As a regular expression; it does not count the characters.
    pub const PATTERN: &str = "^[A-Za-z0-9][A-Za-z0-9._:-]*$";

    /// As text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// A random one.
    #[must_use]
    pub fn random() -> Self {
        Self(uuid::Uuid::new_v4().hyphenated().to_string())
    }
}

impl FromStr for ThreadId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let mut bytes = text.bytes();
        let fits = text.len() <= Self::LONGEST
            && bytes.next().is_some_and(|b| b.is_ascii_alphanumeric())
            && bytes.all(|b| b.is_ascii_alphanumeric() || b"._:-".contains(&b));
        match fits {
            true => Ok(Self(text.to_owned())),
            false => {
                let message =
                    "a thread is 1 to 128 of letters, digits and ._:-, beginning with a letter or digit";
                Err(Error::invalid("thread_id", message))
            }
        }
    }
}

impl TryFrom<String> for ThreadId {
    type Error = Error;
    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl From<ThreadId> for String {
    fn from(id: ThreadId) -> String {
        id.0
    }
}

impl fmt::Display for ThreadId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

names!(
    /// How a thread stands.
    ThreadStatus {
        /// No run is under way.
        Idle = "idle",
        /// A run is carried out or waits.
        Busy = "busy",
        /// A run waits for approval.
        Interrupted = "interrupted",
        /// The last run failed.
        Error = "error",
    }
);

/// A thread.
#[derive(Debug, Clone, PartialEq)]
pub struct ThreadRecord {
    /// Its owner.
    pub owner: String,
    /// Which.
    pub id: ThreadId,
    /// What the client keeps with it.
    pub metadata: Metadata,
    /// How it stands.
    pub status: ThreadStatus,
    /// Its newest checkpoint, from which the next run goes on.
    pub head: Option<ThreadCheckpointId>,
    /// Why the last run failed, where it did.
    pub error: Option<String>,
    /// When it was made.
    pub created_at: Millis,
    /// When it last changed.
    pub updated_at: Millis,
}

/// A thread that is to be made.
#[derive(Debug, Clone, PartialEq)]
pub struct NewThread {
    /// Its owner.
    pub owner: String,
    /// Which.
    pub id: ThreadId,
    /// What the client keeps with it.
    pub metadata: Metadata,
    /// When.
    pub created_at: Millis,
}

names!(
    /// What a list of threads is sorted by.
    ThreadSort {
        /// Their ids.
        Id = "thread_id",
        /// Their statuses.
        Status = "status",
        /// When they were made.
        CreatedAt = "created_at",
        /// When they last changed.
        UpdatedAt = "updated_at",
    }
);

/// Which threads of an owner.
#[derive(Debug, Clone, PartialEq)]
pub struct ThreadQuery {
    /// Whose.
    pub owner: String,
    /// Only these ids; all where empty.
    pub ids: Vec<ThreadId>,
    /// With these metadata.
    pub metadata: Metadata,
    /// Of this status.
    pub status: Option<ThreadStatus>,
    /// Sorted by.
    pub sort: ThreadSort,
    /// Whether the smallest comes first.
    pub ascending: bool,
    /// At most so many.
    pub limit: u32,
    /// Without the first ones.
    pub offset: u32,
}

impl ThreadQuery {
    /// All threads of an owner, the last changed first.
    #[must_use]
    pub fn of(owner: &str) -> Self {
        Self {
            owner: owner.to_owned(),
            ids: Vec::new(),
            metadata: Metadata::new(),
            status: None,
            sort: ThreadSort::UpdatedAt,
            ascending: false,
            limit: 10,
            offset: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_safe_as_a_name() {
        for text in ["a", "3f1c2b1e-0000-4000-8000-000000000000", "mcp:abc_1.2", &"x".repeat(128)] {
            assert_eq!(text.parse::<ThreadId>().unwrap().as_str(), text);
        }
        for text in ["", ".", "..", ".x", "a/b", "a b", "-x", "a\0", "é", &"x".repeat(129)] {
            assert!(text.parse::<ThreadId>().is_err(), "{text:?}");
        }
    }
}
