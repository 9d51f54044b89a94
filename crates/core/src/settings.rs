//! What the operator decides for all sandboxes.

use crate::{Machine, Preset, RegistrySettings};
use atoll_types::{Error, Result, Tiers};
use std::{collections::BTreeMap, fmt, path::PathBuf};

/// The operator's key of tokens for the proxy over a network.
#[derive(Clone, PartialEq, Eq)]
pub struct SigningKey(Vec<u8>);

impl SigningKey {
    /// The shortest, in bytes.
    pub const SHORTEST: usize = 32;

    /// With bytes that are not few.
    pub fn new(bytes: Vec<u8>) -> Result<Self> {
        match bytes.len() < Self::SHORTEST {
            true => {
                Err(Error::invalid("signing_key", format!("must have at least {} bytes", Self::SHORTEST)))
            }
            false => Ok(Self(bytes)),
        }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SigningKey")
    }
}

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
    /// Where logs of builds of images are kept; nothing else may be in it. Nowhere, where it is empty.
    pub builds_dir: PathBuf,
    /// What signs tokens for the proxy over a network; a key of the server's own where there is none.
    pub egress_signing_key: Option<SigningKey>,
    /// Where layers of pulled images are kept; nothing else may be in it. Nothing is pulled where it is empty.
    pub layers_dir: PathBuf,
    /// Registries that need more than a public address and HTTPS.
    pub registries: RegistrySettings,
    /// The label of sandboxes in which the process API is served; none: in no sandbox.
    pub process_api_label: Option<String>,
}

/// Names that the published clients of the reference systems send, and the template whose image each means.
const SEED_ALIASES: &[(&str, &str)] = &[
    ("mcpgateway/sandbox-runtime:latest", "skills-runtime"),
    ("mcpgateway/sandbox-python:3.12", "base"),
    ("mcpgateway/sandbox-skills:latest", "skills-runtime"),
    ("mcpgateway/sandbox-datascience:latest", "data-science"),
    ("agentcop/agent-sandbox:latest", "base"),
    ("agentbox-sandbox:latest", "base"),
];

impl Default for CoreSettings {
    fn default() -> Self {
        let aliases =
            SEED_ALIASES.iter().map(|(name, image)| ((*name).to_owned(), (*image).to_owned())).collect();
        Self {
            aliases,
            default_image: "host".into(),
            metrics_interval_seconds: 10,
            tiers: Tiers::default(),
            preset: Preset::default(),
            machine: Machine::here(),
            skills_dir: PathBuf::new(),
            builds_dir: PathBuf::new(),
            egress_signing_key: None,
            layers_dir: PathBuf::new(),
            registries: RegistrySettings::default(),
            process_api_label: None,
        }
    }
}
