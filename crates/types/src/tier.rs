//! Tiers: the ceilings of what a key may request. A closed table, whose figures an operator may replace. A
//! limit that a request leaves out is clamped to its key's tier; a requested value above it is refused.
//! Nothing here enforces: the core compares, the kernel enforces.

use crate::{Error, ErrorCode, Limits, Profiles, Result};
use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};

/// A tier, the lowest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tier {
    Sandbox,
    Restricted,
    Standard,
    Elevated,
    Unrestricted,
}

/// What a tier lets its sandboxes reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Network {
    /// Nothing.
    None,
    /// What a list allows.
    #[serde(rename = "restricted")]
    Allowlist,
    /// Everything that is not refused to all.
    Full,
}

impl Network {
    /// The name on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Allowlist => "restricted",
            Self::Full => "full",
        }
    }
}

/// Why a text is not a tier.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected sandbox, restricted, standard, elevated or unrestricted")]
pub struct TierError;

impl Tier {
    /// Every tier, the lowest first.
    pub const ALL: &[Tier] =
        &[Self::Sandbox, Self::Restricted, Self::Standard, Self::Elevated, Self::Unrestricted];

    /// The name on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Sandbox => "sandbox",
            Self::Restricted => "restricted",
            Self::Standard => "standard",
            Self::Elevated => "elevated",
            Self::Unrestricted => "unrestricted",
        }
    }

    /// What the table has for it.
    #[must_use]
    pub fn ceiling(self) -> Ceiling {
        let of = |cpu_millis, memory_mb, disk_mb, processes, timeout_seconds| Ceiling {
            cpu_millis,
            memory_mb,
            disk_mb,
            processes,
            timeout_seconds,
            network: self.network(),
            profiles: self.profiles(),
        };
        match self {
            Self::Sandbox => of(250, 128, 512, 64, 60),
            Self::Restricted => of(500, 256, 1024, 128, 120),
            Self::Standard => of(1000, 512, 2048, 512, 300),
            Self::Elevated => of(2000, 1024, 5120, 1024, 600),
            Self::Unrestricted => of(4000, 2048, 10_240, 4096, 1800),
        }
    }

    /// What the table lets its sandboxes reach.
    #[must_use]
    pub fn network(self) -> Network {
        match self {
            Self::Sandbox | Self::Restricted => Network::None,
            Self::Standard => Network::Allowlist,
            Self::Elevated | Self::Unrestricted => Network::Full,
        }
    }

    /// The profiles that the table lets its sandboxes have.
    #[must_use]
    pub fn profiles(self) -> Profiles {
        match self {
            Self::Sandbox | Self::Restricted | Self::Standard => Profiles::PLAIN,
            Self::Elevated | Self::Unrestricted => Profiles::ALL,
        }
    }

    /// Refuses a requested value above its ceiling, with the field, the requested and the allowed value.
    pub fn check<N>(self, field: &str, asked: N, allowed: N) -> Result<()>
    where
        N: PartialOrd + fmt::Display + Into<serde_json::Value>,
    {
        if asked <= allowed {
            return Ok(());
        }
        let message =
            format!("{field} may be at most {allowed} with a key of the tier {self}; {asked} was asked for");
        Err(Error::new(ErrorCode::PermissionDenied, message)
            .at(field)
            .fact("asked", asked)
            .fact("allowed", allowed)
            .fact("tier", self.as_str()))
    }
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Tier {
    type Err = TierError;
    fn from_str(text: &str) -> Result<Self, TierError> {
        Self::ALL.iter().copied().find(|tier| tier.as_str() == text).ok_or(TierError)
    }
}

/// The most that a tier allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ceiling {
    /// Thousandths of a core.
    pub cpu_millis: u32,
    /// Memory of one sandbox.
    pub memory_mb: u64,
    /// Disk of one sandbox.
    pub disk_mb: u64,
    /// Processes and threads of one sandbox. The reference table has no figure for them.
    pub processes: u32,
    /// How long a command may run.
    pub timeout_seconds: u64,
    /// What may be reached.
    pub network: Network,
    /// Which profiles a sandbox may have.
    pub profiles: Profiles,
}

const MIB: u64 = 1 << 20;

impl Ceiling {
    /// The limits where a request names none, as far as the tier allows them.
    #[must_use]
    pub fn clamp(&self, limits: Limits) -> Limits {
        Limits {
            memory_bytes: limits.memory_bytes.min(self.memory_mb.saturating_mul(MIB)),
            cpu_millis: limits.cpu_millis.min(self.cpu_millis),
            processes: limits.processes.min(self.processes),
            disk_bytes: limits.disk_bytes.min(self.disk_mb.saturating_mul(MIB)),
            ..limits
        }
    }

    /// Refuses figures that no sandbox or command could have.
    pub fn validate(&self) -> Result<()> {
        let wrong = |field: &str, why: &str| Err(Error::invalid(field, format!("{field} {why}")));
        if !(16..=1 << 26).contains(&self.memory_mb) {
            return wrong("memory_mb", "must be between 16 and 67108864");
        }
        if !(1..=1 << 30).contains(&self.disk_mb) {
            return wrong("disk_mb", "must be between 1 and 1073741824");
        }
        if !(1..=7 * 24 * 3600).contains(&self.timeout_seconds) {
            return wrong("timeout_seconds", "must be between 1 and 604800");
        }
        if !self.profiles.has("default") {
            return wrong("profiles", "must name default, which a create has that names none");
        }
        self.clamp(Limits { cpu_millis: u32::MAX, processes: u32::MAX, ..Limits::default() }).validate()
    }
}

/// The table as an operator has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tiers([Ceiling; 5]);

impl Default for Tiers {
    fn default() -> Self {
        Self(
            [Tier::Sandbox, Tier::Restricted, Tier::Standard, Tier::Elevated, Tier::Unrestricted]
                .map(Tier::ceiling),
        )
    }
}

impl Tiers {
    /// What a tier allows.
    #[must_use]
    pub fn of(&self, tier: Tier) -> Ceiling {
        self.0[tier as usize]
    }

    /// Replaces what a tier allows.
    pub fn replace(&mut self, tier: Tier, ceiling: Ceiling) {
        self.0[tier as usize] = ceiling;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The reference table, word for word, and our column for processes.
    #[test]
    fn the_table_is_as_it_was() {
        let table: Vec<String> = Tier::ALL
            .iter()
            .map(|tier| {
                let Ceiling { cpu_millis, memory_mb, disk_mb, processes, timeout_seconds, network, profiles } =
                    tier.ceiling();
                let cores = f64::from(cpu_millis) / 1000.0;
                format!(
                    "{tier} {cores} cores {memory_mb} MB {disk_mb} MB {timeout_seconds}s {} {processes} {}",
                    network.as_str(),
                    profiles.names().join(",")
                )
            })
            .collect();
        assert_eq!(
            table,
            [
                "sandbox 0.25 cores 128 MB 512 MB 60s none 64 default,tools",
                "restricted 0.5 cores 256 MB 1024 MB 120s none 128 default,tools",
                "standard 1 cores 512 MB 2048 MB 300s restricted 512 default,tools",
                "elevated 2 cores 1024 MB 5120 MB 600s full 1024 default,tools,root,build",
                "unrestricted 4 cores 2048 MB 10240 MB 1800s full 4096 default,tools,root,build",
            ]
        );
        for tier in Tier::ALL {
            assert_eq!(tier.ceiling().validate(), Ok(()), "{tier}");
            assert_eq!(tier.as_str().parse(), Ok(*tier));
            assert_eq!(serde_json::to_value(tier).unwrap(), tier.as_str());
            assert_eq!(serde_json::to_value(tier.network()).unwrap(), tier.network().as_str());
            assert_eq!(tier.ceiling().clamp(Limits::default()).validate(), Ok(()));
        }
        assert!(Tier::Sandbox < Tier::Unrestricted && "god".parse::<Tier>().is_err());
    }

    #[test]
    fn what_is_above_the_ceiling_is_refused_with_both_figures() {
        assert_eq!(Tier::Standard.check("memory_mb", 512, 512), Ok(()));
        let refused = Tier::Standard.check("cpu_cores", 1.5, 1.0).unwrap_err();
        assert_eq!(
            (refused.code, refused.field.as_deref()),
            (ErrorCode::PermissionDenied, Some("cpu_cores"))
        );
        let facts = serde_json::to_value(&refused.refusal.as_ref().unwrap().facts).unwrap();
        assert_eq!(facts, serde_json::json!({"asked": 1.5, "allowed": 1.0, "tier": "standard"}));
        // An error survives serialisation.
        let text = serde_json::to_string(&refused).unwrap();
        assert_eq!(serde_json::from_str::<Error>(&text).unwrap(), refused);
    }

    #[test]
    fn figures_that_cannot_be_are_refused() {
        let of = Tier::Standard.ceiling();
        for (ceiling, field) in [
            (Ceiling { memory_mb: 1, ..of }, "memory_mb"),
            (Ceiling { disk_mb: 0, ..of }, "disk_mb"),
            (Ceiling { cpu_millis: 1, ..of }, "cpu_millis"),
            (Ceiling { processes: 1, ..of }, "processes"),
            (Ceiling { timeout_seconds: 0, ..of }, "timeout_seconds"),
            (Ceiling { profiles: Profiles::named(["root"]).unwrap(), ..of }, "profiles"),
        ] {
            assert_eq!(ceiling.validate().unwrap_err().field.as_deref(), Some(field));
        }
    }
}
