//! Faults with sandboxes and what happens in them.

use super::{Broken, Fault};
use async_trait::async_trait;
use atoll_store::{
    ACTIVITIES_KEPT, Activities, Activity, ActivityEntry, ActivityKind, Change, Clash, EventKind, Events,
    Inserted, ListQuery, Millis, NewEvent, NewSandbox, Page, Result, SandboxId, SandboxRecord, Sandboxes,
    Status, StoreError,
};
use atoll_types::ContainerId;
use std::{collections::BTreeMap, sync::atomic::Ordering, time::Duration};

#[async_trait]
impl Sandboxes for Broken {
    async fn insert_sandbox(&self, mut new: NewSandbox) -> Result<Inserted> {
        match self.fault {
            Fault::ForgetsTheContainer => new.container = None,
            Fault::LosesTheEnvironment => new.environment.0.clear(),
            Fault::IgnoresTheSession => new.session_key = None,
            Fault::KeepsTheSessionOfTheDestroyed => {
                let query = ListQuery {
                    session_key: new.session_key.clone(),
                    statuses: vec![Status::Destroyed],
                    ..ListQuery::default()
                };
                let gone = self.inner.list_sandboxes(&query).await?.items;
                if let (Some(record), true) = (gone.into_iter().next(), new.session_key.is_some()) {
                    return Ok(Inserted::Existing(record));
                }
            }
            _ => {}
        }
        match (self.inner.insert_sandbox(new.clone()).await, self.fault) {
            (Ok(Inserted::Existing(record)), Fault::CallsEveryoneNew) => Ok(Inserted::New(record)),
            (Err(_), Fault::AllowsWhatIsTaken) => Ok(Inserted::New(SandboxRecord::from(new))),
            (result, _) => result,
        }
    }

    async fn sandbox(&self, id: SandboxId) -> Result<Option<SandboxRecord>> {
        self.inner.sandbox(id).await
    }

    async fn sandbox_by_container(&self, id: ContainerId) -> Result<Option<SandboxRecord>> {
        self.inner.sandbox_by_container(id).await
    }

    async fn list_sandboxes(&self, query: &ListQuery) -> Result<Page> {
        let mut query = query.clone();
        match self.fault {
            Fault::PagesOverlap => query.offset = query.offset.saturating_sub(1),
            Fault::SortsOneWayOnly => query.descending = true,
            Fault::ShowsTheDestroyed => query.include_destroyed = true,
            Fault::IgnoresLabels => query.labels.clear(),
            Fault::TakesTextForAPattern => query.text = query.text.filter(|text| !text.contains(['%', '_'])),
            _ => {}
        }
        let mut page = self.inner.list_sandboxes(&query).await?;
        if self.is(Fault::CountsOneStatus) && !query.statuses.is_empty() {
            page.status_counts.retain(|status, _| query.statuses.contains(status));
        }
        Ok(page)
    }

    async fn update_sandbox(
        &self,
        id: SandboxId,
        mut expected_revision: u64,
        mut change: Change,
    ) -> Result<SandboxRecord> {
        let now = self.inner.sandbox(id).await?;
        match (&now, self.fault) {
            (Some(now), Fault::IgnoresTheRevision) => expected_revision = now.revision,
            (_, Fault::KeepsOldLabels) => change.labels = None,
            (_, Fault::ChangesWithoutAWord) => change.activity = None,
            _ => {}
        }
        let told = |kind| NewEvent {
            at: 0,
            owner: String::new(),
            sandbox: Some(id),
            kind,
            reason: None,
            data: String::new(),
        };
        match (self.inner.update_sandbox(id, expected_revision, change.clone()).await, now, self.fault) {
            (Ok(record), Some(now), Fault::TellsOfWhatStays) if record.status == now.status => {
                self.inner.append_events(vec![told(EventKind::of_status(record.status))]).await?;
                Ok(record)
            }
            (Err(error), _, Fault::TellsOfFailures) => {
                self.inner.append_events(vec![told(EventKind::Dead)]).await?;
                Err(error)
            }
            (Err(StoreError::Conflict(Clash::Destroyed)), Some(now), Fault::RevivesTheDestroyed) => Ok(now),
            (Err(StoreError::Conflict(Clash::Taken)), _, Fault::SharesContainers) => {
                change.container = None;
                self.inner.update_sandbox(id, expected_revision, change).await
            }
            (result, ..) => result,
        }
    }

    async fn live_sandboxes(&self) -> Result<Vec<SandboxRecord>> {
        let mut live = self.inner.live_sandboxes().await?;
        if self.is(Fault::CallsTheStoppedLive) {
            let query = ListQuery { statuses: vec![Status::Stopped], ..ListQuery::default() };
            live.extend(self.inner.list_sandboxes(&query).await?.items);
        }
        Ok(live)
    }

    async fn touch_sandboxes(&self, active: &BTreeMap<SandboxId, Millis>) -> Result<()> {
        let later = |(id, at): (&SandboxId, &Millis)| (*id, at.saturating_add(1_000_000_000));
        match self.fault {
            Fault::MovesActivityTooFar => {
                self.inner.touch_sandboxes(&active.iter().map(later).collect()).await
            }
            _ => self.inner.touch_sandboxes(active).await,
        }
    }

    async fn purge_destroyed(&self, before: Millis, most: u32) -> Result<u64> {
        let before = if self.is(Fault::PurgesTheFreshlyDestroyed) { Millis::MAX } else { before };
        self.inner.purge_destroyed(before, most).await
    }
}

#[async_trait]
impl Activities for Broken {
    async fn record_activity(&self, mut activity: Activity) -> Result<()> {
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        self.detail.lock().unwrap().clone_from(&activity.detail);
        match self.fault {
            Fault::CountsNothing => activity.kind = ActivityKind::Start,
            Fault::LosesSomeActivities if call % 10 == 9 => return Ok(()),
            Fault::StopsHalfway => {
                self.halves.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(Duration::from_millis(2)).await;
                self.halves.fetch_sub(1, Ordering::Relaxed);
            }
            _ => {}
        }
        match (self.inner.record_activity(activity).await, self.fault) {
            (Err(StoreError::NotFound(_)), Fault::RecordsForNobody) => Ok(()),
            (result, _) => result,
        }
    }

    async fn activities(
        &self,
        sandbox: SandboxId,
        limit: u32,
        before: Option<u64>,
    ) -> Result<Vec<ActivityEntry>> {
        let before = before.filter(|_| !self.is(Fault::IgnoresBefore));
        let mut entries = self.inner.activities(sandbox, limit, before).await?;
        let extra = match self.fault {
            Fault::KeepsOneTooMany => u64::from(entries.len() as u64 == ACTIVITIES_KEPT),
            _ => self.halves.load(Ordering::Relaxed),
        };
        for _ in 0..extra {
            entries.extend(entries.last().cloned());
        }
        if let (Some(entry), Fault::CutsNothing) = (entries.first_mut(), self.fault) {
            entry.activity.detail.clone_from(&self.detail.lock().unwrap());
        }
        Ok(entries)
    }
}
