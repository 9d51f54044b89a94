//! The audit trail: rows in a chain. Here is how a row becomes bytes, and what a database
//! does with rows: it keeps them in order, joins a beginning with its end, and finds them. What links the
//! rows, and who may, is the ledger's business; no key is known here.
//!
//! A row is stored as the bytes that were MACed, and again as columns for queries. Verification compares the
//! two, so reading rows for it returns what is there unchecked.

mod encode;

pub use encode::{BadRow, Decoded, Encoded, Entry, Facts};

use crate::{Millis, OperationId, Result, SandboxId};
use async_trait::async_trait;
use atoll_types::{
    Activity, NewEvent,
    audit::{
        AuditOutput, Begin, EgressQuery, EgressRow, EgressTotals, End, FileHistoryQuery, Mac, OpenOperation,
        OperationQuery, OperationRow, Part, Summary, search_detail,
    },
};

/// A row to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditRow {
    /// Its sequence number: 1, 2, 3, without a gap.
    pub seq: u64,
    /// Its content, for the columns.
    pub entry: Entry,
    /// Its bytes.
    pub encoded: Encoded,
    /// Its MAC.
    pub mac: Mac,
}

/// What is written in one transaction.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AuditBatch {
    /// In their order.
    pub rows: Vec<AuditRow>,
    /// Activities of sandboxes; one of an unknown sandbox is ignored.
    pub activities: Vec<Activity>,
    /// Events.
    pub events: Vec<NewEvent>,
}

/// The columns of a beginning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BegunColumns {
    pub at: Millis,
    pub owner: String,
    pub key: Option<Vec<u8>>,
    pub kind: String,
    pub sandbox: Option<Vec<u8>>,
    pub search: String,
}

/// The columns of an end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndedColumns {
    pub seq: i64,
    pub outcome: Option<String>,
    pub exit_code: Option<i64>,
    pub duration_us: Option<i64>,
}

impl BegunColumns {
    /// The expected columns.
    #[must_use]
    pub fn of(at: Millis, begin: &Begin) -> Self {
        Self {
            at,
            owner: begin.owner.clone(),
            key: begin.key.map(|key| key.uuid().as_bytes().to_vec()),
            kind: begin.kind.clone(),
            sandbox: begin.sandbox.map(|sandbox| sandbox.uuid().as_bytes().to_vec()),
            search: search_detail(&begin.detail.text),
        }
    }
}

impl EndedColumns {
    /// The expected columns.
    #[must_use]
    pub fn of(seq: u64, end: &End) -> Self {
        let number = |value| i64::try_from(value).unwrap_or(i64::MAX);
        Self {
            seq: number(seq),
            outcome: Some(end.outcome.as_str().to_owned()),
            exit_code: end.exit_code.map(i64::from),
            duration_us: Some(number(end.duration_us)),
        }
    }
}

/// The columns of an operation as they are stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Projection {
    /// The row of its beginning.
    pub seq: i64,
    /// Its id, as it is stored.
    pub operation: Vec<u8>,
    /// The latest time of this and all earlier beginnings: it never goes back, as clocks do.
    pub high: Millis,
    /// Of its beginning.
    pub begun: BegunColumns,
    /// Of its end, where the row has one.
    pub ended: Option<EndedColumns>,
    /// The paths that its end is found by, in their order; none of an operation on no sandbox.
    pub paths: Vec<String>,
}

/// A row as it is in the database, tampered with or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawRow {
    pub seq: i64,
    pub operation: Option<Vec<u8>>,
    pub part: String,
    pub at: Millis,
    pub mac: Vec<u8>,
    pub facts: Vec<u8>,
    pub output: Vec<u8>,
    /// Of a beginning and an end: the operation that it is found by.
    pub projection: Option<Projection>,
}

/// The audit trail.
#[async_trait]
pub trait Audits: Send + Sync {
    /// Writes a batch, all of it or nothing. `Conflict(Chain)` when the first row does not follow the last
    /// one that is there, `Conflict(Taken)` when an operation begins twice, `NotFound(OperationRow)` when one
    /// ends that never began, `Conflict(Ended)` when one ends twice.
    async fn append_audit(&self, batch: AuditBatch) -> Result<()>;
    /// The last row.
    async fn last_audit_row(&self) -> Result<Option<RawRow>>;
    /// Rows in their order from this sequence number on; from 0, those with impossible numbers too.
    async fn audit_rows(&self, from: u64, limit: u32) -> Result<Vec<RawRow>>;
    /// The latest notes or checkpoints first, without a projection.
    async fn audit_marks(&self, part: Part, limit: u32) -> Result<Vec<RawRow>>;
    /// The operations that match a query, the last begun first.
    async fn audit_operations(&self, query: &OperationQuery) -> Result<Vec<OperationRow>>;
    /// One operation.
    async fn audit_operation(&self, id: OperationId) -> Result<Option<OperationRow>>;
    /// Its output; `None` when there is no such operation.
    async fn audit_output(&self, id: OperationId) -> Result<Option<AuditOutput>>;
    /// The operations that changed a file or may have, the last ended first.
    async fn audit_file_history(&self, query: &FileHistoryQuery) -> Result<Vec<OperationRow>>;
    /// The totals of a query's operations.
    async fn audit_summary(&self, query: &OperationQuery) -> Result<Summary>;
    /// The decisions that match a query, the latest first.
    async fn audit_egress(&self, query: &EgressQuery) -> Result<Vec<EgressRow>>;
    /// The totals of a sandbox's decisions, as far as their rows are kept.
    async fn egress_totals(&self, sandbox: SandboxId) -> Result<EgressTotals>;
    /// Operations that have not ended, the first begun first, from the row after this one on.
    async fn open_operations(&self, after: u64, limit: u32) -> Result<Vec<OpenOperation>>;
    /// How many operations can be found that began up to this row, for comparing with the rows.
    async fn count_operations(&self, up_to: u64) -> Result<u64>;
    /// Removes every row up to this one, and their operations, and writes the checkpoint that says so, all of
    /// it or nothing. `Conflict(Open)` when one of the operations has not ended; `Conflict(Chain)` when the
    /// checkpoint does not follow the last row. Returns how many rows were removed.
    async fn remove_audit(&self, up_to: u64, checkpoint: AuditRow) -> Result<u64>;
    /// Waits until what was written would survive a power cut.
    async fn flush_audit(&self) -> Result<()>;
}
