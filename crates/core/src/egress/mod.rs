//! The way out of sandboxes: what each may reach, who serves its gate, and what it asked for. The proxy
//! itself is `atoll_egress`; here is one owner of every gate ([`Gates`]), the rules of who may allow what
//! ([`policy`]), and the way of each decision into the audit trail ([`notes`], [`teller`], [`running`]).

mod gates;
mod notes;
mod policy;
mod running;
mod teller;
mod view;

pub(crate) use gates::Gates;
pub(crate) use running::{Entered, Running, Secrets};
pub use view::{EgressView, Refusals};

use atoll_egress::{Egress, Mode, Policy, Reach, presets::Book};
use std::{collections::BTreeMap, sync::Arc};

/// What the way out is made of, as the program puts it together.
#[derive(Clone)]
pub struct EgressParts {
    /// The proxy.
    pub engine: Egress,
    /// The presets.
    pub book: Arc<Book>,
    /// What nobody reaches unless an entry names it.
    pub reach: Arc<Reach>,
    /// What keys of a tier may allow at most; tiers that are not here are as [`EgressParts::usual_tier`].
    pub tiers: BTreeMap<String, Policy>,
    /// What every command starts with, so that tools find the way out by themselves.
    pub variables: Vec<(String, String)>,
}

impl EgressParts {
    /// What a tier may allow where nothing else is said.
    #[must_use]
    pub fn usual_tier(name: &str) -> Policy {
        if name == "unrestricted" {
            return Policy { mode: Mode::Full, ..Policy::default() };
        }
        let presets = atoll_egress::presets::usual().map(str::to_owned).to_vec();
        Policy { mode: Mode::Allowlist, presets, ..Policy::default() }
    }
}
