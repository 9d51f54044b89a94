//! One container that is kept ready. It has a volume of its own, no environment and no owner, and has run
//! nothing. It is handed out once and never returns to the pool: dropped, it is destroyed with its volume,
//! unless a sandbox's record has it by then.

use super::{Inner, memory::Remembered};
use crate::{admission::PoolReservation, kernels};
use atoll_kernels::Language;
use atoll_provider::Container;
use atoll_types::{ContainerId, Death, Result, VolumeId};
use futures_util::{FutureExt, future::BoxFuture, future::Shared};
use std::{sync::Arc, time::Instant};

/// Completes when a container is dead. All clones share one watch.
pub(crate) type Dying = Shared<BoxFuture<'static, Death>>;

/// What owns the container and its volume.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Whose {
    Pools,
    Sandboxes,
}

/// A container that is kept ready.
pub(crate) struct PooledContainer {
    pool: Arc<Inner>,
    container: Arc<dyn Container>,
    owned: Remembered,
    reservation: Option<PoolReservation>,
    dying: Dying,
    made: Instant,
    whose: Whose,
    /// The requested languages, and those with a waiting interpreter.
    kernels: (Vec<Language>, Vec<Language>),
}

/// A container that is to be destroyed.
pub(super) struct Spent {
    pub(super) owned: Remembered,
    /// Held until it is gone.
    pub(super) _seat: Option<PoolReservation>,
}

impl PooledContainer {
    pub(super) fn new(
        pool: Arc<Inner>,
        container: Arc<dyn Container>,
        owned: Remembered,
        reservation: PoolReservation,
    ) -> Self {
        let dying = crate::actor::death_of(Some(Arc::clone(&container))).boxed().shared();
        let made = Instant::now();
        let kernels = Default::default();
        Self {
            pool,
            container,
            owned,
            reservation: Some(reservation),
            dying,
            made,
            whose: Whose::Pools,
            kernels,
        }
    }

    /// Starts its interpreters in this directory.
    pub(super) async fn warm_up(&mut self, languages: Vec<Language>, directory: &str) -> Result<()> {
        let started = kernels::warm_up(&self.pool.managers, &self.container, &languages, directory).await?;
        self.kernels = (languages, started);
        Ok(())
    }

    /// The requested languages.
    pub(super) fn asked(&self) -> &[Language] {
        &self.kernels.0
    }

    /// The languages with a waiting interpreter.
    pub(crate) fn kernels(&self) -> &[Language] {
        &self.kernels.1
    }

    pub(crate) fn id(&self) -> ContainerId {
        self.container.id()
    }

    pub(crate) fn volume(&self) -> VolumeId {
        self.owned.volume
    }

    pub(crate) fn container(&self) -> &Arc<dyn Container> {
        &self.container
    }

    pub(crate) fn dying(&self) -> Dying {
        self.dying.clone()
    }

    pub(super) fn reservation(&mut self) -> Option<&mut PoolReservation> {
        self.reservation.as_mut()
    }

    pub(super) fn made(&self) -> Instant {
        self.made
    }

    /// Whether its death is known already.
    pub(super) fn is_dead(&self) -> bool {
        self.dying.peek().is_some()
    }

    /// A sandbox's record has it: destroying the sandbox destroys it. It stays in the pool's entry until this
    /// value is dropped, when the claim is over.
    pub(crate) fn recorded(&mut self) {
        self.whose = Whose::Sandboxes;
    }
}

impl Drop for PooledContainer {
    fn drop(&mut self) {
        let container = self.container.id();
        match self.whose {
            Whose::Sandboxes => self.pool.forget(container),
            Whose::Pools => {
                self.pool.spend(Spent { owned: self.owned.clone(), _seat: self.reservation.take() });
            }
        }
    }
}
