//! The record of a sandbox, and the rules of inserting and changing one. The core decides which status may
//! follow which; here only `destroyed` is special: it is final.

use crate::{Activity, Clash, ListQuery, Millis, Page, Result, SandboxId, Sealed, StoreError, names::names};
use async_trait::async_trait;
use atoll_types::{ContainerId, Limits, Profile, VolumeId};
use std::collections::BTreeMap;

names!(
    /// The status of a sandbox.
    Status {
        /// It is being made.
        Provisioning = "provisioning",
        /// Its container runs.
        Ready = "ready",
        /// Its container is frozen.
        Paused = "paused",
        /// Its container was stopped; its volume is kept.
        Stopped = "stopped",
        /// Its container died; its volume is kept.
        Dead = "dead",
        /// It is destroyed with its volume.
        Destroyed = "destroyed",
    }
);

/// A sandbox to be inserted.
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
    /// Labels that the caller finds it by.
    pub labels: BTreeMap<String, String>,
    /// The environment of its commands, encrypted.
    pub environment: Sealed,
    /// Now.
    pub created_at: Millis,
}

/// A sandbox as it is stored. Counters and `last_activity_at` move without a new revision.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct SandboxRecord {
    pub id: SandboxId,
    pub owner: String,
    pub owner_name: String,
    pub status: Status,
    /// Why it has that status, where that needs saying.
    pub status_reason: Option<String>,
    pub image: String,
    pub profile: Profile,
    pub container: Option<ContainerId>,
    pub volume: VolumeId,
    pub limits: Limits,
    pub idle_timeout_seconds: u32,
    pub max_lifetime_seconds: Option<u32>,
    pub network_enabled: bool,
    pub egress: String,
    pub session_key: Option<String>,
    pub labels: BTreeMap<String, String>,
    pub environment: Sealed,
    pub created_at: Millis,
    pub last_activity_at: Millis,
    pub stopped_at: Option<Millis>,
    /// When its destruction was begun; it is over when the status says so.
    pub destroyed_at: Option<Millis>,
    pub exec_count: u64,
    pub exec_total_ms: u64,
    pub bytes_uploaded: u64,
    pub bytes_downloaded: u64,
    /// Starts at 1 and grows by one with every [`Change`].
    pub revision: u64,
}

/// The result of an insert.
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
}

/// What to change; `None` leaves a field as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Change {
    pub status: Option<StatusChange>,
    /// `Some(None)`: it has no container any more.
    pub container: Option<Option<ContainerId>>,
    pub limits: Option<Limits>,
    /// All of them, not some more.
    pub labels: Option<BTreeMap<String, String>>,
    pub environment: Option<Sealed>,
    pub idle_timeout_seconds: Option<u32>,
    pub network_enabled: Option<bool>,
    pub egress: Option<String>,
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
        Self { status: Some(StatusChange { status, reason: None }), ..Self::default() }
    }
}

impl SandboxRecord {
    /// The record of a sandbox that was just made.
    #[must_use]
    pub fn new(new: NewSandbox) -> Self {
        let NewSandbox {
            id,
            owner,
            owner_name,
            status,
            image,
            profile,
            container,
            volume,
            limits,
            idle_timeout_seconds,
            max_lifetime_seconds,
            network_enabled,
            egress,
            session_key,
            labels,
            environment,
            created_at,
        } = new;
        Self {
            id,
            owner,
            owner_name,
            status,
            status_reason: None,
            image,
            profile,
            container,
            volume,
            limits,
            idle_timeout_seconds,
            max_lifetime_seconds,
            network_enabled,
            egress,
            session_key,
            labels,
            environment,
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

    /// The record after a change, where it is allowed: every store's compare-and-set.
    pub fn changed(mut self, expected_revision: u64, change: Change) -> Result<Self> {
        // Checked before the revision: a caller that reads again would only find it destroyed.
        if self.status == Status::Destroyed {
            return Err(StoreError::Conflict(Clash::Destroyed));
        }
        if self.revision != expected_revision {
            return Err(StoreError::Conflict(Clash::Revision));
        }
        let Change {
            status,
            container,
            limits,
            labels,
            environment,
            idle_timeout_seconds,
            network_enabled,
            egress,
            last_activity_at,
            stopped_at,
            destroyed_at,
            activity,
        } = change;
        let active = last_activity_at.max(activity.map(|activity| activity.at));
        if let Some(StatusChange { status, reason }) = status {
            (self.status, self.status_reason) = (status, reason);
        }
        self.container = container.unwrap_or(self.container);
        self.limits = limits.unwrap_or(self.limits);
        self.labels = labels.unwrap_or(self.labels);
        self.environment = environment.unwrap_or(self.environment);
        self.idle_timeout_seconds = idle_timeout_seconds.unwrap_or(self.idle_timeout_seconds);
        self.network_enabled = network_enabled.unwrap_or(self.network_enabled);
        self.egress = egress.unwrap_or(self.egress);
        self.last_activity_at = self.last_activity_at.max(active.unwrap_or(Millis::MIN));
        self.stopped_at = stopped_at.unwrap_or(self.stopped_at);
        self.destroyed_at = destroyed_at.or(self.destroyed_at);
        self.revision += 1;
        Ok(self)
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
