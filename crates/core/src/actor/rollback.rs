//! Rolling a sandbox back. Its processes are frozen while the snapshot of before is made, so that it has all that they
//! wrote; then its container ends, the provider exchanges the volume, and another container is started.
//!
//! The record says `provisioning` while there is no container: a server that dies in between leaves a sandbox that the
//! next one calls stopped, or paused where it died before the container's end, whose volume is what it was before or what it was rolled back to, and never something between.
//!
//! With kernels the container stays: commands and other kernels end, the kernels become what they were, and the provider
//! makes the files what they were in place. Where that fails the files are rolled back as without kernels, which end. The snapshot
//! of before is then made while commands still run: what they write until they end, in the next moment, is in neither.

use super::{SandboxActor, claim::is_taken, must_allow};
use crate::{
    kernels::{KernelManagers, kernels_gone, manager_exec},
    snapshots::{make, snapshots_for},
};
use atoll_provider::{Container, Provider};
use atoll_store::{ActivityKind, Change, SandboxRecord, Status, StatusChange};
use atoll_types::{
    Error, ErrorCode, ExecId, LegalStates, Operation, Result, SnapshotId, SnapshotKernels, SnapshotRecord,
};
use futures_util::future::try_join_all;
use std::{
    collections::{HashSet, VecDeque},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use uuid::Uuid;

/// What a rollback of files came to.
pub(crate) struct RollbackOutcome {
    pub(crate) record: SandboxRecord,
    pub(crate) before: Option<SnapshotRecord>,
    /// Why the kernels that were to be rolled back too are gone.
    pub(crate) kernels_lost: Option<Error>,
}

/// A rollback.
pub(crate) struct Rollback {
    pub(crate) to: SnapshotId,
    /// The record of the snapshot that is made before, if one is.
    pub(crate) before: Option<SnapshotRecord>,
    /// The kernels that are rolled back too.
    pub(crate) kernels: Option<KernelRollback>,
}

/// Kernels that become what they were together with the files.
pub(crate) struct KernelRollback {
    pub(crate) managers: Arc<KernelManagers>,
    pub(crate) kernels: SnapshotKernels,
}

/// The reason of a status that a rollback gives.
const REASON: &str = "rolled_back";

/// How long PID 1 may take to list the commands.
const PATIENCE: Duration = Duration::from_secs(5);

/// What rollbacks ended, the latest: containers, and commands and cells in them. What waits for their end is told why.
#[derive(Default)]
pub(crate) struct EndedByRollback(Mutex<(VecDeque<Uuid>, HashSet<Uuid>)>);

/// How many of them are remembered.
const REMEMBERED: usize = 16 << 10;

impl EndedByRollback {
    fn add(&self, id: Uuid) {
        let (order, all) = &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.insert(id) {
            order.push_back(id);
        }
        if order.len() > REMEMBERED
            && let Some(oldest) = order.pop_front()
        {
            all.remove(&oldest);
        }
    }

    pub(super) fn has(&self, id: Uuid) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).1.contains(&id)
    }
}

impl SandboxActor {
    pub(super) async fn roll_back(&mut self, rollback: Rollback) -> Result<RollbackOutcome> {
        let Rollback { to, before, kernels } = rollback;
        let record = self.whole_record().await?;
        must_allow(Operation::SnapshotRollback.states(), &record)?;
        let provider = Arc::clone(self.provider(&record)?);
        snapshots_for(&*provider, &record.profile)?;
        if let Some(kernels) = kernels {
            return self.roll_back_with_kernels(&record, &*provider, to, before, kernels).await;
        }
        // A file request that is under way would write on after the snapshot.
        self.end_files().await?;
        let running = self.known_execs(&record).await;
        let frozen = self.freeze(&record).await?;
        let before = match self.make_before(&record, &*provider, before).await {
            Ok(before) => before,
            Err(error) => {
                unfreeze(frozen.as_ref()).await;
                return Err(error);
            }
        };
        // One without a container has nothing to lose.
        if LegalStates::Running.allow(record.status)
            && let Err(error) = self.check_room(&record, &*provider, to, before.as_ref()).await
        {
            unfreeze(frozen.as_ref()).await;
            return Err(error);
        }
        running.into_iter().for_each(|exec| self.shared.rolled_back.add(exec.uuid()));
        let record = self.exchange(&*provider, to).await?;
        Ok(RollbackOutcome { record, before, kernels_lost: None })
    }

    /// The commands that run, as far as PID 1 says so soon: the next container knows none of them.
    async fn known_execs(&mut self, record: &SandboxRecord) -> Vec<ExecId> {
        if !LegalStates::Running.allow(record.status) {
            return Vec::new();
        }
        let container = match self.attached().await {
            Ok(container) if !self.paused => container,
            _ => return Vec::new(),
        };
        let listed = tokio::time::timeout(PATIENCE, running_execs(&container)).await;
        listed.unwrap_or(Ok(Vec::new())).unwrap_or_default()
    }

    async fn make_before(
        &self,
        record: &SandboxRecord,
        provider: &dyn Provider,
        before: Option<SnapshotRecord>,
    ) -> Result<Option<SnapshotRecord>> {
        let Some(before) = before else { return Ok(None) };
        match make(&*self.shared.store, provider, record, before).await {
            Err(error) if error.code == ErrorCode::DiskFull => Err(no_room_before()),
            made => made.map(Some),
        }
    }

    /// Refuses a rollback for which the disk has no room while all of the sandbox still lives. The snapshot that was made
    /// before it has nothing to undo then, and goes.
    async fn check_room(
        &self,
        record: &SandboxRecord,
        provider: &dyn Provider,
        to: SnapshotId,
        before: Option<&SnapshotRecord>,
    ) -> Result<()> {
        let power = snapshots_for(provider, &record.profile)?;
        let Err(error) = power.check_roll_back(record.volume, to).await else { return Ok(()) };
        if let Some(before) = before {
            let removed = async {
                power.delete_snapshot(record.volume, before.id).await?;
                Ok::<_, Error>(self.shared.store.remove_snapshot(record.id, before.id).await?)
            };
            if let Err(left) = removed.await {
                tracing::warn!(sandbox = %self.id, snapshot = %before.id, error = %left, "a snapshot of no use is left");
            }
        }
        Err(error.context("the sandbox was not rolled back, and goes on as it was"))
    }

    /// Ends the container, exchanges the volume, and starts another container where there was one.
    async fn exchange(&mut self, provider: &dyn Provider, to: SnapshotId) -> Result<SandboxRecord> {
        let record = self.record().await?;
        let power = snapshots_for(provider, &record.profile)?;
        let lives = LegalStates::Running.allow(record.status);
        if let Some(container) = record.container {
            self.shared.rolled_back.add(container.uuid());
        }
        self.end_container(&record).await?;
        let record = if lives { self.record_rollback(&record).await? } else { record };
        let mut rolled = power.roll_back(record.volume, to).await;
        if rolled.as_ref().is_err_and(is_taken) {
            rolled = match self.free_volume(&record).await {
                Ok(_) => power.roll_back(record.volume, to).await,
                Err(error) => Err(error),
            };
        }
        // Where the exchange failed the volume is what it was before, and the sandbox runs again with that.
        let record = if lives { self.start_again().await? } else { record };
        rolled.map(|()| record)
    }

    /// Rolls files and kernels back together, in the container in which the kernels were kept.
    async fn roll_back_with_kernels(
        &mut self,
        record: &SandboxRecord,
        provider: &dyn Provider,
        to: SnapshotId,
        before: Option<SnapshotRecord>,
        rollback: KernelRollback,
    ) -> Result<RollbackOutcome> {
        let KernelRollback { managers, kernels } = rollback;
        if record.container != Some(kernels.container) {
            return Err(kernels_gone());
        }
        let container = self.container("a rollback").await?;
        let held = managers.hold(&container).await?.ok_or_else(kernels_gone)?;
        held.check(&kernels.checkpoints).await?;
        let before = self.make_before(record, provider, before).await?;
        // Where the files find no room in place they are exchanged, which needs room for a copy.
        self.check_room(record, provider, to, before.as_ref()).await?;
        let rolled = async {
            self.end_execs(&container).await?;
            held.cells().into_iter().for_each(|cell| self.shared.rolled_back.add(cell.uuid()));
            held.roll_back(&kernels.checkpoints).await?;
            snapshots_for(provider, &record.profile)?.roll_back_in_place(record.volume, to).await?;
            // A request that had the container before this one may have begun another.
            self.end_execs(&container).await?;
            // It ended with the other commands.
            self.start_process_api(record, &container).await
        };
        match rolled.await {
            Ok(()) => Ok(RollbackOutcome { record: self.record().await?, before, kernels_lost: None }),
            Err(error) => {
                drop(held);
                let record = self.exchange(provider, to).await?;
                let message =
                    "the files were rolled back, but not the kernels, which ended with their container";
                let lost = Error::new(ErrorCode::KernelDied, format!("{message}: {}", error.message));
                Ok(RollbackOutcome { record, before, kernels_lost: Some(lost) })
            }
        }
    }

    /// Ends every command but the kernel manager, and all that they started.
    async fn end_execs(&self, container: &Arc<dyn Container>) -> Result<()> {
        let running = running_execs(container).await?;
        running.iter().for_each(|exec| self.shared.rolled_back.add(exec.uuid()));
        let kill = async |exec| match container.guest().kill(exec).await {
            Err(error) if error.code != ErrorCode::NotFound => Err(error),
            _ => Ok(()),
        };
        try_join_all(running.into_iter().map(kill)).await.map(drop)
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

    /// Records that there is no container because of a rollback.
    async fn record_rollback(&self, record: &SandboxRecord) -> Result<SandboxRecord> {
        let change = Change {
            status: Some(StatusChange::new(Status::Provisioning, Some(REASON.to_owned()))),
            container: Some(None),
            activity: self.activity(ActivityKind::Stop, REASON),
            ..Change::default()
        };
        self.change(record, change).await
    }

    /// Starts a container again, with the reservation that the former one had.
    pub(super) async fn start_again(&mut self) -> Result<SandboxRecord> {
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

/// Lets the processes of a container go on. Where that fails, the next request that needs it resumes it.
async fn unfreeze(frozen: Option<&Arc<dyn Container>>) {
    if let Some(power) = frozen.and_then(|container| container.pause()) {
        let _ = power.resume().await;
    }
}

/// Every command that runs, but the kernel manager.
async fn running_execs(container: &Arc<dyn Container>) -> Result<Vec<ExecId>> {
    let all = container.guest().list_execs().await?.into_iter().filter(|report| !report.ended);
    Ok(all.map(|report| report.id).filter(|exec| *exec != manager_exec(container.id())).collect())
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
