//! The way out of sandboxes: what each may reach, who serves its gate, and what it asked for. The proxy
//! itself is `atoll_egress`; here is one owner of every gate ([`EgressSessions`]), the rules of who may allow what
//! ([`policy`]), and the way of each decision into the audit trail ([`decision_queue`], [`decision_writer`], [`running`]).
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

use atoll_egress::{Egress, Mode, Policy, Reach, presets::PresetRegistry};
use atoll_types::{Network, Tier, Tiers};
use std::{collections::BTreeMap, sync::Arc};

/// What the way out is made of, as the program puts it together.
#[derive(Clone)]
pub struct EgressParts {
    /// The proxy.
    pub engine: Egress,
    /// The presets.
    pub book: Arc<PresetRegistry>,
    /// What nobody reaches unless an entry names it.
    pub reach: Arc<Reach>,
    /// What keys of each tier may ask for; of it the network.
    pub ceilings: Tiers,
    /// What keys of a tier may allow at most, where the operator said more than `ceilings` can.
    pub tiers: BTreeMap<Tier, Policy>,
    /// What every command starts with, so that tools find the way out by themselves.
    pub variables: Vec<(String, String)>,
}

impl EgressParts {
    /// What a network of the table of tiers means.
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
