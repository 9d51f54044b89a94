//! Who may allow what. A policy is checked when it is written: by itself, against the ceiling of the
//! caller's tier, and against the addresses that only an admin opens.

use super::{EgressParts, Gates};
use crate::Caller;
use atoll_egress::{Entry, Limits, Mode, Policy, Presets, Rules, Target};
use atoll_store::Scope;
use atoll_types::{Error, ErrorCode, Network, Result, Tier};

/// What the field is called, here and in every request.
pub(super) const FIELD: &str = "egress";

fn refused(field: &str, message: String) -> Error {
    Error::new(ErrorCode::PermissionDenied, message).at(field)
}

fn contradiction(enabled: bool, mode: Mode) -> Error {
    let message =
        format!("network_enabled is {enabled} and egress.mode is {:?}; say one of them", mode.as_str());
    Error::invalid("network_enabled", message)
}

fn rank(mode: Mode) -> u8 {
    match mode {
        Mode::None => 0,
        Mode::Allowlist => 1,
        Mode::Full => 2,
    }
}

/// One limit under its ceiling: what is not said is the ceiling, what is said must not be above it.
fn under<T: PartialOrd + Copy + std::fmt::Display>(
    name: &str,
    asked: Option<T>,
    most: Option<T>,
) -> Result<Option<T>> {
    match (asked, most) {
        (Some(asked), Some(most)) if asked > most => {
            let message = format!("{name} was asked to be {asked}, and your tier allows {most}");
            Err(refused(&format!("{FIELD}.limits.{name}"), message))
        }
        (asked, most) => Ok(asked.or(most)),
    }
}

fn limits(asked: &Limits, most: &Limits) -> Result<Limits> {
    let Limits { connections, connections_per_second, bytes, bytes_per_second, connection_seconds } = asked;
    Ok(Limits {
        connections: under("connections", *connections, most.connections)?,
        connections_per_second: under(
            "connections_per_second",
            *connections_per_second,
            most.connections_per_second,
        )?,
        bytes: under("bytes", *bytes, most.bytes)?,
        bytes_per_second: under("bytes_per_second", *bytes_per_second, most.bytes_per_second)?,
        connection_seconds: under("connection_seconds", *connection_seconds, most.connection_seconds)?,
    })
}

impl EgressParts {
    /// What this caller's sandboxes may reach at most; none for an admin, who has no ceiling.
    fn ceiling(&self, caller: &Caller) -> Option<(Tier, Policy)> {
        let tier = caller.tier?;
        let said = self.tiers.get(&tier).cloned();
        Some((tier, said.unwrap_or_else(|| Self::usual(self.ceilings.of(tier).network))))
    }

    /// An entry that opens what is out of reach is an admin's.
    fn check_reach(&self, caller: &Caller, allow: &[Entry]) -> Result<()> {
        if caller.scope == Scope::Admin {
            return Ok(());
        }
        for entry in allow {
            if let Target::Net(net) = &entry.target
                && let Some(range) = self.reach.denied_part(net)
            {
                let message = format!(
                    "{entry} opens addresses of {range}, which are out of reach; only an admin key may"
                );
                return Err(refused(&format!("{FIELD}.allow"), message));
            }
        }
        Ok(())
    }

    /// A policy as this caller may have it.
    fn permitted(&self, caller: &Caller, policy: Policy) -> Result<Policy> {
        self.check_reach(caller, &policy.allow)?;
        let Some((tier, most)) = self.ceiling(caller) else { return Ok(policy) };
        if rank(policy.mode) > rank(most.mode) {
            let (asked, allowed) = (policy.mode.as_str(), most.mode.as_str());
            let message = format!(
                "egress.mode may be at most {allowed} with a key of the tier {tier}; {asked} was asked for"
            );
            let facts =
                refused(&format!("{FIELD}.mode"), message).fact("asked", asked).fact("allowed", allowed);
            return Err(facts.fact("tier", tier.as_str()));
        }
        if policy.mode == Mode::None {
            return Ok(policy);
        }
        let limits = limits(&policy.limits, &most.limits)?;
        let mut deny = policy.deny;
        deny.extend(most.deny.into_iter().filter(|entry| !deny.contains(entry)).collect::<Vec<_>>());
        Ok(Policy { limits, deny, ..policy })
    }

    /// What `network_enabled` alone means: what the caller's tier allows, as far as it is known here.
    fn of_tier(&self, caller: &Caller, image: &str) -> Result<Policy> {
        let ceiling = self.ceiling(caller);
        if let Some((tier, Policy { mode: Mode::None, .. })) = &ceiling {
            let message = format!("network_enabled may be at most false with a key of the tier {tier}");
            let facts = refused("network_enabled", message).fact("asked", true).fact("allowed", false);
            return Err(facts.fact("tier", tier.as_str()));
        }
        let mut policy = ceiling.map_or_else(|| Self::usual(Network::Full), |(_, policy)| policy);
        // A machine without some package manager has nothing to put into its preset.
        let known = self.book.presets(Some(image));
        policy.presets.retain(|name| known.0.get(name).is_some_and(|entries| !entries.is_empty()));
        Ok(policy)
    }
}

impl Gates {
    /// The policy of a new sandbox, by what was asked for.
    pub(crate) fn asked(
        &self,
        caller: &Caller,
        image: &str,
        enabled: Option<bool>,
        egress: Option<Policy>,
    ) -> Result<Policy> {
        let policy = match (enabled, egress) {
            (Some(false), Some(policy)) if policy.mode != Mode::None => {
                return Err(contradiction(false, policy.mode));
            }
            (Some(true), Some(policy)) if policy.mode == Mode::None => {
                return Err(contradiction(true, policy.mode));
            }
            (_, Some(policy)) => self.parts.permitted(caller, policy)?,
            (Some(true), None) => self.parts.of_tier(caller, image)?,
            (Some(false) | None, None) => Policy::default(),
        };
        self.rules(&policy, image)?;
        Ok(policy)
    }

    /// The rules of a policy, for a sandbox of this image.
    pub(super) fn rules(&self, policy: &Policy, image: &str) -> Result<Rules> {
        // Most name none, and every create asks.
        let presets =
            if policy.presets.is_empty() { Presets::default() } else { self.parts.book.presets(Some(image)) };
        Rules::new(FIELD, policy, &presets, &self.parts.reach)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use atoll_egress::{Egress, EgressSettings, Reach, presets::Book};
    use atoll_types::Tiers;
    use std::{collections::BTreeMap, sync::Arc};

    fn parts(tiers: &[(&str, &str)]) -> EgressParts {
        let reach: Arc<Reach> = Arc::default();
        let preset = |name: &str, entries: &[&str]| {
            (name.to_owned(), entries.iter().map(|e| e.parse().unwrap()).collect())
        };
        let operator = BTreeMap::from([preset("python", &["index.example"]), preset("node", &[])]);
        let book = Book::new(Default::default(), operator, Arc::clone(&reach), None);
        let read = |(name, json): &(&str, &str)| (name.parse().unwrap(), serde_json::from_str(json).unwrap());
        EgressParts {
            engine: Egress::new(EgressSettings::default()).unwrap(),
            book: Arc::new(book),
            reach,
            ceilings: Tiers::default(),
            tiers: tiers.iter().map(read).collect(),
            variables: Vec::new(),
        }
    }

    fn caller(tier: &str) -> Caller {
        Caller { scope: Scope::User, tier: Some(tier.parse().unwrap()), ..Caller::local() }
    }

    fn policy(json: &str) -> Policy {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn a_tier_is_a_ceiling() {
        let parts =
            parts(&[("elevated", r#"{"mode":"full","limits":{"connections":5},"deny":["bad.example"]}"#)]);
        let full = || policy(r#"{"mode":"full"}"#);
        let error = parts.permitted(&caller("standard"), full()).unwrap_err();
        assert_eq!((error.code, error.field.as_deref()), (ErrorCode::PermissionDenied, Some("egress.mode")));
        for word in ["full", "allowlist", "standard"] {
            assert!(error.message.contains(word), "{error}");
        }
        assert_eq!(parts.permitted(&caller("unrestricted"), full()), Ok(full()));
        assert_eq!(parts.permitted(&Caller::local(), full()), Ok(full()), "an admin has no ceiling");
        let small = parts.permitted(&caller("elevated"), full()).unwrap();
        assert_eq!((small.limits.connections, small.deny.len()), (Some(5), 1));
        let more =
            parts.permitted(&caller("elevated"), policy(r#"{"mode":"full","limits":{"connections":6}}"#));
        assert_eq!(more.unwrap_err().field.as_deref(), Some("egress.limits.connections"));
        assert!(
            parts
                .permitted(&caller("restricted"), policy(r#"{"mode":"allowlist","allow":["a.example"]}"#))
                .is_err()
        );
        assert_eq!(parts.permitted(&caller("restricted"), Policy::default()), Ok(Policy::default()));
    }

    #[test]
    fn only_an_admin_opens_what_is_out_of_reach() {
        let parts = parts(&[]);
        let inner = || policy(r#"{"mode":"allowlist","allow":["a.example","10.1.2.0/24:80"]}"#);
        let error = parts.permitted(&caller("unrestricted"), inner()).unwrap_err();
        assert_eq!(error.field.as_deref(), Some("egress.allow"));
        assert!(error.message.contains("10.1.2.0/24:80") && error.message.contains("10.0.0.0/8"), "{error}");
        assert_eq!(parts.permitted(&Caller::local(), inner()), Ok(inner()));
        let outer = policy(r#"{"mode":"allowlist","allow":["192.0.2.0/24"]}"#);
        assert!(parts.permitted(&caller("standard"), outer).is_ok());
    }

    #[test]
    fn network_enabled_means_what_the_tier_allows() {
        let parts = parts(&[]);
        let standard = parts.of_tier(&caller("standard"), "host").unwrap();
        assert_eq!(
            (standard.mode, standard.presets),
            (Mode::Allowlist, vec!["python".into(), "github".into()])
        );
        assert_eq!(parts.of_tier(&Caller::local(), "host").unwrap().mode, Mode::Full);
        assert!(parts.of_tier(&caller("restricted"), "host").unwrap_err().message.contains("restricted"));
    }
}
