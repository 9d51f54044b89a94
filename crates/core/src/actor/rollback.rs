//! Rolling a sandbox back. Its processes are frozen while the snapshot of before is made, so that it has all that they
//! wrote; then its container ends, the provider exchanges the volume, and another container is started.
//!
//! The record says `provisioning` while there is no container: a server that dies in between leaves a sandbox that the
//! next one calls stopped, or paused where it died before the container's end, whose volume is what it was before or what it was rolled back to, and never something between.

use super::{SandboxActor, claim::is_taken, must_allow};
use crate::snapshots::{make, snapshots_for};
use atoll_provider::Container;
use atoll_store::{ActivityKind, Change, SandboxRecord, Status, StatusChange};
use atoll_types::{
    ContainerId, Error, ErrorCode, LegalStates, Operation, Result, SnapshotId, SnapshotRecord,
};
use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
};

/// A rollback, and the record of the snapshot that is made before.
pub(crate) struct Rollback {
    pub(crate) to: SnapshotId,
    pub(crate) before: SnapshotRecord,
}

/// The reason of a status that a rollback gives.
const REASON: &str = "rolled_back";

/// Containers that rollbacks ended, the latest: what ran in them is told why it ended.
#[derive(Default)]
pub(super) struct RolledBackContainers(Mutex<VecDeque<ContainerId>>);

/// How many of them are remembered: what ran in one learns of its end at once.
const REMEMBERED: usize = 1024;

impl RolledBackContainers {
    fn add(&self, container: ContainerId) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.push_back(container);
        if all.len() > REMEMBERED {
            all.pop_front();
        }
    }

    pub(super) fn has(&self, container: ContainerId) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains(&container)
    }
}

impl SandboxActor {
    pub(super) async fn roll_back(&mut self, rollback: Rollback) -> Result<(SandboxRecord, SnapshotRecord)> {
        let Rollback { to, before } = rollback;
        let record = self.whole_record().await?;
        must_allow(Operation::SnapshotRollback.states(), &record)?;
        let provider = Arc::clone(self.provider(&record)?);
        let power = snapshots_for(&*provider, &record.profile)?;
        // A file request that is under way would write on after the snapshot.
        self.end_files().await?;
        let frozen = self.freeze(&record).await?;
        let before = match make(&*self.shared.store, &*provider, &record, before).await {
            Ok(before) => before,
            Err(error) => {
                // Where it stays frozen, the next request that needs it resumes it.
                if let Some(power) = frozen.as_ref().and_then(|container| container.pause()) {
                    let _ = power.resume().await;
                }
                return Err(match error.code {
                    ErrorCode::DiskFull => no_room_before(),
                    _ => error,
                });
            }
        };
        let record = self.record().await?;
        let lives = LegalStates::Running.allow(record.status);
        if let Some(container) = record.container {
            self.shared.rolled_back.add(container);
        }
        self.end_container(&record).await?;
        let record = if lives { self.rolls_back(&record).await? } else { record };
        let mut rolled = power.roll_back(record.volume, to).await;
        if rolled.as_ref().is_err_and(is_taken) {
            rolled = match self.free_volume(&record).await {
                Ok(_) => power.roll_back(record.volume, to).await,
                Err(error) => Err(error),
            };
        }
        // Where the exchange failed the volume is what it was before, and the sandbox runs again with that.
        let record = if lives { self.start_again().await? } else { record };
        rolled.map(|()| (record, before))
    }

    /// Freezes the processes of a sandbox that runs, where the provider can. Returns its container unless it was paused
    /// before.
    async fn freeze(&mut self, record: &SandboxRecord) -> Result<Option<Arc<dyn Container>>> {
        if !LegalStates::Running.allow(record.status) {
            return Ok(None);
        }
        let container = match self.attached().await {
            Ok(container) => container,
            // It died meanwhile, which is recorded.
            Err(error) if matches!(error.code, ErrorCode::NotFound | ErrorCode::ContainerDied) => {
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        if self.paused {
            return Ok(None);
        }
        match container.pause() {
            Some(power) => match power.pause().await {
                // The snapshot is then of the moment in which it is made.
                Err(error) if error.code == ErrorCode::Unsupported => Ok(None),
                Err(error) => Err(error),
                Ok(()) => Ok(Some(container)),
            },
            None => Ok(None),
        }
    }

    async fn rolls_back(&self, record: &SandboxRecord) -> Result<SandboxRecord> {
        let change = Change {
            status: Some(StatusChange::new(Status::Provisioning, Some(REASON.to_owned()))),
            container: Some(None),
            activity: self.activity(ActivityKind::Stop, REASON),
            ..Change::default()
        };
        self.change(record, change).await
    }

    /// Starts a container again, with the reservation that the former one had.
    async fn start_again(&mut self) -> Result<SandboxRecord> {
        match self.start(false).await {
            Ok(record) => Ok(record),
            Err(error) => {
                self.shared.admission.stopped(self.id);
                let record = self.record().await?;
                let status = StatusChange::new(Status::Stopped, Some(error.message.clone()));
                let change = Change { status: Some(status), container: Some(None), ..Change::default() };
                self.change(&record, change).await?;
                Err(error)
            }
        }
    }
}

fn no_room_before() -> Error {
    let message = "the disk has no room for the snapshot that is made before a rollback; delete snapshots, files or \
                   sandboxes first";
    Error::new(ErrorCode::DiskFull, message)
}

/// Why something in a container ended that a rollback ended.
pub(crate) fn rolled_back() -> Error {
    Error::new(ErrorCode::RolledBack, "the sandbox was rolled back to a snapshot while it ran")
}
