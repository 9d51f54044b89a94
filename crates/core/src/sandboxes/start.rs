//! Getting a container for a sandbox: the caller's tier, its owner's plan and the machine are checked here,
//! in this order, before the sandbox's actor starts anything. Requests wait here and never in an actor, so a
//! caller that disconnects leaves the queue, and a sandbox can be stopped while a request waits to start it.

use crate::{
    Caller, Created, Sandboxes,
    actor::{PoolClaim, RunOutcome},
    admission::{Need, Reservation, Turn},
    pool::{PooledContainer, ShelfKey},
    run_to_end::run_to_end,
    vault::Environment,
};
use atoll_store::{Inserted, ListQuery, NewSandbox, SandboxId, SandboxRecord};
use atoll_types::{Error, ErrorCode, ImageName, Limits, Profile, Result};
use std::collections::BTreeMap;
use tokio::time::Instant;

/// How often a start is retried whose limits were changed meanwhile.
const TRIES: usize = 5;

/// The result of a request for a new sandbox.
pub(super) enum CreateOutcome {
    New(Box<SandboxRecord>),
    /// Another request made it.
    Existing(SandboxId),
}

/// When a new sandbox starts what its image says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StartImage {
    Now,
    /// Once it is filled.
    Later,
}

/// Refuses where the sandbox of a session key has other volumes or path rules than a create asks for.
fn same_attachments(there: &Profile, asked: &Profile) -> Result<()> {
    if !asked.has_attachments() || (&there.volumes, &there.paths) == (&asked.volumes, &asked.paths) {
        return Ok(());
    }
    let message = "the sandbox of this session key has other volumes or path rules";
    Err(Error::new(ErrorCode::Conflict, message).at("volumes"))
}

impl Sandboxes {
    /// Makes a sandbox and starts it, or starts the one that has its session key.
    pub(super) async fn make_and_start(
        &self,
        caller: &Caller,
        new: NewSandbox,
        start: StartImage,
    ) -> Result<Created> {
        let request_in_flight = self.pool.request();
        let deadline = self.admission.deadline();
        let need = Need::of(&new.limits);
        let turn = self.session_turn(&new, &need, deadline).await?;
        if turn.is_some()
            && let Some(there) = self.of_session(&new).await?
        {
            if there.destroyed_at.is_none() {
                drop(turn);
                // Before it is started: the caller would not get what it asks for.
                same_attachments(&there.profile, &new.profile)?;
                return self.start_existing(caller, there.id).await;
            }
            // Its destruction was begun and failed: it has to be finished before there can be another.
            self.registry.finish_destruction(there.id).await?;
        }
        let quota = self.limits.quota(caller, &new.owner, &new.owner_name);
        let reservation = self.admission.place(new.id, &new.owner, new.limits.disk_bytes, quota.as_ref())?;
        let key = ShelfKey { provider: new.provider.clone(), profile: new.profile.clone() };
        let warm = self.pool.take(&key, &reservation, need);
        if warm.is_none() {
            reservation.wait(need, deadline).await?;
        }
        // From here on it completes, whether the caller waits for it or not.
        let (sandboxes, asked) = (self.clone(), new.profile.clone());
        let made = run_to_end("the create of the sandbox", async move {
            let made = sandboxes.make(new, reservation, warm).await;
            drop((turn, request_in_flight));
            match made? {
                CreateOutcome::New(record) if start == StartImage::Now => {
                    Ok(CreateOutcome::New(Box::new(sandboxes.start_new(*record).await?)))
                }
                made => Ok(made),
            }
        });
        match made.await? {
            CreateOutcome::New(record) => Ok(Created { record: *record, new: true, stderr: String::new() }),
            CreateOutcome::Existing(id) => {
                let created = self.start_existing(caller, id).await?;
                same_attachments(&created.record.profile, &asked)?;
                Ok(created)
            }
        }
    }

    /// Records a new sandbox that has a reservation and starts it, in a container of the pool if there is
    /// one.
    pub(super) async fn make(
        &self,
        mut new: NewSandbox,
        reservation: Reservation,
        warm: Option<PooledContainer>,
    ) -> Result<CreateOutcome> {
        let id = new.id;
        if let Some(warm) = &warm {
            (new.container, new.volume) = (Some(warm.id()), warm.volume());
        }
        let (image, limits) = (new.profile.image.clone(), new.limits);
        let environment = self.vault.open(&id.to_string(), &new.environment);
        // Concurrently. A container without a record is still the pool's, which destroys it when it is
        // dropped.
        let handed = async {
            match &warm {
                Some(warm) => self.hand_over(warm, &image, limits, environment?).await,
                None => Ok(()),
            }
        };
        let (inserted, handed) = tokio::join!(self.store.insert_sandbox(new), handed);
        let record = match inserted? {
            Inserted::New(record) => record,
            Inserted::Existing(record) => return Ok(CreateOutcome::Existing(record.id)),
        };
        let ran = match warm {
            Some(mut warm) => {
                warm.recorded();
                self.registry.claim(PoolClaim { record, warm, handed, reservation }).await?
            }
            None => self.registry.make(id, reservation).await?,
        };
        match ran {
            RunOutcome::Runs(record) => {
                if record.max_lifetime_seconds.is_some() {
                    self.new_lifetime.notify_one();
                }
                Ok(CreateOutcome::New(record))
            }
            RunOutcome::NeedsReservation(_) => Err(Error::internal("a new sandbox has no reservation")),
        }
    }

    /// Applies the settings that were not known when a container of the pool was made.
    async fn hand_over(
        &self,
        warm: &PooledContainer,
        image: &ImageName,
        limits: Limits,
        environment: Environment,
    ) -> Result<()> {
        let unable = || Error::internal("the container cannot be handed over");
        let power = warm.container().claimable().ok_or_else(unable)?;
        let found = self.catalogue.environment(image).into_iter();
        let variables: BTreeMap<_, _> =
            found.chain(self.egress_sessions.variables()).chain(environment.variables).collect();
        power.claim(limits, variables.clone()).await?;
        self.pool.configure(warm, variables).await
    }

    async fn start_existing(&self, caller: &Caller, id: SandboxId) -> Result<Created> {
        let record = self.start(caller, id, "a create with its session key").await?;
        Ok(Created { record, new: false, stderr: String::new() })
    }

    /// Creates with one session key run one at a time: the others find the sandbox of the first.
    async fn session_turn(&self, new: &NewSandbox, need: &Need, deadline: Instant) -> Result<Option<Turn>> {
        let Some(key) = &new.session_key else { return Ok(None) };
        let began = Instant::now();
        // None of the three can hold a control character.
        let name = [new.owner.as_str(), key, &new.image].join("\n");
        let late = || self.admission.no_turn(need, began);
        self.turns.take(&name, deadline, late).await.map(Some)
    }

    async fn of_session(&self, new: &NewSandbox) -> Result<Option<SandboxRecord>> {
        let query = ListQuery {
            owner: Some(new.owner.clone()),
            session_key: new.session_key.clone(),
            images: vec![new.image.clone()],
            limit: 1,
            ..ListQuery::default()
        };
        Ok(self.store.list_sandboxes(&query).await?.items.pop())
    }

    /// Makes a sandbox run. A paused one is resumed, and the event names the reason.
    pub(crate) async fn start(
        &self,
        caller: &Caller,
        id: SandboxId,
        by: &'static str,
    ) -> Result<SandboxRecord> {
        let record = self.start_container(caller, id, by).await?;
        self.start_again(record).await
    }

    async fn start_container(
        &self,
        caller: &Caller,
        id: SandboxId,
        by: &'static str,
    ) -> Result<SandboxRecord> {
        let record = match self.registry.run(id, by, None).await? {
            RunOutcome::Runs(record) => return Ok(*record),
            RunOutcome::NeedsReservation(record) => record,
        };
        let _request_in_flight = self.pool.request();
        let (began, deadline) = (Instant::now(), self.admission.deadline());
        let late = || self.admission.no_turn(&Need::of(&record.limits), began);
        let _turn = self.turns.take(&id.to_string(), deadline, late).await?;
        for _ in 0..TRIES {
            // The request that had the turn before may have started it.
            let record = match self.registry.run(id, by, None).await? {
                RunOutcome::Runs(record) => return Ok(*record),
                RunOutcome::NeedsReservation(record) => record,
            };
            self.limits.may_start(caller, &record)?;
            let quota = self.limits.quota(caller, &record.owner, &record.owner_name);
            let reservation = self.admission.wake(&record, quota.as_ref())?;
            reservation.wait(Need::of(&record.limits), deadline).await?;
            if let RunOutcome::Runs(record) = self.registry.run(id, by, Some(reservation)).await? {
                return Ok(*record);
            }
        }
        Err(Error::new(ErrorCode::Conflict, "the sandbox's limits are being changed; ask again"))
    }

    /// Enters all recorded sandboxes into the capacity ledger.
    pub(crate) async fn fill_admission(&self) -> Result<()> {
        let all = ListQuery { limit: u32::MAX, ..ListQuery::default() };
        for record in self.store.list_sandboxes(&all).await?.items {
            self.admission.adopt(&record);
        }
        Ok(())
    }
}
