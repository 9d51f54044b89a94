//! What is told to whoever listens: one numbered row for each thing that became different, and why. A
//! listener that was away goes on after the last number that it saw. Not the audit trail: it is trimmed,
//! and nothing proves that it is whole.

use crate::{Millis, Result, SandboxId, Status};
use async_trait::async_trait;

/// How many events are kept: the last ones.
pub const EVENTS_KEPT: u64 = 100_000;

/// Something that became different.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewEvent {
    /// When.
    pub at: Millis,
    /// Whose sandbox.
    pub owner: String,
    /// Which sandbox, where it is about one.
    pub sandbox: Option<SandboxId>,
    /// What, such as `created`, `dead` or `exec.ended`.
    pub kind: String,
    /// Why, where that is known.
    pub reason: Option<String>,
    /// A small JSON object.
    pub data: String,
}

/// An event as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventRow {
    /// 1, 2, 3, without a gap.
    pub id: u64,
    /// What happened.
    pub event: NewEvent,
}

/// Which events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventQuery {
    /// Those with a greater id; `None`: from the oldest that is kept.
    pub after: Option<u64>,
    /// Of this sandbox.
    pub sandbox: Option<SandboxId>,
    /// Of this owner.
    pub owner: Option<String>,
    /// Of one of these kinds; empty: of any.
    pub kinds: Vec<String>,
    /// How many.
    pub limit: u32,
}

impl Default for EventQuery {
    /// The oldest hundred.
    fn default() -> Self {
        Self { after: None, sandbox: None, owner: None, kinds: Vec::new(), limit: 100 }
    }
}

/// Some events, all from one moment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EventPage {
    /// The oldest first.
    pub items: Vec<EventRow>,
    /// Whether events after the one that was asked for are gone, or it never was: the listener must look
    /// at the sandboxes themselves.
    pub missed: bool,
    /// The greatest id of all; zero before the first event. Where a page is not full, go on after this one.
    pub newest: u64,
}

/// What a change of status is told as; `None`: not at all, for it is the status that it was.
#[must_use]
pub fn status_event(was: Option<Status>, status: Status) -> Option<&'static str> {
    (was != Some(status)).then_some(match status {
        Status::Provisioning => "starting",
        Status::Ready => "ready",
        Status::Paused => "paused",
        Status::Stopped => "stopped",
        Status::Dead => "dead",
        Status::Destroyed => "destroyed",
    })
}

/// What is told. Making a sandbox tells `created`, and its status too unless that is `provisioning`; a
/// change of its status tells [`status_event`] with the reason of the change, in the same transaction. Its
/// time is the store's own, and its data names the status and the one before: `{"status":…,"was":…}`.
#[async_trait]
pub trait Events: Send + Sync {
    /// Adds events, all or none, and forgets the oldest that are too many.
    async fn append_events(&self, events: Vec<NewEvent>) -> Result<()>;
    /// Some events.
    async fn events(&self, query: &EventQuery) -> Result<EventPage>;
    /// Returns once there is an event with a greater id; perhaps earlier.
    async fn await_event(&self, after: u64) -> Result<()>;
}
