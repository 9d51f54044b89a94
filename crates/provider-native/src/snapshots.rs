//! Snapshots and forks: one request to the launcher each.

use crate::{NativeProvider, unexpected};
use async_trait::async_trait;
use atoll_launch_proto::{DiffRequest, ForkRequest, LauncherReply, Request, SnapshotRequest};
use atoll_provider::{Changed, Snapshots};
use atoll_types::{ErrorCode, Result, Snapshot, SnapshotId, VolumeId};

#[async_trait]
impl Snapshots for NativeProvider {
    async fn create_snapshot(&self, volume: VolumeId, id: SnapshotId) -> Result<Snapshot> {
        let asked = SnapshotRequest { volume, snapshot: id };
        match self.launcher.ask(Request::Snapshot(asked)).await? {
            LauncherReply::Snapshots(made) if made.len() == 1 && made[0].id == id => Ok(made[0]),
            other => Err(unexpected(&other)),
        }
    }

    async fn list_snapshots(&self, volume: VolumeId) -> Result<Vec<Snapshot>> {
        match self.launcher.ask(Request::ListSnapshots(volume)).await? {
            LauncherReply::Snapshots(all) => Ok(all),
            other => Err(unexpected(&other)),
        }
    }

    async fn delete_snapshot(&self, volume: VolumeId, id: SnapshotId) -> Result<()> {
        let asked = SnapshotRequest { volume, snapshot: id };
        self.launcher.ask(Request::DeleteSnapshot(asked)).await.map(|_| ())
    }

    async fn diff(&self, volume: VolumeId, from: SnapshotId, to: Option<SnapshotId>) -> Result<Changed> {
        match self.launcher.ask(Request::Diff(DiffRequest { volume, from, to })).await? {
            LauncherReply::Diff { files, truncated } => Ok(Changed { files, truncated }),
            other => Err(unexpected(&other)),
        }
    }

    async fn roll_back(&self, volume: VolumeId, to: SnapshotId) -> Result<()> {
        let asked = SnapshotRequest { volume, snapshot: to };
        self.launcher.ask(Request::Rollback(asked)).await.map(|_| ())
    }

    // A launcher finds out whether there is room before it refuses a volume that a container has.
    async fn check_roll_back(&self, volume: VolumeId, to: SnapshotId) -> Result<()> {
        match self.roll_back(volume, to).await {
            Err(error) if matches!(error.code, ErrorCode::DiskFull | ErrorCode::NotFound) => Err(error),
            // Any other fault is met, and said, by the rollback itself.
            _ => Ok(()),
        }
    }

    async fn roll_back_in_place(&self, volume: VolumeId, to: SnapshotId) -> Result<()> {
        let asked = SnapshotRequest { volume, snapshot: to };
        self.launcher.ask(Request::RollbackInPlace(asked)).await.map(|_| ())
    }

    async fn fork(
        &self,
        from: VolumeId,
        snapshot: Option<SnapshotId>,
        into: VolumeId,
        bytes: u64,
    ) -> Result<()> {
        let asked = ForkRequest { volume: from, snapshot, into, disk_bytes: bytes };
        self.launcher.ask(Request::Fork(asked)).await.map(|_| ())
    }
}
