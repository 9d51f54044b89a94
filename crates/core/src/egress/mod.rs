//! Egress of sandboxes: what each may reach, which session serves its egress sockets, and what it requested.
//! The proxy itself is `atoll_egress`; here are the sessions ([`EgressSessions`]), the rules of who may allow
//! what ([`policy`]), and the path of each decision into the audit trail ([`decision_queue`],
//! [`decision_writer`], [`running`]).
//!
//! A policy is written to the record first and sent to the proxy after, so only a recorded policy is ever
//! obeyed.

mod decision_queue;
mod decision_writer;
mod network;
mod policy;
mod running;
mod sessions;
mod view;

pub use network::EgressToken;
pub use policy::SessionNetwork;
pub(crate) use running::{Entered, EnteredCell, Running, Secrets};
pub(crate) use sessions::EgressSessions;
pub use view::{EgressView, Refusals};

use crate::{
    AuditTrail, CoreSettings, Vault, actor::SandboxRegistry, images::Catalogue, operation::Operations,
};
use atoll_egress::{Egress, Mode, Policy, Reach, presets::PresetRegistry};
use atoll_store::Store;
use atoll_types::{Network, Tier, Tiers};
use std::{collections::BTreeMap, sync::Arc};

/// What sandboxes may reach: their policies, the proxy's sessions and its decisions.
#[derive(Clone)]
pub struct EgressControl {
    pub(crate) operations: Operations,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) vault: Arc<Vault>,
    pub(crate) registry: Arc<SandboxRegistry>,
    pub(crate) egress_sessions: Arc<EgressSessions>,
    pub(crate) audit: AuditTrail,
    pub(crate) catalogue: Arc<Catalogue>,
    pub(crate) settings: Arc<CoreSettings>,
}

/// The parts of egress, as the program assembles them.
#[derive(Clone)]
pub struct EgressParts {
    /// The proxy.
    pub engine: Egress,
    /// The presets.
    pub presets: Arc<PresetRegistry>,
    /// The addresses that are out of reach unless an entry names them.
    pub reach: Arc<Reach>,
    /// The ceilings of the tiers; only their network is used.
    pub ceilings: Tiers,
    /// The policy ceiling of a tier, where the operator set more than `ceilings` can express.
    pub tiers: BTreeMap<Tier, Policy>,
    /// Variables that every command starts with, so that tools find the proxy by themselves.
    pub variables: Vec<(String, String)>,
}

impl EgressParts {
    /// The policy of a `network` value in the table of tiers.
    #[must_use]
    pub fn usual(network: Network) -> Policy {
        match network {
            Network::None => Policy::default(),
            Network::Allowlist => {
                let presets = atoll_egress::presets::usual().map(str::to_owned).to_vec();
                Policy { mode: Mode::Allowlist, presets, ..Policy::default() }
            }
            Network::Full => Policy { mode: Mode::Full, ..Policy::default() },
        }
    }
}
