//! Closing the difference between the records of snapshots and the snapshots that there are, after a server that died
//! in the middle of a change. Like every reconciler it takes no input.

use super::{Snapshots, snapshots_for};
use atoll_store::{ListQuery, SandboxRecord};
use atoll_types::{Operation, Result, SnapshotId};
use std::collections::HashSet;

impl Snapshots {
    /// Looks at every sandbox, one after another: the start of the server does not wait for this.
    pub(crate) fn repair_all(&self) {
        let snapshots = self.clone();
        tokio::spawn(async move {
            let all = ListQuery { limit: u32::MAX, ..ListQuery::default() };
            let records = match snapshots.store.list_sandboxes(&all).await {
                Ok(page) => page.items,
                Err(error) => {
                    return tracing::error!(%error, "snapshots cannot be compared with their records");
                }
            };
            for record in records {
                if let Err(error) = snapshots.repair(&record).await {
                    tracing::warn!(sandbox = %record.id, %error, "a sandbox's snapshots cannot be compared");
                }
            }
        });
    }

    /// Compares without the sandbox's turn, which is taken only where something differs.
    async fn repair(&self, record: &SandboxRecord) -> Result<()> {
        let Ok(power) = snapshots_for(self.provider(record)?, &record.profile) else { return Ok(()) };
        let recorded = self.store.snapshots_of(record.id).await?;
        let there = power.list_snapshots(record.volume).await?;
        let ready: HashSet<SnapshotId> = recorded.iter().filter(|one| one.ready).map(|one| one.id).collect();
        let same =
            ready.len() == recorded.len() && there.iter().map(|one| one.id).collect::<HashSet<_>>() == ready;
        if same {
            return Ok(());
        }
        let _turn = self.turn(record.id).await?;
        let record = self.registry.check_state(record.id, Operation::SnapshotDelete).await?;
        self.close_difference(&record).await
    }

    /// Records what is there, and removes what only one side knows. The sandbox's turn is held.
    pub(super) async fn close_difference(&self, record: &SandboxRecord) -> Result<()> {
        let power = snapshots_for(self.provider(record)?, &record.profile)?;
        let recorded = self.store.snapshots_of(record.id).await?;
        let mut there: Vec<_> = power.list_snapshots(record.volume).await?;
        for snapshot in recorded {
            let found = there.iter().position(|one| one.id == snapshot.id).map(|at| there.swap_remove(at));
            match found {
                Some(_) if snapshot.ready => {}
                Some(made) => {
                    let created_at = i64::try_from(made.created_unix_ms).unwrap_or(i64::MAX);
                    self.store.finish_snapshot(made.id, created_at, made.size_bytes).await?;
                }
                None => {
                    tracing::warn!(sandbox = %record.id, snapshot = %snapshot.id, "a snapshot is not there");
                    // Waits for a worker of the launcher that still makes it.
                    power.delete_snapshot(record.volume, snapshot.id).await?;
                    self.store.remove_snapshot(record.id, snapshot.id).await?;
                }
            }
        }
        for unknown in there {
            tracing::warn!(sandbox = %record.id, snapshot = %unknown.id, "a snapshot without a record is deleted");
            power.delete_snapshot(record.volume, unknown.id).await?;
        }
        Ok(())
    }
}
