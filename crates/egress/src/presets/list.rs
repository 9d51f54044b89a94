//! The presets as they are shown, each entry with where it came from, and as policies use them.

use super::{
    Ecosystem, Findings, Found,
    index::{Index, Role, Tool, entry},
    remembered::Links,
};
use crate::{Entry, Reach};
use serde::{Serialize, Serializer};
use std::{collections::BTreeMap, fmt};

/// Where an entry came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Origin {
    /// It is written in Atoll.
    Constant,
    /// The operator's configuration of Atoll.
    Operator,
    /// A tool is set to it.
    Configured(Tool),
    /// It is a tool's own.
    BuiltIn(Tool),
    /// An index has links to it.
    Links,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Constant => f.write_str("constant"),
            Self::Operator => f.write_str("operator's configuration"),
            Self::Configured(tool) => write!(f, "{tool} configuration"),
            Self::BuiltIn(tool) => write!(f, "built into {tool}"),
            Self::Links => f.write_str("links of the index"),
        }
    }
}

impl Serialize for Origin {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// One entry of a preset.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Listed {
    /// The entry.
    pub entry: Entry,
    /// Where it came from.
    pub origin: Origin,
}

/// A preset, to be shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Preset {
    /// Its name.
    pub name: String,
    /// Its entries, each once.
    pub entries: Vec<Listed>,
    /// What an operator should know: an index that could not be fetched, or is out of reach.
    pub notes: Vec<String>,
}

impl Preset {
    fn new(name: &str) -> Self {
        Self { name: name.to_owned(), entries: Vec::new(), notes: Vec::new() }
    }

    fn add(&mut self, entry: Entry, origin: Origin) {
        if !self.entries.iter().any(|listed| listed.entry == entry) {
            self.entries.push(Listed { entry, origin });
        }
    }
}

/// The hosts of GitHub: the site, its API, archives, raw files, releases and large files.
const GITHUB: &[&str] = &[
    "github.com:443",
    "github.com:22",
    "api.github.com:443",
    "codeload.github.com:443",
    "uploads.github.com:443",
    "gist.github.com:443",
    "raw.githubusercontent.com:443",
    "gist.githubusercontent.com:443",
    "media.githubusercontent.com:443",
    "objects.githubusercontent.com:443",
    "release-assets.githubusercontent.com:443",
    "github-cloud.githubusercontent.com:443",
];

/// The indexes that tools inside would use, each with whether the operator set it. Where one is set, the built-in
/// one is not used and so not opened. apt's belong to an image and not to the machine.
pub(super) fn used<'a>(
    ecosystem: Ecosystem,
    machine: &'a Findings,
    image: Option<&'a Findings>,
) -> Vec<(&'a Index, bool)> {
    let of = |findings: &'a Findings| findings.found.get(&ecosystem);
    let own = image.and_then(of);
    let connection_limit: Vec<(&Found, bool)> = match (of(machine), own) {
        (_, Some(own)) if ecosystem == Ecosystem::Debian => vec![(own, false)],
        (machine, own) => machine.map(|f| (f, true)).into_iter().chain(own.map(|f| (f, false))).collect(),
    };
    let all = || {
        connection_limit.iter().flat_map(|(found, by)| found.indexes.iter().map(move |index| (index, *by)))
    };
    let set = all().any(|(index, _)| index.role == Role::Main && !index.built_in);
    all().filter(|(index, _)| !(set && index.built_in)).collect()
}

/// The inputs of presets.
pub(super) struct Sources<'a> {
    pub(super) machine: &'a Findings,
    pub(super) image: Option<&'a Findings>,
    pub(super) links: &'a Links,
    pub(super) operator: &'a BTreeMap<String, Vec<Entry>>,
    pub(super) reach: &'a Reach,
}

impl Sources<'_> {
    /// All presets, by name.
    pub(super) fn list(&self) -> Vec<Preset> {
        let mut presets: BTreeMap<String, Preset> = BTreeMap::new();
        for ecosystem in Ecosystem::ALL {
            presets.insert(ecosystem.as_str().to_owned(), self.learned(ecosystem));
        }
        let mut github = Preset::new("github");
        let constants = GITHUB.iter().filter_map(|text| text.parse().ok());
        constants.for_each(|entry| github.add(entry, Origin::Constant));
        presets.insert(github.name.clone(), github);
        for (name, entries) in self.operator {
            let mut preset = Preset::new(name);
            entries.iter().for_each(|entry| preset.add(entry.clone(), Origin::Operator));
            presets.insert(name.clone(), preset);
        }
        presets.into_values().collect()
    }

    fn learned(&self, ecosystem: Ecosystem) -> Preset {
        let mut preset = Preset::new(ecosystem.as_str());
        let used = used(ecosystem, self.machine, self.image);
        for (index, operator) in &used {
            self.add(&mut preset, index, *operator);
        }
        if used.is_empty() {
            preset.notes.push("no package manager of this kind was found, and none is configured".to_owned());
        }
        preset
    }

    fn add(&self, preset: &mut Preset, index: &Index, operator: bool) {
        let Index { tool, url, role: _, built_in, credentials, git: _, files } = index;
        let host = url.host_str().unwrap_or_default();
        let origin = if *built_in { Origin::BuiltIn(*tool) } else { Origin::Configured(*tool) };
        let Some(own) = entry(url, operator.then_some(self.reach)) else {
            let name = &preset.name;
            preset.notes.push(format!(
                "{tool} uses {host}, which is out of reach; egress.presets.{name} can name it"
            ));
            return;
        };
        preset.add(own, origin);
        if *credentials && operator {
            preset.notes.push(format!("{tool} uses {host} with credentials, which sandboxes are not given"));
        }
        for file in files {
            // cargo's are from its index's description; pip's are in its source.
            preset.add(file.clone(), if *tool == Tool::Cargo { Origin::Links } else { origin });
        }
        for file in self.links.of(url) {
            preset.add(file.clone(), Origin::Links);
        }
        if let Some(why) = self.links.failure(url) {
            preset.notes.push(format!("the links of {host} could not be fetched: {why}"));
        }
    }
}
