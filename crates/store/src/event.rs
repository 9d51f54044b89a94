//! Events: one numbered row for each change, and why. A follower that was disconnected continues after the
//! last number that it saw. Not the audit trail: it is trimmed, and nothing proves that it is complete.

use crate::{Millis, Result, SandboxId, Status};
use async_trait::async_trait;

/// How many events are kept: the last ones.
pub const EVENTS_KEPT: u64 = 100_000;

/// A change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewEvent {
    /// When.
    pub at: Millis,
    /// The sandbox's owner.
    pub owner: String,
    /// The sandbox, where it is about one.
    pub sandbox: Option<SandboxId>,
    /// The kind, such as `created`, `dead` or `exec.ended`.
    pub kind: String,
    /// The reason, where that is known.
    pub reason: Option<String>,
    /// A small JSON object.
    pub data: String,
}

/// An event as it is stored.
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

/// A page of events, all from one moment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EventPage {
    /// The oldest first.
    pub items: Vec<EventRow>,
    /// Whether events after the requested one were removed, or that one never existed: the follower must list
    /// the sandboxes themselves.
    pub missed: bool,
    /// The greatest id of all; zero before the first event. Where a page is not full, continue after this
    /// one.
    pub newest: u64,
}

/// The event of a change of status; `None` where the status is the same.
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

/// Events. Inserting a sandbox appends `created`, and its status too unless that is `provisioning`; a change
/// of its status appends [`status_event`] with the reason of the change, in the same transaction. Its time is
/// the store's own, and its data names the status and the one before: `{"status":…,"was":…}`.
#[async_trait]
pub trait Events: Send + Sync {
    /// Appends events, all or none, and removes the oldest that are too many.
    async fn append_events(&self, events: Vec<NewEvent>) -> Result<()>;
    /// A page of events.
    async fn events(&self, query: &EventQuery) -> Result<EventPage>;
    /// Returns once there is an event with a greater id; perhaps earlier.
    async fn await_event(&self, after: u64) -> Result<()>;
}
