//! What every front can reach.

use crate::{Access, OriginCheck, metrics::Metrics};
use atoll_core::{Core, Rates};
use atoll_types::Rate;
use std::{fmt, sync::Arc};

/// How many requests an owner may send.
const ASKING: Rate = Rate { per_second: 500.0, burst: 2000.0 };

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

    /// Counts one more request of an owner, unless there were too many.
    #[must_use]
    pub fn may_ask(&self, owner: &str) -> bool {
        self.rates.take(owner, ASKING).is_ok()
    }

    /// Adds the figures about requests to a page that Prometheus reads.
    pub fn render_requests(&self, page: &mut String) -> fmt::Result {
        self.metrics.render(page)
    }
}
