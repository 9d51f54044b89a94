//! Which hosts the named lists of a policy stand for. No registry's host is written here: `python`, `node`,
//! `rust`, `debian` and `r` are learned from the package managers of the machine and of an image, from their
//! settings or built-in defaults, and from the links of the indexes found there. Only `github` is a constant.
//!
//! Learning reads files and runs nothing. What is read from an image counts for sandboxes of that image alone.

mod apt_sources;
#[cfg(test)]
mod checks;
mod debian;
mod index;
mod ini;
mod links;
mod list;
mod mirror;
mod node;
mod python;
mod r;
mod registry;
mod remembered;
mod rust;
mod tool_location;
mod tree;
#[cfg(test)]
mod trial;

pub use apt_sources::AptSources;
pub use index::{Ecosystem, Index, Role, Tool};
pub use links::{Fetch, IndexResponse};
pub use list::{Listed, Origin, Preset};
pub use mirror::{Settings, SettingsFile, mirrors};
pub use registry::PresetRegistry;
pub use tool_location::ToolLocation;
pub use tree::{FileBytes, ImageFiles};

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Indexes of one ecosystem in one place.
const MOST_INDEXES: usize = 32;

/// The presets of a sandbox that uses the defaults and names none: the list of the reference system.
#[must_use]
pub fn usual() -> [&'static str; 4] {
    ["python", "node", "rust", "github"]
}

/// The indexes of one ecosystem.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Found {
    /// Each once, in the order in which they were found.
    pub indexes: Vec<Index>,
}

impl Found {
    fn add_all(&mut self, indexes: impl IntoIterator<Item = Index>) {
        for index in indexes {
            let known = |other: &Index| other.url == index.url && other.tool == index.tool;
            if self.indexes.len() < MOST_INDEXES && !self.indexes.iter().any(known) {
                self.indexes.push(index);
            }
        }
    }

    fn has_main(&self) -> bool {
        self.indexes.iter().any(|index| index.role == Role::Main)
    }

    #[cfg(test)]
    fn urls(&self) -> Vec<&str> {
        self.indexes.iter().map(|index| index.url.as_str()).collect()
    }
}

/// What was found in one place. It can be serialised, for the process that may read the operator's files and the
/// server are not the same.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Findings {
    /// Whether it is the machine's, and so set by the operator.
    pub machine: bool,
    /// By ecosystem; one without any index is not there.
    pub found: BTreeMap<Ecosystem, Found>,
    /// The archives of its own release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub apt: Option<AptSources>,
}

/// Searches a place for indexes. It reads files, a few hundred at the very most, so it may take a while: not for
/// a thread that serves.
#[must_use]
pub fn learn(place: &ToolLocation) -> Findings {
    let find = |ecosystem| match ecosystem {
        Ecosystem::Python => python::find(place),
        Ecosystem::Node => node::find(place),
        Ecosystem::Rust => rust::find(place),
        Ecosystem::Debian => debian::find(place),
        Ecosystem::R => r::find(place),
    };
    let found = Ecosystem::ALL.into_iter().map(|ecosystem| (ecosystem, find(ecosystem)));
    Findings {
        machine: place.is_machine(),
        found: found.filter(|(_, f)| !f.indexes.is_empty()).collect(),
        apt: apt_sources::find(place),
    }
}
