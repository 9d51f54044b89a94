//! Events of the agent as events of the two protocols. Renderers are plain state machines: they are fed every event of a
//! run from its first and hold no connection.

pub(crate) mod modes;
pub(crate) mod pending;
pub(crate) mod protocol;
mod runnables;

pub(crate) use modes::{Modes, RunRenderer};
pub(crate) use protocol::{Filter, ProtocolRenderer};

use atoll_types::sse;
use serde_json::Value;

/// A wire event that has no number yet.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct WireEvent {
    pub(crate) name: &'static str,
    pub(crate) data: Value,
}

impl WireEvent {
    pub(crate) fn new(name: &'static str, data: Value) -> Self {
        Self { name, data }
    }
}

/// The numbers of the wire events that one event of the agent became. All but the last have the number before it: a client
/// that was cut off between them and resumes gets all of them again.
pub(crate) fn numbered(seq: u64, count: usize) -> impl Iterator<Item = u64> {
    (1..=count).map(move |at| if at == count { seq } else { seq.saturating_sub(1) })
}

/// The wire events of one event of the agent as text.
pub(crate) fn written(seq: u64, events: Vec<WireEvent>) -> String {
    let mut out = String::new();
    for (id, event) in numbered(seq, events.len()).zip(&events) {
        sse::write(&mut out, Some(id), Some(event.name), |out| out.push_str(&event.data.to_string()));
    }
    out
}

#[cfg(test)]
mod tests;
