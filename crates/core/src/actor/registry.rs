//! The callers' side: finds or starts the actor of a sandbox, and sends it requests.

use super::{
    ExportCopy, Patch, PoolClaim, Rollback, RollbackOutcome, RunOutcome, SandboxActor, SandboxRequest,
    Shared, Step, rolled_back,
};
use crate::{admission::Reservation, lifecycle::ActiveContainer, operation::AuditedOperation};
use atoll_egress::Policy;
use atoll_provider::Container;
use atoll_store::{SandboxId, SandboxRecord, Status};
use atoll_types::{
    ContainerId, Error, ErrorCode, ImageRecord, LegalStates, Operation, Profile, ProviderName, Result,
    SnapshotId, VolumeId,
};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::sync::{mpsc, oneshot};
use uuid::Uuid;

/// Requests that may wait in one actor's queue.
const QUEUE: usize = 256;
/// How long the stop or removal of a sandbox may take that ended its container first.
const SETTLING: Duration = Duration::from_secs(10);

/// The actors that run.
pub(crate) struct SandboxRegistry {
    shared: Arc<Shared>,
    open: Arc<Mutex<HashMap<SandboxId, mpsc::Sender<SandboxRequest>>>>,
}

impl SandboxRegistry {
    pub(crate) fn new(shared: Shared) -> Self {
        Self { shared: Arc::new(shared), open: Arc::default() }
    }

    /// The container, for a look that has no row in the audit trail. A paused sandbox is resumed first, and the event
    /// names the reason `by`. The sandbox counts as active while the handle is held.
    pub(crate) async fn container(&self, id: SandboxId, by: &'static str) -> Result<Arc<dyn Container>> {
        Ok(Arc::new(self.acquire(id, by).await?))
    }

    /// The container for an operation, where the sandbox's state allows that.
    pub(crate) async fn container_in(
        &self,
        audited: &AuditedOperation,
        by: &'static str,
    ) -> Result<Arc<dyn Container>> {
        Ok(Arc::new(self.acquire_in(audited, by).await?))
    }

    /// The same, for what also needs the container without its guard.
    pub(crate) async fn acquire_in(
        &self,
        audited: &AuditedOperation,
        by: &'static str,
    ) -> Result<ActiveContainer> {
        self.acquire_where(audited.record()?.id, audited.kind().states(), by).await
    }

    /// The container for a file request that has no row in the audit trail. A stopped sandbox stays stopped.
    pub(crate) async fn files(&self, id: SandboxId) -> Result<Arc<dyn Container>> {
        self.files_where(id, LegalStates::Stored).await
    }

    /// The container for an operation on files, where the sandbox's state allows that.
    pub(crate) async fn files_in(&self, audited: &AuditedOperation) -> Result<Arc<dyn Container>> {
        self.files_where(audited.record()?.id, audited.kind().states()).await
    }

    async fn files_where(&self, id: SandboxId, states: LegalStates) -> Result<Arc<dyn Container>> {
        let container = match self.acquire_where(id, states, "a file operation").await {
            Err(error) if error.code == ErrorCode::NotRunning => {
                let place = self.shared.file_containers.place().await?;
                self.ask(id, |reply| SandboxRequest::Files { states, place, reply }).await?
            }
            active => active?,
        };
        Ok(Arc::new(container))
    }

    /// The containers that exist for file requests alone.
    pub(crate) fn file_containers(&self) -> Vec<ContainerId> {
        self.shared.file_containers.all()
    }

    /// The copies of volumes that those are on.
    pub(crate) fn file_copies(&self) -> Vec<VolumeId> {
        self.shared.file_containers.volumes()
    }

    /// The files of a sandbox as they are now and as they were at snapshots, in a container of their own; none where the
    /// provider makes no copies.
    pub(crate) async fn export_copy(
        &self,
        record: &SandboxRecord,
        snapshots: &[SnapshotId],
    ) -> Result<Option<(ExportCopy, Arc<dyn Container>)>> {
        ExportCopy::make(&self.shared, record, snapshots).await
    }

    /// The files of an image at `path`, in a container of their own.
    pub(crate) async fn image_copy(
        &self,
        owner: &str,
        image: &ImageRecord,
        path: &str,
    ) -> Result<(ExportCopy, Arc<dyn Container>)> {
        ExportCopy::of_image(&self.shared, owner, image, path).await
    }

    /// A container of an image, for its files alone.
    pub(crate) async fn container_of_image(
        &self,
        provider: &ProviderName,
        profile: Profile,
    ) -> Result<(ExportCopy, Arc<dyn Container>)> {
        ExportCopy::container_of_image(&self.shared, provider, profile).await
    }

    /// The same as [`Self::container`], for what also needs the container without its guard.
    pub(crate) async fn acquire(&self, id: SandboxId, by: &'static str) -> Result<ActiveContainer> {
        self.acquire_where(id, LegalStates::Running, by).await
    }

    /// The same, where the sandbox is in one of these states.
    pub(crate) async fn acquire_where(
        &self,
        id: SandboxId,
        states: LegalStates,
        by: &'static str,
    ) -> Result<ActiveContainer> {
        self.ask(id, |reply| SandboxRequest::Use { states, by, reply }).await
    }

    /// The container, once it is not paused. An error when it ends before that.
    pub(crate) async fn awake(&self, id: SandboxId) -> Result<Arc<dyn Container>> {
        self.ask(id, SandboxRequest::Awake).await
    }

    /// Why work in a sandbox's container was lost: the sandbox was rolled back, stopped or removed meanwhile, or
    /// else what the work's stream says. `during` says what went on.
    pub(crate) async fn why_lost(
        &self,
        id: SandboxId,
        container: ContainerId,
        during: &str,
        error: Error,
    ) -> Error {
        if error.code == ErrorCode::RolledBack || self.was_rolled_back(container.uuid()) {
            return rolled_back();
        }
        // The files of a stopped sandbox are in a container of their own, whose end has reasons of its own.
        if self.file_containers().contains(&container) {
            return error;
        }
        // The actor answers after the stop or removal at which it is, when the record says so.
        let _ = tokio::time::timeout(SETTLING, self.awake(id)).await;
        let Ok(Some(record)) = self.shared.store.sandbox(id).await else { return error };
        let (code, how) = match record.status {
            Status::Stopped => (ErrorCode::NotRunning, "stopped"),
            Status::Destroyed => (ErrorCode::NotFound, "removed"),
            _ => return error,
        };
        let why = record.status_reason.map(|reason| format!(" ({reason})")).unwrap_or_default();
        Error::new(code, format!("the sandbox was {how} while {during}{why}"))
    }

    /// Starts a sandbox that was just recorded.
    pub(crate) async fn make(&self, id: SandboxId, reservation: Reservation) -> Result<RunOutcome> {
        self.ask(id, |reply| SandboxRequest::Run { new: true, by: "", reservation: Some(reservation), reply })
            .await
    }

    /// Starts a sandbox that was just recorded with a container of the pool, whether the handover succeeded
    /// or not.
    pub(crate) async fn claim(&self, claim: PoolClaim) -> Result<RunOutcome> {
        self.ask(claim.record.id, |reply| SandboxRequest::PoolClaim(Box::new(claim), reply)).await
    }

    /// Starts a sandbox that has a reservation, resumes a paused one, and accepts one that runs.
    pub(crate) async fn run(
        &self,
        id: SandboxId,
        by: &'static str,
        reservation: Option<Reservation>,
    ) -> Result<RunOutcome> {
        self.ask(id, |reply| SandboxRequest::Run { new: false, by, reservation, reply }).await
    }

    /// Pauses a sandbox.
    pub(crate) async fn pause(&self, id: SandboxId, reason: String) -> Result<SandboxRecord> {
        self.ask(id, |reply| SandboxRequest::Pause { reason, reply }).await
    }

    pub(crate) async fn stop(&self, id: SandboxId) -> Result<SandboxRecord> {
        self.ask(id, SandboxRequest::Stop).await
    }

    /// Destroys a sandbox for a caller, to whom one that is destroyed already is not there.
    pub(crate) async fn destroy(&self, id: SandboxId) -> Result<SandboxRecord> {
        self.ask(id, |reply| SandboxRequest::Destroy { asked: true, reply }).await
    }

    /// Finishes a destruction that was begun. Succeeds when another request has finished it.
    pub(crate) async fn finish_destruction(&self, id: SandboxId) -> Result<SandboxRecord> {
        self.ask(id, |reply| SandboxRequest::Destroy { asked: false, reply }).await
    }

    /// Takes a step that a reconciler found due. A conflict when it no longer is.
    pub(crate) async fn step(&self, id: SandboxId, step: Step) -> Result<SandboxRecord> {
        self.ask(id, |reply| SandboxRequest::Step(step, reply)).await
    }

    /// Changes a sandbox, where its state allows the operation.
    pub(crate) async fn patch(
        &self,
        id: SandboxId,
        operation: Operation,
        patch: Patch,
    ) -> Result<SandboxRecord> {
        self.ask(id, |reply| SandboxRequest::Patch(operation, Box::new(patch), reply)).await
    }

    /// Gives a sandbox that runs other volumes and path rules, and another container.
    pub(crate) async fn reattach(&self, id: SandboxId, profile: Profile) -> Result<SandboxRecord> {
        self.ask(id, |reply| SandboxRequest::Reattach(Box::new(profile), reply)).await
    }

    /// The record of a sandbox, if its state allows an operation that is carried out beside its actor.
    pub(crate) async fn check_state(&self, id: SandboxId, operation: Operation) -> Result<SandboxRecord> {
        self.ask(id, |reply| SandboxRequest::CheckState(operation, reply)).await
    }

    /// Rolls a sandbox back; returns the record of the snapshot that was made before, if one was to be.
    pub(crate) async fn roll_back(&self, id: SandboxId, rollback: Rollback) -> Result<RollbackOutcome> {
        self.ask(id, |reply| SandboxRequest::RollBack(Box::new(rollback), reply)).await
    }

    /// Records what came of the command that a sandbox's image starts.
    pub(crate) async fn started(
        &self,
        id: SandboxId,
        container: ContainerId,
        reason: Option<String>,
    ) -> Result<SandboxRecord> {
        self.ask(id, |reply| SandboxRequest::Started(container, reason, reply)).await
    }

    /// Whether a rollback ended the container, the command or the cell with this id.
    pub(crate) fn was_rolled_back(&self, id: Uuid) -> bool {
        self.shared.rolled_back.has(id)
    }

    /// Changes a sandbox's egress policy, whether it runs or not.
    pub(crate) async fn set_egress(&self, id: SandboxId, policy: Policy) -> Result<SandboxRecord> {
        let patch = Patch {
            at_rest_only: false,
            limits: None,
            quota: None,
            environment: None,
            labels: None,
            idle_timeout_seconds: None,
            auto_snapshot: None,
            egress: Some(policy),
            profile: None,
        };
        self.patch(id, Operation::EgressSet, patch).await
    }

    async fn ask<T>(
        &self,
        id: SandboxId,
        question: impl FnOnce(oneshot::Sender<Result<T>>) -> SandboxRequest,
    ) -> Result<T> {
        let (reply, answer) = oneshot::channel();
        let mut question = question(reply);
        // An actor may end between the lookup and the send; then another is started.
        for _ in 0..100 {
            let actor = self.find(id);
            match actor.try_send(question) {
                Ok(()) => {
                    let gone = || Error::internal("the sandbox's task ended without an answer");
                    return answer.await.map_err(|_| gone())?;
                }
                Err(mpsc::error::TrySendError::Full(_)) => {
                    return Err(Error::new(
                        ErrorCode::LimitExceeded,
                        "too many requests wait for this sandbox",
                    ));
                }
                Err(mpsc::error::TrySendError::Closed(back)) => {
                    question = back;
                    tokio::task::yield_now().await;
                }
            }
        }
        Err(Error::internal("the sandbox's task keeps closing"))
    }

    fn find(&self, id: SandboxId) -> mpsc::Sender<SandboxRequest> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        match open.get(&id) {
            Some(actor) if !actor.is_closed() => actor.clone(),
            _ => {
                let (sender, receiver) = mpsc::channel(QUEUE);
                open.insert(id, sender.clone());
                let (shared, all) = (Arc::clone(&self.shared), Arc::clone(&self.open));
                tokio::spawn(async move {
                    SandboxActor::new(shared, id).serve(receiver).await;
                    let mut open = all.lock().unwrap_or_else(PoisonError::into_inner);
                    // Unless another was started meanwhile.
                    if open.get(&id).is_some_and(mpsc::Sender::is_closed) {
                        open.remove(&id);
                    }
                });
                sender
            }
        }
    }
}
