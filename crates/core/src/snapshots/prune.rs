//! How many snapshots a sandbox keeps. Those that no request made are removed by count and by age; one that a request
//! made, or that has a label, is only removed on request.

use super::Snapshots;
use crate::{Caller, operation::OperationSpec};
use atoll_store::SandboxRecord;
use atoll_types::{Error, ErrorCode, Millis, Operation, Result, SnapshotId, SnapshotKind, SnapshotRecord};

/// Snapshots that one pass removes for their age.
const MOST: u32 = 200;

impl Snapshots {
    /// Makes room for one more. The sandbox's turn is held. `keep` is needed and must stay.
    pub(super) async fn make_room(
        &self,
        record: &SandboxRecord,
        new: &SnapshotRecord,
        keep: Option<SnapshotId>,
    ) -> Result<()> {
        let mut all = self.store.snapshots_of(record.id).await?;
        if all.iter().any(|snapshot| !snapshot.ready) {
            self.close_difference(record).await?;
            all = self.store.snapshots_of(record.id).await?;
        }
        let settings = self.live_settings.now();
        let (most, most_automatic) =
            (settings.snapshots_max as usize, settings.snapshots_automatic_max as usize);
        let prunable: Vec<&SnapshotRecord> = all.iter().filter(|one| one.is_prunable()).collect();
        let automatic = new.kind != SnapshotKind::Manual;
        let too_many = if automatic { (prunable.len() + 1).saturating_sub(most_automatic) } else { 0 };
        let removed = too_many.max((all.len() + 1).saturating_sub(most));
        let may_go: Vec<_> = prunable.into_iter().filter(|one| Some(one.id) != keep).take(removed).collect();
        if all.len() - may_go.len() >= most {
            let message =
                format!("the sandbox has {} snapshots and may have {most}; delete one first", all.len());
            return Err(Error::new(ErrorCode::LimitExceeded, message)
                .fact("limit", "snapshots")
                .fact("used", all.len())
                .fact("allowed", most)
                .fact("when", "when one of them is deleted"));
        }
        for snapshot in may_go {
            self.prune(record, snapshot, "newer ones need its place").await?;
        }
        Ok(())
    }

    /// Removes a snapshot that no caller asked to remove, as an operation that says why.
    async fn prune(&self, record: &SandboxRecord, snapshot: &SnapshotRecord, reason: &str) -> Result<()> {
        let caller = Caller::lifecycle(&record.owner, &record.owner_name);
        let what = OperationSpec::to(Operation::SnapshotDelete, record.id)
            .and("snapshot_id", snapshot.id)
            .and("reason", reason);
        let mut audited = self.operations.audited(&caller, what).await?;
        let removed = self.remove(record, snapshot).await;
        if removed.is_ok() {
            audited.add_event(super::event(record, "snapshot.deleted", Some(reason), snapshot.id));
        }
        audited.done(removed).await
    }

    /// Removes those that no request made and that are older than this.
    pub(crate) async fn prune_old(&self, before: Millis) -> Result<()> {
        for snapshot in self.store.old_snapshots(before, MOST).await? {
            let pruned = async {
                let _turn = self.turn(snapshot.sandbox).await?;
                let record = self.registry.check_state(snapshot.sandbox, Operation::SnapshotDelete).await?;
                // A label may have been given to it meanwhile.
                match self.store.snapshot(snapshot.sandbox, snapshot.id).await? {
                    Some(snapshot) if snapshot.is_prunable() => {
                        self.prune(
                            &record,
                            &snapshot,
                            "it is older than snapshots.automatic_retention_seconds",
                        )
                        .await
                    }
                    _ => Ok(()),
                }
            };
            if let Err(error) = pruned.await {
                tracing::warn!(snapshot = %snapshot.id, %error, "an old snapshot cannot be removed");
            }
        }
        Ok(())
    }
}
