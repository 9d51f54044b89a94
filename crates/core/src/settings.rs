//! What the operator decides for all sandboxes.

use crate::{Machine, Preset};
use atoll_types::Tiers;
use std::{collections::BTreeMap, path::PathBuf};

/// What the operator decides for all sandboxes.
#[derive(Debug, Clone)]
pub struct CoreSettings {
    /// Image names that clients use, and the image of ours that each means.
    pub aliases: BTreeMap<String, String>,
    /// The image of a create that names none.
    pub default_image: String,
    /// How often it is sampled what sandboxes use.
    pub metrics_interval_seconds: u32,
    /// The ceilings of the tiers.
    pub tiers: Tiers,
    /// What of the settings that apply without a restart was set before it.
    pub preset: Preset,
    /// What there is to give.
    pub machine: Machine,
    /// Where packages of skills are kept; nothing else may be in it. Nowhere, where it is empty.
    pub skills_dir: PathBuf,
}

/// Names that the published clients of the reference systems send, until better images exist.
const SEED_ALIASES: &[&str] = &[
    "mcpgateway/sandbox-runtime:latest",
    "mcpgateway/sandbox-python:3.12",
    "mcpgateway/sandbox-skills:latest",
    "mcpgateway/sandbox-datascience:latest",
    "agentcop/agent-sandbox:latest",
    "agentbox-sandbox:latest",
];

impl Default for CoreSettings {
    fn default() -> Self {
        let aliases = SEED_ALIASES.iter().map(|name| ((*name).to_owned(), "host".to_owned())).collect();
        Self {
            aliases,
            default_image: "host".into(),
            metrics_interval_seconds: 10,
            tiers: Tiers::default(),
            preset: Preset::default(),
            machine: Machine::here(),
            skills_dir: PathBuf::new(),
        }
    }
}
