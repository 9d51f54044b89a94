//! The record of a sandbox. Which status may follow which is the core's business.

use crate::{
    AutoSnapshot, ContainerId, Death, InstalledSkill, Limits, Millis, Profile, ProviderName, SandboxId,
    Sealed, VolumeId, names,
};
use std::collections::BTreeMap;

names!(
    /// Where a sandbox is in its life.
    Status {
        /// It is being made.
        Provisioning = "provisioning",
        /// Its container lives.
        Ready = "ready",
        /// Its container is frozen.
        Paused = "paused",
        /// Its container was ended; its volume waits.
        Stopped = "stopped",
        /// Its container died; its volume waits.
        Dead = "dead",
        /// It is gone with its volume.
        Destroyed = "destroyed",
    }
);

impl Status {
    /// The name that the APIs and the console have for it.
    #[must_use]
    pub const fn shown(self) -> &'static str {
        match self {
            Self::Provisioning => "creating",
            Self::Ready => "running",
            Self::Paused => "paused",
            Self::Stopped => "stopped",
            Self::Dead => "dead",
            Self::Destroyed => "destroyed",
        }
    }
}

/// A sandbox as it is kept. Counters and `last_activity_at` move without a new revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxRecord {
    pub id: SandboxId,
    pub owner: String,
    pub owner_name: String,
    pub status: Status,
    /// Why it has that status, where that needs saying.
    pub status_reason: Option<String>,
    /// It is paused because it was idle, and not on request.
    pub idle_pause: bool,
    /// How its container died, where it did and the sandbox was not started since.
    pub death: Option<Death>,
    /// What its image starts in its container is not started yet, or not ready. Never without a container.
    pub start_due: bool,
    pub image: String,
    /// The provider that runs it; it never changes.
    pub provider: ProviderName,
    pub profile: Profile,
    pub container: Option<ContainerId>,
    pub volume: VolumeId,
    pub limits: Limits,
    pub idle_timeout_seconds: u32,
    pub max_lifetime_seconds: Option<u32>,
    pub network_enabled: bool,
    pub egress: String,
    pub session_key: Option<String>,
    /// Before what the server makes a snapshot of it by itself.
    pub auto_snapshot: AutoSnapshot,
    pub labels: BTreeMap<String, String>,
    pub environment: Sealed,
    /// The skills that were installed in it, each name once. They change without a new revision.
    pub skills: Vec<InstalledSkill>,
    pub created_at: Millis,
    pub last_activity_at: Millis,
    pub stopped_at: Option<Millis>,
    /// When its end was begun; it is over when the status says so.
    pub destroyed_at: Option<Millis>,
    pub exec_count: u64,
    pub exec_total_ms: u64,
    pub bytes_uploaded: u64,
    pub bytes_downloaded: u64,
    /// Starts at 1 and grows by one with every change.
    pub revision: u64,
}
