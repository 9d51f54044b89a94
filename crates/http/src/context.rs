//! What every front can reach.

use crate::{Access, OriginCheck, metrics::Metrics, peers::peer_of};
use atoll_core::{Core, Rates};
use atoll_types::Rate;
use std::{fmt, net::SocketAddr, sync::Arc};

/// How many requests an owner may send.
const ASKING: Rate = Rate { per_second: 500.0, burst: 2000.0 };

/// How many requests a peer may send that need no key and are work.
const ASKING_WITHOUT_KEY: Rate = Rate { per_second: 5.0, burst: 50.0 };

/// What the fronts of one listener share. Cheap to clone.
#[derive(Clone)]
pub struct HttpContext {
    /// The control plane.
    pub core: Core,
    /// Whether requests need a key.
    pub access: Access,
    /// Which hosts and which origins a request may name.
    pub origins: Arc<OriginCheck>,
    rates: Arc<Rates>,
    pub(crate) metrics: Arc<Metrics>,
}

impl HttpContext {
    /// The context of a listener over this core.
    #[must_use]
    pub fn new(core: Core, access: Access, origins: OriginCheck) -> Self {
        Self { core, access, origins: Arc::new(origins), rates: Arc::default(), metrics: Arc::default() }
    }

    /// The same for another listener, which checks hosts and origins of its own.
    #[must_use]
    pub fn with_origins(&self, origins: OriginCheck) -> Self {
        Self { origins: Arc::new(origins), ..self.clone() }
    }

    /// Counts one more request of an owner, unless there were too many.
    #[must_use]
    pub fn may_ask(&self, owner: &str) -> bool {
        self.rates.take(owner, ASKING).is_ok()
    }

    /// Counts one more request of a peer that has no key yet, unless there were too many.
    #[must_use]
    pub fn may_ask_without_key(&self, peer: SocketAddr) -> bool {
        // No owner's name begins so: they are UUIDs.
        self.rates.take(&format!("peer {}", peer_of(peer)), ASKING_WITHOUT_KEY).is_ok()
    }

    /// Adds the figures about requests to a page that Prometheus reads.
    pub fn render_requests(&self, page: &mut String) -> fmt::Result {
        self.metrics.render(page)
    }
}
