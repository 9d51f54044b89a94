//! Sandboxes that reached the operator's maximum lifetime, or the one requested at creation: an event warns
//! their owner in time, and then they are destroyed. A stopped sandbox could be started again and again, so
//! stopping would be no end.

use super::{Look, MOST};
use crate::{
    Lifecycle,
    actor::{Step, StepTarget},
};
use atoll_store::{EventQuery, ListQuery, NewEvent, SandboxRecord, SortBy};
use atoll_types::{Result, time::now_ms};
use std::time::Duration;

const EXPIRING: &str = "expiring";

impl Lifecycle {
    pub(super) async fn end_lifetimes(&self, look: &Look<'_>) -> Result<()> {
        let most = look.runtime_settings.lifecycle_max_lifetime_seconds;
        let most = (most != 0).then_some(most);
        let own = ListQuery { with_lifetime: true, limit: u32::MAX, ..ListQuery::default() };
        let mut records = self.store.list_sandboxes(&own).await?.items;
        if most.is_some() {
            let oldest = ListQuery {
                sort_by: SortBy::CreatedAt,
                descending: false,
                limit: u32::try_from(MOST).unwrap_or(u32::MAX),
                ..ListQuery::default()
            };
            let all = self.store.list_sandboxes(&oldest).await?.items;
            records.extend(all.into_iter().filter(|record| record.max_lifetime_seconds.is_none()));
        }
        let mut steps = Vec::new();
        for record in records {
            // The requested lifetime, or the operator's maximum, whichever is less.
            let Some(seconds) = record.max_lifetime_seconds.into_iter().chain(most).min() else { continue };
            if self.is_over(look, &record, Duration::from_secs(seconds.into())).await? {
                let reason = format!("its lifetime of {seconds} seconds is over");
                steps.push((record, Step { to: StepTarget::Destroyed, reason, revision: None, idle: None }));
            }
        }
        self.take_steps(steps).await;
        Ok(())
    }

    /// Whether a sandbox has lived for so long, and its owner was warned in time.
    async fn is_over(&self, look: &Look<'_>, record: &SandboxRecord, lifetime: Duration) -> Result<bool> {
        let notice = Duration::from_secs(look.runtime_settings.lifecycle_expiring_seconds.into());
        let age = look.clock.age(record.created_at);
        if age.saturating_add(notice) < lifetime {
            return Ok(false);
        }
        // However late it is, the warning comes first.
        let told = self.told_of_end(look, record, lifetime.saturating_sub(age).max(notice)).await?;
        Ok(age >= lifetime && told >= notice && look.settled())
    }

    /// How long ago the event warned its owner; sends the event where there is none.
    async fn told_of_end(&self, look: &Look<'_>, record: &SandboxRecord, left: Duration) -> Result<Duration> {
        let query = EventQuery {
            sandbox: Some(record.id),
            kinds: vec![EXPIRING.into()],
            limit: 1,
            ..EventQuery::default()
        };
        if let Some(row) = self.store.events(&query).await?.items.first() {
            return Ok(look.clock.age(row.event.at));
        }
        let seconds = left.as_secs();
        let event = NewEvent {
            at: now_ms(),
            owner: record.owner.clone(),
            sandbox: Some(record.id),
            kind: EXPIRING.into(),
            reason: Some(format!("its lifetime ends in {seconds} seconds, and it is destroyed")),
            data: serde_json::json!({ "seconds_left": seconds }).to_string(),
        };
        self.store.append_events(vec![event]).await?;
        Ok(Duration::ZERO)
    }
}
