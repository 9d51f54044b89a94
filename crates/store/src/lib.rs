//! The seam between the control plane and its database.
//!
//! Here live the traits that a database implements, what can go wrong, and the rules that
//! every database must apply alike (what a change does to a record, what a search finds, how much text
//! is kept). The records are `types`'s. There is no SQL and no connection here. Environment values arrive sealed; nothing here can read them.

mod activity;
mod audit;
mod build_step;
#[cfg(feature = "conformance")]
pub mod conformance;
mod console;
mod conversation;
mod error;
mod event;
mod idempotency;
mod image;
mod key;
mod mcp;
mod preview;
mod sandbox;
mod search;
mod setting;
mod skill;
mod snapshot;
mod tool;
pub mod transfer;
mod volume;

pub use activity::{ACTIVITIES_KEPT, Activities};
pub use atoll_types::{
    Activity, ActivityEntry, ActivityKind, ApiKey, ConsoleSession, Counted, DETAIL_BYTES, EventKind,
    EventPage, EventQuery, EventRow, IdError, KeyHash, KeyId, ListQuery, McpSession, Millis, NewEvent,
    OperationId, Page, PreviewTokenId, PreviewTokenRecord, REPLY_BYTES, ReplyState, SandboxId, SandboxRecord,
    Scope, Sealed, SnapshotId, SnapshotKind, SnapshotPage, SnapshotQuery, SnapshotRecord, SortBy, Status,
    StoredReply, Ticket,
    audit::{
        AuditOutput, Begin, Checkpoint, DETAIL_KEPT, Detail, EGRESS_PER_PAGE, Egress, EgressQuery, EgressRow,
        EgressTotals, End, Evidence, FILES_KEPT, FileChanged, FileHistoryQuery, HashError, Mac, Note,
        NoteKind, OPERATIONS_PER_PAGE, OpenOperation, OperationEnd, OperationQuery, OperationRow, Outcome,
        Output, Part, Problem, Sha256, Summary, Tally, UNNAMED_FILES, search_detail,
    },
};
pub use audit::{
    AuditBatch, AuditRow, Audits, BadRow, BegunColumns, Decoded, Encoded, EndedColumns, Entry, Facts,
    Projection, RawRow,
};
pub use build_step::BuildSteps;
pub use console::{CONSOLE_SESSIONS_PER_KEY, ConsoleSessions};
pub use conversation::{
    Conversations, MOST_ANSWER_BYTES, MOST_ITEM_BYTES, MOST_ITEMS, MOST_THREAD_BYTES, MOST_THREADS, RunEnd,
    RunProgress, fitting,
};
pub use error::{Bound, Clash, Outage, Result, Source, StoreError, Thing};
pub use event::{EVENTS_KEPT, Events, event_of_change, events_of_insert};
pub use idempotency::{
    Attempt, EXPIRES_AFTER_MS, GIVEN_UP_AFTER_MS, Idempotency, REPLIES_PER_OWNER, REPLY_BYTES_PER_OWNER,
};
pub use image::{BUILDS_KEPT, Images};
pub use key::{Admins, Keys};
pub use mcp::McpSessions;
pub use preview::{MOST_PREVIEW_TOKENS, PreviewTokens};
pub use sandbox::{Change, Inserted, NewSandbox, Sandboxes, StatusChange};
pub use search::{Needle, search_text};
pub use setting::Settings;
pub use skill::Skills;
pub use snapshot::Snapshots;
pub use tool::{
    SessionLimits, SessionSlot, ToolExport, ToolSession, ToolSessionId, ToolSessionIdError, ToolSessions,
    ToolStatus, ToolThread,
};
pub use volume::Volumes;

use async_trait::async_trait;

/// Everything that the control plane keeps.
///
/// A call that returned is visible to every later call, on this handle and on any other. A call whose future
/// is dropped has happened wholly or not at all.
#[async_trait]
pub trait Store:
    Sandboxes
    + Snapshots
    + Activities
    + Audits
    + Events
    + Keys
    + ConsoleSessions
    + Idempotency
    + Settings
    + ToolSessions
    + McpSessions
    + PreviewTokens
    + Volumes
    + Skills
    + Images
    + BuildSteps
    + Conversations
{
    /// The version of the schema that the database has now.
    async fn schema_version(&self) -> Result<u32>;
}
