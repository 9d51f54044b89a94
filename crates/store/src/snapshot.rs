//! Keeping what is known of snapshots. Their files are the provider's.

use crate::{Millis, Result, SandboxId, SnapshotId};
use async_trait::async_trait;
use atoll_types::{SnapshotPage, SnapshotQuery, SnapshotRecord};

/// The records of snapshots. They go with their sandbox: a change of its status to `destroyed` removes them, in the
/// same transaction.
#[async_trait]
pub trait Snapshots: Send + Sync {
    /// Inserts a record. `NotFound(Sandbox)` where there is no such sandbox or it is destroyed, `Conflict(Taken)` where
    /// the id is taken. The owner is the sandbox's.
    async fn insert_snapshot(&self, record: SnapshotRecord) -> Result<()>;
    /// The snapshot is there. Returns its record; `NotFound(Snapshot)` where that is gone.
    async fn finish_snapshot(
        &self,
        id: SnapshotId,
        created_at: Millis,
        size_bytes: u64,
    ) -> Result<SnapshotRecord>;
    /// One snapshot of a sandbox that is there.
    async fn snapshot(&self, sandbox: SandboxId, id: SnapshotId) -> Result<Option<SnapshotRecord>>;
    /// A page of the snapshots that are there.
    async fn list_snapshots(&self, query: &SnapshotQuery) -> Result<SnapshotPage>;
    /// Every record of a sandbox, also of snapshots that are not there yet, the oldest first.
    async fn snapshots_of(&self, sandbox: SandboxId) -> Result<Vec<SnapshotRecord>>;
    /// Gives a snapshot that is there another label, or none. `NotFound(Snapshot)` where there is none.
    async fn label_snapshot(
        &self,
        sandbox: SandboxId,
        id: SnapshotId,
        label: Option<String>,
    ) -> Result<SnapshotRecord>;
    /// Removes a record; false when there was none.
    async fn remove_snapshot(&self, sandbox: SandboxId, id: SnapshotId) -> Result<bool>;
    /// Snapshots that retention may remove ([`SnapshotRecord::is_prunable`]) and that were made at this time or before,
    /// in a sandbox that was too: those of an imported one have the times of the sandbox that was exported. The oldest first and no
    /// more than this many.
    async fn old_snapshots(&self, before: Millis, most: u32) -> Result<Vec<SnapshotRecord>>;
}
