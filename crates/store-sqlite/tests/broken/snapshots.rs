//! Faults with the records of snapshots.

use super::{Broken, Fault};
use async_trait::async_trait;
use atoll_store::{
    Millis, Result, SandboxId, SnapshotId, SnapshotPage, SnapshotQuery, SnapshotRecord, Snapshots,
};

#[async_trait]
impl Snapshots for Broken {
    async fn insert_snapshot(&self, record: SnapshotRecord) -> Result<()> {
        self.inner.insert_snapshot(record).await
    }

    async fn finish_snapshot(
        &self,
        id: SnapshotId,
        created_at: Millis,
        size_bytes: u64,
    ) -> Result<SnapshotRecord> {
        self.inner.finish_snapshot(id, created_at, size_bytes).await
    }

    async fn snapshot(&self, sandbox: SandboxId, id: SnapshotId) -> Result<Option<SnapshotRecord>> {
        if self.is(Fault::ShowsUnmadeSnapshots) {
            let all = self.inner.snapshots_of(sandbox).await?;
            return Ok(all.into_iter().find(|one| one.id == id));
        }
        self.inner.snapshot(sandbox, id).await
    }

    async fn list_snapshots(&self, query: &SnapshotQuery) -> Result<SnapshotPage> {
        let mut page = self.inner.list_snapshots(query).await?;
        if self.is(Fault::CountsASnapshotPage) {
            page.total = page.items.len() as u64;
        }
        Ok(page)
    }

    async fn snapshots_of(&self, sandbox: SandboxId) -> Result<Vec<SnapshotRecord>> {
        self.inner.snapshots_of(sandbox).await
    }

    async fn label_snapshot(
        &self,
        sandbox: SandboxId,
        id: SnapshotId,
        label: Option<String>,
    ) -> Result<SnapshotRecord> {
        self.inner.label_snapshot(sandbox, id, label).await
    }

    async fn remove_snapshot(&self, sandbox: SandboxId, id: SnapshotId) -> Result<bool> {
        self.inner.remove_snapshot(sandbox, id).await
    }

    async fn old_snapshots(&self, before: Millis, most: u32) -> Result<Vec<SnapshotRecord>> {
        let mut old = self.inner.old_snapshots(before, most).await?;
        if self.is(Fault::ThinsTheNewestFirst) {
            old.reverse();
        }
        Ok(old)
    }
}
