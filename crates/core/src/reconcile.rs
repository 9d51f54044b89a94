//! What a start does: it compares what is recorded with what lives, and closes the difference. It takes
//! no input, so the way back from a crash is the way of every day.

use crate::{
    Core, now,
    pool::memory::{self, Remembered},
};
use atoll_provider::State;
use atoll_store::{Change, SandboxRecord, Status, StatusChange};
use atoll_types::{ContainerId, Result};
use std::collections::{HashMap, HashSet};

impl Core {
    /// Compares records with containers: what lives is kept, what died is written down, and what nobody
    /// owns is destroyed. Commands that run in what lives are watched again. Returns how many sandboxes
    /// live.
    pub async fn reconcile(&self) -> Result<usize> {
        self.live.load(&*self.store).await?;
        let mut world: HashMap<ContainerId, State> =
            self.provider.list().await?.into_iter().map(|l| (l.id, l.state)).collect();
        let pooled = memory::read(&*self.store).await?;
        let of_pool: HashSet<ContainerId> = pooled.iter().map(|one| one.container).collect();
        let mut alive = Vec::new();
        for record in self.store.live_sandboxes().await? {
            let state = record.container.and_then(|id| world.remove(&id));
            // A claim that was cut off has set some of what it should, and nobody knows which.
            let claimed = record.container.is_some_and(|id| of_pool.contains(&id));
            let state = state.filter(|_| !(claimed && record.status == Status::Provisioning));
            alive.extend((state == Some(State::Running)).then_some(record.id));
            self.settle(&record, state).await?;
        }
        for orphan in world.into_keys() {
            if !of_pool.contains(&orphan) {
                tracing::warn!(container = %orphan, "destroying a container that nobody owns");
            }
            self.provider.destroy(orphan).await?;
        }
        self.clear_pool(&pooled).await?;
        self.fill_admission().await?;
        let count = alive.len();
        self.watch_again(alive);
        Ok(count)
    }

    /// Frees what an earlier server kept ready: it is not known what that server did to it last, and what
    /// is made anew is made of what there is now. What a sandbox has is the sandbox's.
    async fn clear_pool(&self, pooled: &[Remembered]) -> Result<()> {
        if pooled.is_empty() {
            return Ok(());
        }
        let owned = memory::owned(&*self.store).await?;
        if let Some(volumes) = self.provider.volumes() {
            for one in pooled.iter().filter(|one| !owned.contains(&one.volume)) {
                volumes.remove_volume(one.volume).await?;
            }
        }
        memory::clear(&*self.store).await
    }

    async fn settle(&self, record: &SandboxRecord, state: Option<State>) -> Result<()> {
        let (status, reason) = match (record.status, state) {
            (Status::Ready | Status::Running, Some(State::Running)) => return Ok(()),
            // Cut off between the start and its record.
            (Status::Provisioning, Some(State::Running)) => (Status::Ready, None),
            (Status::Provisioning, _) => {
                (Status::Stopped, Some("the server ended while it started".to_owned()))
            }
            (_, Some(State::Dead(death))) => (Status::Dead, Some(death.reason())),
            (Status::Dead | Status::Error, None) => return Ok(()),
            (_, _) => (Status::Dead, Some("its container was gone when the server started".to_owned())),
        };
        let lives = status == Status::Ready;
        if let (false, Some(container)) = (lives, record.container) {
            self.provider.destroy(container).await?;
        }
        let change = Change {
            status: Some(StatusChange { status, reason }),
            container: (!lives).then_some(None),
            stopped_at: (!lives).then_some(Some(now())),
            ..Change::default()
        };
        self.store.update_sandbox(record.id, record.revision, change).await?;
        Ok(())
    }
}
