//! The protocol of the observer of file changes, on a socket of its own. A connection carries one request, and
//! may acknowledge its answer: the observer serves all connections in turn, without a worker for each.
//!
//! A report is kept by the observer until it is acknowledged, so that a reply that is lost on its way loses no
//! change. The next [`ObserveRequest::Take`] of the same reader says what that reader has received; what it has not
//! received is reported again, together with what is new.

use atoll_types::{ContainerId, Error, files::Changed};
use serde::{Deserialize, Serialize};

/// The version of this protocol: a launcher replaces an observer of another one.
pub const OBSERVER_PROTOCOL: u32 = 2;

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
    /// What changed in its /workspace since the last report that was acknowledged. [`ObserveAnswer::Changes`].
    Take {
        /// Whose files.
        container: ContainerId,
        /// A number that tells this reader of the container's reports from every other. A report that another
        /// reader has not acknowledged may have been recorded by it, so it is handed out as `truncated`.
        reader: u64,
        /// The last report that this reader has received, which is not handed out again; 0 before the first. Until
        /// it is acknowledged, another reader is told `truncated`.
        received: u64,
    },
    /// This report and those before it are recorded. There is no answer.
    Acknowledge {
        /// Whose files.
        container: ContainerId,
        /// Which report.
        sequence: u64,
    },
}

/// The answer to a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ObserveAnswer {
    /// The request succeeded.
    Done,
    /// What changed.
    Changes {
        /// The number of this report. No report of an instance has that of another, also after the observer was
        /// restarted.
        sequence: u64,
        /// The report.
        changed: Changed,
    },
    /// The request failed.
    Err(Error),
}
