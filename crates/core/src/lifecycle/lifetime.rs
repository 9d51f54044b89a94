//! Sandboxes that reached the operator's maximum lifetime, or the one requested at creation: an event warns
//! their owner in time, and then they are destroyed. A stopped sandbox could be started again and again, so
//! stopping would be no end. Between two passes the reconcilers look again when the next warning or end is due,
//! so a lifetime ends when it was said to.

use super::{Look, MOST};
use crate::{
    Lifecycle,
    actor::{Step, StepTarget},
    events::new_event,
};
use atoll_store::{EventKind, EventQuery, ListQuery, SandboxRecord, SortBy};
use atoll_types::Result;
use std::time::Duration;

impl Lifecycle {
    /// Warns of lifetimes and ends them. Returns how long it is until the next warning or end is due.
    pub(super) async fn end_lifetimes(&self, look: &Look<'_>) -> Result<Option<Duration>> {
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
        let (mut steps, mut next) = (Vec::new(), None);
        for record in records {
            // The requested lifetime, or the operator's maximum, whichever is less.
            let Some(seconds) = record.max_lifetime_seconds.into_iter().chain(most).min() else { continue };
            let left = self.left(look, &record, Duration::from_secs(seconds.into())).await?;
            if !left.is_zero() {
                next = next.into_iter().chain([left]).min();
            } else if look.settled() || look.clock.knows(record.created_at) {
                let reason = format!("its lifetime of {seconds} seconds is over");
                steps.push((record, Step { to: StepTarget::Destroyed, reason, revision: None, idle: None }));
            }
        }
        self.take_steps(steps).await;
        Ok(next)
    }

    /// How long it is until the warning of a sandbox's end, or after that until the end; zero where it has come.
    async fn left(&self, look: &Look<'_>, record: &SandboxRecord, lifetime: Duration) -> Result<Duration> {
        let notice = Duration::from_secs(look.runtime_settings.lifecycle_expiring_seconds.into());
        let left = lifetime.saturating_sub(look.clock.age(record.created_at));
        if left > notice {
            return Ok(left - notice);
        }
        // However late it is, the warning comes first. A lifetime that the sandbox's own request made shorter than
        // that was known from the beginning.
        let own = record.max_lifetime_seconds.map(|own| Duration::from_secs(own.into()));
        let notice = if own == Some(lifetime) && lifetime <= notice { Duration::ZERO } else { notice };
        let told = self.told_of_end(look, record, left.max(notice)).await?;
        Ok(left.max(notice.saturating_sub(told)))
    }

    /// How long ago the event warned its owner; sends the event where there is none.
    async fn told_of_end(&self, look: &Look<'_>, record: &SandboxRecord, left: Duration) -> Result<Duration> {
        let query = EventQuery {
            sandbox: Some(record.id),
            kinds: Some(vec![EventKind::Expiring]),
            limit: 1,
            ..EventQuery::default()
        };
        if let Some(row) = self.store.events(&query).await?.items.first() {
            return Ok(look.clock.age(row.event.at));
        }
        let seconds = left.as_secs();
        let reason = format!("its lifetime ends in {seconds} seconds, and it is destroyed");
        let data = serde_json::json!({ "seconds_left": seconds });
        let event = new_event(&record.owner, Some(record.id), EventKind::Expiring, Some(reason), &data);
        self.store.append_events(vec![event]).await?;
        Ok(Duration::ZERO)
    }
}
