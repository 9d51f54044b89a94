//! What an owner decides for the sandboxes that it makes through the API at `/api/sandbox`: whether any are made, which
//! sandbox a call gets that names none, and the defaults of a create. The native API and MCP do not ask it.
//!
//! Defaults are clamped to the caller's tier, as all defaults are; what a request names itself is refused above it.

use crate::{
    Caller, CreateSandbox, Created, Sandboxes,
    bounds::MOST_EGRESS_ENTRIES,
    kernels::MAX_CELL_SECONDS,
    operation::{OperationSpec, Operations},
    sandboxes::limits,
};
use atoll_egress::Entry;
use atoll_store::Store;
use atoll_types::{Error, ErrorCode, Limits, Operation, PathRules, Result, SandboxRecord};
use serde::{Deserialize, Serialize};
use std::{ops::RangeInclusive, sync::Arc};
use tokio::sync::Mutex;

const TIMEOUT_SECONDS: RangeInclusive<u64> = 1..=MAX_CELL_SECONDS;
const WORKSPACE: &str = "/workspace";
/// The label of a sandbox that was made with an owner's configuration; its value is the scope. Neither a fork nor an import has it:
/// a cleanup destroys the sandboxes that do.
pub const SCOPE_LABEL: &str = "atoll.sandbox_api_scope";
/// The name that it had before. Forks and imports got that one, so it tells a scope and nothing is destroyed for it.
pub(crate) const OLD_SCOPE_LABEL: &str = "sandbox-api.scope";
/// The label that keeps the id of the agent that a sandbox is for.
pub const AGENT_LABEL: &str = "agent_id";

/// Whether sandboxes are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SandboxMode {
    /// Nothing is made and nothing runs.
    Off,
    /// A call names its sandbox.
    Selective,
    /// A call that names none gets one by the scope.
    All,
}

/// What shares a sandbox, where a call names none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScopeMode {
    Session,
    Agent,
    Shared,
}

impl ScopeMode {
    fn as_str(self) -> &'static str {
        match self {
            Self::Session => "session",
            Self::Agent => "agent",
            Self::Shared => "shared",
        }
    }
}

/// What commands may do with the files of /workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkspaceAccess {
    /// There is no volume: files are in memory and end with the container.
    None,
    /// Commands read the volume; file requests write it.
    Ro,
    /// Commands read and write the volume.
    Rw,
}

impl WorkspaceAccess {
    /// The rules that make it so for a volume.
    fn paths(self) -> PathRules {
        let read_only = if self == Self::Ro { vec![WORKSPACE.to_owned()] } else { Vec::new() };
        PathRules { read_only, ..PathRules::default() }
    }
}

/// The limits of sandboxes whose create names none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OwnerLimits {
    pub cpu_cores: f64,
    pub memory_mb: u64,
    pub disk_mb: u64,
    pub max_processes: u32,
    /// How long a run may take that names no timeout.
    pub timeout_seconds: u64,
}

impl Default for OwnerLimits {
    fn default() -> Self {
        Self { cpu_cores: 1.0, memory_mb: 512, disk_mb: 2048, max_processes: 50, timeout_seconds: 300 }
    }
}

/// What sandboxes reach whose create does not say.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OwnerNetwork {
    /// Whether they reach anything.
    pub enabled: bool,
    /// Only these; what the key's tier allows where there are none.
    pub allowed_domains: Vec<String>,
    /// Never these.
    pub blocked_domains: Vec<String>,
}

/// An owner's configuration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OwnerConfig {
    pub mode: SandboxMode,
    pub scope_mode: ScopeMode,
    pub workspace_access: WorkspaceAccess,
    pub resource_limits: OwnerLimits,
    pub network_policy: OwnerNetwork,
}

impl Default for OwnerConfig {
    fn default() -> Self {
        Self {
            mode: SandboxMode::Selective,
            scope_mode: ScopeMode::Session,
            workspace_access: WorkspaceAccess::Rw,
            resource_limits: OwnerLimits::default(),
            network_policy: OwnerNetwork::default(),
        }
    }
}

fn entries(field: &str, domains: &[String]) -> Result<Vec<Entry>> {
    let field = format!("network_policy.{field}");
    if domains.len() > MOST_EGRESS_ENTRIES {
        return Err(Error::invalid(field, format!("a policy may have {MOST_EGRESS_ENTRIES} domains")));
    }
    let entry = |(at, text): (usize, &String)| {
        text.parse::<Entry>().map_err(|e| Error::invalid(format!("{field}[{at}]"), e.to_string()))
    };
    domains.iter().enumerate().map(entry).collect()
}

impl OwnerConfig {
    /// The limits, where they are ones.
    fn limits(&self) -> Result<Limits> {
        let OwnerLimits { cpu_cores, memory_mb, disk_mb, max_processes, timeout_seconds: _ } =
            self.resource_limits;
        let usual = Limits::default();
        limits(usual, Some(memory_mb), Some(cpu_cores), Some(disk_mb), Some(max_processes)).map_err(|error| {
            let field = match error.field.as_deref() {
                Some("processes") => "max_processes".to_owned(),
                other => other.unwrap_or_default().to_owned(),
            };
            error.at(format!("resource_limits.{field}"))
        })
    }

    /// Refuses values that no sandbox could have.
    fn check(&self) -> Result<()> {
        self.limits()?;
        let seconds = self.resource_limits.timeout_seconds;
        if !TIMEOUT_SECONDS.contains(&seconds) {
            let (least, most) = (TIMEOUT_SECONDS.start(), TIMEOUT_SECONDS.end());
            let message = format!("timeout_seconds must be between {least} and {most}");
            return Err(Error::invalid("resource_limits.timeout_seconds", message));
        }
        let OwnerNetwork { enabled: _, allowed_domains, blocked_domains } = &self.network_policy;
        entries("allowed_domains", allowed_domains)?;
        entries("blocked_domains", blocked_domains).map(drop)
    }

    /// The session key of the sandbox that calls of this scope share. Those that read its volume and those that write it share
    /// one; files in memory are another sandbox's.
    fn session_key(&self, caller: &CallScope) -> Result<String> {
        let named = |field: &str, id: &Option<String>| {
            let missing = || {
                let scope = self.scope_mode.as_str();
                Error::invalid(
                    field,
                    format!("{field} is needed: the scope_mode of your configuration is {scope}"),
                )
            };
            id.clone().filter(|id| !id.is_empty()).ok_or_else(missing)
        };
        let id = match self.scope_mode {
            ScopeMode::Session => named("session_id", &caller.session_id)?,
            ScopeMode::Agent => named("agent_id", &caller.agent_id)?,
            ScopeMode::Shared => String::new(),
        };
        let access = match self.workspace_access {
            WorkspaceAccess::None => "none",
            WorkspaceAccess::Ro | WorkspaceAccess::Rw => "rw",
        };
        Ok(format!("sandbox-api {access} {} {id}", self.scope_mode.as_str()))
    }
}

/// The scope of a sandbox that was made with an owner's configuration.
#[must_use]
pub fn scope_of(record: &SandboxRecord) -> Option<&str> {
    [SCOPE_LABEL, OLD_SCOPE_LABEL].into_iter().find_map(|name| record.labels.get(name)).map(String::as_str)
}

/// What a call says about itself that names no sandbox.
#[derive(Debug, Clone, Default)]
pub struct CallScope {
    pub agent_id: Option<String>,
    pub session_id: Option<String>,
}

/// The configurations of all owners.
#[derive(Clone)]
pub struct OwnerConfigs {
    pub(crate) operations: Operations,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) sandboxes: Sandboxes,
    /// Held during a change, so that of two changes neither is lost.
    pub(crate) changing: Arc<Mutex<()>>,
    /// Held while a sandbox gets another access to its files, so that no call stops what another has just started.
    pub(crate) aligning: Arc<Mutex<()>>,
}

/// The name of an owner's entry among the stored settings.
fn entry_of(caller: &Caller) -> String {
    format!("owner_config {}", caller.owner)
}

impl OwnerConfigs {
    /// The configuration of the caller's owner.
    pub async fn get(&self, caller: &Caller) -> Result<OwnerConfig> {
        let Some(stored) = self.store.get_setting(&entry_of(caller)).await? else {
            return Ok(OwnerConfig::default());
        };
        let unreadable = |e| Error::internal(format!("a stored configuration cannot be read: {e}"));
        serde_json::from_value(stored).map_err(unreadable)
    }

    /// Changes the configuration of the caller's owner. Sandboxes that exist stay as they are.
    pub async fn change(
        &self,
        caller: &Caller,
        change: impl FnOnce(OwnerConfig) -> OwnerConfig,
    ) -> Result<OwnerConfig> {
        let _alone = self.changing.lock().await;
        let config = change(self.get(caller).await?);
        let value = serde_json::to_value(&config).map_err(|e| Error::internal(e.to_string()))?;
        let what = OperationSpec::new(Operation::ConfigSet).with(value.to_string());
        let audited = self.operations.audited(caller, what).await?;
        let result = async {
            config.check()?;
            Ok(self.store.put_setting(&entry_of(caller), value).await?)
        }
        .await;
        audited.done(result).await.map(|()| config)
    }

    /// The configuration of the caller's owner, unless it says that nothing runs.
    pub async fn must_be_on(&self, caller: &Caller) -> Result<OwnerConfig> {
        let config = self.get(caller).await?;
        match config.mode {
            SandboxMode::Off => {
                let message = "the mode of your configuration is off: nothing runs until you set another";
                Err(Error::new(ErrorCode::Unavailable, message).at("mode"))
            }
            SandboxMode::Selective | SandboxMode::All => Ok(config),
        }
    }

    /// Makes a sandbox as [`Sandboxes::create`] does; what the request leaves out is as the owner's configuration says.
    pub async fn create(&self, caller: &Caller, request: CreateSandbox) -> Result<Created> {
        let config = self.must_be_on(caller).await?;
        self.create_by(caller, &config, request).await
    }

    async fn create_by(
        &self,
        caller: &Caller,
        config: &OwnerConfig,
        mut request: CreateSandbox,
    ) -> Result<Created> {
        self.sandboxes.fill_limits(caller, &mut request, config.limits()?);
        if request.network_enabled.is_none() && request.egress.is_none() {
            let OwnerNetwork { enabled, allowed_domains, blocked_domains } = &config.network_policy;
            let allowed = entries("allowed_domains", allowed_domains)?;
            let blocked = entries("blocked_domains", blocked_domains)?;
            (request.network_enabled, request.egress) =
                self.sandboxes.usual_network(caller, request.image.as_deref(), *enabled, allowed, blocked)?;
        }
        match config.workspace_access {
            WorkspaceAccess::None => drop(request.profile.get_or_insert_with(|| "tools".into())),
            access @ (WorkspaceAccess::Ro | WorkspaceAccess::Rw) => {
                // A request with a rule for this very folder says itself what commands may do there.
                if request.filesystem.iter().all(|(path, _)| path != WORKSPACE) {
                    request.filesystem.read_only.extend(access.paths().read_only);
                }
            }
        }
        request.labels.insert(SCOPE_LABEL.into(), config.scope_mode.as_str().into());
        self.sandboxes.create(caller, request).await
    }

    /// The sandbox of a call that names none: the one of its scope, which is made where there is none.
    pub async fn sandbox_for(&self, caller: &Caller, call: &CallScope) -> Result<Created> {
        let config = self.must_be_on(caller).await?;
        if config.mode == SandboxMode::Selective {
            let message = "name a sandbox: the mode of your configuration is selective, so a call that names none is refused";
            return Err(Error::invalid("sandbox_id", message));
        }
        let key = config.session_key(call)?;
        if config.workspace_access != WorkspaceAccess::None {
            self.align(caller, &key, &config.workspace_access.paths()).await?;
        }
        let request = CreateSandbox {
            session_key: Some(key),
            labels: call.agent_id.iter().map(|id| (AGENT_LABEL.to_owned(), id.clone())).collect(),
            approved_image: true,
            ..CreateSandbox::default()
        };
        self.create_by(caller, &config, request).await
    }

    /// Gives the sandbox of a scope the access to its files that the configuration has now.
    async fn align(&self, caller: &Caller, key: &str, wanted: &PathRules) -> Result<()> {
        let other = |record: &SandboxRecord| record.profile.paths != *wanted;
        if self.sandboxes.of_session_key(caller, key).await?.filter(other).is_none() {
            return Ok(());
        }
        let _alone = self.aligning.lock().await;
        match self.sandboxes.of_session_key(caller, key).await?.filter(other) {
            Some(record) => self.sandboxes.change_paths(caller, &record, wanted.clone()).await,
            None => Ok(()),
        }
    }

    /// How long a run of the caller's may take that names no timeout, in seconds.
    pub fn usual_timeout(&self, caller: &Caller, config: &OwnerConfig) -> Result<Option<f64>> {
        let usual = Some(config.resource_limits.timeout_seconds);
        self.sandboxes.limits.ceiling(caller).timeout("timeout", None, usual)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_begins_as_the_reference_prints_it() {
        let printed = serde_json::json!({
            "mode": "selective", "scope_mode": "session", "workspace_access": "rw",
            "resource_limits": {"cpu_cores": 1.0, "memory_mb": 512, "disk_mb": 2048, "max_processes": 50,
                "timeout_seconds": 300},
            "network_policy": {"enabled": false, "allowed_domains": [], "blocked_domains": []},
        });
        assert_eq!(serde_json::to_value(OwnerConfig::default()).unwrap(), printed);
        assert_eq!(OwnerConfig::default().check(), Ok(()));
    }

    #[test]
    fn values_that_no_sandbox_could_have_are_named() {
        let wrong = |change: fn(&mut OwnerConfig)| {
            let mut config = OwnerConfig::default();
            change(&mut config);
            config.check().unwrap_err().field.unwrap()
        };
        assert_eq!(wrong(|c| c.resource_limits.cpu_cores = 0.0), "resource_limits.cpu_cores");
        assert_eq!(wrong(|c| c.resource_limits.memory_mb = 1), "resource_limits.memory_mb");
        assert_eq!(wrong(|c| c.resource_limits.disk_mb = u64::MAX), "resource_limits.disk_mb");
        assert_eq!(wrong(|c| c.resource_limits.max_processes = 0), "resource_limits.max_processes");
        assert_eq!(wrong(|c| c.resource_limits.timeout_seconds = 0), "resource_limits.timeout_seconds");
        let domain = "http://x/".to_owned();
        assert_eq!(
            wrong(|c| c.network_policy.allowed_domains = vec!["a.example".into(), "http://x/".into()]),
            "network_policy.allowed_domains[1]"
        );
        assert!(entries("blocked_domains", &[domain]).is_err());
    }

    #[test]
    fn a_scope_needs_what_it_is_of() {
        let of = |scope_mode| OwnerConfig { scope_mode, ..OwnerConfig::default() };
        let call = CallScope { agent_id: Some("a".into()), session_id: None };
        assert_eq!(of(ScopeMode::Agent).session_key(&call).unwrap(), "sandbox-api rw agent a");
        assert_eq!(of(ScopeMode::Shared).session_key(&call).unwrap(), "sandbox-api rw shared ");
        let with = |workspace_access| OwnerConfig { workspace_access, ..of(ScopeMode::Shared) };
        let key = |access| with(access).session_key(&call).unwrap();
        assert_eq!(key(WorkspaceAccess::Ro), key(WorkspaceAccess::Rw), "the same files");
        assert_ne!(key(WorkspaceAccess::None), key(WorkspaceAccess::Rw));
        assert_eq!(
            of(ScopeMode::Session).session_key(&call).unwrap_err().field.as_deref(),
            Some("session_id")
        );
    }
}
