//! Which caller may allow what. A policy is checked when it is set: by itself, against the ceiling of the
//! caller's tier, and against the addresses that only an admin opens.

use super::{EgressParts, EgressSessions};
use crate::Caller;
use atoll_egress::{Entry, Limits, Mode, Policy, Presets, Rules, Target};
use atoll_store::Scope;
use atoll_types::{Error, ErrorCode, Network, Result, Tier};

/// The name of the field, here and in every request.
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

/// One limit under its ceiling: an absent one is the ceiling, a given one must not be above it.
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
    /// The policy ceiling of this caller's sandboxes; none for an admin.
    fn ceiling(&self, caller: &Caller) -> Option<(Tier, Policy)> {
        let tier = caller.tier?;
        let said = self.tiers.get(&tier).cloned();
        Some((tier, said.unwrap_or_else(|| Self::usual(self.ceilings.of(tier).network))))
    }

    /// Only an admin may set an entry that opens an address that is out of reach.
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

    /// The policy of builds of images that name none: the package managers, as far as this server knows their hosts.
    pub(super) fn of_builds(&self) -> Policy {
        let known = self.presets.presets(None);
        let names = ["debian", "python", "node", "rust", "r", "github"];
        let known = |name: &&str| known.0.get(*name).is_some_and(|entries| !entries.is_empty());
        let presets = names.into_iter().filter(known).map(str::to_owned).collect();
        Policy { mode: Mode::Allowlist, presets, ..Policy::default() }
    }

    /// The policy of `network_enabled` alone: what the caller's tier allows, as far as this server has the
    /// presets.
    fn of_tier(&self, caller: &Caller, image: &str) -> Result<Policy> {
        let ceiling = self.ceiling(caller);
        if let Some((tier, Policy { mode: Mode::None, .. })) = &ceiling {
            let message = format!("network_enabled may be at most false with a key of the tier {tier}");
            let facts = refused("network_enabled", message).fact("asked", true).fact("allowed", false);
            return Err(facts.fact("tier", tier.as_str()));
        }
        let mut policy = ceiling.map_or_else(|| Self::usual(Network::Full), |(_, policy)| policy);
        // A machine without a package manager has no entries for its preset.
        let known = self.presets.presets(Some(image));
        policy.presets.retain(|name| known.0.get(name).is_some_and(|entries| !entries.is_empty()));
        Ok(policy)
    }

    /// The policy of a sandbox whose create says nothing and whose owner wants a network: nothing where the caller's tier
    /// has none; the domains that the owner lists; else what the tier allows.
    fn by_default(
        &self,
        caller: &Caller,
        image: &str,
        allowed: Vec<Entry>,
        blocked: Vec<Entry>,
    ) -> Result<(Option<bool>, Option<Policy>)> {
        let most = match self.of_tier(caller, image) {
            Err(error) if error.code == ErrorCode::PermissionDenied => return Ok((Some(false), None)),
            other => other?,
        };
        Ok(match (allowed.is_empty(), blocked.is_empty()) {
            (true, true) => (Some(true), None),
            (true, false) => {
                let deny = most.deny.iter().cloned().chain(blocked).collect();
                (None, Some(Policy { deny, ..most }))
            }
            (false, _) => {
                let listed =
                    Policy { mode: Mode::Allowlist, allow: allowed, deny: blocked, ..Policy::default() };
                (None, Some(listed))
            }
        })
    }
}

/// The network that a tool session requests.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SessionNetwork {
    /// Whether sessions have one at all.
    pub enabled: bool,
    /// The requested mode; without one, the policy's.
    pub mode: Option<Mode>,
    /// Of an allowlist, only these presets; all that the policy has where none is named.
    pub presets: Vec<String>,
    /// Whether the mode is a default: one above what the policy allows becomes the policy's and is not refused.
    pub clamp: bool,
}

impl SessionNetwork {
    /// This as a subset of the policy, never as more.
    fn within(self, most: Policy) -> Result<Policy> {
        let Self { enabled: _, mode, presets, clamp } = self;
        let mode = mode.filter(|mode| !clamp || rank(*mode) <= rank(most.mode));
        let mode = mode.unwrap_or(if presets.is_empty() { most.mode } else { Mode::Allowlist });
        if rank(mode) > rank(most.mode) {
            let (asked, allowed) = (mode.as_str(), most.mode.as_str());
            let message =
                format!("network may be at most {allowed} by this server's policy; {asked} was asked for");
            return Err(refused("network", message).fact("asked", asked).fact("allowed", allowed));
        }
        let narrow = match (mode, most.mode) {
            (Mode::None, _) if presets.is_empty() => return Ok(Policy::default()),
            (Mode::None | Mode::Full, _) if !presets.is_empty() => {
                let message = format!(
                    "network_presets go with the network allowlist, and {} was asked for",
                    mode.as_str()
                );
                return Err(Error::invalid("network_presets", message));
            }
            (Mode::Allowlist, Mode::Full) => presets,
            (Mode::Allowlist, _) if !presets.is_empty() => {
                if let Some(other) = presets.iter().find(|name| !most.presets.contains(name)) {
                    let all = most.presets.join(", ");
                    let message =
                        format!("the preset {other:?} is not in this server's policy, which has {all}");
                    return Err(refused("network_presets", message));
                }
                presets
            }
            _ => return Ok(most),
        };
        Ok(Policy { mode, presets: narrow, allow: Vec::new(), ..most })
    }
}

impl EgressSessions {
    /// The policy of a session's sandbox: the ceiling of the key's tier (for an admin that of the usual
    /// tier), narrowed to what the session requested.
    pub(crate) fn for_session(
        &self,
        caller: &Caller,
        image: &str,
        network: SessionNetwork,
    ) -> Result<(Option<bool>, Option<Policy>)> {
        let tiered = Caller { tier: Some(caller.tier.unwrap_or(Tier::Standard)), ..caller.clone() };
        let most = match network.enabled {
            false => Policy::default(),
            true => match self.parts.of_tier(&tiered, image) {
                Err(error) if error.code == ErrorCode::PermissionDenied => Policy::default(),
                other => other?,
            },
        };
        let mut network = network;
        if network.mode == Some(Mode::Allowlist) && most.mode == Mode::Full && network.presets.is_empty() {
            let known = self.parts.presets.presets(Some(image)).0;
            network.presets = EgressParts::usual(Network::Allowlist).presets;
            network.presets.retain(|name| known.get(name).is_some_and(|entries| !entries.is_empty()));
        }
        let policy = network.within(most.clone())?;
        self.rules(&policy, image)?;
        // A key may not set every entry of its tier's ceiling itself, so the whole ceiling is
        // `network_enabled`.
        match policy == most && policy.mode != Mode::None && caller.tier.is_some() {
            true => Ok((Some(true), None)),
            false => Ok((None, Some(policy))),
        }
    }

    /// The policy of a sandbox whose create says nothing and whose owner wants a network.
    pub(crate) fn by_default(
        &self,
        caller: &Caller,
        image: &str,
        allowed: Vec<Entry>,
        blocked: Vec<Entry>,
    ) -> Result<(Option<bool>, Option<Policy>)> {
        self.parts.by_default(caller, image, allowed, blocked)
    }

    /// The policy of a new sandbox, by the request.
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
        self.parts.presets.note_use(&policy.presets);
        // Most policies name none, and every create comes here.
        let presets = if policy.presets.is_empty() {
            Presets::default()
        } else {
            self.parts.presets.presets(Some(image))
        };
        Rules::new(FIELD, policy, &presets, &self.parts.reach)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use atoll_egress::{Egress, EgressSettings, Reach, presets::PresetRegistry};
    use atoll_types::Tiers;
    use std::{collections::BTreeMap, sync::Arc};

    fn parts(tiers: &[(&str, &str)]) -> EgressParts {
        let reach: Arc<Reach> = Arc::default();
        let preset = |name: &str, entries: &[&str]| {
            (name.to_owned(), entries.iter().map(|e| e.parse().unwrap()).collect())
        };
        let operator = BTreeMap::from([preset("python", &["index.example"]), preset("node", &[])]);
        let presets = PresetRegistry::new(Default::default(), operator, Arc::clone(&reach), None);
        let read = |(name, json): &(&str, &str)| (name.parse().unwrap(), serde_json::from_str(json).unwrap());
        EgressParts {
            engine: Egress::new(EgressSettings::default()).unwrap(),
            presets: Arc::new(presets),
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
    fn a_session_has_less_than_the_policy_or_as_much_and_never_more() {
        let of = |most: &str, mode: Option<Mode>, presets: &[&str]| {
            let presets = presets.iter().map(|name| (*name).to_owned()).collect();
            SessionNetwork { enabled: true, mode, presets, clamp: false }
                .within(policy(most))
                .map_err(|e| e.field.unwrap())
        };
        let none = r#"{"mode":"none"}"#;
        let list = r#"{"mode":"allowlist","presets":["python","node"],"allow":["a.example"],"deny":["bad.example"]}"#;
        let full = r#"{"mode":"full","deny":["bad.example"],"limits":{"connections":5}}"#;
        for most in [none, list, full] {
            assert_eq!(of(most, None, &[]), Ok(policy(most)));
            assert_eq!(of(most, Some(Mode::None), &[]), Ok(Policy::default()));
            assert_eq!(of(most, Some(Mode::None), &["python"]), Err("network_presets".into()));
        }
        for (most, mode) in [(none, Mode::Allowlist), (none, Mode::Full), (list, Mode::Full)] {
            assert_eq!(of(most, Some(mode), &[]), Err("network".into()), "{most}");
        }
        assert_eq!(of(none, None, &["python"]), Err("network".into()));
        assert_eq!(of(list, Some(Mode::Allowlist), &[]), Ok(policy(list)));
        let python = policy(r#"{"mode":"allowlist","presets":["python"],"deny":["bad.example"]}"#);
        assert_eq!(of(list, None, &["python"]), Ok(python.clone()));
        assert_eq!(of(list, Some(Mode::Allowlist), &["github"]), Err("network_presets".into()));
        let narrow = Policy { limits: policy(full).limits, ..python };
        assert_eq!(of(full, Some(Mode::Allowlist), &["python"]), Ok(narrow));
        assert_eq!(of(full, Some(Mode::Full), &[]), Ok(policy(full)));
        assert_eq!(of(full, Some(Mode::Full), &["python"]), Err("network_presets".into()));
        let clamped =
            SessionNetwork { enabled: true, mode: Some(Mode::Full), clamp: true, ..Default::default() };
        assert_eq!(clamped.clone().within(policy(none)), Ok(Policy::default()));
        assert_eq!(clamped.within(policy(list)), Ok(policy(list)));
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

    #[test]
    fn an_owners_default_is_a_part_of_what_the_tier_allows() {
        let parts = parts(&[("elevated", r#"{"mode":"full","deny":["bad.example"]}"#)]);
        let entries = |all: &[&str]| all.iter().map(|text| text.parse().unwrap()).collect::<Vec<Entry>>();
        let of = |tier, allowed: &[&str], blocked: &[&str]| {
            parts.by_default(&caller(tier), "host", entries(allowed), entries(blocked))
        };
        // Without lists it is what `network_enabled` means.
        assert_eq!(of("standard", &[], &[]), Ok((Some(true), None)));
        // What is blocked is so beside what the tier denies.
        let blocked = policy(r#"{"mode":"full","deny":["bad.example","worse.example"]}"#);
        assert_eq!(of("elevated", &[], &["worse.example"]), Ok((None, Some(blocked))));
        let presets = of("standard", &[], &["worse.example"]).unwrap().1.unwrap();
        assert_eq!((presets.mode, presets.presets.len(), presets.deny.len()), (Mode::Allowlist, 2, 1));
        // What is allowed is all that there is, blocked or not.
        let listed = policy(r#"{"mode":"allowlist","allow":["a.example"],"deny":["b.example"]}"#);
        assert_eq!(of("elevated", &["a.example"], &["b.example"]), Ok((None, Some(listed))));
        let alone = policy(r#"{"mode":"allowlist","allow":["a.example"]}"#);
        assert_eq!(of("standard", &["a.example"], &[]), Ok((None, Some(alone))));
        // A tier without a network has none, whatever the owner lists.
        for lists in [&["a.example"][..], &[]] {
            assert_eq!(of("restricted", lists, lists), Ok((Some(false), None)));
        }
    }
}
