//! Retention: stopped sandboxes with their volumes, old automatic snapshots, the records of destroyed ones, and the stored responses
//! of idempotent requests. Their rows in the audit trail stay.

use super::{Look, MOST, period};
use crate::{
    Caller, Lifecycle,
    actor::{Step, StepTarget},
    operation::OperationSpec,
    owner_id,
};
use atoll_store::{ListQuery, SortBy, Status};
use atoll_types::{Operation, Result};
use std::time::Duration;

/// Records that one pass removes.
const RECORDS: u32 = 1000;
/// How long the destruction of a sandbox is left to the request that began it.
const BEGUN: Duration = Duration::from_secs(10);
/// The owner in the audit rows of what has none.
const SYSTEM: &str = "system";

pub(super) fn system() -> Caller {
    Caller::lifecycle(&owner_id(SYSTEM), SYSTEM)
}

/// Those with one of these statuses, the least recently active first.
fn oldest(statuses: Vec<Status>, limit: u32) -> ListQuery {
    ListQuery { statuses, sort_by: SortBy::LastActivityAt, descending: false, limit, ..ListQuery::default() }
}

impl Lifecycle {
    /// Destroys sandboxes that were stopped for long enough.
    pub(super) async fn end_retention(&self, look: &Look<'_>) -> Result<()> {
        let Some(kept) = period(look.runtime_settings.stopped_retention_seconds) else { return Ok(()) };
        if !look.settled() {
            return Ok(());
        }
        let most = u32::try_from(MOST).unwrap_or(u32::MAX);
        let query = oldest(vec![Status::Stopped, Status::Dead], most);
        let mut steps = Vec::new();
        for record in self.store.list_sandboxes(&query).await?.items {
            if look.clock.age(record.stopped_at.unwrap_or(record.last_activity_at)) < kept {
                continue;
            }
            let reason = format!("{} for {} seconds", record.status, kept.as_secs());
            let revision = Some(record.revision);
            steps.push((record, Step { to: StepTarget::Destroyed, reason, revision, idle: None }));
        }
        self.take_steps(steps).await;
        Ok(())
    }

    /// Finishes destructions that were begun and failed: half of such a sandbox may be gone.
    pub(super) async fn finish_destroying(&self, look: &Look<'_>) -> Result<()> {
        let mut steps = Vec::new();
        for record in self.store.live_sandboxes().await? {
            // Not being destroyed at all, or at this moment.
            if record.destroyed_at.is_none_or(|at| look.clock.age(at) < BEGUN) {
                continue;
            }
            let (reason, revision) = ("its end was begun and failed".to_owned(), Some(record.revision));
            steps.push((record, Step { to: StepTarget::Destroyed, reason, revision, idle: None }));
        }
        self.take_steps(steps).await;
        Ok(())
    }

    /// Removes snapshots that no request made and that are old.
    pub(super) async fn prune_snapshots(&self, look: &Look<'_>) -> Result<()> {
        match period(look.runtime_settings.snapshots_automatic_retention_seconds) {
            Some(kept) if look.settled() => self.snapshots.prune_old(look.clock.before(kept)).await,
            _ => Ok(()),
        }
    }

    /// Finishes removals of images, and removes those that no sandbox used for long, and layers and steps that no pull or
    /// build did.
    pub(super) async fn collect_images(&self, look: &Look<'_>) -> Result<()> {
        self.images.finish_removing().await?;
        if let Some(kept) = period(look.runtime_settings.images_layer_retention_seconds) {
            self.images.layers.collect(kept).await?;
            if look.settled() {
                self.images.forget_old_steps(look.clock.before(kept)).await?;
            }
        }
        let Some(kept) = period(look.runtime_settings.images_unused_retention_seconds) else { return Ok(()) };
        if !look.settled() {
            return Ok(());
        }
        for image in self.images.unused().await? {
            if look.clock.age(image.last_used_at.unwrap_or(image.created_at)) < kept {
                continue;
            }
            let reason = Some(format!("unused for {} seconds", kept.as_secs()));
            if let Err(error) = self.images.delete_because(&system(), &image.id.to_string(), reason).await {
                tracing::warn!(image = %image.id, %error, "an unused image is not removed");
            }
        }
        Ok(())
    }

    /// Removes the records of sandboxes destroyed long ago, and expired responses.
    pub(super) async fn purge_records(&self, look: &Look<'_>) -> Result<()> {
        if !look.settled() {
            return Ok(());
        }
        self.store.sweep_idempotent(look.clock.before(Duration::ZERO)).await?;
        let Some(kept) = period(look.runtime_settings.lifecycle_destroyed_retention_seconds) else {
            return Ok(());
        };
        let before = look.clock.before(kept);
        let first = self.store.list_sandboxes(&oldest(vec![Status::Destroyed], 1)).await?.items.pop();
        if first.and_then(|record| record.destroyed_at).is_none_or(|at| at > before) {
            return Ok(());
        }
        let reason = format!("destroyed for {} seconds", kept.as_secs());
        let audited = self
            .operations
            .audited(&system(), OperationSpec::new(Operation::SandboxPurge).and("reason", reason))
            .await?;
        let purged = self.store.purge_destroyed(before, RECORDS).await;
        audited.done(purged.map(drop).map_err(Into::into)).await
    }
}
