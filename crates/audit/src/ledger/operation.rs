//! An operation that was begun and must be ended, even if its task is cancelled: a client that disconnects
//! drops the future of its request, and with it this guard.

use super::Ledger;
use atoll_store::{Activity, End, NewEvent, OperationId, Outcome, Problem};
use atoll_types::Result;
use std::time::Instant;

/// An operation under way. Dropped without an end, it ends as failed with the code `cancelled`.
#[derive(Debug)]
#[must_use = "dropped, it ends as cancelled"]
pub struct OperationGuard {
    ledger: Ledger,
    id: OperationId,
    begun: Instant,
    armed: bool,
}

impl OperationGuard {
    pub(super) fn new(ledger: Ledger, id: OperationId) -> Self {
        Self { ledger, id, begun: Instant::now(), armed: true }
    }

    /// Which.
    #[must_use]
    pub fn id(&self) -> OperationId {
        self.id
    }

    /// How long it has taken so far.
    #[must_use]
    pub fn elapsed_us(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    /// Ends it; see [`Ledger::end`].
    pub fn end(
        mut self,
        facts: End,
        activities: Vec<Activity>,
        events: Vec<NewEvent>,
    ) -> impl Future<Output = Result<()>> + Send + use<> {
        self.armed = false;
        self.ledger.end(self.id, facts, activities, events)
    }

    /// Leaves it open: it goes on, and another task ends it by its id.
    pub fn leave(mut self) -> OperationId {
        self.armed = false;
        self.id
    }
}

impl Drop for OperationGuard {
    fn drop(&mut self) {
        if self.armed {
            let message = "the caller went away before it ended".into();
            let end = End::new(Outcome::Failed, self.elapsed_us());
            self.ledger.end_quietly(self.id, end.because(Problem { code: "cancelled".into(), message }));
        }
    }
}
