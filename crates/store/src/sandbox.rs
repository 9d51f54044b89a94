//! The rules of making and changing the record of a sandbox. Which status may follow which is
//! the core's business; here only `destroyed` is special: it is final.

use crate::{Clash, Millis, Result, SandboxId, StoreError};
use async_trait::async_trait;
use atoll_types::{
    Activity, AutoSnapshot, ContainerId, Death, InstalledSkill, Limits, ListQuery, Page, Profile,
    ProviderName, SandboxRecord, Sealed, Status, VolumeId,
};
use std::collections::BTreeMap;

/// A sandbox as it is to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewSandbox {
    /// Chosen by the caller, so that it can look the sandbox up after a lost reply.
    pub id: SandboxId,
    /// Its owner.
    pub owner: String,
    /// The owner's display name.
    pub owner_name: String,
    /// Its first status.
    pub status: Status,
    /// The image, as the request named it.
    pub image: String,
    /// The provider that runs it.
    pub provider: ProviderName,
    /// What is fixed when its container starts.
    pub profile: Profile,
    /// Its container, where one from the pool was taken.
    pub container: Option<ContainerId>,
    /// Its volume, which outlives its containers.
    pub volume: VolumeId,
    /// Its limits.
    pub limits: Limits,
    /// How long it may be idle.
    pub idle_timeout_seconds: u32,
    /// How long it may live in all, where its creator said so.
    pub max_lifetime_seconds: Option<u32>,
    /// Whether its network is enabled.
    pub network_enabled: bool,
    /// Its egress policy, as JSON. The store does not parse it.
    pub egress: String,
    /// The caller's own name for it: one per owner and image.
    pub session_key: Option<String>,
    /// Before what the server makes a snapshot of it by itself.
    pub auto_snapshot: AutoSnapshot,
    /// Labels that the caller finds it by.
    pub labels: BTreeMap<String, String>,
    /// The environment of its commands, encrypted.
    pub environment: Sealed,
    /// The skills that its files have from the start: those of the sandbox that it is a fork of.
    pub skills: Vec<InstalledSkill>,
    /// Now.
    pub created_at: Millis,
}

/// What became of an insert.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Inserted {
    /// It was inserted.
    New(SandboxRecord),
    /// The owner has one with this session key and image already.
    Existing(SandboxRecord),
}

/// A new status and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatusChange {
    /// The status.
    pub status: Status,
    /// Why, where that needs saying; replaces the former reason.
    pub reason: Option<String>,
    /// The reconciler pauses it because it was idle.
    pub idle_pause: bool,
    /// How its container died; replaces the former end.
    pub death: Option<Death>,
}

impl StatusChange {
    /// A status, and why.
    #[must_use]
    pub fn new(status: Status, reason: Option<String>) -> Self {
        Self { status, reason, idle_pause: false, death: None }
    }
}

/// What to change; `None` leaves a field as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Change {
    pub status: Option<StatusChange>,
    /// Whether what its image starts is still to be done. A status without a container ends it.
    pub start_due: Option<bool>,
    /// `Some(None)`: it has no container any more.
    pub container: Option<Option<ContainerId>>,
    pub limits: Option<Limits>,
    /// What is fixed when its container starts; only its volumes ever change.
    pub profile: Option<Profile>,
    /// All of them, not some more.
    pub labels: Option<BTreeMap<String, String>>,
    pub environment: Option<Sealed>,
    pub idle_timeout_seconds: Option<u32>,
    pub network_enabled: Option<bool>,
    pub egress: Option<String>,
    pub auto_snapshot: Option<AutoSnapshot>,
    /// Never moves back.
    pub last_activity_at: Option<Millis>,
    /// `Some(None)`: it runs again.
    pub stopped_at: Option<Option<Millis>>,
    pub destroyed_at: Option<Millis>,
    /// Recorded with the change, or not at all.
    pub activity: Option<Activity>,
}

impl Change {
    /// A change of status alone.
    #[must_use]
    pub fn status(status: Status) -> Self {
        Self { status: Some(StatusChange::new(status, None)), ..Self::default() }
    }

    /// The record after a change, where one may be made: every store's compare-and-set.
    pub fn apply(self, mut record: SandboxRecord, expected_revision: u64) -> Result<SandboxRecord> {
        // Checked before the revision: a caller that reads again would only find it destroyed.
        if record.status == Status::Destroyed {
            return Err(StoreError::Conflict(Clash::Destroyed));
        }
        if record.revision != expected_revision {
            return Err(StoreError::Conflict(Clash::Revision));
        }
        let Change {
            status,
            start_due,
            container,
            limits,
            profile,
            labels,
            environment,
            idle_timeout_seconds,
            network_enabled,
            egress,
            auto_snapshot,
            last_activity_at,
            stopped_at,
            destroyed_at,
            activity,
        } = self;
        let active = last_activity_at.max(activity.map(|activity| activity.at));
        if let Some(StatusChange { status, reason, idle_pause, death }) = status {
            (record.status, record.status_reason, record.idle_pause) = (status, reason, idle_pause);
            record.death = death;
        }
        let runs = matches!(record.status, Status::Ready | Status::Paused);
        record.start_due = runs && start_due.unwrap_or(record.start_due);
        record.container = container.unwrap_or(record.container);
        record.limits = limits.unwrap_or(record.limits);
        record.profile = profile.unwrap_or(record.profile);
        record.labels = labels.unwrap_or(record.labels);
        record.environment = environment.unwrap_or(record.environment);
        record.idle_timeout_seconds = idle_timeout_seconds.unwrap_or(record.idle_timeout_seconds);
        record.network_enabled = network_enabled.unwrap_or(record.network_enabled);
        record.egress = egress.unwrap_or(record.egress);
        record.auto_snapshot = auto_snapshot.unwrap_or(record.auto_snapshot);
        record.last_activity_at = record.last_activity_at.max(active.unwrap_or(Millis::MIN));
        record.stopped_at = stopped_at.unwrap_or(record.stopped_at);
        record.destroyed_at = destroyed_at.or(record.destroyed_at);
        record.revision += 1;
        Ok(record)
    }
}

impl From<NewSandbox> for SandboxRecord {
    /// The record of a sandbox that was just made.
    fn from(new: NewSandbox) -> Self {
        let NewSandbox {
            id,
            owner,
            owner_name,
            status,
            image,
            provider,
            profile,
            container,
            volume,
            limits,
            idle_timeout_seconds,
            max_lifetime_seconds,
            network_enabled,
            egress,
            session_key,
            auto_snapshot,
            labels,
            environment,
            skills,
            created_at,
        } = new;
        Self {
            id,
            owner,
            owner_name,
            status,
            status_reason: None,
            idle_pause: false,
            death: None,
            start_due: false,
            image,
            provider,
            profile,
            container,
            volume,
            limits,
            idle_timeout_seconds,
            max_lifetime_seconds,
            network_enabled,
            egress,
            session_key,
            auto_snapshot,
            labels,
            environment,
            skills,
            created_at,
            last_activity_at: created_at,
            stopped_at: None,
            destroyed_at: None,
            exec_count: 0,
            exec_total_ms: 0,
            bytes_uploaded: 0,
            bytes_downloaded: 0,
            revision: 1,
        }
    }
}

/// The records of sandboxes.
#[async_trait]
pub trait Sandboxes: Send + Sync {
    /// Inserts a record. With a session key there is at most one per owner, key and image among those not
    /// destroyed, however many concurrent inserts there are; the others get that one. `Conflict(Taken)` when
    /// the id, the container or the volume belongs to another record.
    async fn insert_sandbox(&self, new: NewSandbox) -> Result<Inserted>;
    /// One record, destroyed ones included.
    async fn sandbox(&self, id: SandboxId) -> Result<Option<SandboxRecord>>;
    /// The sandbox that has this container.
    async fn sandbox_by_container(&self, id: ContainerId) -> Result<Option<SandboxRecord>>;
    /// A page of records, and how many there are.
    async fn list_sandboxes(&self, query: &ListQuery) -> Result<Page>;
    /// Changes a record if it still has the expected revision, and returns it as it then is.
    /// `Conflict(Revision)` otherwise, `Conflict(Destroyed)` when it is destroyed, `Conflict(Taken)` when
    /// the container belongs to another.
    async fn update_sandbox(
        &self,
        id: SandboxId,
        expected_revision: u64,
        change: Change,
    ) -> Result<SandboxRecord>;
    /// Sandboxes that may have a container, for the reconciliation at a start: all but stopped and destroyed.
    /// A stopped one whose destruction was begun (`destroyed_at`) is among them.
    async fn live_sandboxes(&self) -> Result<Vec<SandboxRecord>>;
    /// Records when sandboxes were last active, many in one write. Never moves back, and the revision stays;
    /// unknown ones are ignored.
    async fn touch_sandboxes(&self, active: &BTreeMap<SandboxId, Millis>) -> Result<()>;
    /// Removes the records of sandboxes that were destroyed at this time or before, with their activities,
    /// the oldest first and no more than this many. Returns how many. Their rows in the audit trail and the
    /// events stay.
    async fn purge_destroyed(&self, before: Millis, most: u32) -> Result<u64>;
}
