//! What a sandbox may reach. A [`Policy`] is stored as the user wrote it; [`Rules`] is the same with its presets
//! filled in, and decides. An invalid policy never becomes rules.
//!
//! A policy decides twice: by the requested host, and by the address that is connected to, after the one lookup.
//! An entry for a name never opens an address. Each request and each change of the policy decides again.

mod entry;
mod host;
mod rules;

pub use entry::{Entry, Target};
pub use host::Host;
pub use rules::{Asked, Request, Rules, Verdict};

use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;

/// Entries of one kind in a policy.
pub const MOST_ENTRIES: usize = 1000;

/// What is reachable at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Nothing.
    #[default]
    None,
    /// What is listed.
    Allowlist,
    /// Everything but denied hosts and addresses out of reach.
    Full,
}

impl Mode {
    /// The name on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Mode::None => "none",
            Mode::Allowlist => "allowlist",
            Mode::Full => "full",
        }
    }
}

/// What one sandbox may use of the network. A field that is left out sets no bound.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(remote = "Self", deny_unknown_fields, default)]
pub struct Limits {
    /// Connections at one time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connections: Option<u32>,
    /// New connections and DNS queries in a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connections_per_second: Option<u32>,
    /// Bytes in both directions together, as long as the container lives.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Bytes in a second, in both directions together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_per_second: Option<u64>,
    /// How long one connection may last. A fraction counts as a second more.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "whole_seconds")]
    pub connection_seconds: Option<u32>,
}

fn whole_seconds<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u32>, D::Error> {
    let Some(seconds) = Option::<f64>::deserialize(from)? else { return Ok(None) };
    match (0.0..=f64::from(u32::MAX)).contains(&seconds) {
        true => Ok(Some(seconds.ceil() as u32)),
        false => Err(serde::de::Error::custom(format!("expected seconds up to {}", u32::MAX))),
    }
}

atoll_types::object_only!(Limits);

/// What a sandbox may reach, as the user wrote it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(remote = "Self", deny_unknown_fields, default)]
pub struct Policy {
    /// What is reachable at all.
    pub mode: Mode,
    /// Named lists: `python`, `node`, `rust`, `debian`, `r`, `github`, and the operator's.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub presets: Vec<String>,
    /// What is reachable, in the mode `allowlist`; and addresses that are out of reach otherwise, in both.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allow: Vec<Entry>,
    /// What is never reachable, whatever else is allowed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub deny: Vec<Entry>,
    /// Its limits.
    #[serde(skip_serializing_if = "is_default")]
    pub limits: Limits,
}

atoll_types::object_only!(Policy);

fn is_default(limits: &Limits) -> bool {
    *limits == Limits::default()
}

/// The named lists that there are, each with its entries.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Presets(pub BTreeMap<String, Vec<Entry>>);
