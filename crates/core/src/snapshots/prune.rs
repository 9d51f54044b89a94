//! How many snapshots a sandbox keeps. Those that no request made are removed by count and by age; one that a request
//! made, or that has a label, is only removed on request. What goes by count is chosen so that those that stay lie the
//! further apart the older they are: many moments of the last minutes, a few of the last days.

use super::Snapshots;
use crate::{Caller, operation::OperationSpec};
use atoll_store::{SandboxId, SandboxRecord};
use atoll_types::{
    Error, ErrorCode, EventKind, Millis, Operation, Result, SnapshotId, SnapshotKind, SnapshotRecord,
};
use std::{collections::HashMap, time::Duration};

/// Snapshots that one pass removes for their age.
const MOST: usize = 200;
/// Old snapshots that a pass looks at: those of sandboxes that are busy must not hide the others.
const LOOKED_AT: u32 = 10_000;
/// How long a pass waits for one sandbox: its task or the launcher may be busy.
const NO_LONGER: Duration = Duration::from_secs(1);

impl Snapshots {
    /// The snapshots that give way to one more, which is refused where not enough may. The sandbox's turn is held. `keep` is needed and
    /// must stay. They go after the new one is made ([`Self::give_way`]): on a full disk it is not, and then nothing is lost for it.
    pub(super) async fn make_room(
        &self,
        record: &SandboxRecord,
        new: &SnapshotRecord,
        keep: Option<SnapshotId>,
    ) -> Result<Vec<SnapshotRecord>> {
        let mut all = self.store.snapshots_of(record.id).await?;
        if all.iter().any(|snapshot| !snapshot.ready) {
            self.close_difference(record).await?;
            all = self.store.snapshots_of(record.id).await?;
        }
        let settings = self.live_settings.now();
        let (most, most_automatic) =
            (settings.snapshots_max as usize, settings.snapshots_automatic_max as usize);
        let prunable: Vec<&SnapshotRecord> = all.iter().filter(|one| one.is_prunable()).collect();
        // A snapshot that a request makes takes no other's place: the one before a rollback may be all that undoes it.
        let removed = match new.kind {
            SnapshotKind::Manual => 0,
            _ => {
                (prunable.len() + 1).saturating_sub(most_automatic).max((all.len() + 1).saturating_sub(most))
            }
        };
        let removable = choose_for_removal(
            prunable.into_iter().filter(|one| Some(one.id) != keep).collect(),
            removed,
            new.created_at,
        );
        if all.len() - removable.len() >= most {
            let message =
                format!("the sandbox has {} snapshots and may have {most}; delete one first", all.len());
            return Err(Error::new(ErrorCode::LimitExceeded, message)
                .fact("limit", "snapshots")
                .fact("used", all.len())
                .fact("allowed", most)
                .fact("when", "when one of them is deleted"));
        }
        Ok(removable.into_iter().cloned().collect())
    }

    /// Removes those whose place a new snapshot has. One that cannot be removed now goes with the next that is made.
    pub(super) async fn give_way(&self, record: &SandboxRecord, removable: Vec<SnapshotRecord>) {
        for snapshot in removable {
            if let Err(error) = self.prune(record, &snapshot, "newer ones need its place").await {
                tracing::warn!(sandbox = %record.id, snapshot = %snapshot.id, %error, "an old snapshot is not removed");
            }
        }
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
            audited.add_event(super::event(record, EventKind::SnapshotDeleted, Some(reason), snapshot.id));
        }
        audited.done(removed).await
    }

    /// Removes those that no request made and that are older than this. A sandbox whose snapshots are being changed is left to a
    /// later pass: such a change may last as long as its client makes it last, and other sandboxes must not wait for it.
    pub(crate) async fn prune_old(&self, before: Millis) -> Result<()> {
        // Those with the oldest first.
        let mut old: Vec<(SandboxId, Vec<SnapshotId>)> = Vec::new();
        let mut places = HashMap::new();
        for snapshot in self.store.old_snapshots(before, LOOKED_AT).await? {
            let place = *places.entry(snapshot.sandbox).or_insert(old.len());
            match old.get_mut(place) {
                Some((_, snapshots)) => snapshots.push(snapshot.id),
                None => old.push((snapshot.sandbox, vec![snapshot.id])),
            }
        }
        let mut left = MOST;
        for (sandbox, mut snapshots) in old {
            if left == 0 {
                break;
            }
            let Some(turn) = self.try_turn(sandbox) else {
                tracing::debug!(%sandbox, "old snapshots stay while others of the sandbox are being changed");
                continue;
            };
            snapshots.truncate(left);
            left -= snapshots.len();
            // It holds the turn to its end, so the next pass does not begin it again.
            let pruned = self.to_its_end(move |all| async move {
                let _turn = turn;
                all.prune_those(sandbox, snapshots).await
            });
            match tokio::time::timeout(NO_LONGER, pruned).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::warn!(%sandbox, %error, "old snapshots cannot be removed"),
                Err(_) => tracing::debug!(%sandbox, "old snapshots are still being removed"),
            }
        }
        Ok(())
    }

    /// Removes these for their age. The sandbox's turn is held.
    async fn prune_those(&self, sandbox: SandboxId, snapshots: Vec<SnapshotId>) -> Result<()> {
        let record = self.registry.check_state(sandbox, Operation::SnapshotDelete).await?;
        for id in snapshots {
            // A label may have been given to it meanwhile.
            if let Some(snapshot) =
                self.store.snapshot(sandbox, id).await?.filter(SnapshotRecord::is_prunable)
            {
                let reason = "it is older than snapshots.automatic_retention_seconds";
                self.prune(&record, &snapshot, reason).await?;
            }
        }
        Ok(())
    }
}

/// Chooses so many that go, of those that are there, the oldest first: again and again the one whose neighbours are
/// closest to each other for its age. The next snapshot, of now, is the newest one's neighbour.
fn choose_for_removal(mut all: Vec<&SnapshotRecord>, count: usize, now: Millis) -> Vec<&SnapshotRecord> {
    let mut gone = Vec::new();
    while gone.len() < count && !all.is_empty() {
        let between = |at: usize| {
            let (before, after) = (all[at - 1].created_at, all.get(at + 1).map_or(now, |one| one.created_at));
            let age = now.saturating_sub(all[at].created_at).max(1);
            (i128::from(after.saturating_sub(before)), i128::from(age))
        };
        let closest = (1..all.len()).min_by(|a, b| {
            let ((gap_a, age_a), (gap_b, age_b)) = (between(*a), between(*b));
            (gap_a * age_b).cmp(&(gap_b * age_a))
        });
        gone.push(all.remove(closest.unwrap_or(0)));
    }
    gone
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(created_at: Millis) -> SnapshotRecord {
        SnapshotRecord {
            id: SnapshotId::random(),
            sandbox: SandboxId::random(),
            owner: String::new(),
            kind: SnapshotKind::Automatic,
            label: None,
            made_before: None,
            created_at,
            size_bytes: 0,
            kernels: None,
            skills: None,
            ready: true,
        }
    }

    #[test]
    fn what_stays_lies_the_further_apart_the_older_it_is() {
        const MINUTE: Millis = 60_000;
        let mut kept: Vec<SnapshotRecord> = Vec::new();
        let last = 10_000 * MINUTE;
        for now in (0..=last).step_by(60_000) {
            let gone: Vec<SnapshotId> =
                choose_for_removal(kept.iter().collect(), (kept.len() + 1).saturating_sub(20), now)
                    .iter()
                    .map(|one| one.id)
                    .collect();
            kept.retain(|one| !gone.contains(&one.id));
            kept.push(at(now));
        }
        let ages: Vec<Millis> = kept.iter().rev().map(|one| (last - one.created_at) / MINUTE).collect();
        assert_eq!((ages.len(), ages[0], ages[1], ages[19]), (20, 0, 1, 10_000), "{ages:?}");
        let hour = ages.iter().filter(|age| **age <= 60).count();
        let days = ages.iter().filter(|age| **age > 24 * 60).count();
        assert!((4..=14).contains(&hour) && (3..=10).contains(&days), "{ages:?}");
        let gaps: Vec<Millis> = ages.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(gaps.windows(2).all(|pair| pair[1] * 4 >= pair[0]), "{ages:?}");
    }

    #[test]
    fn the_oldest_and_the_newest_stay_as_long_as_another_can_go() {
        let all = [0, 0, 50, 100].map(at);
        let gone = |count| {
            choose_for_removal(all.iter().collect(), count, 100).iter().map(|one| one.id).collect::<Vec<_>>()
        };
        assert_eq!(gone(1), [all[1].id]);
        assert_eq!(gone(9).len(), 4);
        assert_eq!(gone(4)[3], all[0].id);
    }
}
