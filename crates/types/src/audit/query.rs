//! Queries for operations: their beginnings, joined with their ends.

use super::{Begin, End, Outcome, Output};
use crate::{KeyId, Millis, OperationId, SandboxId};

/// How many operations a page has at most.
pub const OPERATIONS_PER_PAGE: u32 = 500;

/// Which operations; every condition that is set must hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperationQuery {
    /// On this sandbox, destroyed ones too.
    pub sandbox: Option<SandboxId>,
    /// By this owner.
    pub owner: Option<String>,
    /// With this key.
    pub key: Option<KeyId>,
    /// Of this kind.
    pub kind: Option<String>,
    /// Ended with this code.
    pub exit_code: Option<i32>,
    /// Ended so.
    pub outcome: Option<Outcome>,
    /// With this text in what is kept of the detail; the case of ASCII letters makes no difference.
    pub text: Option<String>,
    /// Begun then or later.
    pub since: Option<Millis>,
    /// Begun then or earlier.
    pub until: Option<Millis>,
    /// Not ended yet.
    pub open: bool,
    /// Begun in a row before this one: the last of the page before.
    pub before: Option<u64>,
    /// How many; at most [`OPERATIONS_PER_PAGE`].
    pub limit: u32,
}

impl Default for OperationQuery {
    /// The newest fifty.
    fn default() -> Self {
        Self {
            sandbox: None,
            owner: None,
            key: None,
            kind: None,
            exit_code: None,
            outcome: None,
            text: None,
            since: None,
            until: None,
            open: false,
            before: None,
            limit: 50,
        }
    }
}

/// Which operations changed a file, or may have: see [`End::changed_paths`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileHistoryQuery {
    /// The file's sandbox, destroyed ones too.
    pub sandbox: SandboxId,
    /// The file's path, as rows name it: relative to /workspace.
    pub path: String,
    /// Ended in a row before this one: the last of the page before.
    pub before: Option<u64>,
    /// How many; at most [`OPERATIONS_PER_PAGE`].
    pub limit: u32,
}

/// An operation as it is listed. The bytes of outputs are left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperationRow {
    /// The row of its beginning.
    pub seq: u64,
    /// Which.
    pub id: OperationId,
    /// When it began.
    pub at: Millis,
    /// The caller and its request.
    pub begin: Begin,
    /// How it ended, if it did.
    pub end: Option<OperationEnd>,
}

/// How an operation ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperationEnd {
    /// The row of its end.
    pub seq: u64,
    /// When.
    pub at: Millis,
    /// How.
    pub facts: End,
}

/// An operation that has not ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenOperation {
    /// The row of its beginning.
    pub seq: u64,
    /// Which.
    pub id: OperationId,
    /// When it began.
    pub at: Millis,
}

/// The output of an operation.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AuditOutput {
    pub stdout: Option<Output>,
    pub stderr: Option<Output>,
}

/// How many, and how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    /// All of them.
    pub count: u64,
    /// Those that succeeded.
    pub ok: u64,
    /// Those that ended otherwise: failed, refused, lost.
    pub failed: u64,
    /// How long those that ended took together.
    pub duration_us: u64,
}

impl Tally {
    /// How long one that ended took.
    #[must_use]
    pub fn mean_us(&self) -> u64 {
        self.duration_us.checked_div(self.ok + self.failed).unwrap_or(0)
    }
}

/// The totals of a query's operations; `before` and `limit` make no difference.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Summary {
    /// All together.
    pub total: Tally,
    /// By the day of their beginning in UTC (days since 1970), the latest first.
    pub days: Vec<(i64, Tally)>,
    /// By sandbox, the busiest first, at most [`OPERATIONS_PER_PAGE`]; operations on none are under `None`.
    pub sandboxes: Vec<(Option<SandboxId>, Tally)>,
    /// By outcome in the order of its names; those not ended are under `None`, last.
    pub outcomes: Vec<(Option<Outcome>, Tally)>,
}

/// The text that a detail is searched by: every store folds case alike.
#[must_use]
pub fn search_detail(text: &str) -> String {
    // Some indices end a text at its first zero.
    text.replace('\0', "\u{fffd}").to_ascii_lowercase()
}
