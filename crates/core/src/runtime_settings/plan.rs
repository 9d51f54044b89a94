//! Plans: the quota of one owner. Every owner has the default plan unless the settings name another. An
//! admin's key is bound by none.

use super::{
    RuntimeSettings,
    value::{ValueRule, range_schema, text_schema},
};
use atoll_types::text::{CONTROL, TextRule};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::{collections::BTreeMap, ops::RangeInclusive};

/// The plan of owners that the settings do not name.
pub(crate) const DEFAULT_PLAN: &str = "free";
/// Plans, and owners with another plan than the default.
const MOST: usize = 10_000;
const COUNT: RangeInclusive<u32> = 0..=1_000_000;
const RATE: RangeInclusive<u32> = 1..=1_000_000;
const DISK_MB: RangeInclusive<u64> = 0..=1 << 40;
/// The longest name of a plan.
const LONGEST_NAME: usize = 64;
/// An owner's name or id.
const OWNER: TextRule = TextRule::new(1, 100, CONTROL);

/// A plan beside the default one; what it leaves out is as there.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self", deny_unknown_fields, default)]
pub struct Plan {
    /// Sandboxes that have a container, or are about to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_per_user: Option<u32>,
    /// Sandboxes in all, stopped ones too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandboxes: Option<u32>,
    /// Volumes that outlive sandboxes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volumes: Option<u32>,
    /// Skills.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skills: Option<u32>,
    /// What the packages of skills may have in all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skills_mb: Option<u64>,
    /// What the disks of sandboxes and volumes may hold in all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk_mb: Option<u64>,
    /// How often a command may be started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub execs_per_second: Option<u32>,
    /// How many may be started at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exec_burst: Option<u32>,
}

atoll_types::object_only!(Plan);

/// The quota of an owner, with nothing left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Quota {
    /// What the plan is called.
    pub(crate) plan: String,
    pub(crate) concurrent: u32,
    pub(crate) sandboxes: u32,
    pub(crate) volumes: u32,
    pub(crate) skills: u32,
    pub(crate) skills_mb: u64,
    pub(crate) disk_mb: u64,
    pub(crate) execs_per_second: u32,
    pub(crate) exec_burst: u32,
}

impl Plan {
    pub(super) fn rule() -> ValueRule<impl FnOnce(&BTreeMap<String, Self>) -> Result<(), String>> {
        let of = |mut schema: serde_json::Value| {
            schema["type"] = json!(["integer", "null"]);
            schema
        };
        let (count, rate) = (of(range_schema(&COUNT)), of(range_schema(&RATE)));
        let plan = json!({"type": "object", "additionalProperties": false, "properties": {
            "max_per_user": count, "sandboxes": count, "volumes": count, "skills": count,
            "skills_mb": of(range_schema(&DISK_MB)), "disk_mb": of(range_schema(&DISK_MB)),
            "execs_per_second": rate, "exec_burst": rate,
        }});
        let name = json!({
            "pattern": format!("^[A-Za-z0-9_.-]{{1,{LONGEST_NAME}}}$"), "not": {"const": DEFAULT_PLAN},
        });
        let schema = json!({
            "type": "object", "maxProperties": MOST, "propertyNames": name, "additionalProperties": plan,
        });
        ValueRule { check: Self::check_all, schema }
    }

    pub(super) fn owners_rule() -> ValueRule<impl FnOnce(&BTreeMap<String, String>) -> Result<(), String>> {
        let schema = json!({
            "type": "object", "maxProperties": MOST, "propertyNames": text_schema(&OWNER),
            "additionalProperties": {"type": "string"},
        });
        ValueRule { check: Self::check_owners, schema }
    }

    fn check_all(plans: &BTreeMap<String, Self>) -> Result<(), String> {
        if plans.len() > MOST {
            return Err(format!("may have {MOST} names"));
        }
        for (name, plan) in plans {
            let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
            if !(1..=LONGEST_NAME).contains(&name.len()) || !name.bytes().all(plain) {
                return Err(format!(
                    "has a name that is not 1 to {LONGEST_NAME} letters, digits, '-', '_' and '.'"
                ));
            }
            if name == DEFAULT_PLAN {
                return Err(format!(
                    "cannot name {DEFAULT_PLAN:?}, the plan of owners that are given no other"
                ));
            }
            let Self {
                max_per_user,
                sandboxes,
                volumes,
                skills,
                skills_mb,
                disk_mb,
                execs_per_second,
                exec_burst,
            } = plan;
            let counts = [max_per_user, sandboxes, volumes, skills].into_iter().flatten();
            let counts = counts.into_iter().all(|n| COUNT.contains(n));
            let sizes = [skills_mb, disk_mb].into_iter().flatten().all(|n| DISK_MB.contains(n));
            let rates = [execs_per_second, exec_burst].into_iter().flatten().all(|n| RATE.contains(n));
            if !counts || !rates || !sizes {
                return Err(format!("has a figure in {name:?} that is too large, or a rate of zero"));
            }
        }
        Ok(())
    }

    fn check_owners(owners: &BTreeMap<String, String>) -> Result<(), String> {
        match owners.len() <= MOST && owners.keys().all(|owner| OWNER.fits(owner)) {
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
            volumes: plan.volumes.unwrap_or(self.plan_volumes),
            skills: plan.skills.unwrap_or(self.plan_skills),
            skills_mb: plan.skills_mb.unwrap_or(self.plan_skills_mb),
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
