//! Making sandboxes: requests are validated here and carried out by the sandbox's actor.

use super::{
    checks::{asked_limits, check_environment, check_idle, check_labels, check_lifetime},
    start::StartImage,
};
use crate::{
    AttachVolume, Caller, Environment, Sandboxes, Volumes,
    bounds::{IMAGE, SESSION_KEY},
    kernels::check_packages,
    operation::OperationSpec,
    snapshots::snapshots_for,
};
use atoll_egress::{Mode, Policy};
use atoll_kernels::Language;
use atoll_store::{NewSandbox, SandboxId, SandboxRecord, Status};
use atoll_types::{
    AutoSnapshot, Error, ErrorCode, Isolation, Operation, PathRules, Profile, ProviderName, Result, VolumeId,
    time::now_ms,
};
use std::collections::BTreeMap;

/// A request for a new sandbox; what is left out has its default.
#[derive(Debug, Clone, Default, PartialEq)]
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
    /// The OCI runtime that isolates it, by name; the built-in isolation where none is named. The operator decides this,
    /// so no front takes it from a request.
    pub runtime: Option<String>,
    /// Whether an image that no admin approved is refused, whatever the caller's key and the settings say.
    pub approved_image: bool,
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

/// Volumes as the audit trail names them.
pub(super) fn places_of(volumes: &[AttachVolume]) -> String {
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
        self.create_build(caller, id, request, None).await
    }

    /// The same, of which a volume may be the root filesystem: that of a sandbox that builds an image.
    pub(crate) async fn create_build(
        &self,
        caller: &Caller,
        id: SandboxId,
        request: CreateSandbox,
        build_root: Option<VolumeId>,
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
        if let Some(runtime) = &request.runtime {
            what = what.and("runtime", runtime);
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
        let result = self.create_as(caller, id, request, build_root).await;
        audited.done(result).await
    }

    async fn create_as(
        &self,
        caller: &Caller,
        id: SandboxId,
        request: CreateSandbox,
        build_root: Option<VolumeId>,
    ) -> Result<Created> {
        let dependencies = request.dependencies.clone();
        for (language, packages) in &dependencies {
            check_packages(*language, packages).map_err(|e| e.at("dependencies"))?;
        }
        let profile = request.profile.clone();
        let (volumes, tenant) = (request.volumes.clone(), request.tenant_id.clone());
        let mut new = self.new_record(caller, id, request)?;
        new.profile.build_root = build_root;
        new.profile.volumes = self.volumes.mounts_of_request(&new.owner, &new.provider, &volumes).await?;
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
        let mut created = self.make_and_start(caller, new, StartImage::Now).await?;
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

    /// Makes a new sandbox within an operation that the caller has begun and may carry out, and starts its container. What its image
    /// starts is left to the caller, who fills it first.
    pub(crate) async fn make_from(
        &self,
        caller: &Caller,
        id: SandboxId,
        request: CreateSandbox,
    ) -> Result<SandboxRecord> {
        let new = self.new_record(caller, id, request)?;
        Ok(self.make_and_start(caller, new, StartImage::Later).await?.record)
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
            runtime,
            approved_image,
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
        let found = match approved_image {
            true => self.catalogue.usable_approved(caller, &image)?,
            false => self.catalogue.usable(caller, &image)?,
        };
        let most = self.limits.ceiling(caller);
        let limits = asked_limits(most, found.defaults(), memory_mb, cpu_cores, disk_mb, processes)?;
        let profile = found.profile(profile.as_deref().unwrap_or("default"))?;
        let isolation = runtime.map_or(profile.isolation, Isolation::Runtime);
        let profile = Profile { paths: filesystem, isolation, ..profile };
        profile.validate()?;
        self.check_auto_snapshot(self.providers.default_name(), &profile, auto_snapshot)?;
        if profile.has_attachments()
            && self.providers.get(self.providers.default_name())?.attachments().is_none()
        {
            let message = "the provider of this server has no path rules";
            return Err(Error::new(ErrorCode::Unsupported, message).at("filesystem"));
        }
        most.check_profile(&profile.name)?;
        let policy = self.egress_sessions.asked(caller, profile.image.as_str(), network_enabled, egress)?;
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
    pub(super) fn check_auto_snapshot(
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
}
