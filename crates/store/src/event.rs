//! Keeping events, and which change of a sandbox is one.

use crate::Result;
use async_trait::async_trait;
use atoll_types::{EventKind, EventPage, EventQuery, NewEvent, Status};

/// How many events are kept: the last ones.
pub const EVENTS_KEPT: u64 = 100_000;

/// The event of a change of status; `None` where the status stays.
#[must_use]
pub fn status_event(was: Option<Status>, status: Status) -> Option<EventKind> {
    (was != Some(status)).then(|| EventKind::of_status(status))
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
