//! Changing a sandbox's limits, environment, labels, network and volumes.

use super::{
    checks::{check_idle, check_labels, limits},
    create::places_of,
};
use crate::{
    AttachVolume, Caller, Environment, Sandboxes,
    actor::Patch,
    ceiling::ExplicitFields,
    events::new_event,
    operation::{AuditedOperation, OperationSpec},
};
use atoll_store::{SandboxId, SandboxRecord};
use atoll_types::{AutoSnapshot, EventKind, Operation, Profile, Result};
use std::collections::BTreeMap;

/// What to change; what is left out stays.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PatchSandbox {
    pub idle_timeout_seconds: Option<u32>,
    pub memory_mb: Option<u64>,
    pub cpu_cores: Option<f64>,
    pub disk_mb: Option<u64>,
    pub env_vars: Option<BTreeMap<String, String>>,
    pub secrets: Option<BTreeMap<String, String>>,
    pub network_enabled: Option<bool>,
    pub labels: Option<BTreeMap<String, String>>,
    pub auto_snapshot: Option<AutoSnapshot>,
    /// All of them, not some more.
    pub volumes: Option<Vec<AttachVolume>>,
}

impl Sandboxes {
    /// Changes a sandbox. Its environment and its limits change only while it is not running; the disk limit
    /// at any time.
    pub async fn patch(
        &self,
        caller: &Caller,
        id: SandboxId,
        request: PatchSandbox,
    ) -> Result<SandboxRecord> {
        let mut what = OperationSpec::to(Operation::SandboxPatch, id);
        let names = request.env_vars.iter().chain(&request.secrets).flat_map(BTreeMap::keys);
        what.variables = names.cloned().collect();
        what.secrets = request.secrets.iter().flat_map(BTreeMap::values).cloned().collect();
        if let Some(volumes) = &request.volumes {
            what = what.and("volumes", places_of(volumes));
        }
        let attaches = request.volumes.is_some();
        let mut audited = self.operations.audited(caller, what).await?;
        let result = self.patch_as(&audited, caller, id, request).await;
        if let (true, Ok(patched)) = (attaches, &result) {
            let mounts = patched.profile.volumes.iter();
            let all: Vec<_> = mounts
                .map(|of| serde_json::json!({ "name": of.name, "path": of.path, "read_only": of.read_only }))
                .collect();
            let data = serde_json::json!({ "volumes": all });
            audited.add_event(new_event(&patched.owner, Some(id), EventKind::VolumesChanged, None, &data));
        }
        audited.done(result).await
    }

    async fn patch_as(
        &self,
        audited: &AuditedOperation,
        caller: &Caller,
        id: SandboxId,
        request: PatchSandbox,
    ) -> Result<SandboxRecord> {
        let record = audited.record()?;
        let PatchSandbox {
            idle_timeout_seconds,
            memory_mb,
            cpu_cores,
            disk_mb,
            env_vars,
            secrets,
            network_enabled,
            labels,
            auto_snapshot,
            volumes,
        } = request;
        auto_snapshot
            .map_or(Ok(()), |when| self.check_auto_snapshot(&record.provider, &record.profile, when))?;
        check_idle(idle_timeout_seconds)?;
        env_vars.as_ref().map_or(Ok(()), |e| self.check_variables("env_vars", e))?;
        secrets.as_ref().map_or(Ok(()), |e| self.check_variables("secrets", e))?;
        labels.as_ref().map_or(Ok(()), check_labels)?;
        let at_rest_only = memory_mb.is_some()
            || cpu_cores.is_some()
            || env_vars.is_some()
            || secrets.is_some()
            || network_enabled.is_some()
            || volumes.is_some();
        let profile = match volumes {
            Some(asked) => {
                let mut volumes =
                    self.volumes.mounts_of_request(&record.owner, &record.provider, &asked).await?;
                let kept = self.volumes.kept_tenant(&record.owner, &record.profile.volumes, &volumes).await?;
                volumes.extend(kept);
                let profile = Profile { volumes, ..record.profile.clone() };
                profile.validate()?;
                Some(profile)
            }
            None => None,
        };
        // A sandbox whose network is enabled already keeps its policy as it is.
        let changed = network_enabled.filter(|enabled| *enabled != record.network_enabled);
        let egress = changed
            .map(|enabled| {
                self.egress_sessions.asked(caller, record.profile.image.as_str(), Some(enabled), None)
            })
            .transpose()?;
        let new_limits = limits(record.limits, memory_mb, cpu_cores, disk_mb, None)?;
        let named = ExplicitFields {
            memory: memory_mb.is_some(),
            cores: cpu_cores.is_some(),
            disk: disk_mb.is_some(),
            ..ExplicitFields::default()
        };
        self.limits.ceiling(caller).check(&new_limits, named)?;
        let environment = match (env_vars, secrets) {
            (None, None) => None,
            (plain, secrets) => {
                Some(self.vault.seal(&id.to_string(), &self.changed_environment(record, plain, secrets)?)?)
            }
        };
        let patch = Patch {
            at_rest_only,
            limits: (new_limits != record.limits).then_some(new_limits),
            quota: self.limits.quota(caller, &record.owner, &record.owner_name),
            environment,
            labels,
            idle_timeout_seconds,
            auto_snapshot,
            egress,
            profile,
        };
        self.registry.patch(id, Operation::SandboxPatch, patch).await
    }

    /// The environment of a sandbox with other variables, other secrets, or both.
    pub(super) fn changed_environment(
        &self,
        record: &SandboxRecord,
        plain: Option<BTreeMap<String, String>>,
        secrets: Option<BTreeMap<String, String>>,
    ) -> Result<Environment> {
        let Environment { variables, secret } = self.operations.environment_of(record)?;
        let (old_secrets, old_plain) = variables.into_iter().partition(|(name, _)| secret.contains(name));
        Ok(Environment::new(plain.unwrap_or(old_plain), secrets.unwrap_or(old_secrets)))
    }
}
