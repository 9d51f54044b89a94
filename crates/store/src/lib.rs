//! The seam between the control plane and its database.
//!
//! Here are the records, the traits that a database implements, the errors, and the rules that every database
//! must apply alike (what a change does to a record, what a search finds, how much text is kept). There is no
//! SQL and no connection here, and a record is never what a front sends: fronts have their own types.
//! Environment values arrive encrypted; nothing here can read them.

mod activity;
mod audit;
#[cfg(feature = "conformance")]
pub mod conformance;
mod error;
mod event;
mod idempotency;
mod key;
mod list;
mod mcp;
mod names;
mod sandbox;
mod sealed;
mod search;
mod setting;
mod tool;

pub use activity::{
    ACTIVITIES_KEPT, Activities, Activity, ActivityEntry, ActivityKind, Counted, DETAIL_BYTES,
};
pub use atoll_types::{IdError, KeyId, OperationId, SandboxId};
pub use audit::{
    AuditBatch, AuditOutput, AuditRow, Audits, BadRow, Begin, BegunColumns, Checkpoint, DETAIL_KEPT, Decoded,
    Detail, EGRESS_PER_PAGE, Egress, EgressQuery, EgressRow, EgressTotals, Encoded, End, EndedColumns, Entry,
    Evidence, FILES_KEPT, Facts, FileChanged, HashError, Mac, Note, NoteKind, OPERATIONS_PER_PAGE,
    OpenOperation, OperationEnd, OperationQuery, OperationRow, Outcome, Output, Part, Problem, Projection,
    RawRow, Sha256, Summary, Tally, search_detail,
};
pub use error::{Clash, Outage, Result, Source, StoreError, Thing};
pub use event::{EVENTS_KEPT, EventPage, EventQuery, EventRow, Events, NewEvent, status_event};
pub use idempotency::{
    Attempt, EXPIRES_AFTER_MS, GIVEN_UP_AFTER_MS, Idempotency, REPLIES_PER_OWNER, REPLY_BYTES,
    REPLY_BYTES_PER_OWNER, ReplyState, StoredReply, Ticket,
};
pub use key::{Admins, ApiKey, KeyHash, Keys, Scope};
pub use list::{ListQuery, Page, SortBy};
pub use mcp::{McpSession, McpSessions};
pub use sandbox::{Change, Inserted, NewSandbox, SandboxRecord, Sandboxes, Status, StatusChange};
pub use sealed::Sealed;
pub use search::{Needle, search_text};
pub use setting::Settings;
pub use tool::{
    SessionLimits, SessionSlot, ToolExport, ToolSession, ToolSessionId, ToolSessionIdError, ToolSessions,
    ToolStatus, ToolThread,
};

use async_trait::async_trait;

/// Milliseconds since 1970.
pub type Millis = i64;

/// Everything that the control plane stores.
///
/// A call that returned is visible to every later call, on this handle and on any other. A call whose future
/// is dropped has happened wholly or not at all.
#[async_trait]
pub trait Store:
    Sandboxes + Activities + Audits + Events + Keys + Idempotency + Settings + ToolSessions + McpSessions
{
    /// The version of the schema that the database has now.
    async fn schema_version(&self) -> Result<u32>;
}
