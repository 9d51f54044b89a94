//! Making sandboxes and changing them: requests are validated here and carried out by the sandbox's actor.

use crate::{
    AttachVolume, Caller, Environment, Sandboxes, Volumes,
    actor::Patch,
    bounds::{
        CPU_MILLIS, DISK_MB, IDLE_SECONDS, IMAGE, LABEL_NAME, LABEL_VALUE, LIFETIME_SECONDS, MEMORY_MB,
        MOST_LABELS, MOST_VARIABLES, SESSION_KEY, VARIABLE_NAME, VARIABLE_VALUE,
    },
    ceiling::{ExplicitFields, TierCeiling},
    kernels::check_packages,
    operation::{AuditedOperation, OperationSpec},
    snapshots::snapshots_for,
};
use atoll_egress::{Mode, Policy};
use atoll_kernels::Language;
use atoll_store::{NewSandbox, SandboxId, SandboxRecord, Status};
use atoll_types::{
    AutoSnapshot, Error, ErrorCode, ImageDefaults, Limits, Operation, PathRules, Profile, ProviderName,
    Result, VolumeId, time::now_ms,
};
use std::{collections::BTreeMap, ops::RangeInclusive};

const MIB: u64 = 1 << 20;
/// Names and values of a request's variables together, in bytes.
const LARGEST_ENVIRONMENT: usize = 128 * 1024;

/// A request for a new sandbox; what is left out has its default.
#[derive(Debug, Clone, Default, PartialEq)]
#[allow(missing_docs)]
pub struct CreateSandbox {
    pub image: Option<String>,
    /// The profile, which is fixed when its container starts; `default` where none is named.
    pub profile: Option<String>,
    pub idle_timeout_seconds: Option<u32>,
    pub max_lifetime_seconds: Option<u32>,
    pub memory_mb: Option<u64>,
    pub cpu_cores: Option<f64>,
    pub disk_mb: Option<u64>,
    pub processes: Option<u32>,
    pub env_vars: BTreeMap<String, String>,
    pub secrets: BTreeMap<String, String>,
    pub network_enabled: Option<bool>,
    pub egress: Option<Policy>,
    pub session_key: Option<String>,
    pub labels: BTreeMap<String, String>,
    /// Before what a snapshot is made by itself.
    pub auto_snapshot: AutoSnapshot,
    /// Packages by language, versions by name. A package that cannot be installed is reported and fails
    /// nothing.
    pub dependencies: BTreeMap<Language, BTreeMap<String, String>>,
    /// Volumes of the caller's to attach.
    pub volumes: Vec<AttachVolume>,
    /// Attaches the storage of this tenant, which is made if there is none, at [`atoll_types::TENANT_PATH`].
    pub tenant_id: Option<String>,
    /// Paths with a rule.
    pub filesystem: PathRules,
}

/// What to change; what is left out stays.
#[derive(Debug, Clone, Default, PartialEq)]
#[allow(missing_docs)]
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

/// A sandbox, and whether it is new.
#[derive(Debug, Clone)]
pub struct Created {
    /// The sandbox.
    pub record: SandboxRecord,
    /// Whether it was made just now.
    pub new: bool,
    /// What went wrong with its dependencies.
    pub stderr: String,
}

/// Refuses what lies outside of a range.
fn outside<T: std::fmt::Display>(field: &str, range: &RangeInclusive<T>) -> Error {
    Error::invalid(field, format!("{field} must be between {} and {}", range.start(), range.end()))
}

fn megabytes(field: &str, value: u64) -> Result<u64> {
    value.checked_mul(MIB).ok_or_else(|| Error::invalid(field, format!("{field} is too large")))
}

fn cpu_millis(cores: f64) -> Result<u32> {
    let range = f64::from(*CPU_MILLIS.start()) / 1000.0..=f64::from(*CPU_MILLIS.end()) / 1000.0;
    // NaN and the infinite are outside of every range.
    if range.contains(&cores) {
        return Ok((cores * 1000.0).round() as u32);
    }
    Err(outside("cpu_cores", &range))
}

/// The limits with the requested values, and any refusal in the caller's own words for the field.
pub(super) fn limits(
    base: Limits,
    memory: Option<u64>,
    cores: Option<f64>,
    disk: Option<u64>,
    processes: Option<u32>,
) -> Result<Limits> {
    let mut limits = base;
    if let Some(mb) = memory {
        limits.memory_bytes = megabytes("memory_mb", mb)?;
    }
    if let Some(mb) = disk {
        limits.disk_bytes = megabytes("disk_mb", mb)?;
    }
    if let Some(cores) = cores {
        limits.cpu_millis = cpu_millis(cores)?;
    }
    limits.processes = processes.unwrap_or(limits.processes);
    limits.validate().map_err(|e| match e.field.as_deref() {
        Some("memory_bytes") => outside("memory_mb", &MEMORY_MB),
        Some("disk_bytes") => outside("disk_mb", &DISK_MB),
        _ => e,
    })?;
    Ok(limits)
}

/// The limits of a new sandbox: the usual ones, of its image or of all, clamped to the caller's tier, and the requested ones.
fn asked_limits(
    most: TierCeiling,
    usual: ImageDefaults,
    memory: Option<u64>,
    cores: Option<f64>,
    disk: Option<u64>,
    processes: Option<u32>,
) -> Result<Limits> {
    let named = ExplicitFields {
        memory: memory.is_some(),
        cores: cores.is_some(),
        disk: disk.is_some(),
        processes: processes.is_some(),
    };
    let limits = limits(most.clamp(usual.over(Limits::default())), memory, cores, disk, processes)?;
    most.check(&limits, named)?;
    Ok(limits)
}

/// The limit of a disk of its own: the usual one clamped to the caller's tier, or the requested one.
pub(crate) fn disk_limit(most: TierCeiling, disk_mb: Option<u64>) -> Result<u64> {
    asked_limits(most, ImageDefaults::default(), None, None, disk_mb, None).map(|limits| limits.disk_bytes)
}

pub(super) fn check_idle(seconds: Option<u32>) -> Result<()> {
    match seconds {
        Some(n) if !IDLE_SECONDS.contains(&n) => Err(outside("idle_timeout_seconds", &IDLE_SECONDS)),
        _ => Ok(()),
    }
}

/// Refuses a lifetime that is zero, or longer than the operator allows; 0 as the operator's value is no
/// bound.
pub(super) fn check_lifetime(seconds: Option<u32>, most: u32) -> Result<()> {
    const FIELD: &str = "max_lifetime_seconds";
    match seconds {
        Some(n) if !LIFETIME_SECONDS.contains(&n) => Err(outside(FIELD, &LIFETIME_SECONDS)),
        Some(n) if most != 0 && n > most => {
            let message = format!("{FIELD} may be at most {most} on this server; {n} was asked for");
            let error = Error::new(ErrorCode::PermissionDenied, message).at(FIELD);
            Err(error.fact("asked", n).fact("allowed", most))
        }
        _ => Ok(()),
    }
}

pub(crate) fn check_environment(field: &str, environment: &BTreeMap<String, String>) -> Result<()> {
    let size: usize = environment.iter().map(|(k, v)| k.len() + v.len()).sum();
    if environment.len() > MOST_VARIABLES || size > LARGEST_ENVIRONMENT {
        let message =
            format!("{field} may have {MOST_VARIABLES} names and {} KiB", LARGEST_ENVIRONMENT >> 10);
        return Err(Error::new(ErrorCode::TooLarge, message).at(field));
    }
    match environment.iter().find(|(k, v)| !VARIABLE_NAME.fits(k) || !VARIABLE_VALUE.fits(v)) {
        Some((name, _)) => {
            let message = format!("the name {name:?} is empty or holds '=', or it or its value holds a NUL");
            Err(Error::invalid(field, message))
        }
        None => Ok(()),
    }
}

pub(super) fn check_labels(labels: &BTreeMap<String, String>) -> Result<()> {
    if labels.len() > MOST_LABELS {
        return Err(Error::invalid("labels", format!("labels may have {MOST_LABELS} names")));
    }
    for (name, value) in labels {
        LABEL_NAME.check("labels", name)?;
        if !LABEL_VALUE.fits(value) {
            let message =
                format!("a label's value may have {} characters, none of them control", LABEL_VALUE.most);
            return Err(Error::invalid("labels", message));
        }
    }
    Ok(())
}

/// Volumes as the audit trail names them.
fn places_of(volumes: &[AttachVolume]) -> String {
    volumes.iter().map(|volume| format!("{}:{}", volume.name, volume.path)).collect::<Vec<_>>().join(" ")
}

impl Sandboxes {
    /// Makes a sandbox, or finds and starts the one that has this session key.
    pub async fn create(&self, caller: &Caller, request: CreateSandbox) -> Result<Created> {
        self.create_with_id(caller, SandboxId::random(), request).await
    }

    /// The same, for a caller that has to know the id before the sandbox exists.
    pub(crate) async fn create_with_id(
        &self,
        caller: &Caller,
        id: SandboxId,
        request: CreateSandbox,
    ) -> Result<Created> {
        let image = request.image.clone().unwrap_or_default();
        let mut what = OperationSpec::to(Operation::SandboxCreate, id).with(image);
        what.variables = request.env_vars.keys().chain(request.secrets.keys()).cloned().collect();
        what.secrets = request.secrets.values().cloned().collect();
        if let Some(key) = &request.session_key {
            what = what.and("session_key", key);
        }
        if let Some(profile) = &request.profile {
            what = what.and("profile", profile);
        }
        if let Some(tenant) = &request.tenant_id {
            what = what.and("tenant_id", tenant);
        }
        if !request.volumes.is_empty() {
            what = what.and("volumes", places_of(&request.volumes));
        }
        if !request.filesystem.is_empty() {
            let rules =
                serde_json::to_string(&request.filesystem).map_err(|e| Error::internal(e.to_string()))?;
            what = what.and("filesystem", rules);
        }
        let audited = self.operations.audited(caller, what).await?;
        let result = self.create_as(&audited, caller, id, request).await;
        audited.done(result).await
    }

    async fn create_as(
        &self,
        audited: &AuditedOperation,
        caller: &Caller,
        id: SandboxId,
        request: CreateSandbox,
    ) -> Result<Created> {
        audited.allowed()?;
        let dependencies = request.dependencies.clone();
        for (language, packages) in &dependencies {
            check_packages(*language, packages).map_err(|e| e.at("dependencies"))?;
        }
        let profile = request.profile.clone();
        let (volumes, tenant) = (request.volumes.clone(), request.tenant_id.clone());
        let mut new = self.new_record(caller, id, request)?;
        new.profile.volumes = self.volumes.mounts(&new.owner, &new.provider, &volumes).await?;
        match tenant {
            Some(tenant) => {
                // A request that is refused makes no volume.
                let profile =
                    Profile { volumes: Volumes::with_tenant(&new.profile.volumes)?, ..new.profile.clone() };
                profile.validate()?;
                new.profile.volumes.push(self.volumes.tenant(caller, &tenant).await?);
            }
            None => new.profile.validate()?,
        }
        let mut created = self.make_and_start(caller, new).await?;
        if let Some(asked) = profile.filter(|name| *name != created.record.profile.name) {
            let (id, is) = (created.record.id.uuid(), &created.record.profile.name);
            let message = format!("the sandbox {id} of this session key has the profile {is}, not {asked}");
            return Err(Error::new(ErrorCode::Conflict, message).at("profile"));
        }
        if created.new {
            created.stderr = self.kernels.install_all(caller, created.record.id, dependencies).await;
        }
        Ok(created)
    }

    /// Makes and starts a new sandbox within an operation that the caller has begun and may carry out.
    pub(crate) async fn make_from(
        &self,
        caller: &Caller,
        id: SandboxId,
        request: CreateSandbox,
    ) -> Result<SandboxRecord> {
        let new = self.new_record(caller, id, request)?;
        Ok(self.make_and_start(caller, new).await?.record)
    }

    fn new_record(&self, caller: &Caller, id: SandboxId, request: CreateSandbox) -> Result<NewSandbox> {
        let CreateSandbox {
            image,
            profile,
            idle_timeout_seconds,
            max_lifetime_seconds,
            memory_mb,
            cpu_cores,
            disk_mb,
            processes,
            env_vars,
            secrets,
            network_enabled,
            egress,
            session_key,
            labels,
            auto_snapshot,
            dependencies: _,
            volumes: _,
            tenant_id: _,
            filesystem,
        } = request;
        let runtime_settings = self.live_settings.now();
        check_idle(idle_timeout_seconds)?;
        check_lifetime(max_lifetime_seconds, runtime_settings.lifecycle_max_lifetime_seconds)?;
        self.check_variables("env_vars", &env_vars)?;
        self.check_variables("secrets", &secrets)?;
        check_labels(&labels)?;
        if let Some(key) = &session_key {
            SESSION_KEY.check("session_key", key)?;
        }
        let usual = runtime_settings.db_default_image.as_ref().unwrap_or(&self.settings.default_image);
        let image = image.unwrap_or_else(|| usual.clone());
        IMAGE.check("image", &image)?;
        let found = self.catalogue.usable(caller, &image)?;
        let most = self.limits.ceiling(caller);
        let limits = asked_limits(most, found.defaults(), memory_mb, cpu_cores, disk_mb, processes)?;
        let profile = found.profile(profile.as_deref().unwrap_or("default"))?;
        let profile = Profile { paths: filesystem, ..profile };
        profile.validate()?;
        self.check_auto_snapshot(self.providers.default_name(), &profile, auto_snapshot)?;
        if profile.has_attachments()
            && self.providers.get(self.providers.default_name())?.attachments().is_none()
        {
            let message = "the provider of this server has no path rules";
            return Err(Error::new(ErrorCode::Unsupported, message).at("filesystem"));
        }
        most.check_profile(&profile.name)?;
        let policy = self.egress_sessions.asked(caller, &image, network_enabled, egress)?;
        Ok(NewSandbox {
            id,
            owner: caller.owner.clone(),
            owner_name: caller.owner_name.clone(),
            status: Status::Provisioning,
            provider: self.providers.default_name().clone(),
            profile,
            image,
            container: None,
            volume: VolumeId::random(),
            limits,
            idle_timeout_seconds: idle_timeout_seconds.unwrap_or(runtime_settings.idle_timeout_seconds),
            max_lifetime_seconds,
            network_enabled: policy.mode != Mode::None,
            egress: serde_json::to_string(&policy).map_err(|e| Error::internal(e.to_string()))?,
            session_key,
            auto_snapshot,
            labels,
            skills: Vec::new(),
            environment: self.vault.seal(&id.to_string(), &Environment::new(env_vars, secrets))?,
            created_at: now_ms(),
        })
    }

    /// Refuses automatic snapshots where the provider makes none.
    fn check_auto_snapshot(
        &self,
        provider: &ProviderName,
        profile: &Profile,
        when: AutoSnapshot,
    ) -> Result<()> {
        match when {
            AutoSnapshot::Off => Ok(()),
            _ => {
                let able = snapshots_for(&**self.providers.get(provider)?, profile);
                able.map(drop).map_err(|e| e.at("auto_snapshot"))
            }
        }
    }

    /// Refuses invalid variables, and those that the operator's allowlist does not have; an empty list allows
    /// all.
    pub(super) fn check_variables(&self, field: &str, variables: &BTreeMap<String, String>) -> Result<()> {
        check_environment(field, variables)?;
        let allowed = &self.live_settings.now().env_allowlist;
        match variables.keys().find(|name| !allowed.is_empty() && !allowed.contains(*name)) {
            Some(name) => {
                let message = format!(
                    "the variable {name} may not be set here; env_allowlist has {}",
                    allowed.join(", ")
                );
                Err(Error::invalid(field, message))
            }
            None => Ok(()),
        }
    }

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
        let audited = self.operations.audited(caller, what).await?;
        let result = self.patch_as(&audited, caller, id, request).await;
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
                let volumes = self.volumes.mounts(&record.owner, &record.provider, &asked).await?;
                let profile = Profile { volumes, ..record.profile.clone() };
                profile.validate()?;
                Some(profile)
            }
            None => None,
        };
        // A sandbox whose network is enabled already keeps its policy as it is.
        let changed = network_enabled.filter(|enabled| *enabled != record.network_enabled);
        let egress = changed
            .map(|enabled| self.egress_sessions.asked(caller, &record.image, Some(enabled), None))
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
        self.registry.patch(id, patch).await
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

    /// One sandbox.
    pub async fn get(&self, caller: &Caller, id: SandboxId) -> Result<SandboxRecord> {
        self.operations.visible(caller, id).await
    }

    /// Ends the container; the volume is kept.
    pub async fn stop(&self, caller: &Caller, id: SandboxId) -> Result<SandboxRecord> {
        let audited = self.operations.audited(caller, OperationSpec::to(Operation::SandboxStop, id)).await?;
        let result = async {
            audited.record()?;
            self.changes.forget(id);
            self.registry.stop(id).await
        }
        .await;
        audited.done(result).await
    }

    /// Pauses the sandbox; a request that needs its container resumes it. Succeeds when it is paused already.
    pub async fn pause(&self, caller: &Caller, id: SandboxId) -> Result<SandboxRecord> {
        let audited = self.operations.audited(caller, OperationSpec::to(Operation::SandboxPause, id)).await?;
        let result = async {
            audited.record()?;
            self.registry.pause(id, "paused by request".into()).await
        }
        .await;
        audited.done(result).await
    }

    /// Makes the sandbox run: a paused one continues where it was, a stopped one is started with its volume
    /// as it was.
    pub async fn resume(&self, caller: &Caller, id: SandboxId) -> Result<SandboxRecord> {
        let audited =
            self.operations.audited(caller, OperationSpec::to(Operation::SandboxResume, id)).await?;
        let result = async {
            audited.record()?;
            self.start(caller, id, "request").await
        }
        .await;
        audited.done(result).await
    }

    /// Destroys the sandbox and its volume. The record stays.
    pub async fn destroy(&self, caller: &Caller, id: SandboxId) -> Result<()> {
        let audited =
            self.operations.audited(caller, OperationSpec::to(Operation::SandboxDestroy, id)).await?;
        let result = async {
            if audited.record()?.status == Status::Destroyed {
                return Err(Error::new(ErrorCode::NotFound, format!("there is no sandbox {}", id.uuid())));
            }
            self.changes.forget(id);
            self.registry.destroy(id).await.map(|_| ())
        }
        .await;
        audited.done(result).await
    }
}
