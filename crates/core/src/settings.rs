//! What the operator decides for all sandboxes.

use crate::{Machine, Preset};
use atoll_types::{Error, ErrorCode, Profile, Result, Tiers};
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

impl CoreSettings {
    /// The default profile with the image that a name means.
    pub(crate) fn profile(&self, image: &str) -> Result<Profile> {
        self.profile_named("default", image)
    }

    /// A profile that ships, with the image that a name means.
    pub(crate) fn profile_named(&self, profile: &str, image: &str) -> Result<Profile> {
        let name = self.aliases.get(image).map_or(image, String::as_str);
        let known = || {
            let names: Vec<&str> =
                std::iter::once("host").chain(self.aliases.keys().map(String::as_str)).collect();
            let message = format!("there is no image {image:?}; there are {}", names.join(", "));
            Error::new(ErrorCode::InvalidArgument, message).at("image")
        };
        let image = name.parse().map_err(|_| known())?;
        if name != "host" {
            return Err(known());
        }
        let unknown = || {
            let message =
                format!("there is no profile {profile:?}; there are {}", Profile::BUILTIN.join(", "));
            Error::invalid("profile", message)
        };
        Ok(Profile { image, ..Profile::builtin(profile).ok_or_else(unknown)? })
    }
}
