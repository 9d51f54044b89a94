//! Containers that are started before a request needs them. The pool keeps them by provider and profile,
//! which is everything that is fixed at a start; the rest (owner, limits, environment, egress) is set live when a
//! sandbox claims one. A container of the pool has run nothing, but for interpreters that wait for their
//! first cell where the setting `pool.kernels` names any, and is handed out once.
//!
//! Here are the pool's state and the claims. Refilling is in [`refill`], administration in [`admin`], and
//! what outlives the server in [`memory`]. The lock of the state is held for a moment only and never across
//! an await; a [`PooledContainer`] is never dropped under it.

mod admin;
mod demand;
pub(crate) mod memory;
mod refill;
mod shelf;
mod warm;

pub use admin::{PoolBounds, PoolChange, PoolControl, PoolView};
pub use shelf::{PoolFailure, PoolKey};
pub(crate) use warm::{Dying, PooledContainer};

use crate::{
    CoreSettings, PoolSize, Providers,
    admission::{Admission, Need, Reservation},
    images::Catalogue,
    kernels::{self, KernelManagers},
    runtime_settings::LiveSettings,
};
use atoll_store::{SandboxRecord, Store};
use atoll_types::{ContainerId, ImageName, Profile, ProviderName, Result, VolumeId};
use memory::Remembered;
use shelf::ProfilePool;
use std::{
    collections::{BTreeMap, HashMap},
    mem,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};
use tokio::{sync::Notify, time::Instant};
use warm::Spent;

/// The pool. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Pool(Arc<Inner>);

pub(crate) struct Inner {
    store: Arc<dyn Store>,
    providers: Providers,
    admission: Admission,
    live_settings: Arc<LiveSettings>,
    settings: Arc<CoreSettings>,
    managers: Arc<KernelManagers>,
    catalogue: Arc<Catalogue>,
    state: Mutex<State>,
    /// Wakes the refill task.
    wake: Notify,
    clearing: tokio::sync::Mutex<()>,
    /// Requests that make or start a sandbox at this moment.
    requests: AtomicUsize,
}

#[derive(Default)]
struct State {
    shelves: HashMap<ShelfKey, ProfilePool>,
    /// Every container of the pool, and its volume: being made, ready, being claimed, or to be destroyed.
    known: HashMap<ContainerId, Remembered>,
    spent: Vec<Spent>,
    last_request: Option<Instant>,
}

/// What is fixed when a container starts.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct ShelfKey {
    pub(crate) provider: ProviderName,
    pub(crate) profile: Profile,
}

impl ShelfKey {
    pub(crate) fn of(record: &SandboxRecord) -> Self {
        Self { provider: record.provider.clone(), profile: record.profile.clone() }
    }
}

/// A request that makes or starts a sandbox. The pool makes nothing meanwhile.
pub(crate) struct Request(Arc<Inner>);

impl Drop for Request {
    fn drop(&mut self) {
        self.0.requests.fetch_sub(1, Ordering::Relaxed);
        self.0.state().last_request = Some(Instant::now());
        self.0.wake.notify_one();
    }
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A sandbox has claimed it for good.
    fn forget(&self, container: ContainerId) {
        self.state().known.remove(&container);
    }

    /// It is to be destroyed.
    fn spend(&self, spent: Spent) {
        self.state().spent.push(spent);
        self.wake.notify_one();
    }

    /// A dead container is not kept ready.
    fn died(&self, container: ContainerId) {
        let dead: Vec<PooledContainer> = {
            let mut state = self.state();
            let of = |shelf: &mut ProfilePool| shelf.remove(container);
            state.shelves.values_mut().filter_map(of).collect()
        };
        if !dead.is_empty() {
            tracing::warn!(%container, "a container of the pool died");
        }
    }

    /// What is to be kept ready, by profile, with the image's name.
    fn wanted(&self) -> BTreeMap<String, ShelfKey> {
        let runtime_settings = self.live_settings.now();
        let usual = runtime_settings.db_default_image.as_ref().unwrap_or(&self.settings.default_image);
        let names = std::iter::once(usual).chain(runtime_settings.pool_images.keys());
        // Several names may mean one image; it is kept under its own.
        let profiles = names.filter_map(|name| self.catalogue.profile(name).ok());
        let provider = self.providers.default_name();
        let key =
            |profile: Profile| (profile.image.to_string(), ShelfKey { provider: provider.clone(), profile });
        profiles.map(key).collect()
    }
}

impl Pool {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        providers: Providers,
        admission: Admission,
        live_settings: Arc<LiveSettings>,
        settings: Arc<CoreSettings>,
        managers: Arc<KernelManagers>,
        catalogue: Arc<Catalogue>,
    ) -> Self {
        Self(Arc::new(Inner {
            store,
            providers,
            admission,
            live_settings,
            settings,
            managers,
            catalogue,
            state: Mutex::default(),
            wake: Notify::new(),
            clearing: tokio::sync::Mutex::default(),
            requests: AtomicUsize::new(0),
        }))
    }

    /// Every container of the pool, with its volume.
    pub(crate) fn known(&self) -> Vec<(ContainerId, VolumeId)> {
        self.0.state().known.values().map(|one| (one.container, one.volume)).collect()
    }

    /// Marks a request that makes or starts a sandbox, as long as the value is held.
    pub(crate) fn request(&self) -> Request {
        self.0.requests.fetch_add(1, Ordering::Relaxed);
        Request(Arc::clone(&self.0))
    }

    /// Takes a container for a sandbox of this provider and profile, if there is one, and moves its reservation to the
    /// sandbox.
    pub(crate) fn take(
        &self,
        key: &ShelfKey,
        reservation: &Reservation,
        need: Need,
    ) -> Option<PooledContainer> {
        let runtime_settings = self.0.live_settings.now();
        let mut dead = Vec::new();
        let taken = {
            let mut state = self.0.state();
            let shelf = state.shelves.get_mut(key)?;
            if runtime_settings.pool_size(&shelf.image).max == 0 {
                return None;
            }
            shelf.take(&mut dead, |pooled| reservation.take_over(pooled, need))
        };
        drop(dead);
        taken
    }

    /// Gives the interpreters of a claimed container the sandbox's variables.
    pub(crate) async fn configure(
        &self,
        warm: &PooledContainer,
        variables: BTreeMap<String, String>,
    ) -> Result<()> {
        match warm.kernels().is_empty() {
            true => Ok(()),
            false => kernels::configure(&self.0.managers, warm.container(), variables).await,
        }
    }

    /// How many of an image are kept ready; none of one that no setting names.
    pub(crate) fn size_of(&self, image: &ImageName) -> PoolSize {
        match self.0.wanted().contains_key(image.as_str()) {
            true => self.0.live_settings.now().pool_size(image.as_str()),
            false => PoolSize { min: 0, max: 0 },
        }
    }

    /// Destroys the ready containers of an image that is being removed.
    pub(crate) async fn end_image(&self, image: &ImageName) {
        let gone: Vec<ProfilePool> = {
            let mut state = self.0.state();
            state.shelves.extract_if(|key, _| key.profile.image == *image).map(|(_, shelf)| shelf).collect()
        };
        drop(gone);
        self.clear().await;
    }

    /// Takes every ready container out of the pool.
    fn take_all(&self) -> Vec<PooledContainer> {
        let mut state = self.0.state();
        state.shelves.values_mut().flat_map(|shelf| mem::take(&mut shelf.ready)).collect()
    }

    /// Destroys all ready containers, because a sandbox needs what they reserve. Returns whether there were
    /// any.
    pub(crate) async fn make_room(&self) -> bool {
        let all = self.take_all();
        let any = !all.is_empty();
        drop(all);
        self.0.state().shelves.values_mut().for_each(ProfilePool::rest);
        if any {
            self.clear().await;
        }
        any
    }
}
