//! Usage of sandboxes: now, and for a short while back. One task samples all of them at once and keeps the
//! last samples in memory; nothing of it is stored, and no process inside a sandbox is involved.
//!
//! No sample is kept for longer than [`KEPT`] intervals, and one sampling returns thousands at most, so
//! memory is bounded.

mod history;

use crate::{
    Caller, CoreSettings, Providers, events::new_event, operation::Operations, sandboxes::LARGEST_PAGE,
};
use atoll_store::{ActivityEntry, ActivityKind, ListQuery, SandboxId, Status, Store};
use atoll_types::{ContainerId, Error, ErrorCode, EventKind, Result, Usage, time::now_ms};
use futures_util::{StreamExt, TryStreamExt, stream};
pub(crate) use history::UsageHistory;
pub use history::{KEPT, UsageNow, UsageSample, UsageTotals};
use history::{Marks, Track};
use std::{collections::HashSet, sync::Arc, time::Duration};

/// How many of a sandbox's newest activities are looked through for a command.
const LOOKED_AT: u32 = 10;
/// Sandboxes that are asked concurrently.
const AT_ONCE: usize = 8;

/// The figures of one sandbox.
#[derive(Debug, Clone, PartialEq)]
pub struct SandboxMetrics {
    /// None when it does not run.
    pub now: Option<UsageNow>,
    /// The oldest first.
    pub history: Vec<UsageSample>,
    /// Between two samples of the history.
    pub interval_seconds: u32,
}

/// What a list shows of a sandbox.
#[derive(Debug, Clone, PartialEq)]
pub struct SandboxUsage {
    pub id: SandboxId,
    /// None where it is not counted.
    pub metrics: Option<SandboxMetrics>,
    pub last_command: Option<ActivityEntry>,
}

/// Samples what sandboxes use, and keeps the last samples.
#[derive(Clone)]
pub struct UsageMeter {
    pub(crate) operations: Operations,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) providers: Providers,
    pub(crate) settings: Arc<CoreSettings>,
    pub(crate) usage: Arc<UsageHistory>,
}

impl UsageMeter {
    /// The usage of every container of every provider that measures it.
    async fn all(&self) -> Result<Vec<(ContainerId, Usage)>> {
        let mut all = Vec::new();
        for usages in self.providers.iter().filter_map(|(_, provider)| provider.usage()) {
            all.extend(usages.all().await?);
        }
        Ok(all)
    }

    /// A sandbox's present usage and its history: the newest `limit` samples, none before `since`.
    pub async fn metrics(
        &self,
        caller: &Caller,
        id: SandboxId,
        since: Option<i64>,
        limit: usize,
    ) -> Result<SandboxMetrics> {
        if limit > KEPT {
            return Err(Error::invalid("limit", format!("limit must be between 0 and {KEPT}")));
        }
        let record = self.operations.visible(caller, id).await?;
        if record.status == Status::Destroyed {
            let message = format!("the sandbox {} is destroyed", id.uuid());
            return Err(Error::new(ErrorCode::NotFound, message));
        }
        let lacking = || Error::new(ErrorCode::Unsupported, "what sandboxes use is not counted here");
        let usages = self.providers.of(&record)?.usage().ok_or_else(lacking)?;
        let (marks, history) = self.usage.history(id, since, limit);
        let lives = matches!(record.status, Status::Ready | Status::Paused);
        let living = record.container.filter(|_| lives);
        let now = match living {
            None => None,
            Some(container) => match usages.one(container).await {
                Ok(usage) => Some(UsageNow::new(now_ms(), &marks, container, &usage)),
                // It ended during the call.
                Err(e) if [ErrorCode::NotFound, ErrorCode::ContainerDied].contains(&e.code) => None,
                Err(error) => return Err(error),
            },
        };
        Ok(SandboxMetrics { now, history, interval_seconds: self.settings.metrics_interval_seconds })
    }

    /// The figures of several sandboxes, and the command that last ran in each. Those that the caller may not see, and
    /// destroyed ones, are left out.
    pub async fn many(&self, caller: &Caller, ids: &[SandboxId], limit: usize) -> Result<Vec<SandboxUsage>> {
        if ids.len() > LARGEST_PAGE as usize {
            return Err(Error::invalid("ids", format!("ids must be at most {LARGEST_PAGE}")));
        }
        let one = |id: SandboxId| async move {
            let metrics = match self.metrics(caller, id, None, limit).await {
                Ok(metrics) => Some(metrics),
                Err(error) if error.code == ErrorCode::Unsupported => None,
                Err(error) if error.code == ErrorCode::NotFound => return Ok(None),
                Err(error) => return Err(error),
            };
            let newest = self.store.activities(id, LOOKED_AT, None).await?;
            let last_command = newest.into_iter().find(|entry| entry.activity.kind == ActivityKind::Exec);
            Ok(Some(SandboxUsage { id, metrics, last_command }))
        };
        let found: Vec<_> =
            stream::iter(ids.iter().copied().map(one)).buffered(AT_ONCE).try_collect().await?;
        Ok(found.into_iter().flatten().collect())
    }

    /// Sums over all sandboxes, as of the last sample.
    #[must_use]
    pub fn totals(&self) -> UsageTotals {
        self.usage.state().totals
    }

    /// Samples the usage of all sandboxes, until the future is dropped. While there are none, only the store
    /// is read.
    pub async fn keep_sampling(&self) {
        if self.providers.iter().all(|(_, provider)| provider.usage().is_none()) {
            return;
        }
        let interval = Duration::from_secs(self.settings.metrics_interval_seconds.max(1).into());
        let mut ticks = tokio::time::interval(interval);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut failing = false;
        loop {
            ticks.tick().await;
            let sampled = self.sample(interval).await;
            if let (Err(error), false) = (&sampled, failing) {
                tracing::warn!(%error, "what sandboxes use cannot be sampled");
            }
            failing = sampled.is_err();
        }
    }

    async fn sample(&self, interval: Duration) -> Result<()> {
        let all = if self.any_live().await? { self.all().await? } else { Vec::new() };
        self.find_owners(&all).await?;
        self.forget_gone(&all).await?;
        self.tell_of_sockets(interval, &all).await?;
        let window = i64::try_from(interval.as_millis()).unwrap_or(i64::MAX).saturating_mul(KEPT as i64);
        let at = now_ms();
        self.usage.state().take(at, at.saturating_sub(window), &all);
        Ok(())
    }

    /// Writes an event for each sandbox whose commands the launcher ended because their sockets held too much memory.
    async fn tell_of_sockets(&self, interval: Duration, all: &[(ContainerId, Usage)]) -> Result<()> {
        let young = u64::try_from(interval.as_micros()).unwrap_or(u64::MAX).saturating_mul(2);
        let ended = self.usage.state().ended_for_sockets(young, all);
        for (sandbox, times) in ended {
            let Some(record) = self.store.sandbox(sandbox).await? else { continue };
            let reason = "its commands were ended: their sockets held more memory than a quarter of its limit, which no \
                          cgroup counts";
            let data = serde_json::json!({ "times": times });
            let event =
                new_event(&record.owner, Some(sandbox), EventKind::SocketsEnded, Some(reason.into()), &data);
            self.store.append_events(vec![event]).await?;
        }
        Ok(())
    }

    async fn any_live(&self) -> Result<bool> {
        if !self.usage.state().owners.is_empty() {
            return Ok(true);
        }
        let none = ListQuery { limit: 1, ..ListQuery::default() };
        let counts = self.store.list_sandboxes(&none).await?.status_counts;
        let live = |status: &Status| matches!(status, Status::Provisioning | Status::Ready | Status::Paused);
        Ok(counts.iter().any(|(status, count)| live(status) && *count > 0))
    }

    /// Looks up the sandboxes of new containers, and forgets those of containers that ended.
    async fn find_owners(&self, all: &[(ContainerId, Usage)]) -> Result<()> {
        let unknown: Vec<ContainerId> = {
            let mut state = self.usage.state();
            let there: HashSet<ContainerId> = all.iter().map(|(container, _)| *container).collect();
            state.owners.retain(|container, _| there.contains(container));
            there.into_iter().filter(|container| !state.owners.contains_key(container)).collect()
        };
        for container in unknown {
            // One of the pool has no sandbox yet, and is looked up again at the next sampling.
            if let Some(record) = self.store.sandbox_by_container(container).await? {
                self.usage.state().owners.insert(container, record.id);
            }
        }
        Ok(())
    }

    /// Forgets destroyed sandboxes. A stopped one keeps its history until that is old.
    async fn forget_gone(&self, all: &[(ContainerId, Usage)]) -> Result<()> {
        let there: HashSet<ContainerId> = all.iter().map(|(container, _)| *container).collect();
        let went = |track: &Track| track.marks[0].is_some_and(|mark| !there.contains(&mark.container));
        let absent: Vec<SandboxId> = {
            let state = self.usage.state();
            state.tracks.iter().filter(|(_, track)| went(track)).map(|(id, _)| *id).collect()
        };
        for id in absent {
            let status = self.store.sandbox(id).await?.map(|record| record.status);
            let mut state = self.usage.state();
            match status {
                None | Some(Status::Destroyed) => _ = state.tracks.remove(&id),
                // It need not be looked up again until it runs again.
                Some(Status::Stopped | Status::Dead) => {
                    state.tracks.entry(id).and_modify(|track| track.marks = Marks::default());
                }
                Some(_) => {}
            }
        }
        Ok(())
    }
}
