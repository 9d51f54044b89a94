//! Refilling the pool. One task, without input, compares what is ready with the target, and closes the
//! difference, one container at a time. Requests go first: the task waits for a quiet moment, but not for
//! ever. When a request waits for room on the machine, the task destroys ready containers instead.

use super::{
    Pool, ShelfKey, State,
    memory::{self, Remembered},
    shelf::ProfilePool,
    warm::{PooledContainer, Spent},
};
use crate::{admission::Need, kernels};
use atoll_provider::ContainerSpec;
use atoll_types::{ContainerId, Error, ErrorCode, Limits, Result, VolumeId};
use std::{collections::BTreeMap, mem, sync::Arc, sync::atomic::Ordering, time::Duration};
use tokio::time::{Instant, sleep, timeout};

/// A moment is quiet when no request has been at work for this long.
const QUIET: Duration = Duration::from_millis(50);
/// How long a missing container waits for a quiet moment.
const PATIENCE: Duration = Duration::from_secs(1);
/// How often the task checks whether the target has fallen or an image was rebuilt.
const LOOK: Duration = Duration::from_secs(10);
/// After how long a failed destruction is tried again.
const AGAIN: Duration = Duration::from_secs(5);
/// How long shutdown may wait for the pool.
const AT_THE_END: Duration = Duration::from_secs(10);
/// The disk limit of a container of the pool before it is claimed. Its volume and spool count as reserved, so
/// it is little.
const DISK: u64 = 16 << 20;

/// The limits of a container of the pool. But for the disk they are those of a sandbox that requests none.
fn limits() -> Limits {
    Limits { disk_bytes: DISK, ..Limits::default() }
}

enum Todo {
    Make(Box<ShelfKey>),
    GiveUp(Vec<PooledContainer>),
    Wait(Duration),
}

impl Pool {
    /// Keeps the pool filled, until the future is dropped.
    pub(crate) async fn keep_up(&self) {
        let mut settings = self.0.live_settings.watch();
        let mut looked = Instant::now();
        loop {
            self.clear().await;
            if looked.elapsed() >= LOOK {
                looked = Instant::now();
                self.give_up_outdated().await;
                self.give_up_cold().await;
            }
            let pause = match self.todo() {
                Todo::Make(key) => {
                    self.quiet().await;
                    self.make(*key).await;
                    continue;
                }
                Todo::GiveUp(surplus) => {
                    drop(surplus);
                    continue;
                }
                Todo::Wait(pause) => pause,
            };
            tokio::select! {
                () = self.0.wake.notified() => {}
                () = self.0.admission.crowded() => self.give_up_one(),
                // The sender is dropped when the server ends.
                changed = settings.changed() => if changed.is_err() { return },
                () = sleep(pause) => {}
            }
        }
    }

    /// The next action.
    fn todo(&self) -> Todo {
        let wanted = self.0.wanted();
        let runtime_settings = self.0.live_settings.now();
        let now = Instant::now();
        let mut state = self.0.state();
        for (image, key) in &wanted {
            let there = state.shelves.entry(key.clone());
            there.or_insert_with(|| ProfilePool::new(image.clone()));
        }
        let mut wait = if state.spent.is_empty() { LOOK } else { AGAIN };
        let mut make = None;
        for (key, shelf) in &mut state.shelves {
            let kept = wanted.get(&shelf.image) == Some(key);
            let size = runtime_settings.pool_size(&shelf.image);
            let target = if kept { shelf.demand.target(size, now) as usize } else { 0 };
            if shelf.ready.len() > target {
                let surplus = shelf.ready.len() - target;
                return Todo::GiveUp(shelf.ready.drain(..surplus).collect());
            }
            if shelf.ready.len() < target {
                let pause = shelf.not_before.saturating_duration_since(now);
                wait = wait.min(pause);
                make = make.or_else(|| pause.is_zero().then(|| key.clone()));
            }
        }
        make.map_or(Todo::Wait(wait), |key| Todo::Make(Box::new(key)))
    }

    /// Waits for a moment without requests.
    async fn quiet(&self) {
        let began = Instant::now();
        loop {
            let busy = self.0.requests.load(Ordering::Relaxed) > 0;
            let rest = match self.0.state().last_request {
                _ if busy => QUIET,
                Some(last) => QUIET.saturating_sub(last.elapsed()),
                None => Duration::ZERO,
            };
            let left = PATIENCE.saturating_sub(began.elapsed());
            if rest.is_zero() || left.is_zero() {
                return;
            }
            sleep(rest.min(left)).await;
        }
    }

    async fn make(&self, key: ShelfKey) {
        self.on(&key, |shelf| shelf.starting += 1);
        let began = Instant::now();
        let mut made = self.start(&key).await.map(Some);
        let pause = self.on(&key, |shelf| {
            shelf.starting = shelf.starting.saturating_sub(1);
            match &mut made {
                Ok(warm) => {
                    shelf.made(warm.take(), began.elapsed());
                    None
                }
                Err(error) => Some(shelf.failed(error)),
            }
        });
        if let (Some(Some(pause)), Err(error)) = (pause, made) {
            tracing::warn!(image = %key.profile.image, %error, ?pause, "the pool cannot be filled; trying again");
        }
    }

    fn on<T>(&self, key: &ShelfKey, work: impl FnOnce(&mut ProfilePool) -> T) -> Option<T> {
        self.0.state().shelves.get_mut(key).map(work)
    }

    async fn start(&self, key: &ShelfKey) -> Result<PooledContainer> {
        let inner = &self.0;
        let provider = inner.providers.get(&key.provider)?;
        let limits = limits();
        let no_room = || Error::new(ErrorCode::LimitExceeded, "the machine has no room for the pool");
        let reservation = inner.admission.pool_reservation(Need::of(&limits)).ok_or_else(no_room)?;
        let (id, volume) = (ContainerId::random(), VolumeId::random());
        let owned = Remembered { container: id, volume, provider: key.provider.clone() };
        let known = {
            let mut state = inner.state();
            state.known.insert(id, owned.clone());
            state.known.clone()
        };
        let spent = |reservation| Spent { owned: owned.clone(), _seat: Some(reservation) };
        // Written before it is made: a server that dies in between leaves nothing that the next does not
        // find.
        if let Err(error) = memory::write(&*inner.store, &known).await {
            inner.spend(spent(reservation));
            return Err(error);
        }
        let spec = ContainerSpec {
            id,
            profile: key.profile.clone(),
            limits,
            volume: Some(volume),
            environment: BTreeMap::new(),
        };
        match provider.create(spec).await {
            Ok(container) if container.claimable().is_some() => {
                let mut warm = PooledContainer::new(Arc::clone(inner), container, owned, reservation);
                let languages = inner.live_settings.now().pool_kernels.clone();
                warm.warm_up(languages, &inner.catalogue.working_directory(&key.profile)).await?;
                let (dying, pool) = (warm.dying(), Arc::clone(inner));
                tokio::spawn(async move {
                    dying.await;
                    pool.died(id);
                });
                Ok(warm)
            }
            Ok(_) => {
                inner.spend(spent(reservation));
                Err(Error::new(ErrorCode::Unsupported, "containers of this provider cannot be handed over"))
            }
            Err(error) => {
                inner.spend(spent(reservation));
                Err(error)
            }
        }
    }

    /// Destroys one ready container, because a request waits for room.
    fn give_up_one(&self) {
        let one = {
            let mut state = self.0.state();
            let fullest = state.shelves.values_mut().max_by_key(|shelf| shelf.ready.len());
            fullest.and_then(|shelf| {
                shelf.rest();
                shelf.ready.pop_front()
            })
        };
        drop(one);
    }

    /// Destroys containers of an image that was rebuilt since. The oldest is checked for all.
    async fn give_up_outdated(&self) {
        let oldest: Vec<_> = {
            let state = self.0.state();
            let first = |(key, shelf): (&ShelfKey, &ProfilePool)| {
                Some((key.clone(), Arc::clone(shelf.ready.front()?.container())))
            };
            state.shelves.iter().filter_map(first).collect()
        };
        for (key, container) in oldest {
            let Some(power) = container.claimable() else { continue };
            match power.current().await {
                Ok(true) => {}
                Ok(false) => self.outdated(&key),
                Err(error) => tracing::debug!(%error, "whether an image was rebuilt is not known"),
            }
        }
    }

    /// Destroys containers with other interpreters than configured, or with a dead one.
    async fn give_up_cold(&self) {
        let wanted = self.0.live_settings.now().pool_kernels.clone();
        let ready: Vec<_> = {
            let state = self.0.state();
            let one = |warm: &PooledContainer| {
                (Arc::clone(warm.container()), warm.asked() == wanted, warm.kernels().to_vec())
            };
            state.shelves.values().flat_map(|shelf| &shelf.ready).map(one).collect()
        };
        for (container, as_wanted, languages) in ready {
            let warm = match as_wanted {
                true => kernels::is_warm(&self.0.managers, &container, &languages).await.unwrap_or(false),
                false => false,
            };
            if !warm {
                let cold: Vec<PooledContainer> = {
                    let mut state = self.0.state();
                    state.shelves.values_mut().filter_map(|shelf| shelf.remove(container.id())).collect()
                };
                drop(cold);
            }
        }
    }

    /// An image was rebuilt: containers made of the former one are not handed out.
    pub(crate) fn outdated(&self, key: &ShelfKey) {
        let old = self.on(key, |shelf| mem::take(&mut shelf.ready));
        tracing::info!(image = %key.profile.image, "its image was rebuilt; the pool is made anew");
        drop(old);
    }

    /// Destroys the containers that were given up.
    pub(super) async fn clear(&self) {
        // One caller at a time: each waits for all of it.
        let _turn = self.0.clearing.lock().await;
        let spent = mem::take(&mut self.0.state().spent);
        for one in spent {
            let destroyed = async {
                let Remembered { container, volume, provider } = &one.owned;
                let provider = self.0.providers.get(provider)?;
                provider.destroy(*container).await?;
                match provider.volumes() {
                    Some(volumes) => volumes.remove_volume(*volume).await,
                    None => Ok(()),
                }
            };
            let result = destroyed.await;
            let mut state = self.0.state();
            match result {
                Ok(()) => drop(state.known.remove(&one.owned.container)),
                Err(error) => {
                    tracing::warn!(container = %one.owned.container, %error, "the pool cannot free a container");
                    let State { spent, .. } = &mut *state;
                    spent.push(one);
                }
            }
        }
    }

    /// Destroys everything, at shutdown. The next server finds what is left.
    pub(crate) async fn end(&self) {
        drop(self.take_all());
        if timeout(AT_THE_END, self.clear()).await.is_err() {
            tracing::warn!("the pool is not gone; the next start sees to it");
        }
        let known = self.0.state().known.clone();
        if let Err(error) = memory::write(&*self.0.store, &known).await {
            tracing::warn!(%error, "what is left of the pool cannot be remembered");
        }
    }
}
