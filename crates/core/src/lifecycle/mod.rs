//! The reconcilers. Every so often a pass compares the records with the containers and volumes there are, and
//! closes the difference; it takes no input and keeps no state that it could not do without, so a server that
//! dies in the middle needs no recovery. There is one pass at a time, a sandbox that fails stops no other,
//! and every change is made by the sandbox's actor, under an operation that says why.

mod activity;
mod clock;
mod disk;
mod idle;
mod keys;
mod lifetime;
mod orphans;
mod retention;
mod shutdown;

pub use activity::ActivityGuard;
pub(crate) use activity::{ActiveContainer, ActivityTracker, Quiet};
pub use clock::Clock;

use crate::{
    CoreSettings, Execs, Images, Kernels, Keys, Providers, RuntimeSettings, Sandboxes, Skills, Snapshots,
    UsageMeter, Volumes,
    actor::{SandboxRegistry, Step},
    admission::Admission,
    operation::Operations,
    pool::Pool,
    runtime_settings::LiveSettings,
};
use atoll_store::{SandboxRecord, Store};
use atoll_types::{Error, ErrorCode, Result, time::now_ms};
use futures_util::StreamExt;
use std::{sync::Arc, time::Duration};
use tokio::time::Instant;

/// Sandboxes that are processed concurrently.
const AT_ONCE: usize = 8;
/// How long the provider may take: a launcher may hang, and the others must not wait for it.
const PATIENCE: Duration = Duration::from_secs(60);
/// Most steps of one kind in a pass; the next pass continues.
const MOST: usize = 200;
/// How soon after a look at lifetimes a new sandbox causes the next.
const LIFETIMES_PACE: Duration = Duration::from_millis(200);

/// State from one pass to the next.
#[derive(Default)]
struct ReconcilerState {
    clock: Clock,
    unowned: orphans::UnownedSince,
    /// Whether so little disk is free that nothing new is made.
    disk_low: bool,
}

/// The context of a pass.
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

/// A setting in seconds; none for never.
fn period(seconds: i64) -> Option<Duration> {
    u64::try_from(seconds).ok().map(Duration::from_secs)
}

/// What happens to sandboxes that no caller asked for: at the server's start and end, and by their age.
#[derive(Clone)]
pub struct Lifecycle {
    pub(crate) operations: Operations,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) providers: Providers,
    pub(crate) settings: Arc<CoreSettings>,
    pub(crate) live_settings: Arc<LiveSettings>,
    pub(crate) registry: Arc<SandboxRegistry>,
    pub(crate) admission: Admission,
    pub(crate) pool: Pool,
    pub(crate) activity_tracker: Arc<ActivityTracker>,
    pub(crate) sandboxes: Sandboxes,
    pub(crate) execs: Execs,
    pub(crate) kernels: Kernels,
    pub(crate) keys: Keys,
    pub(crate) usage: UsageMeter,
    pub(crate) snapshots: Snapshots,
    pub(crate) volumes: Volumes,
    pub(crate) skills: Skills,
    pub(crate) images: Images,
}

impl Lifecycle {
    /// Runs the reconcilers periodically, until the future is dropped.
    pub async fn run_reconcilers(&self) {
        let (began, mut changes) = (Instant::now(), self.live_settings.watch());
        let (mut reconcilers, mut last) = (ReconcilerState::default(), began);
        // When a lifetime is to be looked at before the next pass, and when one was last.
        let (mut due, mut looked): (Option<Instant>, Instant) = (None, began);
        // Before the first pass: a jump until then would make everything older for good.
        reconcilers.clock.look(began.elapsed(), now_ms());
        loop {
            let interval = self.live_settings.now().lifecycle_interval_seconds;
            let next = last + Duration::from_secs(interval.into());
            let early = due.filter(|due| *due < next);
            tokio::select! {
                () = tokio::time::sleep_until(early.unwrap_or(next)) => {}
                // The interval may have changed.
                Ok(()) = changes.changed() => continue,
                () = self.sandboxes.new_lifetime.notified() => {
                    due = due.into_iter().chain([looked + LIFETIMES_PACE]).min();
                    continue;
                }
            }
            if let Some(jumped) = reconcilers.clock.look(began.elapsed(), now_ms()) {
                tracing::warn!(milliseconds = jumped, "the machine's clock jumped; nothing ages by that");
            }
            let runtime_settings: Arc<RuntimeSettings> = self.live_settings.now();
            looked = Instant::now();
            let look = Look { clock: &reconcilers.clock, runtime_settings: &runtime_settings };
            let left = self.end_lifetimes(&look).await;
            due = left.as_ref().ok().copied().flatten().map(|left| looked + left);
            warn_of("what lived long enough", left.map(drop));
            if early.is_none() {
                self.pass(&mut reconcilers, &runtime_settings).await;
                last = Instant::now();
            }
        }
    }

    async fn pass(&self, reconcilers: &mut ReconcilerState, runtime_settings: &RuntimeSettings) {
        let ReconcilerState { clock, unowned, disk_low } = reconcilers;
        let look = Look { clock, runtime_settings };
        warn_of("the disk", self.look_at_disk(disk_low).await);
        warn_of("idle sandboxes", self.settle_idle(&look).await);
        warn_of("stopped sandboxes", self.end_retention(&look).await);
        warn_of("what is half destroyed", self.finish_destroying(&look).await);
        warn_of("records of the destroyed", self.purge_records(&look).await);
        warn_of("old snapshots", self.prune_snapshots(&look).await);
        warn_of("images", self.collect_images(&look).await);
        warn_of("keys", self.close_keys(&look).await);
        warn_of("orphans", self.collect_orphans(&look, unowned).await);
    }

    /// Takes all these steps; a failure stops no other.
    async fn take_steps(&self, steps: Vec<(SandboxRecord, Step)>) {
        let each = |(record, step): (SandboxRecord, Step)| async move {
            if let Err(error) = self.sandboxes.step(&record, step).await {
                fault(&record, &error);
            }
        };
        futures_util::stream::iter(steps.into_iter().take(MOST)).for_each_concurrent(AT_ONCE, each).await;
    }
}

fn warn_of(what: &str, result: Result<()>) {
    if let Err(error) = result {
        tracing::warn!(%error, "{what} cannot be seen to");
    }
}

fn fault(record: &SandboxRecord, error: &Error) {
    match error.code {
        // Another request changed the sandbox first, so the step is no longer due.
        ErrorCode::Conflict | ErrorCode::NotFound | ErrorCode::NotRunning => {
            tracing::debug!(sandbox = %record.id, %error, "not due any more");
        }
        _ => tracing::warn!(sandbox = %record.id, %error, "a sandbox cannot be seen to"),
    }
}
