//! What happens to sandboxes by itself. Every so often a pass looks at the records and at the world and
//! closes the difference; it takes no input and remembers nothing that it could not do without, so a server
//! that dies in the middle is nothing special. There is one pass at a time, one sandbox that fails stops no
//! other, and whatever is done is done at the sandbox's actor, under an operation that says why.

mod activity;
mod clock;
mod disk;
mod idle;
mod keys;
mod lifetime;
mod orphans;
mod retention;
mod shutdown;

pub(crate) use activity::{ActiveContainer, ActivityGuard, ActivityTracker, Quiet};
pub use clock::Clock;

use crate::{
    Caller, Core, RuntimeSettings,
    actor::{Step, StepTarget},
    operation::OperationSpec,
};
use atoll_store::SandboxRecord;
use atoll_types::{Error, ErrorCode, Operation, Result, time::now_ms};
use futures_util::StreamExt;
use std::{sync::Arc, time::Duration};
use tokio::time::Instant;

/// Sandboxes that are seen to together.
const AT_ONCE: usize = 8;
/// How long one thing may take: a launcher may hang, and the others must not wait for it for ever.
const PATIENCE: Duration = Duration::from_secs(60);
/// The most that one pass does of a kind; the next goes on.
const MOST: usize = 200;

/// What goes from one pass to the next.
#[derive(Default)]
struct ReconcilerState {
    clock: Clock,
    unowned: orphans::UnownedSince,
    /// Whether so little disk is free that nothing new is made.
    disk_low: bool,
}

/// What a pass goes by.
struct Look<'a> {
    clock: &'a Clock,
    runtime_settings: &'a RuntimeSettings,
}

impl Look<'_> {
    /// Whether things may be removed for their age: after a start the machine's clock may have to be set.
    fn settled(&self) -> bool {
        self.clock.running() >= Duration::from_secs(self.runtime_settings.lifecycle_settle_seconds.into())
    }
}

/// Seconds as they are set; none for never.
fn period(seconds: i64) -> Option<Duration> {
    u64::try_from(seconds).ok().map(Duration::from_secs)
}

impl Core {
    /// Sees to what is due, again and again, until it is dropped.
    pub async fn run_reconcilers(&self) {
        let (began, mut changes) = (Instant::now(), self.live_settings.watch());
        let (mut reconcilers, mut last) = (ReconcilerState::default(), began);
        // Before the first pass: what jumps until then would make everything older for good.
        reconcilers.clock.look(began.elapsed(), now_ms());
        loop {
            let interval = self.live_settings.now().lifecycle_interval_seconds;
            let next = last + Duration::from_secs(interval.into());
            tokio::select! {
                () = tokio::time::sleep_until(next) => {}
                // Another interval may be set.
                Ok(()) = changes.changed() => continue,
            }
            if let Some(jumped) = reconcilers.clock.look(began.elapsed(), now_ms()) {
                tracing::warn!(milliseconds = jumped, "the machine's clock jumped; nothing ages by that");
            }
            self.pass(&mut reconcilers).await;
            last = Instant::now();
        }
    }

    async fn pass(&self, reconcilers: &mut ReconcilerState) {
        let runtime_settings: Arc<RuntimeSettings> = self.live_settings.now();
        let ReconcilerState { clock, unowned, disk_low } = reconcilers;
        let look = Look { clock, runtime_settings: &runtime_settings };
        told("the disk", self.look_at_disk(disk_low).await);
        told("idle sandboxes", self.settle_idle(&look).await);
        told("what lived long enough", self.end_lifetimes(&look).await);
        told("stopped sandboxes", self.end_retention(&look).await);
        told("what is half destroyed", self.finish_destroying(&look).await);
        told("records of the destroyed", self.purge_records(&look).await);
        told("keys", self.close_keys(&look).await);
        told("what belongs to nobody", self.collect_orphans(&look, unowned).await);
    }

    /// Takes all these steps, whatever becomes of each.
    async fn take_steps(&self, steps: Vec<(SandboxRecord, Step)>) {
        let each = |(record, step): (SandboxRecord, Step)| async move {
            if let Err(error) = self.take_step(&record, step).await {
                fault(&record, &error);
            }
        };
        futures_util::stream::iter(steps.into_iter().take(MOST)).for_each_concurrent(AT_ONCE, each).await;
    }

    pub(crate) async fn take_step(&self, record: &SandboxRecord, step: Step) -> Result<()> {
        let kind = match step.to {
            StepTarget::Paused => Operation::SandboxPause,
            StepTarget::Stopped => Operation::SandboxStop,
            StepTarget::Destroyed => Operation::SandboxDestroy,
        };
        let (caller, ends) =
            (Caller::lifecycle(&record.owner, &record.owner_name), step.to != StepTarget::Paused);
        let audited =
            self.audited(&caller, OperationSpec::to(kind, record.id).and("reason", &step.reason)).await?;
        let late = || Error::new(ErrorCode::Timeout, "it does not answer");
        let taken = tokio::time::timeout(PATIENCE, self.registry.step(record.id, step)).await;
        let result = taken.unwrap_or_else(|_| Err(late()));
        if ends && result.is_ok() {
            self.forget_changes(record.id);
        }
        audited.done(result).await.map(drop)
    }
}

fn told(what: &str, result: Result<()>) {
    if let Err(error) = result {
        tracing::warn!(%error, "{what} cannot be seen to");
    }
}

fn fault(record: &SandboxRecord, error: &Error) {
    match error.code {
        // Somebody came first, which is as it should be.
        ErrorCode::Conflict | ErrorCode::NotFound | ErrorCode::NotRunning => {
            tracing::debug!(sandbox = %record.id, %error, "not due any more");
        }
        _ => tracing::warn!(sandbox = %record.id, %error, "a sandbox cannot be seen to"),
    }
}
