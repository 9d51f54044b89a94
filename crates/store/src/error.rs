//! Errors of a database. The text of an error says what the operator can do; it holds no SQL and no path. The
//! driver's error is the source, for the log. A caller of the API sees neither: the conversion at the end
//! decides what may leave the machine.

use crate::{
    MOST_ANSWER_BYTES, MOST_ITEM_BYTES, MOST_ITEMS, MOST_PREVIEW_TOKENS, MOST_THREAD_BYTES, MOST_THREADS,
};
use atoll_types::ErrorCode;
use std::fmt;

/// The driver's error.
pub type Source = Box<dyn std::error::Error + Send + Sync>;

/// The result of any call of a store.
pub type Result<T, E = StoreError> = std::result::Result<T, E>;

/// Why a call of a store failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// There is no such thing.
    #[error("no such {0}")]
    NotFound(Thing),
    /// It conflicts with what is stored.
    #[error("{0}")]
    Conflict(Clash),
    /// It is more than an owner may store, or than one answer may have.
    #[error("{0}")]
    Beyond(Bound),
    /// It may work later, or once the operator has done something.
    #[error("{0}")]
    Unavailable(Outage, #[source] Source),
    /// What is stored cannot be read.
    #[error(
        "the database is damaged: {0}; stop Atoll, put the database aside, and restore a backup or start with \
         a new one"
    )]
    Corrupt(String, #[source] Option<Source>),
    /// A later release has written this database.
    #[error(
        "the database has schema version {found} and this release knows versions up to {known}; use the \
         release that wrote it, or restore a backup from before the upgrade"
    )]
    Newer {
        /// The version found.
        found: u32,
        /// The latest version that this release knows.
        known: u32,
    },
    /// An earlier release has written this database, and this process must not upgrade it.
    #[error("the database has schema version {found} and this needs version {known}; start the server once")]
    Older {
        /// The version found.
        found: u32,
        /// The version that is needed.
        known: u32,
    },
    /// A bug.
    #[error("the store failed while {0}")]
    Internal(&'static str, #[source] Source),
}

/// What can be missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Thing {
    /// A sandbox.
    Sandbox,
    /// An API key.
    Key,
    /// An audited operation.
    Operation,
    /// A tool session.
    Session,
    /// A snapshot.
    Snapshot,
    /// A volume.
    Volume,
    /// A skill.
    Skill,
    /// An image.
    Image,
    /// A thread.
    Thread,
    /// A checkpoint of a thread.
    Checkpoint,
}

/// The conflict of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clash {
    /// The record has another revision: read it again.
    Revision,
    /// The sandbox is destroyed, and that is final.
    Destroyed,
    /// The id, container, volume or key belongs to another record.
    Taken,
    /// Another attempt took over, and its reply counts.
    Overtaken,
    /// The audit trail ends elsewhere than the writer expects: another process wrote to it.
    Chain,
    /// The operation has ended already.
    Ended,
    /// An operation among those to be removed has no end yet.
    Open,
    /// Without this key there would be no admin.
    LastAdmin,
    /// A run of the thread has not ended.
    Busy,
}

/// What bounds the conversations of one owner, answers about them, and the preview tokens of one sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    /// What one answer may have.
    Answer,
    /// Items of an owner.
    Items,
    /// What the items of an owner hold together.
    ItemBytes,
    /// Threads of an owner.
    Threads,
    /// What one thread holds.
    ThreadBytes,
    /// Preview tokens of a sandbox.
    PreviewTokens,
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Bound::Answer => {
                write!(
                    f,
                    "the answer would have more than {} MiB; ask for fewer with limit",
                    MOST_ANSWER_BYTES >> 20
                )
            }
            Bound::Items => write!(f, "you have {MOST_ITEMS} items and may have no more; delete some"),
            Bound::ItemBytes => {
                write!(
                    f,
                    "your items would hold more than {} MiB together; delete some",
                    MOST_ITEM_BYTES >> 20
                )
            }
            Bound::Threads => write!(f, "you have {MOST_THREADS} threads and may have no more; delete some"),
            Bound::ThreadBytes => write!(
                f,
                "the thread would hold more than {} MiB with its history; go on in a new one",
                MOST_THREAD_BYTES >> 20
            ),
            Bound::PreviewTokens => write!(
                f,
                "the sandbox has {MOST_PREVIEW_TOKENS} preview tokens that are valid and may have no more; revoke some"
            ),
        }
    }
}

/// Why a database cannot be used now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outage {
    /// Another process holds it, or too many calls wait for it.
    Busy,
    /// No space.
    DiskFull,
    /// It is missing, or its permissions are wrong.
    NoAccess,
    /// The disk, or the connection, fails.
    Failing,
}

impl fmt::Display for Thing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Thing::Sandbox => "sandbox",
            Thing::Key => "key",
            Thing::Operation => "operation",
            Thing::Session => "session",
            Thing::Snapshot => "snapshot",
            Thing::Volume => "volume",
            Thing::Skill => "skill",
            Thing::Image => "image",
            Thing::Thread => "thread",
            Thing::Checkpoint => "checkpoint",
        })
    }
}

impl fmt::Display for Clash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Clash::Revision => "another request changed the sandbox meanwhile; read it again",
            Clash::Destroyed => "the sandbox is destroyed",
            Clash::Taken => "an id, container, volume or key is taken",
            Clash::Overtaken => "another attempt with the same idempotency key took over",
            Clash::Chain => "the audit trail ends elsewhere than expected: another program wrote to it",
            Clash::Ended => "the operation has ended already",
            Clash::Open => "an operation that has not ended cannot be removed",
            Clash::LastAdmin => "it is the last admin key that lasts; make another one first",
            Clash::Busy => "a run of the thread has not ended",
        })
    }
}

impl fmt::Display for Outage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Outage::Busy => "the database is locked; stop the other program that uses it, or wait for it",
            Outage::DiskFull => "the disk that holds the database is full; free some space",
            Outage::NoAccess => {
                "the database cannot be opened or written; check that its folder exists and that both belong \
                 to the user that runs Atoll"
            }
            Outage::Failing => "the database's disk or connection fails; the machine's log says more",
        })
    }
}

impl From<StoreError> for atoll_types::Error {
    fn from(error: StoreError) -> Self {
        let new = |code, message: &str| atoll_types::Error::new(code, message);
        match error {
            StoreError::NotFound(thing) => new(ErrorCode::NotFound, &format!("no such {thing}")),
            StoreError::Conflict(Clash::Taken) => new(ErrorCode::AlreadyExists, &Clash::Taken.to_string()),
            StoreError::Conflict(
                clash @ (Clash::Revision
                | Clash::Destroyed
                | Clash::Overtaken
                | Clash::Ended
                | Clash::Open
                | Clash::LastAdmin
                | Clash::Busy),
            ) => new(ErrorCode::Conflict, &clash.to_string()),
            StoreError::Beyond(Bound::Answer) => {
                new(ErrorCode::TooLarge, &Bound::Answer.to_string()).at("limit")
            }
            StoreError::Beyond(bound) => new(ErrorCode::LimitExceeded, &bound.to_string()),
            StoreError::Conflict(Clash::Chain) => new(
                ErrorCode::Unavailable,
                "the audit trail cannot be continued; the operator's log says why",
            ),
            StoreError::Unavailable(Outage::DiskFull, _) => {
                // Not DiskFull: the caller's own disk is not the one that is full.
                new(ErrorCode::Unavailable, "the control plane's disk is full")
            }
            StoreError::Unavailable(Outage::Busy | Outage::NoAccess | Outage::Failing, _) => {
                new(ErrorCode::Unavailable, "the control plane's database does not answer; try again")
            }
            StoreError::Corrupt(..)
            | StoreError::Newer { .. }
            | StoreError::Older { .. }
            | StoreError::Internal(..) => {
                new(ErrorCode::Internal, "the control plane's database failed; the operator's log says why")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_private_reaches_the_caller() {
        let private = || Source::from("/var/lib/atoll/atoll.db: SELECT * FROM keys");
        let errors = [
            StoreError::Unavailable(Outage::DiskFull, private()),
            StoreError::Unavailable(Outage::NoAccess, private()),
            StoreError::Corrupt("/var/lib/atoll: SELECT".into(), Some(private())),
            StoreError::Internal("running SELECT on /var", private()),
        ];
        for error in errors {
            let shown = atoll_types::Error::from(error);
            let text = format!("{shown:?}");
            assert!(!text.contains("SELECT") && !text.contains("/var"), "{text}");
        }
    }

    #[test]
    fn the_code_says_what_the_caller_can_do() {
        let code = |error| atoll_types::Error::from(error).code;
        assert_eq!(code(StoreError::NotFound(Thing::Key)), ErrorCode::NotFound);
        assert_eq!(code(StoreError::Conflict(Clash::Revision)), ErrorCode::Conflict);
        assert_eq!(code(StoreError::Conflict(Clash::Taken)), ErrorCode::AlreadyExists);
        assert_eq!(code(StoreError::Unavailable(Outage::DiskFull, "".into())), ErrorCode::Unavailable);
        assert_eq!(code(StoreError::Newer { found: 2, known: 1 }), ErrorCode::Internal);
    }
}
