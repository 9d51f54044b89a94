//! The ceiling of a caller's tier: limits that a request leaves out are clamped to it; a requested value
//! above it is refused with the field, the requested and the allowed value. An admin has no tier.

use crate::{
    Caller, CoreSettings,
    exec_rate::ExecRates,
    runtime_settings::{LiveSettings, Quota},
};
use atoll_store::{SandboxRecord, Scope};
use atoll_types::{Ceiling, Error, ErrorCode, Limits, Result, Tier};
use std::sync::Arc;

const MIB: u64 = 1 << 20;

/// The ceiling of a caller's requests; an admin has none.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct TierCeiling(Option<(Tier, Ceiling)>);

/// Which limits a request names itself.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ExplicitFields {
    pub(crate) memory: bool,
    pub(crate) cores: bool,
    pub(crate) disk: bool,
    pub(crate) processes: bool,
}

impl TierCeiling {
    /// These default limits, clamped to the ceiling.
    pub(crate) fn clamp(self, limits: Limits) -> Limits {
        self.0.map_or(limits, |(_, ceiling)| ceiling.clamp(limits))
    }

    /// Refuses limits that the request names and that are above the ceiling.
    pub(crate) fn check(self, limits: &Limits, named: ExplicitFields) -> Result<()> {
        let Some((tier, most)) = self.0 else { return Ok(()) };
        let cores = |millis: u32| f64::from(millis) / 1000.0;
        if named.memory {
            tier.check("memory_mb", limits.memory_bytes / MIB, most.memory_mb)?;
        }
        if named.cores {
            tier.check("cpu_cores", cores(limits.cpu_millis), cores(most.cpu_millis))?;
        }
        if named.disk {
            tier.check("disk_mb", limits.disk_bytes / MIB, most.disk_mb)?;
        }
        if named.processes {
            tier.check("processes", limits.processes, most.processes)?;
        }
        Ok(())
    }

    /// Refuses a profile that the tier does not have.
    pub(crate) fn check_profile(self, name: &str) -> Result<()> {
        match self.0 {
            Some((tier, most)) if !most.profiles.has(name) => {
                let allowed = most.profiles.names();
                let message = format!(
                    "the profile {name} is not for keys of the tier {tier}; {} are",
                    allowed.join(", ")
                );
                let error = Error::new(ErrorCode::PermissionDenied, message).at("profile");
                Err(error.fact("asked", name).fact("allowed", allowed).fact("tier", tier.as_str()))
            }
            _ => Ok(()),
        }
    }

    /// How long a command may run, whether it names a timeout in this field or not.
    pub(crate) fn timeout(self, field: &str, asked: Option<f64>, usual: Option<u64>) -> Result<Option<f64>> {
        let seconds = |whole: u64| whole as f64;
        let Some((tier, most)) = self.0 else { return Ok(asked.or(usual.map(seconds))) };
        match asked {
            Some(seconds) => {
                // A whole number is shown as one.
                match seconds.fract() == 0.0 {
                    true => tier.check(field, seconds as u64, most.timeout_seconds)?,
                    false => tier.check(field, seconds, most.timeout_seconds as f64)?,
                }
                Ok(asked)
            }
            None => Ok(Some(seconds(usual.unwrap_or(u64::MAX).min(most.timeout_seconds)))),
        }
    }
}

/// The shortest timeout of a command or a cell.
pub const LEAST_TIMEOUT: f64 = 0.001;

/// Refuses a timeout that is none, or longer than anything may run.
pub(crate) fn check_timeout(field: &str, seconds: Option<f64>, most: u64) -> Result<()> {
    match seconds {
        Some(seconds) if !(LEAST_TIMEOUT..=most as f64).contains(&seconds) => {
            let message = format!("{field} must be between {LEAST_TIMEOUT} and {most}");
            Err(Error::invalid(field, message))
        }
        _ => Ok(()),
    }
}

/// What a caller may ask for: the ceiling of its tier, and the quota of its owner's plan.
#[derive(Clone)]
pub(crate) struct CallerLimits {
    pub(crate) settings: Arc<CoreSettings>,
    pub(crate) live_settings: Arc<LiveSettings>,
    pub(crate) exec_rates: Arc<ExecRates>,
}

impl CallerLimits {
    pub(crate) fn ceiling(&self, caller: &Caller) -> TierCeiling {
        TierCeiling(caller.tier.map(|tier| (tier, self.settings.tiers.of(tier))))
    }

    /// Refuses to start a sandbox that was made by a key of a higher tier. Its disk was reserved when it was
    /// made and holds its files, so the disk is no reason to refuse.
    pub(crate) fn may_start(&self, caller: &Caller, record: &SandboxRecord) -> Result<()> {
        let named = ExplicitFields { memory: true, cores: true, disk: false, processes: true };
        let most = self.ceiling(caller);
        most.check_profile(&record.profile.name)?;
        most.check(&record.limits, named)
    }

    /// The quota that the caller's plan allows an owner; an admin has none.
    pub(crate) fn quota(&self, caller: &Caller, owner: &str, owner_name: &str) -> Option<Quota> {
        (caller.scope != Scope::Admin).then(|| self.live_settings.now().quota(owner, owner_name))
    }

    /// Takes one of the command starts that the caller's plan allows.
    pub(crate) fn take_exec(&self, caller: &Caller) -> Result<()> {
        match self.quota(caller, &caller.owner, &caller.owner_name) {
            Some(quota) => self.exec_rates.take(&caller.owner, &quota),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_is_clamped_and_what_is_named_is_refused() {
        let most = TierCeiling(Some((Tier::Restricted, Tier::Restricted.ceiling())));
        let usual = most.clamp(Limits::default());
        assert_eq!(
            (usual.memory_bytes / MIB, usual.cpu_millis, usual.disk_bytes / MIB, usual.processes),
            (256, 500, 1024, 128)
        );
        let all = ExplicitFields { memory: true, cores: true, disk: true, processes: true };
        assert_eq!(most.check(&usual, all), Ok(()));
        for (limits, field) in [
            (Limits { memory_bytes: 257 * MIB, ..usual }, "memory_mb"),
            (Limits { cpu_millis: 501, ..usual }, "cpu_cores"),
            (Limits { disk_bytes: 1025 * MIB, ..usual }, "disk_mb"),
            (Limits { processes: 129, ..usual }, "processes"),
        ] {
            assert_eq!(most.check(&limits, all).unwrap_err().field.as_deref(), Some(field));
            assert_eq!(most.check(&limits, ExplicitFields::default()), Ok(()));
            assert_eq!(TierCeiling::default().check(&limits, all), Ok(()), "an admin has no tier");
        }
        assert_eq!(most.check_profile("tools"), Ok(()));
        assert_eq!(most.check_profile("root").unwrap_err().field.as_deref(), Some("profile"));
        assert_eq!(TierCeiling::default().check_profile("root"), Ok(()));
        let time = |asked, usual| {
            most.timeout("timeout_seconds", asked, usual).map_err(|e| e.field.unwrap_or_default())
        };
        assert_eq!(time(None, Some(300)), Ok(Some(120.0)));
        assert_eq!(time(None, None), Ok(Some(120.0)));
        assert_eq!(time(Some(120.0), None), Ok(Some(120.0)));
        assert_eq!(time(Some(0.25), None), Ok(Some(0.25)));
        assert_eq!(time(Some(120.5), None), Err("timeout_seconds".into()));
        assert_eq!(time(Some(121.0), None), Err("timeout_seconds".into()));
        assert_eq!(TierCeiling::default().timeout("timeout_seconds", None, None), Ok(None));
    }
}
