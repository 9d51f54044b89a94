//! Snapshots of a sandbox that is being imported. Their times are those of the sandbox that was exported, so that they are
//! listed and removed in the same order. The sandbox's turn is held; where the import fails all go with the sandbox.

use super::{Snapshots, make, snapshots_for};
use atoll_store::SandboxRecord;
use atoll_types::{Error, ErrorCode, Result, SnapshotId, SnapshotRecord};

impl Snapshots {
    /// Refuses an archive with more snapshots than a sandbox may have.
    pub(crate) fn check_import(&self, snapshots: usize) -> Result<()> {
        let most = self.live_settings.now().snapshots_max as usize;
        if snapshots <= most {
            return Ok(());
        }
        let message = format!(
            "the archive has {snapshots} snapshots, and a sandbox may have {most}; import it without them \
             (snapshots=false)"
        );
        Err(Error::new(ErrorCode::LimitExceeded, message)
            .fact("limit", "snapshots")
            .fact("used", snapshots)
            .fact("allowed", most)
            .fact("when", "when snapshots.max is raised"))
    }

    /// Makes one of the files as they are.
    pub(crate) async fn make_imported(&self, record: &SandboxRecord, new: SnapshotRecord) -> Result<()> {
        let (id, created_at) = (new.id, new.created_at);
        let made = make(&*self.store, self.provider(record)?, record, new).await?;
        self.store.finish_snapshot(id, created_at, made.size_bytes).await?;
        Ok(())
    }

    /// Keeps the files as they are in a snapshot that no list shows.
    pub(crate) async fn keep_unrecorded(&self, record: &SandboxRecord, id: SnapshotId) -> Result<()> {
        let power = snapshots_for(self.provider(record)?, &record.profile)?;
        power.create_snapshot(record.volume, id).await.map(drop)
    }

    /// Deletes such a snapshot.
    pub(crate) async fn drop_unrecorded(&self, record: &SandboxRecord, id: SnapshotId) -> Result<()> {
        let power = snapshots_for(self.provider(record)?, &record.profile)?;
        power.delete_snapshot(record.volume, id).await
    }
}
