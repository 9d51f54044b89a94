//! What a run may use.

use atoll_store::RunProgress;
use atoll_types::{
    Millis,
    conversation::{Node, RunBudget, StopReason},
    time::now_ms,
};
use std::time::Duration;

pub(super) struct Budget {
    limits: RunBudget,
    until: Option<Millis>,
}

impl Budget {
    pub(super) fn new(limits: &RunBudget, started_at: Millis) -> Self {
        let span = limits.seconds.and_then(|seconds| i64::try_from(seconds.saturating_mul(1000)).ok());
        Self { limits: *limits, until: span.map(|span| started_at.saturating_add(span)) }
    }

    /// Why the next step may not begin. The tools that a model asked for are still called: only asking it again costs.
    pub(super) fn used_up(&self, next: Node, progress: RunProgress) -> Option<StopReason> {
        if self.until.is_some_and(|until| now_ms() >= until) {
            return Some(StopReason::Time);
        }
        if next != Node::Agent {
            return None;
        }
        if self.limits.iterations.is_some_and(|most| progress.iterations >= most) {
            return Some(StopReason::Iterations);
        }
        self.limits.tokens.is_some_and(|most| progress.tokens >= most).then_some(StopReason::Tokens)
    }

    /// Whether there is still time after this wait.
    pub(super) fn has(&self, wait: Duration) -> bool {
        let wait = i64::try_from(wait.as_millis()).unwrap_or(i64::MAX);
        self.until.is_none_or(|until| now_ms().saturating_add(wait) < until)
    }

    /// Returns when the time is up.
    pub(super) async fn time_up(&self) {
        match self.until {
            Some(until) => {
                let left = u64::try_from(until - now_ms()).unwrap_or(0);
                tokio::time::sleep(Duration::from_millis(left)).await;
            }
            None => std::future::pending().await,
        }
    }
}
