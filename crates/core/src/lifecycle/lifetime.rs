//! Sandboxes that lived as long as the operator allows: their owner is told in time, and then they are
//! destroyed. A stopped one could be started again and again, so stopping would be no end.

use super::{Look, MOST};
use crate::{
    Core,
    desk::{Step, To},
    now,
};
use atoll_store::{EventQuery, ListQuery, NewEvent, SandboxRecord, SortBy};
use atoll_types::Result;
use std::time::Duration;

const EXPIRING: &str = "expiring";

impl Core {
    pub(super) async fn end_lifetimes(&self, look: &Look<'_>) -> Result<()> {
        let lifetime = Duration::from_secs(look.knobs.lifecycle_max_lifetime_seconds.into());
        if lifetime.is_zero() {
            return Ok(());
        }
        let notice = Duration::from_secs(look.knobs.lifecycle_expiring_seconds.into());
        let oldest = ListQuery {
            sort_by: SortBy::CreatedAt,
            descending: false,
            limit: u32::try_from(MOST).unwrap_or(u32::MAX),
            ..ListQuery::default()
        };
        let mut steps = Vec::new();
        for record in self.store.list_sandboxes(&oldest).await?.items {
            let age = look.clock.age(record.created_at);
            if age.saturating_add(notice) < lifetime {
                break;
            }
            // However late it is: first its owner is told.
            let told = self.told_of_end(look, &record, lifetime.saturating_sub(age).max(notice)).await?;
            if age >= lifetime && told >= notice && look.settled() {
                let reason = format!("its lifetime of {} seconds is over", lifetime.as_secs());
                steps.push((record, Step { to: To::Destroyed, reason, revision: None, idle: None }));
            }
        }
        self.take_steps(steps).await;
        Ok(())
    }

    /// How long ago its owner was told that it ends; tells it where nobody did.
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
            at: now(),
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
