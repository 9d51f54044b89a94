//! Snapshots of sandboxes' volumes: making, listing, labelling and deleting them, and rolling back. The files that differ
//! between them are in [`diff`].
//!
//! The record of a snapshot is written before the provider makes it and again after ([`make`]), and it is removed after
//! the provider deleted it. So a server that dies in between leaves a difference that [`repair`] closes.
//!
//! Changes of one sandbox's snapshots are made one at a time ([`Snapshots::turn`]). The sandbox's actor checks its state,
//! and only a rollback is carried out by it: a snapshot may take as long as a copy of all files, and commands must not
//! wait for that.

mod diff;
mod imported;
mod make;
mod prune;
mod repair;

pub(crate) use diff::Diffs;
pub(crate) use make::{make, snapshots_for};

use crate::{
    Caller, Providers,
    actor::{KernelRollback, Rollback, RollbackOutcome, SandboxRegistry},
    admission::{Turn, Turns},
    bounds::SNAPSHOT_LABEL,
    changes::{FileChanges, acknowledge_changes},
    events::new_event,
    kernels::KernelManagers,
    operation::{AuditedOperation, OperationSpec, Operations},
    run_to_end::run_to_end,
    runtime_settings::LiveSettings,
    sandboxes::LARGEST_PAGE,
};
use atoll_provider::{Changed, Provider};
use atoll_store::{NewEvent, SandboxId, SandboxRecord, Store};
use atoll_types::{
    AutoSnapshot, Error, ErrorCode, EventKind, Operation, Result, RootMode, SnapshotId, SnapshotKernels,
    SnapshotKind, SnapshotPage, SnapshotQuery, SnapshotRecord, Status, time::now_ms,
};
use std::{sync::Arc, time::Duration};
use tokio::time::Instant;

/// How long a change of a sandbox's snapshots waits for the one before.
const PATIENCE: Duration = Duration::from_secs(60);

/// Snapshots.
#[derive(Clone)]
pub struct Snapshots {
    pub(crate) operations: Operations,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) providers: Providers,
    pub(crate) live_settings: Arc<LiveSettings>,
    pub(crate) registry: Arc<SandboxRegistry>,
    pub(crate) changes: Arc<FileChanges>,
    pub(crate) managers: Arc<KernelManagers>,
    pub(crate) turns: Arc<Turns>,
    pub(crate) diffs: Arc<Diffs>,
}

/// A new snapshot.
#[derive(Debug, Clone, Default)]
pub struct NewSnapshot {
    /// For people.
    pub label: Option<String>,
    /// Whether the variables of the sandbox's Python kernels are kept at the same moment.
    pub kernels: bool,
}

/// How a rollback is made.
#[derive(Debug, Clone, Copy)]
pub struct RollbackOptions {
    /// Whether the kernels that were kept with the snapshot become what they were; their container stays then.
    pub kernels: bool,
    /// Whether the files as they were before are kept in a snapshot.
    pub keep_before: bool,
}

impl Default for RollbackOptions {
    fn default() -> Self {
        Self { kernels: false, keep_before: true }
    }
}

/// The result of a rollback.
#[derive(Debug, Clone)]
pub struct RolledBack {
    /// The sandbox afterwards.
    pub record: SandboxRecord,
    /// The snapshot that was made before, unless none was to be.
    pub before: Option<SnapshotRecord>,
}

/// The error where a sandbox has no such snapshot.
pub(crate) fn missing(id: SnapshotId) -> Error {
    Error::new(ErrorCode::NotFound, format!("the sandbox has no snapshot {}", id.uuid()))
}

fn check_label(label: Option<&str>) -> Result<()> {
    label.map_or(Ok(()), |label| SNAPSHOT_LABEL.check("label", label))
}

/// The event of a change of a sandbox's snapshots.
fn event(record: &SandboxRecord, kind: EventKind, reason: Option<&str>, snapshot: SnapshotId) -> NewEvent {
    let data = serde_json::json!({ "snapshot_id": snapshot.uuid() });
    new_event(&record.owner, Some(record.id), kind, reason.map(str::to_owned), &data)
}

impl Snapshots {
    /// Makes a snapshot of a sandbox, whether it runs or not.
    pub async fn create(
        &self,
        caller: &Caller,
        sandbox: SandboxId,
        asked: NewSnapshot,
    ) -> Result<SnapshotRecord> {
        let id = SnapshotId::random();
        let NewSnapshot { label, kernels } = asked;
        let mut what = OperationSpec::to(Operation::SnapshotCreate, sandbox)
            .with(label.clone().unwrap_or_default())
            .and("snapshot_id", id);
        if kernels {
            what = what.and("kernels", true);
        }
        let mut audited = self.operations.audited(caller, what).await?;
        let result = async {
            let record = audited.record()?;
            check_label(label.as_deref())?;
            let new = SnapshotRecord { label, ..new_record(record, id, SnapshotKind::Manual, None) };
            self.to_its_end(move |snapshots| async move { snapshots.make(new, kernels).await }).await
        }
        .await;
        note(&mut audited, &result, EventKind::SnapshotCreated);
        audited.done(result).await
    }

    /// Makes a snapshot that no request asked for, before a command, a terminal or a cell runs.
    pub(crate) async fn make_automatic(
        &self,
        record: &SandboxRecord,
        when: AutoSnapshot,
        before: String,
    ) -> Result<()> {
        if record.auto_snapshot != when {
            return Ok(());
        }
        let id = SnapshotId::random();
        let caller = Caller::lifecycle(&record.owner, &record.owner_name);
        let what = OperationSpec::to(Operation::SnapshotCreate, record.id)
            .and("snapshot_id", id)
            .and("reason", format!("{when} {before}"));
        let mut audited = self.operations.audited(&caller, what).await?;
        let new = new_record(record, id, SnapshotKind::Automatic, Some(before));
        let result = self.to_its_end(|snapshots| async move { snapshots.make(new, false).await }).await;
        note(&mut audited, &result, EventKind::SnapshotCreated);
        let refused = |mut error: Error| {
            if error.code == ErrorCode::LimitExceeded {
                error.message.push_str(", or turn auto_snapshot off");
            }
            error.context(format!("auto_snapshot is {when}, and the snapshot before this cannot be made"))
        };
        audited.done(result).await.map(drop).map_err(refused)
    }

    /// Some snapshots of a sandbox, the newest first.
    pub async fn list(&self, caller: &Caller, query: SnapshotQuery) -> Result<SnapshotPage> {
        if !(1..=LARGEST_PAGE).contains(&query.limit) {
            let message = format!("page_size must be between 1 and {LARGEST_PAGE}");
            return Err(Error::invalid("page_size", message));
        }
        self.operations.visible(caller, query.sandbox).await?;
        Ok(self.store.list_snapshots(&query).await?)
    }

    /// One snapshot of a sandbox.
    pub async fn get(&self, caller: &Caller, sandbox: SandboxId, id: SnapshotId) -> Result<SnapshotRecord> {
        self.operations.visible(caller, sandbox).await?;
        self.find(sandbox, id).await
    }

    /// Gives a snapshot another label, or none. One with a label is not removed by retention.
    pub async fn label(
        &self,
        caller: &Caller,
        sandbox: SandboxId,
        id: SnapshotId,
        label: Option<String>,
    ) -> Result<SnapshotRecord> {
        let what = OperationSpec::to(Operation::SnapshotLabel, sandbox)
            .with(label.clone().unwrap_or_default())
            .and("snapshot_id", id);
        let mut audited = self.operations.audited(caller, what).await?;
        let result = async {
            audited.record()?;
            check_label(label.as_deref())?;
            self.find(sandbox, id).await?;
            Ok(self.store.label_snapshot(sandbox, id, label).await?)
        }
        .await;
        note(&mut audited, &result, EventKind::SnapshotLabelled);
        audited.done(result).await
    }

    /// Deletes a snapshot.
    pub async fn delete(&self, caller: &Caller, sandbox: SandboxId, id: SnapshotId) -> Result<()> {
        let what = OperationSpec::to(Operation::SnapshotDelete, sandbox).and("snapshot_id", id);
        let mut audited = self.operations.audited(caller, what).await?;
        let result = async {
            audited.record()?;
            self.to_its_end(move |snapshots| async move {
                let _turn = snapshots.turn(sandbox).await?;
                let record = snapshots.registry.check_state(sandbox, Operation::SnapshotDelete).await?;
                let found = snapshots.find(sandbox, id).await?;
                snapshots.remove(&record, &found).await?;
                Ok(found)
            })
            .await
        }
        .await;
        note(&mut audited, &result, EventKind::SnapshotDeleted);
        audited.done(result).await.map(drop)
    }

    /// Makes a sandbox's files what they were. What runs in it ends with the code `rolled_back`; where its container
    /// lived, another one is started, unless kernels are rolled back too. The files as they were before are kept in a
    /// snapshot, unless the caller wants none.
    pub(crate) async fn roll_back(
        &self,
        caller: &Caller,
        sandbox: SandboxId,
        to: SnapshotId,
        options: RollbackOptions,
    ) -> Result<RolledBack> {
        let RollbackOptions { kernels, keep_before } = options;
        let mut what = OperationSpec::to(Operation::SnapshotRollback, sandbox).and("snapshot_id", to);
        if kernels {
            what = what.and("kernels", true);
        }
        if !keep_before {
            what = what.and("keep_before", false);
        }
        let mut audited = self.operations.audited(caller, what).await?;
        let before = SnapshotId::random();
        let result = async {
            audited.record()?;
            self.to_its_end(move |snapshots| async move {
                snapshots.roll_back_to(sandbox, to, before, options).await
            })
            .await
        }
        .await;
        let result = match result {
            Err(error) => Err(self.with_before(&mut audited, before, error).await),
            rolled => rolled,
        };
        if let Ok((RolledBack { record, before }, _)) = &result {
            if let Some(before) = before {
                audited.add_event(event(
                    record,
                    EventKind::SnapshotCreated,
                    Some(SnapshotKind::BeforeRollback.as_str()),
                    before.id,
                ));
            }
            audited.add_event(event(record, EventKind::RolledBack, None, to));
            // Any file may be another one now; the difference of the two snapshots says which.
            audited.changed(&Changed { files: Vec::new(), truncated: true });
        }
        let result = result.and_then(|(rolled, kernels_lost)| kernels_lost.map_or(Ok(rolled), Err));
        audited.done(result).await
    }

    /// The error of a rollback that failed, with the snapshot that it made before: its caller may return to that.
    async fn with_before(&self, audited: &mut AuditedOperation, before: SnapshotId, error: Error) -> Error {
        let Ok(record) = audited.record() else { return error };
        let made =
            event(record, EventKind::SnapshotCreated, Some(SnapshotKind::BeforeRollback.as_str()), before);
        match self.store.snapshot(record.id, before).await {
            Ok(Some(_)) => {
                audited.add_event(made);
                error.fact("before", before.uuid().to_string())
            }
            _ => error,
        }
    }

    /// Also returns why kernels were lost that were to be rolled back with the files.
    async fn roll_back_to(
        &self,
        sandbox: SandboxId,
        to: SnapshotId,
        before_id: SnapshotId,
        options: RollbackOptions,
    ) -> Result<(RolledBack, Option<Error>)> {
        let _turn = self.turn(sandbox).await?;
        let record = self.registry.check_state(sandbox, Operation::SnapshotRollback).await?;
        let found = self.find(sandbox, to).await?;
        let kernels = match (options.kernels, found.kernels.clone()) {
            (false, _) => None,
            (true, Some(kernels)) => Some(KernelRollback { managers: Arc::clone(&self.managers), kernels }),
            (true, None) => {
                let message = "the snapshot was made without kernels; its files alone can be rolled back";
                return Err(Error::new(ErrorCode::Conflict, message).at("kernels"));
            }
        };
        let (mut before, mut may_go) = (None, Vec::new());
        if options.keep_before {
            let made_before = Some(to.to_string());
            let new = new_record(&record, before_id, SnapshotKind::BeforeRollback, made_before);
            may_go = self.make_room(&record, &new, Some(to)).await?;
            before = Some(new);
        }
        let stays = kernels.is_some();
        let rolled = self.registry.roll_back(sandbox, Rollback { to, before, kernels }).await;
        if !may_go.is_empty() && matches!(self.store.snapshot(sandbox, before_id).await, Ok(Some(_))) {
            self.give_way(&record, may_go).await;
        }
        // What the rollback itself changed is no command's.
        if stays
            && rolled.as_ref().is_ok_and(|rolled| rolled.kernels_lost.is_none())
            && let Ok(container) = self.registry.awake(sandbox).await
            && let Some(report) = self.changes.take(sandbox, &container).await
        {
            acknowledge_changes(&container, report.sequence);
        }
        self.changes.forget(sandbox);
        let RollbackOutcome { record, before, kernels_lost } = rolled?;
        let skills = found.skills_of(&record.skills);
        // An install looks for the files too, so a wrong list does no harm.
        if let Err(error) = self.store.set_skills(sandbox, skills.clone()).await {
            tracing::warn!(%sandbox, %error, "a sandbox lists skills that a rollback removed");
        }
        Ok((RolledBack { record: SandboxRecord { skills, ..record }, before }, kernels_lost))
    }

    /// Makes a snapshot whose record is not written yet.
    async fn make(&self, new: SnapshotRecord, kernels: bool) -> Result<SnapshotRecord> {
        let _turn = self.turn(new.sandbox).await?;
        let record = self.registry.check_state(new.sandbox, Operation::SnapshotCreate).await?;
        let may_go = self.make_room(&record, &new, None).await?;
        let made = match kernels {
            true => self.make_with_kernels(&record, new).await,
            false => make(&*self.store, self.provider(&record)?, &record, new).await,
        }?;
        self.give_way(&record, may_go).await;
        Ok(made)
    }

    /// Makes one together with checkpoints of the sandbox's Python kernels. The kernels are sent no cell between the first
    /// checkpoint and the snapshot, so that variables and files are of one moment.
    async fn make_with_kernels(&self, record: &SandboxRecord, new: SnapshotRecord) -> Result<SnapshotRecord> {
        if record.profile.root == RootMode::Writable {
            let name = &record.profile.name;
            let message = format!(
                "a sandbox with the profile {name} has a writable root, which is not rolled back with kernels"
            );
            return Err(Error::new(ErrorCode::Unsupported, message).at("kernels"));
        }
        let none = || {
            let message = "the sandbox has no Python kernel whose variables could be kept";
            Error::new(ErrorCode::Conflict, message).at("kernels")
        };
        let container = self.registry.acquire(record.id, "a snapshot with its kernels").await?;
        let held = self.managers.hold(container.inner()).await?.ok_or_else(none)?;
        let checkpoints = held.checkpoint(&format!("snapshot {}", new.id.uuid())).await?;
        if checkpoints.is_empty() {
            return Err(none());
        }
        let kernels = SnapshotKernels { container: container.inner().id(), checkpoints: checkpoints.clone() };
        let new = SnapshotRecord { kernels: Some(kernels), ..new };
        let made = make(&*self.store, self.provider(record)?, record, new).await;
        if made.is_err() {
            held.drop_checkpoints(&checkpoints).await;
        }
        made
    }

    /// Deletes a snapshot and its record. The sandbox's turn is held.
    async fn remove(&self, record: &SandboxRecord, snapshot: &SnapshotRecord) -> Result<()> {
        let power = snapshots_for(self.provider(record)?, &record.profile)?;
        power.delete_snapshot(record.volume, snapshot.id).await?;
        self.store.remove_snapshot(record.id, snapshot.id).await?;
        if let Some(kernels) = snapshot.kernels.clone()
            && record.status == Status::Ready
            && record.container == Some(kernels.container)
        {
            // The sandbox may be paused by now, and its checkpoints go when it is resumed.
            let (snapshots, sandbox) = (self.clone(), record.id);
            tokio::spawn(async move {
                let container = snapshots.registry.awake(sandbox).await?;
                snapshots.managers.drop_checkpoints(&container, &kernels.checkpoints).await
            });
        }
        Ok(())
    }

    async fn find(&self, sandbox: SandboxId, id: SnapshotId) -> Result<SnapshotRecord> {
        self.store.snapshot(sandbox, id).await?.ok_or_else(|| missing(id))
    }

    fn provider(&self, record: &SandboxRecord) -> Result<&dyn Provider> {
        Ok(&**self.providers.of(record)?)
    }

    /// Changes of one sandbox's snapshots are made one at a time.
    pub(crate) async fn turn(&self, sandbox: SandboxId) -> Result<Turn> {
        let late = || {
            let message =
                "another snapshot of this sandbox is being made, deleted or rolled back to; try again";
            Error::new(ErrorCode::Unavailable, message)
        };
        self.turns.take(&sandbox.to_string(), Instant::now() + PATIENCE, late).await
    }

    /// The same, where no change is under way.
    fn try_turn(&self, sandbox: SandboxId) -> Option<Turn> {
        self.turns.try_take(&sandbox.to_string())
    }

    /// Carries a change out to its end, whether its caller waits for it or not.
    async fn to_its_end<T, F>(&self, work: impl FnOnce(Self) -> F) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        run_to_end("the change of the snapshots", work(self.clone())).await
    }
}

/// The record of a snapshot that is not made yet.
fn new_record(
    record: &SandboxRecord,
    id: SnapshotId,
    kind: SnapshotKind,
    made_before: Option<String>,
) -> SnapshotRecord {
    SnapshotRecord {
        id,
        sandbox: record.id,
        owner: record.owner.clone(),
        kind,
        label: None,
        made_before,
        created_at: now_ms(),
        size_bytes: 0,
        kernels: None,
        skills: Some(record.skills.clone()),
        ready: false,
    }
}

/// Adds the event of a change that was made.
fn note(audited: &mut AuditedOperation, result: &Result<SnapshotRecord>, kind: EventKind) {
    if let Ok(snapshot) = result
        && let Ok(record) = audited.record()
    {
        let event = event(record, kind, Some(snapshot.kind.as_str()), snapshot.id);
        audited.add_event(event);
    }
}
