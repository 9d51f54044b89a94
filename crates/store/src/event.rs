//! Keeping events, and which change of a sandbox is one.

use crate::Result;
use async_trait::async_trait;
use atoll_types::{EventKind, EventPage, EventQuery, NewEvent, SandboxRecord, Status, time::now_ms};
use serde_json::json;

/// How many events are kept: the last ones.
pub const EVENTS_KEPT: u64 = 100_000;

/// The event of a sandbox, at the time of now; its data names the status, and the one before a change.
fn event_of(record: &SandboxRecord, kind: EventKind, was: Option<Status>) -> NewEvent {
    let status = record.status.as_str();
    let data = match was {
        Some(was) => json!({ "status": status, "was": was.as_str() }),
        None => json!({ "status": status }),
    };
    NewEvent {
        at: now_ms(),
        owner: record.owner.clone(),
        sandbox: Some(record.id),
        kind,
        reason: record.status_reason.clone(),
        data: data.to_string(),
    }
}

/// The events of a sandbox that is inserted.
#[must_use]
pub fn events_of_insert(record: &SandboxRecord) -> Vec<NewEvent> {
    let mut events = vec![event_of(record, EventKind::Created, None)];
    if record.status != Status::Provisioning {
        events.push(event_of(record, EventKind::of_status(record.status), None));
    }
    events
}

/// The event of a sandbox that is changed; none where its status stays.
#[must_use]
pub fn event_of_change(was: Status, record: &SandboxRecord) -> Option<NewEvent> {
    (was != record.status).then(|| event_of(record, EventKind::of_status(record.status), Some(was)))
}

/// Events. Inserting a sandbox appends [`events_of_insert`]: `created`, and its status too unless that is `provisioning`; a change
/// of its status appends [`event_of_change`] with the reason of the change, in the same transaction. Its time is
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
