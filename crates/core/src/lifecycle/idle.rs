//! Idle sandboxes: the reconciler pauses them for a while, and then stops them.
//!
//! A sandbox is active while an [`super::ActivityGuard`] lives, or while its processes use the processor
//! though no caller waits for them. When it was last active is known by the monotonic clock where this server
//! saw it, and else by the record; the later of the two counts.

use super::{AT_ONCE, Look, Quiet, fault, period};
use crate::{
    Lifecycle,
    actor::{Idle, Step, StepTarget},
};
use atoll_store::{Millis, SandboxId, SandboxRecord, Status};
use atoll_types::{ErrorCode, Result, time::now_ms};
use futures_util::StreamExt;
use std::{collections::BTreeMap, time::Duration};

/// How far a record may lag behind what this server knows.
const LAG: Duration = Duration::from_secs(30);
/// How long to observe a sandbox before it counts as idle, where only its record is known.
const FIRST_LOOK: Duration = Duration::from_secs(10);

/// The next status of a sandbox that has been idle for so long, and after how long that was due.
fn due(record: &SandboxRecord, still: Duration, pause: Option<Duration>) -> Option<(StepTarget, Duration)> {
    let idle = Duration::from_secs(record.idle_timeout_seconds.into());
    let (to, after) = match record.status {
        Status::Ready if pause == Some(Duration::ZERO) => (StepTarget::Stopped, idle),
        Status::Ready => (StepTarget::Paused, idle),
        Status::Paused => {
            // A manual pause restarts the idle timer.
            let before = if record.idle_pause { Duration::ZERO } else { idle };
            (StepTarget::Stopped, pause?.saturating_add(before))
        }
        _ => return None,
    };
    (still >= after).then_some((to, after))
}

fn reason(record: &SandboxRecord, after: Duration) -> String {
    // Since the last activity, and not only since the pause.
    let before = if record.idle_pause { record.idle_timeout_seconds.into() } else { 0 };
    let seconds = after.as_secs().saturating_add(before);
    format!("idle for {seconds} seconds")
}

impl Lifecycle {
    pub(super) async fn settle_idle(&self, look: &Look<'_>) -> Result<()> {
        let live = self.store.live_sandboxes().await?;
        self.activity_tracker.keep(&live.iter().map(|record| record.id).collect());
        let pause = period(look.runtime_settings.lifecycle_pause_seconds);
        let (mut moved, mut steps, mut left) = (BTreeMap::new(), Vec::new(), Vec::new());
        for record in live {
            let still = self.quiet_for(look, &record);
            self.catch_up(look, &record, still, &mut moved);
            if self.sandboxes.was_left(&record, still) {
                left.push(record);
                continue;
            }
            let Some(still) = self.known_still(look, &record, still) else { continue };
            if let Some((to, least)) = due(&record, still, pause) {
                let reason = reason(&record, least);
                let idle = Idle { last_activity_at: record.last_activity_at, least };
                steps.push((
                    record.clone(),
                    Step { to, reason, revision: Some(record.revision), idle: Some(idle) },
                ));
            }
        }
        if !moved.is_empty() {
            self.store.touch_sandboxes(&moved).await?;
        }
        self.sandboxes.start_left(left);
        let each = |(record, step): (SandboxRecord, Step)| async move { self.rest(&record, step).await };
        futures_util::stream::iter(steps).for_each_concurrent(AT_ONCE, each).await;
        Ok(())
    }

    /// A sandbox that cannot be paused is stopped at once.
    async fn rest(&self, record: &SandboxRecord, step: Step) {
        let stopped =
            (step.to == StepTarget::Paused).then(|| Step { to: StepTarget::Stopped, ..step.clone() });
        let result = match (self.sandboxes.step(record, step).await, stopped) {
            (Err(error), Some(step)) if error.code == ErrorCode::Unsupported => {
                self.sandboxes.step(record, step).await
            }
            (result, _) => result,
        };
        if let Err(error) = result {
            fault(record, &error);
        }
    }

    fn quiet_for(&self, look: &Look<'_>, record: &SandboxRecord) -> Quiet {
        if matches!(record.status, Status::Ready) && self.uses_processor(look, record) {
            self.activity_tracker.touch(record.id);
        }
        self.activity_tracker.quiet_for(record.id)
    }

    /// Whether its processes compute, as of the last sample.
    fn uses_processor(&self, look: &Look<'_>, record: &SandboxRecord) -> bool {
        let Some(container) = record.container else { return false };
        let Some((at, cores)) = self.usage.usage.cores(record.id, container) else { return false };
        // An old sample says nothing.
        let fresh = look.clock.age(at) <= self.sampling().saturating_mul(2) + FIRST_LOOK;
        fresh && f64::from(cores) * 100.0 >= look.runtime_settings.lifecycle_idle_cpu_percent
    }

    fn sampling(&self) -> Duration {
        Duration::from_secs(self.settings.metrics_interval_seconds.max(1).into())
    }

    /// Records the last activity, where the record is behind: the next server knows nothing else.
    fn catch_up(
        &self,
        look: &Look<'_>,
        record: &SandboxRecord,
        still: Quiet,
        moved: &mut BTreeMap<SandboxId, Millis>,
    ) {
        let since = match still {
            Quiet::Busy => Duration::ZERO,
            Quiet::For(since) => since,
            Quiet::Unknown => return,
        };
        if look.clock.age(record.last_activity_at) > since.saturating_add(LAG) {
            let back = i64::try_from(since.as_millis()).unwrap_or(i64::MAX);
            moved.insert(record.id, now_ms().saturating_sub(back));
        }
    }

    /// How long the sandbox has been idle, where that is known.
    fn known_still(&self, look: &Look<'_>, record: &SandboxRecord, still: Quiet) -> Option<Duration> {
        let recorded = look.clock.age(record.last_activity_at);
        match still {
            Quiet::Busy => None,
            Quiet::For(since) => Some(since.min(recorded)),
            // Its commands may not be watched again yet, and its usage not sampled.
            Quiet::Unknown => {
                let idle = Duration::from_secs(record.idle_timeout_seconds.into());
                let enough = (self.sampling().saturating_mul(2) + FIRST_LOOK).min(idle);
                (look.clock.running() >= enough).then_some(recorded)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lifecycle::clock::Clock;
    use atoll_store::{NewSandbox, Sealed};
    use atoll_types::{Limits, Profile, VolumeId};

    fn record(status: Status, idle_pause: bool) -> SandboxRecord {
        let new = NewSandbox {
            id: SandboxId::random(),
            owner: "owner".into(),
            owner_name: "Ada".into(),
            status,
            image: "host".into(),
            provider: atoll_types::ProviderName::native(),
            profile: Profile::builtin("default").unwrap(),
            container: None,
            volume: VolumeId::random(),
            limits: Limits::default(),
            idle_timeout_seconds: 100,
            max_lifetime_seconds: None,
            network_enabled: false,
            egress: String::new(),
            session_key: None,
            auto_snapshot: atoll_types::AutoSnapshot::Off,
            labels: BTreeMap::new(),
            skills: Vec::new(),
            environment: Sealed::default(),
            created_at: 0,
        };
        SandboxRecord { idle_pause, ..SandboxRecord::from(new) }
    }

    fn seconds(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    #[test]
    fn each_stage_has_its_time() {
        let ready = record(Status::Ready, false);
        let ours = record(Status::Paused, true);
        // Whatever the reason says: only the field decides.
        let reason_of_a_request = Some("idle for a talk".to_owned());
        let theirs = SandboxRecord { status_reason: reason_of_a_request, ..record(Status::Paused, false) };
        let some = Some(seconds(30));
        for (record, still, pause, wanted) in [
            (&ready, 99, some, None),
            (&ready, 100, some, Some((StepTarget::Paused, seconds(100)))),
            (&ready, 9999, some, Some((StepTarget::Paused, seconds(100)))),
            (&ready, 100, None, Some((StepTarget::Paused, seconds(100)))),
            (&ready, 100, Some(Duration::ZERO), Some((StepTarget::Stopped, seconds(100)))),
            (&ours, 29, some, None),
            (&ours, 30, some, Some((StepTarget::Stopped, seconds(30)))),
            (&ours, 9999, None, None),
            (&theirs, 129, some, None),
            (&theirs, 130, some, Some((StepTarget::Stopped, seconds(130)))),
        ] {
            assert_eq!(due(record, seconds(still), pause), wanted, "{} {still}", record.status);
        }
        for status in [Status::Provisioning, Status::Stopped, Status::Dead, Status::Destroyed] {
            assert_eq!(due(&record(status, false), seconds(u64::MAX), some), None, "{status}");
        }
        assert_eq!(reason(&ready, seconds(100)), "idle for 100 seconds");
        assert_eq!(reason(&ours, seconds(30)), "idle for 130 seconds");
        assert_eq!(reason(&theirs, seconds(130)), "idle for 130 seconds");
    }

    #[test]
    fn a_clock_that_jumps_a_year_makes_nothing_idle() {
        let (ready, mut clock) = (record(Status::Ready, false), Clock::default());
        clock.look(seconds(0), 1000);
        clock.look(seconds(50), 51_000 + 365 * 24 * 3_600_000);
        assert_eq!(due(&ready, clock.age(ready.last_activity_at), None), None);
        clock.look(seconds(99), 100_000 + 365 * 24 * 3_600_000);
        assert_eq!(
            due(&ready, clock.age(ready.last_activity_at), None),
            Some((StepTarget::Paused, seconds(100)))
        );
    }
}
