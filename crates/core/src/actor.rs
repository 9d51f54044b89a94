//! One task (an actor) for each sandbox in use. It owns the sandbox's record and container; a request that
//! changes either is sent to the actor's queue and answered over a oneshot channel.
//!
//! The actor writes the record before it changes the container and again after, so a crash in between leaves
//! a record that [`crate::reconcile`] can compare with what the provider lists.

mod claim;
mod end;
mod files;
mod patch;
mod pause;
mod registry;
mod rollback;
mod step;

use crate::{
    Environment, Providers, Vault,
    admission::{Admission, Need, Reservation},
    egress::EgressSessions,
    images::Catalogue,
    lifecycle::{ActiveContainer, ActivityTracker},
    pool::{Dying, Pool, PooledContainer},
    process_api,
};
use atoll_provider::{Container, ContainerSpec, Provider};
use atoll_store::{Activity, ActivityKind, Change, SandboxId, SandboxRecord, Status, StatusChange, Store};
use atoll_types::{
    ContainerId, Death, Error, ErrorCode, LegalStates, Operation, Profile, Result, time::now_ms,
};
pub(crate) use files::FileContainers;
pub(crate) use files::{ExportCopy, LONGEST_EXPORT, SNAPSHOTS};
use files::{FileContainer, LINGER};
use futures_util::FutureExt;
pub(crate) use patch::{Patch, no_disk};
pub(crate) use registry::SandboxRegistry;
pub(crate) use rollback::{EndedByRollback, KernelRollback, Rollback, RollbackOutcome, rolled_back};
use std::{sync::Arc, time::Duration};
pub(crate) use step::{Idle, Step, StepTarget};
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};

/// Why a sandbox runs: it is starting while what its image starts is not ready, whatever else there is to say.
pub(crate) fn reason_to_run(start_due: bool, other: Option<String>) -> Option<String> {
    if start_due { Some("starting".to_owned()) } else { other }
}

/// How long an actor without requests lives before its task ends.
const PATIENCE: Duration = Duration::from_secs(300);

enum SandboxRequest {
    /// The container of a running sandbox; a paused one is resumed first.
    Use {
        states: LegalStates,
        by: &'static str,
        reply: oneshot::Sender<Result<ActiveContainer>>,
    },
    /// A container for a file request; a stopped sandbox gets a file container for it.
    Files {
        states: LegalStates,
        place: OwnedSemaphorePermit,
        reply: oneshot::Sender<Result<ActiveContainer>>,
    },
    /// The container, as soon as it runs and is not paused; the actor does not start or resume it for this.
    Awake(oneshot::Sender<Result<Arc<dyn Container>>>),
    /// Start the sandbox unless it runs. A new one that cannot be started is destroyed again.
    Run {
        new: bool,
        by: &'static str,
        /// The machine's resources reserved for its container.
        reservation: Option<Reservation>,
        reply: oneshot::Sender<Result<RunOutcome>>,
    },
    /// Start a new sandbox in a container of the pool.
    PoolClaim(Box<PoolClaim>, oneshot::Sender<Result<RunOutcome>>),
    Pause {
        reason: String,
        reply: oneshot::Sender<Result<SandboxRecord>>,
    },
    Stop(oneshot::Sender<Result<SandboxRecord>>),
    Destroy {
        /// A caller asked for it, to whom a destroyed sandbox is not there.
        asked: bool,
        reply: oneshot::Sender<Result<SandboxRecord>>,
    },
    /// A step that a reconciler found due, if it still is.
    Step(Step, oneshot::Sender<Result<SandboxRecord>>),
    Patch(Operation, Box<Patch>, oneshot::Sender<Result<SandboxRecord>>),
    /// Another container with the volumes and path rules of this profile.
    Reattach(Box<Profile>, oneshot::Sender<Result<SandboxRecord>>),
    /// The record, if its state allows an operation that is carried out beside the actor.
    CheckState(Operation, oneshot::Sender<Result<SandboxRecord>>),
    RollBack(Box<Rollback>, oneshot::Sender<Result<RollbackOutcome>>),
    /// What its image says that the sandbox starts was started in this container; with the reason why it is not ready.
    Started(ContainerId, Option<String>, oneshot::Sender<Result<SandboxRecord>>),
}

/// A container of the pool for a sandbox that was just recorded with it.
pub(crate) struct PoolClaim {
    pub(crate) record: SandboxRecord,
    pub(crate) warm: PooledContainer,
    /// Whether the settings that were not known when the container was made (owner, limits, environment) are
    /// applied.
    pub(crate) handed: Result<()>,
    pub(crate) reservation: Reservation,
}

/// The result of a request to start a sandbox.
pub(crate) enum RunOutcome {
    /// The sandbox runs.
    Runs(Box<SandboxRecord>),
    /// The sandbox has no container and may get one only with a large enough reservation.
    NeedsReservation(Box<SandboxRecord>),
}

/// What all actors use.
pub(crate) struct Shared {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) providers: Providers,
    pub(crate) vault: Arc<Vault>,
    pub(crate) admission: Admission,
    pub(crate) pool: Pool,
    pub(crate) egress_sessions: Arc<EgressSessions>,
    pub(crate) activity_tracker: Arc<ActivityTracker>,
    pub(crate) file_containers: FileContainers,
    pub(crate) rolled_back: EndedByRollback,
    pub(crate) catalogue: Arc<Catalogue>,
    pub(crate) process_api_label: Option<String>,
}

struct SandboxActor {
    shared: Arc<Shared>,
    id: SandboxId,
    container: Option<Arc<dyn Container>>,
    /// The watch on its death that the pool already holds.
    dying: Option<Dying>,
    /// Whether that container is paused.
    paused: bool,
    /// Whether the sandbox is destroyed, so that the actor can end.
    over: bool,
    /// Callers that wait until it is not paused.
    asleep: Vec<oneshot::Sender<Result<Arc<dyn Container>>>>,
    /// The file container of a stopped sandbox.
    files: Option<FileContainer>,
}

/// Waits for a container's death; for ever where there is no container.
pub(crate) async fn death_of(container: Option<Arc<dyn Container>>) -> Death {
    let Some(container) = container else { return std::future::pending().await };
    loop {
        match container.died().await {
            Ok(death) => return death,
            // The launcher does not answer; try again in a second.
            Err(error) => {
                tracing::debug!(%error, "cannot wait for a container");
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
    }
}

/// Refuses what the sandbox's state does not allow.
fn must_allow(states: LegalStates, record: &SandboxRecord) -> Result<()> {
    if states.allow(record.status) { Ok(()) } else { Err(refused(states, record)) }
}

fn refused(states: LegalStates, record: &SandboxRecord) -> Error {
    let why = record.status_reason.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default();
    let destroyed = record.status == Status::Destroyed;
    let help = if destroyed { "" } else { "; resume it first" };
    let code = match states {
        LegalStates::Reachable | LegalStates::Existing if destroyed => ErrorCode::NotFound,
        LegalStates::Running | LegalStates::Reachable | LegalStates::Stored => ErrorCode::NotRunning,
        LegalStates::NotDestroyed | LegalStates::Existing | LegalStates::Any => ErrorCode::Conflict,
    };
    Error::new(code, format!("the sandbox is {}{why}{help}", record.status))
}

impl SandboxActor {
    fn new(shared: Arc<Shared>, id: SandboxId) -> Self {
        Self {
            shared,
            id,
            container: None,
            dying: None,
            paused: false,
            over: false,
            asleep: Vec::new(),
            files: None,
        }
    }

    async fn serve(mut self, mut questions: mpsc::Receiver<SandboxRequest>) {
        // An actor with a container watches it for its death. The watch is kept across requests: a new one
        // would cost the launcher a worker each time.
        let mut watched: Option<ContainerId> = None;
        let mut death = death_of(None).boxed();
        loop {
            let present = self.container.as_ref().map(|container| container.id());
            if present != watched {
                watched = present;
                death = match self.dying.take() {
                    Some(dying) => dying.boxed(),
                    None => death_of(self.container.clone()).boxed(),
                };
            }
            tokio::select! {
                question = questions.recv() => match question {
                    Some(question) => self.answer(question).await,
                    None => return,
                },
                death = &mut death => self.on_death(&death).await,
                () = tokio::time::sleep(LINGER), if self.files.is_some() => self.end_unused_files().await,
                () = tokio::time::sleep(PATIENCE), if present.is_none() && self.files.is_none() => self.over = true,
            }
            if self.over {
                questions.close();
                while let Some(question) = questions.recv().await {
                    self.answer(question).await;
                }
                return;
            }
        }
    }

    async fn answer(&mut self, question: SandboxRequest) {
        // A reply fails only when the caller has gone, which is ignored.
        match question {
            SandboxRequest::Use { states, by, reply } => _ = reply.send(self.acquire(states, by).await),
            SandboxRequest::Files { states, place, reply } => {
                _ = reply.send(self.acquire_files(states, place).await);
            }
            SandboxRequest::Awake(reply) => self.awake(reply).await,
            SandboxRequest::Run { new, by, reservation, reply } => {
                _ = reply.send(self.run(new, by, reservation).await);
            }
            SandboxRequest::PoolClaim(claim, reply) => _ = reply.send(self.claim(*claim).await),
            SandboxRequest::Pause { reason, reply } => _ = reply.send(self.pause(reason, false).await),
            SandboxRequest::Stop(reply) => _ = reply.send(self.stop(None).await),
            SandboxRequest::Destroy { asked: true, reply } => _ = reply.send(self.destroy_as_asked().await),
            SandboxRequest::Destroy { asked: false, reply } => _ = reply.send(self.destroy(None).await),
            SandboxRequest::Step(step, reply) => _ = reply.send(self.step(step).await),
            SandboxRequest::Patch(operation, patch, reply) => {
                _ = reply.send(self.patch(operation, *patch).await);
            }
            SandboxRequest::Reattach(profile, reply) => _ = reply.send(self.reattach(*profile).await),
            SandboxRequest::CheckState(operation, reply) => _ = reply.send(self.check_state(operation).await),
            SandboxRequest::RollBack(rollback, reply) => _ = reply.send(self.roll_back(*rollback).await),
            SandboxRequest::Started(container, reason, reply) => {
                _ = reply.send(self.started(container, reason).await);
            }
        }
    }

    async fn record(&self) -> Result<SandboxRecord> {
        let record = self.shared.store.sandbox(self.id).await?;
        record.ok_or_else(|| Error::new(ErrorCode::NotFound, "there is no such sandbox"))
    }

    /// The record, if its state allows the operation.
    async fn check_state(&self, operation: Operation) -> Result<SandboxRecord> {
        let record = self.whole_record().await?;
        must_allow(operation.states(), &record)?;
        Ok(record)
    }

    /// Records that the sandbox runs from now on, and where its image starts a command that this is still to be done
    /// ([`crate::sandboxes`] does it).
    async fn runs(&self, record: &SandboxRecord, kind: ActivityKind) -> Result<SandboxRecord> {
        let (last_activity_at, activity) = (Some(now_ms()), self.activity(kind, ""));
        let start_due = self.shared.catalogue.start(&record.profile.image).is_some();
        let status = Some(StatusChange::new(Status::Ready, reason_to_run(start_due, None)));
        let start_due = Some(start_due);
        self.change(record, Change { status, start_due, last_activity_at, activity, ..Change::default() })
            .await
    }

    /// Records what came of the command that the sandbox's image starts, for the container in which it was started.
    async fn started(&self, container: ContainerId, reason: Option<String>) -> Result<SandboxRecord> {
        let record = self.whole_record().await?;
        must_allow(LegalStates::Running, &record)?;
        // Another container has a start of its own.
        if record.container != Some(container) {
            return Ok(record);
        }
        let status = match record.status {
            Status::Ready if !record.start_due && record.status_reason == reason => return Ok(record),
            Status::Ready => Some(StatusChange::new(Status::Ready, reason)),
            // A check cannot succeed while its sandbox is paused: the start stays due.
            _ if reason.is_some() || !record.start_due => return Ok(record),
            _ => None,
        };
        self.change(&record, Change { status, start_due: Some(false), ..Change::default() }).await
    }

    async fn change(&self, record: &SandboxRecord, change: Change) -> Result<SandboxRecord> {
        Ok(self.shared.store.update_sandbox(self.id, record.revision, change).await?)
    }

    /// The activity entry for a change of status.
    fn activity(&self, kind: ActivityKind, detail: impl Into<String>) -> Option<Activity> {
        Some(Activity {
            sandbox: self.id,
            kind,
            at: now_ms(),
            detail: detail.into(),
            exit_code: None,
            duration_ms: None,
            bytes: None,
        })
    }

    /// The container of a live sandbox, paused or not; attaches to it after a restart of the server.
    async fn attached(&mut self) -> Result<Arc<dyn Container>> {
        if let Some(container) = &self.container {
            return Ok(Arc::clone(container));
        }
        let record = self.whole_record().await?;
        must_allow(LegalStates::Running, &record)?;
        match record.container {
            Some(id) => match self.find_container(&record, id).await {
                Ok(container) => Ok(container),
                Err(error) if matches!(error.code, ErrorCode::NotFound | ErrorCode::ContainerDied) => {
                    self.on_death(&error.death.clone().unwrap_or_else(Death::lost)).await;
                    Err(error)
                }
                Err(error) => Err(error),
            },
            None => Err(refused(LegalStates::Running, &record)),
        }
    }

    /// The provider that runs the sandbox.
    fn provider(&self, record: &SandboxRecord) -> Result<&Arc<dyn Provider>> {
        self.shared.providers.of(record)
    }

    async fn destroy_container(&self, record: &SandboxRecord, container: ContainerId) -> Result<()> {
        self.provider(record)?.destroy(container).await
    }

    fn environment(&self, record: &SandboxRecord) -> Result<Environment> {
        self.shared.vault.open(&self.id.to_string(), &record.environment)
    }

    /// Records a death and frees what is left of the container.
    async fn on_death(&mut self, death: &Death) {
        self.detach();
        self.shared.egress_sessions.close(self.id).await;
        let Ok(record) = self.record().await else { return };
        let Some(container) = record.container else { return };
        tracing::warn!(sandbox = %self.id, reason = death.reason(), "a container died");
        let death = Some(death.clone());
        let reason = death.as_ref().map(Death::reason);
        let status = StatusChange { death, ..StatusChange::new(Status::Dead, reason) };
        let change = Change {
            status: Some(status),
            container: Some(None),
            stopped_at: Some(Some(now_ms())),
            ..Change::default()
        };
        if let Err(error) = self.change(&record, change).await {
            tracing::error!(sandbox = %self.id, %error, "cannot write a death down");
        }
        if let Err(error) = self.destroy_container(&record, container).await {
            tracing::error!(sandbox = %self.id, %error, "cannot free a dead container");
        }
        self.shared.admission.stopped(self.id);
    }

    async fn run(
        &mut self,
        new: bool,
        by: &'static str,
        reservation: Option<Reservation>,
    ) -> Result<RunOutcome> {
        let record = self.whole_record().await?;
        must_allow(Operation::SandboxResume.states(), &record)?;
        match record.status {
            Status::Ready | Status::Paused => match self.container(by).await {
                Ok(_) => return Ok(RunOutcome::Runs(Box::new(self.record().await?))),
                // Only a container that is known to be gone is replaced: a new start would destroy what runs in
                // this one. The record of one that is gone names it no more.
                Err(error) if self.record().await?.container.is_some() => {
                    let passing = matches!(error.code, ErrorCode::Timeout | ErrorCode::Internal);
                    let code = if passing { ErrorCode::Unavailable } else { error.code };
                    return Err(Error { code, ..error });
                }
                Err(_) => {}
            },
            _ => {}
        }
        let Some(reservation) =
            reservation.filter(|reservation| reservation.covers(&Need::of(&record.limits)))
        else {
            return Ok(RunOutcome::NeedsReservation(Box::new(record)));
        };
        match self.start(new).await {
            Ok(record) => {
                reservation.keep();
                Ok(RunOutcome::Runs(Box::new(record)))
            }
            Err(error) if new => {
                // A sandbox that never ran is destroyed again, which frees its session key.
                let _ = self.destroy(None).await;
                Err(error)
            }
            Err(error) => {
                let record = self.record().await?;
                let status = StatusChange::new(Status::Stopped, Some(error.message.clone()));
                self.change(
                    &record,
                    Change { status: Some(status), container: Some(None), ..Change::default() },
                )
                .await?;
                Err(error)
            }
        }
    }

    /// Starts the process API where the operator's setting asks for it.
    async fn start_process_api(&self, record: &SandboxRecord, container: &Arc<dyn Container>) -> Result<()> {
        process_api::start(self.shared.process_api_label.as_deref(), record, container).await
    }

    /// Starts a container for a sandbox that has no live one.
    async fn start(&mut self, new: bool) -> Result<SandboxRecord> {
        self.end_files().await?;
        let record = self.record().await?;
        if let Some(old) = record.container {
            self.destroy_container(&record, old).await?;
        }
        let id = ContainerId::random();
        let starting = Change {
            container: Some(Some(id)),
            stopped_at: Some(None),
            ..Change::status(Status::Provisioning)
        };
        let record = self.change(&record, starting).await?;
        let environment = self.environment(&record)?;
        let secrets = environment.secret_values().collect();
        let found = self.shared.catalogue.environment(&record.profile.image).into_iter();
        let found = found.chain(self.shared.egress_sessions.variables());
        let spec = ContainerSpec {
            id,
            profile: record.profile.clone(),
            limits: record.limits,
            volume: Some(record.volume),
            // The caller's variables take precedence.
            environment: found.chain(environment.variables).collect(),
        };
        let container = self.create(&record, spec).await.map_err(|e| match e.code {
            ErrorCode::DiskFull => patch::no_disk(e, record.limits.disk_bytes),
            _ => e,
        })?;
        let opened = async {
            self.shared.egress_sessions.open(&record, &container, secrets, new).await?;
            self.start_process_api(&record, &container).await
        };
        if let Err(error) = opened.await {
            self.shared.egress_sessions.close(self.id).await;
            self.destroy_container(&record, id).await?;
            return Err(error);
        }
        self.container = Some(container);
        self.runs(&record, if new { ActivityKind::Start } else { ActivityKind::Resume }).await
    }
}
