//! Snapshots of sandboxes' volumes: making, listing, labelling and deleting them, the files that differ between them,
//! and rolling back.
//!
//! The record of a snapshot is written before the provider makes it and again after ([`make`]), and it is removed after
//! the provider deleted it. So a server that dies in between leaves a difference that [`repair`] closes.
//!
//! Changes of one sandbox's snapshots are made one at a time ([`Snapshots::turn`]). The sandbox's actor judges its state,
//! and only a rollback is carried out by it: a snapshot may take as long as a copy of all files, and commands must not
//! wait for that.

mod make;
mod repair;
mod thin;

pub(crate) use make::{make, snapshots_for};

use crate::{
    Caller, Providers,
    actor::{Rollback, SandboxRegistry},
    admission::{Turn, Turns},
    bounds::SNAPSHOT_LABEL,
    changes::FileChanges,
    operation::{AuditedOperation, OperationSpec, Operations},
    runtime_settings::LiveSettings,
    sandboxes::LARGEST_PAGE,
};
use atoll_provider::{Changed, Provider};
use atoll_store::{NewEvent, SandboxId, SandboxRecord, Store};
use atoll_types::{
    AutoSnapshot, Error, ErrorCode, Operation, Result, SnapshotId, SnapshotKind, SnapshotPage, SnapshotQuery,
    SnapshotRecord, time::now_ms,
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
    pub(crate) turns: Arc<Turns>,
}

/// The result of a rollback.
#[derive(Debug, Clone)]
pub struct RolledBack {
    /// The sandbox afterwards.
    pub record: SandboxRecord,
    /// The snapshot that was made before.
    pub before: SnapshotRecord,
}

/// The error where a sandbox has no such snapshot.
pub(crate) fn missing(id: SnapshotId) -> Error {
    Error::new(ErrorCode::NotFound, format!("the sandbox has no snapshot {}", id.uuid()))
}

fn check_label(label: Option<&str>) -> Result<()> {
    label.map_or(Ok(()), |label| SNAPSHOT_LABEL.check("label", label))
}

/// The event of a change of a sandbox's snapshots.
fn event(record: &SandboxRecord, kind: &str, reason: Option<&str>, snapshot: SnapshotId) -> NewEvent {
    NewEvent {
        at: now_ms(),
        owner: record.owner.clone(),
        sandbox: Some(record.id),
        kind: kind.to_owned(),
        reason: reason.map(str::to_owned),
        data: serde_json::json!({ "snapshot_id": snapshot.uuid() }).to_string(),
    }
}

impl Snapshots {
    /// Makes a snapshot of a sandbox, whether it runs or not.
    pub async fn create(
        &self,
        caller: &Caller,
        sandbox: SandboxId,
        label: Option<String>,
    ) -> Result<SnapshotRecord> {
        let id = SnapshotId::random();
        let what = OperationSpec::to(Operation::SnapshotCreate, sandbox)
            .with(label.clone().unwrap_or_default())
            .and("snapshot_id", id);
        let mut audited = self.operations.audited(caller, what).await?;
        let result = async {
            let record = audited.record()?;
            check_label(label.as_deref())?;
            let new = SnapshotRecord { label, ..new_record(record, id, SnapshotKind::Manual, None) };
            self.to_its_end(|snapshots| async move { snapshots.make(new).await }).await
        }
        .await;
        note(&mut audited, &result, "snapshot.created");
        audited.done(result).await
    }

    /// Makes a snapshot that no request asked for, before a command or a cell runs.
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
        let result = self.to_its_end(|snapshots| async move { snapshots.make(new).await }).await;
        note(&mut audited, &result, "snapshot.created");
        let refused = |error: Error| {
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
        note(&mut audited, &result, "snapshot.labelled");
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
                let record = snapshots.registry.judged(sandbox, Operation::SnapshotDelete).await?;
                let found = snapshots.find(sandbox, id).await?;
                snapshots.remove(&record, &found).await?;
                Ok(found)
            })
            .await
        }
        .await;
        note(&mut audited, &result, "snapshot.deleted");
        audited.done(result).await.map(drop)
    }

    /// The files that differ between a snapshot and another, or the sandbox's files as they are now. Paths are absolute,
    /// as the sandbox has them.
    pub async fn diff(
        &self,
        caller: &Caller,
        sandbox: SandboxId,
        from: SnapshotId,
        to: Option<SnapshotId>,
    ) -> Result<Changed> {
        let to_name = to.map_or_else(|| "now".to_owned(), |to| to.to_string());
        let what = OperationSpec::to(Operation::SnapshotDiff, sandbox).and("from", from).and("to", to_name);
        let audited = self.operations.audited(caller, what).await?;
        let result = async {
            audited.record()?;
            let record = self.registry.judged(sandbox, Operation::SnapshotDiff).await?;
            for id in [Some(from), to].into_iter().flatten() {
                self.find(sandbox, id).await?;
            }
            let power = snapshots_for(self.provider(&record)?, &record.profile)?;
            let Changed { mut files, truncated } = power.diff(record.volume, from, to).await?;
            files.iter_mut().for_each(|file| file.path = inside(&file.path, record.profile.home()));
            Ok(Changed { files, truncated })
        }
        .await;
        audited.done(result).await
    }

    /// Makes a sandbox's files what they were. What runs in it ends with the code `rolled_back`; where its container
    /// lived, another one is started. The files as they were before are kept in a snapshot.
    pub async fn roll_back(&self, caller: &Caller, sandbox: SandboxId, to: SnapshotId) -> Result<RolledBack> {
        let what = OperationSpec::to(Operation::SnapshotRollback, sandbox).and("snapshot_id", to);
        let mut audited = self.operations.audited(caller, what).await?;
        let result = async {
            audited.record()?;
            self.to_its_end(move |snapshots| async move { snapshots.roll_back_to(sandbox, to).await }).await
        }
        .await;
        if let Ok(RolledBack { record, before }) = &result {
            audited.add_event(event(record, "snapshot.created", Some("before_rollback"), before.id));
            audited.add_event(event(record, "rolled_back", None, to));
            // Any file may be another one now; the difference of the two snapshots says which.
            audited.changed(&Changed { files: Vec::new(), truncated: true });
        }
        audited.done(result).await
    }

    async fn roll_back_to(&self, sandbox: SandboxId, to: SnapshotId) -> Result<RolledBack> {
        let _turn = self.turn(sandbox).await?;
        let record = self.registry.judged(sandbox, Operation::SnapshotRollback).await?;
        self.find(sandbox, to).await?;
        let before =
            new_record(&record, SnapshotId::random(), SnapshotKind::BeforeRollback, Some(to.to_string()));
        self.make_room(&record, &before, Some(to)).await?;
        let rolled = self.registry.roll_back(sandbox, Rollback { to, before }).await;
        self.changes.forget(sandbox);
        rolled.map(|(record, before)| RolledBack { record, before })
    }

    /// Makes a snapshot whose record is not written yet.
    async fn make(&self, new: SnapshotRecord) -> Result<SnapshotRecord> {
        let _turn = self.turn(new.sandbox).await?;
        let record = self.registry.judged(new.sandbox, Operation::SnapshotCreate).await?;
        self.make_room(&record, &new, None).await?;
        make(&*self.store, self.provider(&record)?, &record, new).await
    }

    /// Deletes a snapshot and its record. The sandbox's turn is held.
    async fn remove(&self, record: &SandboxRecord, snapshot: &SnapshotRecord) -> Result<()> {
        let power = snapshots_for(self.provider(record)?, &record.profile)?;
        power.delete_snapshot(record.volume, snapshot.id).await?;
        self.store.remove_snapshot(record.id, snapshot.id).await?;
        Ok(())
    }

    async fn find(&self, sandbox: SandboxId, id: SnapshotId) -> Result<SnapshotRecord> {
        self.store.snapshot(sandbox, id).await?.ok_or_else(|| missing(id))
    }

    fn provider(&self, record: &SandboxRecord) -> Result<&dyn Provider> {
        Ok(&**self.providers.of(record)?)
    }

    /// Changes of one sandbox's snapshots are made one at a time.
    async fn turn(&self, sandbox: SandboxId) -> Result<Turn> {
        let late = || {
            let message =
                "another snapshot of this sandbox is being made, deleted or rolled back to; try again";
            Error::new(ErrorCode::Unavailable, message)
        };
        self.turns.take(&sandbox.to_string(), Instant::now() + PATIENCE, late).await
    }

    /// Carries a change out to its end, whether its caller waits for it or not.
    async fn to_its_end<T, F>(&self, work: impl FnOnce(Self) -> F) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        let done = tokio::spawn(work(self.clone())).await;
        done.unwrap_or_else(|_| Err(Error::internal("a change of snapshots was cut off")))
    }
}

/// A path of a volume as its sandbox has it.
fn inside(path: &str, home: &str) -> String {
    match path.strip_prefix("home/") {
        Some(below) => format!("{home}/{below}"),
        None => format!("/{path}"),
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
        ready: false,
    }
}

/// Adds the event of a change that was made.
fn note(audited: &mut AuditedOperation, result: &Result<SnapshotRecord>, kind: &str) {
    if let Ok(snapshot) = result
        && let Ok(record) = audited.record()
    {
        let event = event(record, kind, Some(snapshot.kind.as_str()), snapshot.id);
        audited.add_event(event);
    }
}
