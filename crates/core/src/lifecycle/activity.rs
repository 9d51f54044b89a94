//! Work in flight, counted in one place. A caller that works in a container acquires it together with an
//! [`ActivityGuard`], which lives as long as that handle, so no caller has to report the end of its work. Tasks
//! that only watch a container get it from the actor without a guard and do not count as work. Times are of the
//! monotonic clock.

use async_trait::async_trait;
use atoll_provider::{
    Claimable, Container, EgressEndpoint, FileChanges, Guest, LiveLimits, Pause, Ports, State,
};
use atoll_store::SandboxId;
use atoll_types::{ContainerId, Death, Result};
use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// Work in flight by sandbox, and when the last of it ended.
#[derive(Default)]
pub(crate) struct ActivityTracker(Mutex<HashMap<SandboxId, Entry>>);

struct Entry {
    under_way: usize,
    last: Instant,
}

/// How long a sandbox has been idle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Quiet {
    /// Work is in flight.
    Busy,
    /// No work for this long.
    For(Duration),
    /// No work since this server started.
    Unknown,
}

/// One piece of work in flight. Dropped when it ends.
pub struct ActivityGuard {
    activity_tracker: Arc<ActivityTracker>,
    sandbox: SandboxId,
}

impl ActivityTracker {
    fn entries(&self) -> MutexGuard<'_, HashMap<SandboxId, Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Work begins.
    pub(crate) fn begin(self: &Arc<Self>, sandbox: SandboxId) -> ActivityGuard {
        let mut entries = self.entries();
        let entry = entries.entry(sandbox).or_insert(Entry { under_way: 0, last: Instant::now() });
        (entry.under_way, entry.last) = (entry.under_way + 1, Instant::now());
        ActivityGuard { activity_tracker: Arc::clone(self), sandbox }
    }

    /// Work was done just now.
    pub(crate) fn touch(self: &Arc<Self>, sandbox: SandboxId) {
        drop(self.begin(sandbox));
    }

    pub(crate) fn quiet_for(&self, sandbox: SandboxId) -> Quiet {
        match self.entries().get(&sandbox) {
            None => Quiet::Unknown,
            Some(entry) if entry.under_way > 0 => Quiet::Busy,
            Some(entry) => Quiet::For(entry.last.elapsed()),
        }
    }

    /// Forgets all sandboxes but these, so that memory is bounded by the sandboxes there are.
    pub(super) fn keep(&self, there: &HashSet<SandboxId>) {
        self.entries().retain(|sandbox, entry| entry.under_way > 0 || there.contains(sandbox));
    }
}

impl Drop for ActivityGuard {
    fn drop(&mut self) {
        if let Some(entry) = self.activity_tracker.entries().get_mut(&self.sandbox) {
            entry.under_way = entry.under_way.saturating_sub(1);
            entry.last = Instant::now();
        }
    }
}

/// A container as an actor gives it out: the sandbox is active while it is held.
pub(crate) struct ActiveContainer {
    container: Arc<dyn Container>,
    _working: ActivityGuard,
}

impl ActiveContainer {
    pub(crate) fn new(container: Arc<dyn Container>, activity_guard: ActivityGuard) -> Self {
        Self { container, _working: activity_guard }
    }

    /// The container alone, for what outlives the work and does not count as such.
    pub(crate) fn inner(&self) -> &Arc<dyn Container> {
        &self.container
    }
}

#[async_trait]
impl Container for ActiveContainer {
    fn id(&self) -> ContainerId {
        self.container.id()
    }

    fn guest(&self) -> &Guest {
        self.container.guest()
    }

    async fn state(&self) -> Result<State> {
        self.container.state().await
    }

    async fn died(&self) -> Result<Death> {
        self.container.died().await
    }

    fn live_limits(&self) -> Option<&dyn LiveLimits> {
        self.container.live_limits()
    }

    fn claimable(&self) -> Option<&dyn Claimable> {
        self.container.claimable()
    }

    fn pause(&self) -> Option<&dyn Pause> {
        self.container.pause()
    }

    fn changes(&self) -> Option<&dyn FileChanges> {
        self.container.changes()
    }

    fn ports(&self) -> Option<&dyn Ports> {
        self.container.ports()
    }

    fn egress_endpoint(&self) -> Option<&dyn EgressEndpoint> {
        self.container.egress_endpoint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_busy_until_the_last_is_done() {
        let (activity_tracker, sandbox) = (Arc::new(ActivityTracker::default()), SandboxId::random());
        assert_eq!(activity_tracker.quiet_for(sandbox), Quiet::Unknown);
        let (first, second) = (activity_tracker.begin(sandbox), activity_tracker.begin(sandbox));
        drop(first);
        activity_tracker.touch(sandbox);
        assert_eq!(activity_tracker.quiet_for(sandbox), Quiet::Busy);
        activity_tracker.keep(&HashSet::new());
        drop(second);
        assert!(matches!(activity_tracker.quiet_for(sandbox), Quiet::For(_)));
        activity_tracker.keep(&[sandbox].into());
        assert!(matches!(activity_tracker.quiet_for(sandbox), Quiet::For(_)));
        activity_tracker.keep(&HashSet::new());
        assert_eq!(activity_tracker.quiet_for(sandbox), Quiet::Unknown);
    }
}
