//! Sandboxes on the wire. The types of this crate are the API's own: a new field of a record does not show in them by
//! itself, and conversions name every field.

use crate::{
    egress::EgressPolicy,
    parse::seconds,
    skills::SandboxSkill,
    volumes::{Attachment, Filesystem},
};
use atoll_core::{CreateSandbox, Created, Language, PatchSandbox, Policy};
use atoll_types::{AutoSnapshot, SandboxRecord, Status, time::rfc3339};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use utoipa::ToSchema;
use uuid::Uuid;

pub(crate) type Map = BTreeMap<String, String>;

/// Values of environment variables by their names.
#[derive(ToSchema)]
#[allow(dead_code)] // Only described, as the next five.
pub(crate) struct Variables(BTreeMap<String, String>);

/// Values of labels by their names.
#[derive(ToSchema)]
#[allow(dead_code)]
pub(crate) struct Labels(BTreeMap<String, String>);

/// Versions of packages by their names; an empty one is the latest.
#[derive(ToSchema)]
#[allow(dead_code)]
pub(crate) struct Packages(BTreeMap<String, String>);

/// The same of Node, where a name may have a scope.
#[derive(ToSchema)]
#[allow(dead_code)]
pub(crate) struct NodePackages(BTreeMap<String, String>);

/// The same of R, which installs the latest versions.
#[derive(ToSchema)]
#[allow(dead_code)]
pub(crate) struct RPackages(BTreeMap<String, String>);

/// Packages of each language.
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
#[allow(dead_code)]
pub(crate) struct PackagesByLanguage {
    #[schema(required = false)]
    python: Packages,
    #[schema(required = false)]
    node: NodePackages,
    #[schema(required = false)]
    r: RPackages,
}

/// One of the names of [`AutoSnapshot`].
pub(crate) fn auto_snapshot<'de, D: Deserializer<'de>>(from: D) -> Result<Option<AutoSnapshot>, D::Error> {
    let Some(name) = Option::<String>::deserialize(from)? else { return Ok(None) };
    let unknown = || serde::de::Error::custom("expected off, before_exec or before_run");
    AutoSnapshot::from_name(&name).map(Some).ok_or_else(unknown)
}

/// A new sandbox; what is left out has its default.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct CreateBody {
    /// An image, or an alias of one.
    image: Option<String>,
    /// Who its commands run as and what may be written; `default` where none is named. The key's tier says
    /// which it may have.
    profile: Option<String>,
    #[schema(value_type = Option<f64>)]
    #[serde(default, deserialize_with = "seconds")]
    idle_timeout_seconds: Option<u32>,
    /// How long it may live in all, stopped or not; then it is destroyed. As long as the server's setting
    /// allows where it is left out.
    #[schema(value_type = Option<f64>)]
    #[serde(default, deserialize_with = "seconds")]
    max_lifetime_seconds: Option<u32>,
    memory_mb: Option<u64>,
    cpu_cores: Option<f64>,
    disk_mb: Option<u64>,
    /// Processes and threads.
    processes: Option<u32>,
    /// What every command starts with. Kept encrypted and never returned.
    #[schema(value_type = Option<Variables>)]
    env_vars: Option<Map>,
    /// Variables too, whose values appear in no log, audit row, event or error.
    #[schema(write_only, value_type = Option<Variables>)]
    secrets: Option<Map>,
    /// Whether it may reach what the key's tier allows; `egress` says it in detail.
    network_enabled: Option<bool>,
    /// What it may reach; nothing, where this and `network_enabled` are left out.
    #[schema(value_type = Option<EgressPolicy>)]
    egress: Option<Policy>,
    /// One sandbox for each owner, key and image: asking again gives the same, resumed if need be.
    session_key: Option<String>,
    #[schema(value_type = Option<Labels>)]
    labels: Option<Map>,
    /// Before what the server makes a snapshot by itself: off, before_exec (each command) or before_run (each cell).
    #[schema(value_type = Option<String>)]
    #[serde(deserialize_with = "auto_snapshot")]
    auto_snapshot: Option<AutoSnapshot>,
    /// Packages by language (python, node, r), versions by name; an empty one is the latest. What cannot be
    /// installed is reported in `stderr` and does not fail the request.
    #[schema(value_type = Option<PackagesByLanguage>)]
    dependencies: Option<BTreeMap<Language, Map>>,
    /// Volumes of yours to attach.
    volumes: Option<Vec<Attachment>>,
    /// Attaches the storage of this tenant at /mnt/user-data. It is made if there is none, is one of your volumes, and
    /// outlives every sandbox.
    tenant_id: Option<String>,
    /// Paths inside that commands may not write, may write, or cannot reach.
    filesystem: Option<Filesystem>,
}

impl From<CreateBody> for CreateSandbox {
    fn from(body: CreateBody) -> Self {
        let CreateBody {
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
            dependencies,
            volumes,
            tenant_id,
            filesystem,
        } = body;
        Self {
            image,
            profile,
            idle_timeout_seconds,
            max_lifetime_seconds,
            memory_mb,
            cpu_cores,
            disk_mb,
            processes,
            env_vars: env_vars.unwrap_or_default(),
            secrets: secrets.unwrap_or_default(),
            network_enabled,
            egress,
            session_key,
            labels: labels.unwrap_or_default(),
            auto_snapshot: auto_snapshot.unwrap_or_default(),
            dependencies: dependencies.unwrap_or_default(),
            volumes: volumes.into_iter().flatten().map(Into::into).collect(),
            tenant_id,
            filesystem: filesystem.unwrap_or_default().into(),
            runtime: None,
            approved_image: false,
        }
    }
}

/// What to change; what is left out stays.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct PatchBody {
    #[schema(value_type = Option<f64>)]
    #[serde(default, deserialize_with = "seconds")]
    idle_timeout_seconds: Option<u32>,
    memory_mb: Option<u64>,
    cpu_cores: Option<f64>,
    /// At any time, within tier and plan, and not below what is used.
    disk_mb: Option<u64>,
    #[schema(value_type = Option<Variables>)]
    env_vars: Option<Map>,
    /// Variables too, whose values appear in no log, audit row, event or error.
    #[schema(write_only, value_type = Option<Variables>)]
    secrets: Option<Map>,
    network_enabled: Option<bool>,
    #[schema(value_type = Option<Labels>)]
    labels: Option<Map>,
    /// off, before_exec or before_run.
    #[schema(value_type = Option<String>)]
    #[serde(deserialize_with = "auto_snapshot")]
    auto_snapshot: Option<AutoSnapshot>,
    /// All volumes that it has from now on, beside its tenant's storage; only while it is not running.
    volumes: Option<Vec<Attachment>>,
}

impl From<PatchBody> for PatchSandbox {
    fn from(body: PatchBody) -> Self {
        let PatchBody {
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
        } = body;
        Self {
            idle_timeout_seconds,
            memory_mb,
            cpu_cores,
            disk_mb,
            env_vars,
            secrets,
            network_enabled,
            labels,
            auto_snapshot,
            volumes: volumes.map(|all| all.into_iter().map(Into::into).collect()),
        }
    }
}

/// A sandbox.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Sandbox {
    id: Uuid,
    user_id: String,
    user_name: String,
    /// creating, running, paused, stopped, dead or destroyed.
    status: &'static str,
    /// Why it has that status, where that needs saying.
    status_reason: Option<String>,
    image: String,
    /// default, tools, root or build.
    profile: String,
    container_id: Option<String>,
    volume_name: String,
    workspace_path: &'static str,
    created_at: String,
    last_activity_at: String,
    stopped_at: Option<String>,
    memory_mb: u64,
    cpu_cores: f64,
    disk_mb: u64,
    processes: u32,
    idle_timeout_seconds: u32,
    /// How long it may live in all, where its create said so.
    max_lifetime_seconds: Option<u32>,
    /// Whether it may reach anything.
    network_enabled: bool,
    /// What it may reach; not in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<EgressPolicy>)]
    egress: Option<Box<RawValue>>,
    exec_count: u64,
    exec_total_ms: u64,
    bytes_uploaded: u64,
    bytes_downloaded: u64,
    session_key: Option<String>,
    #[schema(value_type = Labels)]
    labels: Map,
    /// off, before_exec or before_run: before what the server makes a snapshot by itself.
    auto_snapshot: &'static str,
    /// Volumes beside its own.
    volumes: Vec<Attachment>,
    /// Paths with a rule.
    filesystem: Filesystem,
    /// What was installed in it.
    skills: Vec<SandboxSkill>,
    /// In the answer to a create: what went wrong with its dependencies.
    #[serde(skip_serializing_if = "Option::is_none")]
    stderr: Option<String>,
}

/// The statuses that a name of this API means.
pub(crate) fn statuses_of(name: &str) -> Option<Vec<Status>> {
    let all: Vec<Status> = Status::ALL.iter().copied().filter(|s| s.shown() == name).collect();
    (!all.is_empty()).then_some(all)
}

impl Sandbox {
    /// As it is listed.
    pub(crate) fn listed(record: SandboxRecord) -> Self {
        Self { egress: None, ..Self::from(record) }
    }

    /// As the answer to its creation has it.
    pub(crate) fn created(created: Created) -> Self {
        let Created { record, new: _, stderr } = created;
        Self { stderr: (!stderr.is_empty()).then_some(stderr), ..Self::from(record) }
    }
}

impl From<SandboxRecord> for Sandbox {
    fn from(record: SandboxRecord) -> Self {
        let SandboxRecord {
            id,
            owner,
            owner_name,
            status,
            status_reason,
            idle_pause: _,
            death: _,
            start_due: _,
            image,
            profile,
            container,
            volume,
            limits,
            idle_timeout_seconds,
            max_lifetime_seconds,
            network_enabled,
            egress,
            session_key,
            auto_snapshot,
            labels,
            environment: _,
            skills,
            created_at,
            last_activity_at,
            stopped_at,
            destroyed_at: _,
            exec_count,
            exec_total_ms,
            bytes_uploaded,
            bytes_downloaded,
            provider: _,
            revision: _,
        } = record;
        Self {
            id: id.uuid(),
            user_id: owner,
            user_name: owner_name,
            status: status.shown(),
            status_reason,
            image,
            profile: profile.name,
            container_id: container.map(|c| c.to_string()),
            volume_name: volume.to_string(),
            workspace_path: "/workspace",
            created_at: rfc3339(created_at),
            last_activity_at: rfc3339(last_activity_at),
            stopped_at: stopped_at.map(rfc3339),
            memory_mb: limits.memory_bytes >> 20,
            cpu_cores: f64::from(limits.cpu_millis) / 1000.0,
            disk_mb: limits.disk_bytes >> 20,
            processes: limits.processes,
            idle_timeout_seconds,
            max_lifetime_seconds,
            network_enabled,
            egress: RawValue::from_string(egress).ok(),
            exec_count,
            exec_total_ms,
            bytes_uploaded,
            bytes_downloaded,
            session_key,
            labels,
            auto_snapshot: auto_snapshot.as_str(),
            volumes: profile.volumes.into_iter().map(Into::into).collect(),
            filesystem: profile.paths.into(),
            skills: skills.into_iter().map(Into::into).collect(),
            stderr: None,
        }
    }
}

/// One page of sandboxes.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SandboxPage {
    pub(crate) items: Vec<Sandbox>,
    pub(crate) total: u64,
    pub(crate) page: u64,
    pub(crate) page_size: u32,
    /// How many there are of each status, by the same filter but for the status.
    pub(crate) status_counts: BTreeMap<&'static str, u64>,
}
