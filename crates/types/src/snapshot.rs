//! What is known of a snapshot: by the storage that holds it, and by the control plane that records it.

use crate::{
    CheckpointId, ContainerId, InstalledSkill, KernelId, Millis, SandboxId, SnapshotId, VolumeId, names,
};
use serde::{Deserialize, Serialize};

/// A volume as it was. It lives no longer than its volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Which.
    pub id: SnapshotId,
    /// Whose.
    pub volume: VolumeId,
    /// When it was made.
    pub created_unix_ms: u64,
    /// What the volume held then. On btrfs, which knows sums alone, what only earlier snapshots held is counted too.
    pub size_bytes: u64,
}

names!(
    /// Why a snapshot was made. Only those that no request asked for are removed by retention.
    SnapshotKind {
        /// A request asked for it.
        Manual = "manual",
        /// The server made it before a command or a cell.
        Automatic = "automatic",
        /// The server made it before a rollback.
        BeforeRollback = "before_rollback",
    }
);

names!(
    /// Before what the server makes a snapshot of a sandbox by itself.
    #[derive(Default)]
    AutoSnapshot {
        /// Before nothing.
        #[default]
        Off = "off",
        /// Before each command.
        BeforeExec = "before_exec",
        /// Before each cell that a kernel runs.
        BeforeRun = "before_run",
    }
);

/// Kernels whose variables were kept together with the files of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotKernels {
    /// The checkpoints are processes in this container, and end with it.
    pub container: ContainerId,
    /// One of each kernel.
    pub checkpoints: Vec<KernelCheckpoint>,
}

/// A checkpoint of a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelCheckpoint {
    pub kernel: KernelId,
    pub checkpoint: CheckpointId,
}

/// A snapshot as it is recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotRecord {
    pub id: SnapshotId,
    pub sandbox: SandboxId,
    /// The sandbox's owner.
    pub owner: String,
    pub kind: SnapshotKind,
    pub label: Option<String>,
    /// The command, the cell or the rollback's snapshot that it was made before.
    pub made_before: Option<String>,
    pub created_at: Millis,
    pub size_bytes: u64,
    /// The kernels whose variables were kept at the same moment.
    pub kernels: Option<SnapshotKernels>,
    /// The skills that its files have; not known of one of a former release, or of one that was imported.
    pub skills: Option<Vec<InstalledSkill>>,
    /// Whether it is there: the record is written before the snapshot is made.
    pub ready: bool,
}

impl SnapshotRecord {
    /// The skills that its files have, of those that its sandbox has now where that is not known.
    #[must_use]
    pub fn skills_of(&self, now: &[InstalledSkill]) -> Vec<InstalledSkill> {
        let before = || now.iter().filter(|skill| skill.installed_at <= self.created_at).cloned().collect();
        self.skills.clone().unwrap_or_else(before)
    }

    /// Whether retention may remove it: no request made it, and no label keeps it.
    #[must_use]
    pub fn is_prunable(&self) -> bool {
        self.kind != SnapshotKind::Manual && self.label.is_none()
    }
}

/// Which snapshots of a sandbox, the newest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotQuery {
    /// Of which sandbox.
    pub sandbox: SandboxId,
    /// How many to leave out at the front.
    pub offset: u64,
    /// How many at most.
    pub limit: u32,
}

/// Some snapshots of a sandbox.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SnapshotPage {
    /// The newest first.
    pub items: Vec<SnapshotRecord>,
    /// How many the sandbox has.
    pub total: u64,
}
