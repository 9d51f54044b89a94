//! Plans: the quota of one owner. Every owner has the default plan unless the settings name another. An
//! admin's key is bound by none.

use super::RuntimeSettings;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The plan of owners that the settings do not name.
pub(crate) const DEFAULT_PLAN: &str = "free";
/// Plans, and owners with another plan than the default.
const MOST: usize = 10_000;

/// A plan beside the default one; what it leaves out is as there.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Plan {
    /// Sandboxes that have a container, or are about to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_per_user: Option<u32>,
    /// Sandboxes in all, stopped ones too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandboxes: Option<u32>,
    /// What their disks may hold in all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk_mb: Option<u64>,
    /// How often a command may be started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub execs_per_second: Option<u32>,
    /// How many may be started at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exec_burst: Option<u32>,
}

/// The quota of an owner, with nothing left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Quota {
    /// What the plan is called.
    pub(crate) plan: String,
    pub(crate) concurrent: u32,
    pub(crate) sandboxes: u32,
    pub(crate) disk_mb: u64,
    pub(crate) execs_per_second: u32,
    pub(crate) exec_burst: u32,
}

impl Plan {
    pub(super) fn check_all(plans: &BTreeMap<String, Self>) -> Result<(), String> {
        if plans.len() > MOST {
            return Err(format!("may have {MOST} names"));
        }
        for (name, plan) in plans {
            let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
            if !(1..=64).contains(&name.len()) || !name.bytes().all(plain) {
                return Err("has a name that is not 1 to 64 letters, digits, '-', '_' and '.'".into());
            }
            if name == DEFAULT_PLAN {
                return Err(format!("cannot name {DEFAULT_PLAN:?}, which is what everybody has"));
            }
            let Self { max_per_user, sandboxes, disk_mb, execs_per_second, exec_burst } = plan;
            let counts = [max_per_user, sandboxes].into_iter().flatten().all(|n| *n <= 1_000_000);
            let rates =
                [execs_per_second, exec_burst].into_iter().flatten().all(|n| (1..=1_000_000).contains(n));
            if !counts || !rates || disk_mb.is_some_and(|n| n > 1 << 40) {
                return Err(format!("has a figure in {name:?} that is too large, or a rate of zero"));
            }
        }
        Ok(())
    }

    pub(super) fn check_owners(owners: &BTreeMap<String, String>) -> Result<(), String> {
        let plain = |owner: &String| (1..=100).contains(&owner.len()) && !owner.chars().any(char::is_control);
        match owners.len() <= MOST && owners.keys().all(plain) {
            true => Ok(()),
            false => Err(format!("may have {MOST} names of 1 to 100 characters")),
        }
    }
}

impl RuntimeSettings {
    /// The quota of an owner, by its id and by its name.
    pub(crate) fn quota(&self, owner: &str, owner_name: &str) -> Quota {
        let named = self.owners.get(owner_name).or_else(|| self.owners.get(owner));
        let (name, plan) = match named.and_then(|name| self.plans.get_key_value(name)) {
            Some((name, plan)) => (name.clone(), plan.clone()),
            None => (DEFAULT_PLAN.to_owned(), Plan::default()),
        };
        Quota {
            plan: name,
            concurrent: plan.max_per_user.unwrap_or(self.default_max_per_user),
            sandboxes: plan.sandboxes.unwrap_or(self.plan_sandboxes),
            disk_mb: plan.disk_mb.unwrap_or(self.plan_disk_mb),
            execs_per_second: plan.execs_per_second.unwrap_or(self.plan_execs_per_second),
            exec_burst: plan.exec_burst.unwrap_or(self.plan_exec_burst),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_has_its_plan_and_the_rest_of_the_default() {
        let pro = Plan { max_per_user: Some(20), ..Plan::default() };
        let runtime_settings = RuntimeSettings {
            plans: [("pro".to_owned(), pro)].into(),
            owners: [("ann".to_owned(), "pro".to_owned()), ("id-of-bob".to_owned(), "pro".to_owned())].into(),
            ..RuntimeSettings::default()
        };
        let of = |id, name| {
            let quota = runtime_settings.quota(id, name);
            (quota.plan, quota.concurrent, quota.sandboxes)
        };
        let sandboxes = RuntimeSettings::default().plan_sandboxes;
        assert_eq!(of("x", "ann"), ("pro".into(), 20, sandboxes));
        assert_eq!(of("id-of-bob", "bob"), ("pro".into(), 20, sandboxes));
        assert_eq!(of("x", "cid"), ("free".into(), 3, sandboxes));
    }
}
