//! What listeners receive: one numbered row for each change, and its reason. A listener that was away
//! goes on after the last number that it saw. Not the audit trail: it is trimmed, and nothing proves that it
//! is whole.

use crate::{Millis, SandboxId, Status, names};

names!(
    /// What an event reports.
    EventKind {
        /// A sandbox was created.
        Created = "created",
        /// Its container is being started.
        Starting = "starting",
        /// It runs.
        Ready = "ready",
        /// It is paused.
        Paused = "paused",
        /// It is stopped.
        Stopped = "stopped",
        /// Its container ended without being asked to.
        Dead = "dead",
        /// It is destroyed.
        Destroyed = "destroyed",
        /// Its lifetime ends soon.
        Expiring = "expiring",
        /// Another sandbox was made of it.
        Forked = "forked",
        /// Its files were returned to those of a snapshot.
        RolledBack = "rolled_back",
        /// It was made an archive.
        Exported = "exported",
        /// It was made from an archive.
        Imported = "imported",
        /// Other volumes are attached to it.
        VolumesChanged = "volumes_changed",
        /// Its commands were ended because of the memory of their sockets.
        SocketsEnded = "sockets_ended",
        /// A command ended.
        ExecEnded = "exec.ended",
        /// A cell ended.
        CellEnded = "cell.ended",
        /// A snapshot was made.
        SnapshotCreated = "snapshot.created",
        /// A snapshot has another label.
        SnapshotLabelled = "snapshot.labelled",
        /// A snapshot was deleted.
        SnapshotDeleted = "snapshot.deleted",
        /// A named volume was created.
        VolumeCreated = "volume.created",
        /// A named volume has another size.
        VolumeResized = "volume.resized",
        /// A named volume was deleted.
        VolumeDeleted = "volume.deleted",
        /// A build, a pull or an import of an image began.
        ImageBuildStarted = "image.build_started",
        /// It failed.
        ImageBuildFailed = "image.build_failed",
        /// A request cancelled it.
        ImageBuildCancelled = "image.build_cancelled",
        /// An image was made.
        ImageCreated = "image.created",
        /// An image was approved.
        ImageApproved = "image.approved",
        /// An image was removed.
        ImageRemoved = "image.removed",
        /// A skill was created.
        SkillCreated = "skill.created",
        /// A skill was changed.
        SkillUpdated = "skill.updated",
        /// A skill was deleted.
        SkillDeleted = "skill.deleted",
        /// The storage has little room left.
        StorageLow = "storage.low",
        /// It has room again.
        StorageRecovered = "storage.recovered",
        /// Skills were installed in a sandbox.
        SkillsInstalled = "skills.installed",
    }
);

impl EventKind {
    /// The kind that reports that a sandbox now has this status.
    #[must_use]
    pub fn of_status(status: Status) -> Self {
        match status {
            Status::Provisioning => Self::Starting,
            Status::Ready => Self::Ready,
            Status::Paused => Self::Paused,
            Status::Stopped => Self::Stopped,
            Status::Dead => Self::Dead,
            Status::Destroyed => Self::Destroyed,
        }
    }
}

/// A change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewEvent {
    /// When.
    pub at: Millis,
    /// Whose sandbox.
    pub owner: String,
    /// Which sandbox, where it is about one.
    pub sandbox: Option<SandboxId>,
    /// What.
    pub kind: EventKind,
    /// Why, where that is known.
    pub reason: Option<String>,
    /// A small JSON object.
    pub data: String,
}

/// An event as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventRow {
    /// 1, 2, 3, without a gap.
    pub id: u64,
    /// What happened.
    pub event: NewEvent,
}

/// Which events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventQuery {
    /// Those with a greater id; `None`: from the oldest that is kept.
    pub after: Option<u64>,
    /// Of this sandbox.
    pub sandbox: Option<SandboxId>,
    /// Of this owner.
    pub owner: Option<String>,
    /// Of one of these kinds; `None`: of any.
    pub kinds: Option<Vec<EventKind>>,
    /// How many.
    pub limit: u32,
}

impl Default for EventQuery {
    /// The oldest hundred.
    fn default() -> Self {
        Self { after: None, sandbox: None, owner: None, kinds: None, limit: 100 }
    }
}

/// Some events, all from one moment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EventPage {
    /// The oldest first.
    pub items: Vec<EventRow>,
    /// Whether events after the one that was asked for are gone, or it never was: the listener must look
    /// at the sandboxes themselves.
    pub missed: bool,
    /// The greatest id of all; zero before the first event. Where a page is not full, go on after this one.
    pub newest: u64,
}
