//! What the server does at its start: it compares the records with the live containers, and closes the
//! difference. It takes no input, so a start after a crash is the same as any other.

use crate::{
    Lifecycle,
    actor::{Step, StepTarget, reason_to_run},
    pool::memory::{self, Remembered},
    transfer::half_imported,
};
use atoll_provider::State;
use atoll_store::{Change, SandboxId, SandboxRecord, Status, StatusChange};
use atoll_types::{ContainerId, Death, ProviderName, Result, time::now_ms};
use futures_util::StreamExt;
use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

/// Sandboxes whose egress sockets are fetched together after a start.
const AT_ONCE: usize = 64;

impl Lifecycle {
    /// Compares records with containers: live ones are kept, deaths are recorded, and a container with
    /// neither a record nor a process that holds it (`atoll run` does) is destroyed. Egress of live sandboxes
    /// is served again, their commands are watched, and snapshots are compared with their records. Returns how many sandboxes live.
    pub async fn reconcile(&self) -> Result<usize> {
        self.live_settings.load(&*self.store).await?;
        self.images.catalogue.load(&*self.store).await?;
        let mut world: HashMap<ContainerId, (ProviderName, State)> = HashMap::new();
        for (name, provider) in self.providers.iter() {
            let listed = provider.list().await?.into_iter().filter(|listed| !listed.held);
            world.extend(listed.map(|listed| (listed.id, (name.clone(), listed.state))));
        }
        let pooled = memory::read(&*self.store).await?;
        let of_pool: HashSet<ContainerId> = pooled.iter().map(|one| one.container).collect();
        let half_imported = self.mark_half_imported().await?;
        let (mut alive, mut paused) = (Vec::new(), Vec::new());
        for record in self.store.live_sandboxes().await? {
            if let Err(error) = self.providers.of(&record) {
                tracing::warn!(sandbox = %record.id, %error, "a sandbox is left as it is");
                continue;
            }
            if record.destroyed_at.is_some() {
                record.container.and_then(|id| world.remove(&id));
                let doing = if half_imported.contains(&record.id) { "imported" } else { "destroyed" };
                self.go_on_destroying(&record, doing).await;
                continue;
            }
            let state = record.container.and_then(|id| world.remove(&id)).map(|(_, state)| state);
            // A claim that was cut off has applied some of its settings, and the server cannot know which.
            let claimed = record.container.is_some_and(|id| of_pool.contains(&id));
            let state = state.filter(|_| !(claimed && record.status == Status::Provisioning));
            match state {
                Some(State::Running) => alive.push(record.id),
                Some(State::Paused) => paused.push(record.id),
                _ => {}
            }
            self.settle(&record, state).await?;
        }
        for (orphan, (name, _)) in world {
            if !of_pool.contains(&orphan) {
                tracing::warn!(container = %orphan, "destroying a container without an owner");
            }
            self.providers.get(&name)?.destroy(orphan).await?;
        }
        self.clear_pool(&pooled).await?;
        self.sandboxes.fill_admission().await?;
        self.volumes.repair().await?;
        if let Err(error) = self.skills.repair().await {
            tracing::warn!(%error, "packages that no skill has are not removed");
        }
        self.images.repair().await?;
        self.images.load_indexes();
        // A later pass reads the disk where that fails now, and warns where little of it is left.
        let _ = self.read_disk().await;
        let count = alive.len() + paused.len();
        self.snapshots.repair_all();
        self.serve_again(alive.clone());
        self.execs.watch_again(&self.kernels, alive, paused);
        Ok(count)
    }

    /// Records that the destruction of each sandbox which a former server imported by half has begun, and returns these.
    /// The start fails where that cannot be recorded: the audit trail's open operations alone tell which they are, and
    /// they are closed soon after.
    async fn mark_half_imported(&self) -> Result<HashSet<SandboxId>> {
        let found = half_imported(&*self.store).await?;
        for id in &found {
            let record = self.store.sandbox(*id).await?;
            if let Some(record) = record.filter(|record| record.destroyed_at.is_none()) {
                let begun = Change { destroyed_at: Some(now_ms()), ..Change::default() };
                self.store.update_sandbox(record.id, record.revision, begun).await?;
            }
        }
        Ok(found)
    }

    /// Finishes a destruction that has begun. Where that fails the lifecycle tries again.
    async fn go_on_destroying(&self, record: &SandboxRecord, doing: &str) {
        let step = Step {
            to: StepTarget::Destroyed,
            reason: format!("the server ended while it was being {doing}"),
            revision: Some(record.revision),
            idle: None,
        };
        if let Err(error) = self.registry.step(record.id, step).await {
            tracing::warn!(sandbox = %record.id, %error, "a sandbox is half destroyed");
        }
    }

    /// Destroys the containers that an earlier server kept ready: their state is not known, and new ones use
    /// the present images. Those that a record names belong to the sandbox.
    async fn clear_pool(&self, pooled: &[Remembered]) -> Result<()> {
        if pooled.is_empty() {
            return Ok(());
        }
        let owned = memory::owned(&*self.store).await?;
        for one in pooled.iter().filter(|one| !owned.contains(&one.volume)) {
            // One of a provider that this server does not have is left to a server that has it.
            let provider = self.providers.get(&one.provider);
            if let Some(volumes) = provider.ok().and_then(|provider| provider.volumes()) {
                volumes.remove_volume(one.volume).await?;
            }
        }
        memory::clear(&*self.store).await
    }

    /// Serves egress of live sandboxes. PID 1 may be slow to answer, so the start does not wait for it. A
    /// paused sandbox is served by the task that waits to watch its commands again.
    fn serve_again(&self, sandboxes: Vec<SandboxId>) {
        let registry = Arc::clone(&self.registry);
        tokio::spawn(async move {
            let each = |sandbox| {
                let registry = &registry;
                async move {
                    if let Err(error) = registry.awake(sandbox).await {
                        tracing::warn!(%sandbox, %error, "a sandbox's egress sockets are not served yet");
                    }
                }
            };
            futures_util::stream::iter(sandboxes).for_each_concurrent(AT_ONCE, each).await;
        });
    }

    async fn settle(&self, record: &SandboxRecord, state: Option<State>) -> Result<()> {
        let starts = self.images.catalogue.start(&record.profile.image).is_some();
        let start_due = if record.status == Status::Provisioning { starts } else { record.start_due };
        let mut death = None;
        let (status, reason) = match (record.status, state) {
            (Status::Ready, Some(State::Running)) => return Ok(()),
            (Status::Paused, Some(State::Paused)) => return Ok(()),
            // Cut off between pausing or resuming and the record.
            (_, Some(State::Paused)) => {
                (Status::Paused, Some("the server ended while it was being paused".to_owned()))
            }
            (Status::Paused, Some(State::Running)) => {
                let cut_off = "the server ended while it was being resumed".to_owned();
                (Status::Ready, reason_to_run(start_due, Some(cut_off)))
            }
            // Cut off between the start and its record.
            (Status::Provisioning, Some(State::Running)) => (Status::Ready, reason_to_run(start_due, None)),
            (Status::Provisioning, _) => {
                (Status::Stopped, Some("the server ended while it started".to_owned()))
            }
            (_, Some(State::Dead(how))) => (Status::Dead, Some(death.insert(how).reason())),
            (Status::Dead, None) => return Ok(()),
            (_, _) => {
                death = Some(Death::lost());
                (Status::Dead, Some("its container was gone when the server started".to_owned()))
            }
        };
        let lives = matches!(status, Status::Ready | Status::Paused);
        if let (false, Some(container)) = (lives, record.container) {
            self.providers.of(record)?.destroy(container).await?;
        }
        let change = Change {
            status: Some(StatusChange { death, ..StatusChange::new(status, reason) }),
            start_due: Some(start_due),
            container: (!lives).then_some(None),
            stopped_at: (!lives).then_some(Some(now_ms())),
            ..Change::default()
        };
        self.store.update_sandbox(record.id, record.revision, change).await?;
        Ok(())
    }
}
