//! The owner's configuration: reading it, and merging a part into it.

use crate::App;
use atoll_core::{OwnerConfig, OwnerLimits, OwnerNetwork, SandboxMode, ScopeMode, WorkspaceAccess};
use atoll_http::{Failure, Raw, Who, required_json};
use axum::{Json, extract::State};
use serde::Deserialize;

/// What to change; what is left out stays.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ConfigBody {
    mode: Option<SandboxMode>,
    scope_mode: Option<ScopeMode>,
    workspace_access: Option<WorkspaceAccess>,
    resource_limits: Option<LimitsBody>,
    network_policy: Option<NetworkBody>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(remote = "Self", deny_unknown_fields, default)]
struct LimitsBody {
    cpu_cores: Option<f64>,
    memory_mb: Option<u64>,
    disk_mb: Option<u64>,
    max_processes: Option<u32>,
    timeout_seconds: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(remote = "Self", deny_unknown_fields, default)]
struct NetworkBody {
    enabled: Option<bool>,
    allowed_domains: Option<Vec<String>>,
    blocked_domains: Option<Vec<String>>,
}

atoll_types::object_only!(read LimitsBody);
atoll_types::object_only!(read NetworkBody);

impl LimitsBody {
    fn over(self, old: OwnerLimits) -> OwnerLimits {
        let Self { cpu_cores, memory_mb, disk_mb, max_processes, timeout_seconds } = self;
        OwnerLimits {
            cpu_cores: cpu_cores.unwrap_or(old.cpu_cores),
            memory_mb: memory_mb.unwrap_or(old.memory_mb),
            disk_mb: disk_mb.unwrap_or(old.disk_mb),
            max_processes: max_processes.unwrap_or(old.max_processes),
            timeout_seconds: timeout_seconds.unwrap_or(old.timeout_seconds),
        }
    }
}

impl NetworkBody {
    fn over(self, old: OwnerNetwork) -> OwnerNetwork {
        let Self { enabled, allowed_domains, blocked_domains } = self;
        OwnerNetwork {
            enabled: enabled.unwrap_or(old.enabled),
            allowed_domains: allowed_domains.unwrap_or(old.allowed_domains),
            blocked_domains: blocked_domains.unwrap_or(old.blocked_domains),
        }
    }
}

impl ConfigBody {
    /// A configuration with what the body names.
    fn over(self, old: OwnerConfig) -> OwnerConfig {
        let Self { mode, scope_mode, workspace_access, resource_limits, network_policy } = self;
        OwnerConfig {
            mode: mode.unwrap_or(old.mode),
            scope_mode: scope_mode.unwrap_or(old.scope_mode),
            workspace_access: workspace_access.unwrap_or(old.workspace_access),
            resource_limits: resource_limits.unwrap_or_default().over(old.resource_limits),
            network_policy: network_policy.unwrap_or_default().over(old.network_policy),
        }
    }
}

pub(super) async fn read(State(app): State<App>, Who(caller): Who) -> Result<Json<OwnerConfig>, Failure> {
    Ok(Json(app.core.owner_configs.get(&caller).await?))
}

pub(super) async fn merge(
    State(app): State<App>,
    Who(caller): Who,
    Raw(body): Raw,
) -> Result<Json<OwnerConfig>, Failure> {
    let body: ConfigBody = required_json(&body)?;
    Ok(Json(app.core.owner_configs.change(&caller, |old| body.over(old)).await?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// The change that the API's documentation prints.
    #[test]
    fn the_printed_change_is_merged() {
        let printed = r#"{ "mode": "all", "network_policy": { "enabled": true,
            "allowed_domains": ["api.github.com", "registry.example"] }}"#;
        let body: ConfigBody = serde_json::from_str(printed).unwrap();
        let old = OwnerConfig {
            network_policy: OwnerNetwork {
                blocked_domains: vec!["bad.example".into()],
                ..OwnerNetwork::default()
            },
            ..OwnerConfig::default()
        };
        let merged = serde_json::to_value(body.over(old.clone())).unwrap();
        assert_eq!(merged["mode"], "all");
        assert_eq!(merged["resource_limits"], serde_json::to_value(&old.resource_limits).unwrap());
        assert_eq!(
            merged["network_policy"],
            json!({"enabled": true, "allowed_domains": ["api.github.com", "registry.example"],
                "blocked_domains": ["bad.example"]})
        );
    }

    #[test]
    fn what_is_no_configuration_is_refused() {
        for body in [
            r#"{"mode":"on"}"#,
            r#"{"odd":1}"#,
            r#"{"resource_limits":[1]}"#,
            r#"{"network_policy":{"enabled":"yes"}}"#,
            r#"{"workspace_access":"rwx"}"#,
        ] {
            assert!(serde_json::from_str::<ConfigBody>(body).is_err(), "{body}");
        }
    }
}
