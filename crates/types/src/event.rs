//! What listeners receive: one numbered row for each change, and its reason. A listener that was away
//! goes on after the last number that it saw. Not the audit trail: it is trimmed, and nothing proves that it
//! is whole.

use crate::{Millis, SandboxId};

/// A change.
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
