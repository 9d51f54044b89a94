//! Sandboxes: creating, listing, changing, stopping, destroying.

use crate::{
    AttachedVolume, Client, EgressPolicy, Filesystem, Result, SandboxSkill, ServerReply, client::empty,
    encode::query,
};
use hyper::Method;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use uuid::Uuid;

type Map = BTreeMap<String, String>;

/// A new sandbox; what is left out has the server's default.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct CreateSandbox {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// The profile: which user its commands run as, and what may be written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_timeout_seconds: Option<u32>,
    /// How long it may live in all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_lifetime_seconds: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_mb: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_cores: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk_mb: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processes: Option<u32>,
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub env_vars: Map,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_enabled: Option<bool>,
    /// Its egress policy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub egress: Option<EgressPolicy>,
    /// One sandbox for each owner, key and image.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_key: Option<String>,
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub labels: Map,
    /// off, before_exec or before_run: before what the server makes a snapshot by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auto_snapshot: Option<String>,
    /// Packages by language, versions by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub dependencies: BTreeMap<String, Map>,
    /// Volumes to attach.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<AttachedVolume>,
    /// The tenant whose storage is attached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant_id: Option<String>,
    /// Paths with a rule.
    #[serde(skip_serializing_if = "Filesystem::is_empty")]
    pub filesystem: Filesystem,
}

/// What to change; what is left out stays.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct PatchSandbox {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_timeout_seconds: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_mb: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk_mb: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_cores: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub env_vars: Option<Map>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_enabled: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub labels: Option<Map>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auto_snapshot: Option<String>,
    /// All volumes that it has from now on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volumes: Option<Vec<AttachedVolume>>,
}

/// A sandbox. Only the id and the status must be present; other servers and versions omit and add fields.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Sandbox {
    pub id: Uuid,
    /// creating, running, paused, stopped, dead, destroyed, or one that came later.
    pub status: String,
    #[serde(default)]
    pub status_reason: Option<String>,
    #[serde(default)]
    pub user_name: String,
    #[serde(default)]
    pub image: String,
    #[serde(default)]
    pub profile: String,
    #[serde(default)]
    pub container_id: Option<String>,
    #[serde(default)]
    pub volume_name: String,
    /// RFC 3339, as are all times.
    #[serde(default)]
    pub created_at: String,
    #[serde(default)]
    pub last_activity_at: String,
    #[serde(default)]
    pub stopped_at: Option<String>,
    #[serde(default)]
    pub memory_mb: u64,
    #[serde(default)]
    pub cpu_cores: f64,
    #[serde(default)]
    pub disk_mb: u64,
    #[serde(default)]
    pub processes: u32,
    #[serde(default)]
    pub idle_timeout_seconds: u64,
    #[serde(default)]
    pub max_lifetime_seconds: Option<u64>,
    #[serde(default)]
    pub network_enabled: bool,
    /// Its egress policy; not in lists.
    #[serde(default)]
    pub egress: Option<EgressPolicy>,
    #[serde(default)]
    pub exec_count: u64,
    #[serde(default)]
    pub exec_total_ms: u64,
    #[serde(default)]
    pub bytes_uploaded: u64,
    #[serde(default)]
    pub bytes_downloaded: u64,
    #[serde(default)]
    pub session_key: Option<String>,
    #[serde(default)]
    pub labels: Map,
    #[serde(default)]
    pub auto_snapshot: String,
    /// Volumes beside its own.
    #[serde(default)]
    pub volumes: Vec<AttachedVolume>,
    /// Paths with a rule.
    #[serde(default)]
    pub filesystem: Filesystem,
    /// What was installed in it.
    #[serde(default)]
    pub skills: Vec<SandboxSkill>,
    /// After a create: the error output of its dependencies.
    #[serde(default)]
    pub stderr: Option<String>,
}

/// A query for sandboxes; the server's defaults for what is left out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListSandboxes {
    pub page: Option<u64>,
    pub page_size: Option<u32>,
    /// One or several, separated by commas.
    pub status: Option<String>,
    pub search: Option<String>,
    pub image: Option<String>,
    pub session_key: Option<String>,
    /// `name=value`, several separated by commas.
    pub labels: Option<String>,
    pub sort_by: Option<String>,
    pub sort_order: Option<String>,
}

impl ListSandboxes {
    fn query(&self) -> String {
        let Self { page, page_size, status, search, image, session_key, labels, sort_by, sort_order } = self;
        query(&[
            ("page", page.map(|n| n.to_string())),
            ("page_size", page_size.map(|n| n.to_string())),
            ("status", status.clone()),
            ("search", search.clone()),
            ("image", image.clone()),
            ("session_key", session_key.clone()),
            ("labels", labels.clone()),
            ("sort_by", sort_by.clone()),
            ("sort_order", sort_order.clone()),
        ])
    }
}

/// One page of sandboxes.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct SandboxPage {
    pub items: Vec<Sandbox>,
    pub total: u64,
    #[serde(default)]
    pub page: u64,
    #[serde(default)]
    pub page_size: u32,
    #[serde(default)]
    pub status_counts: BTreeMap<String, u64>,
}

/// An activity of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Activity {
    pub kind: String,
    pub at: String,
    #[serde(default)]
    pub detail: String,
    #[serde(default)]
    pub exit_code: Option<i32>,
    #[serde(default)]
    pub duration_ms: Option<u64>,
    #[serde(default)]
    pub bytes: Option<u64>,
}

const ROOT: &str = "/api/v1/sandboxes";

/// The path of one sandbox, and of resources below it.
pub(crate) fn at(id: Uuid, below: &str) -> String {
    format!("{ROOT}/{id}{below}")
}

impl Client {
    /// Creates a sandbox, or finds the one with its session key (status 200 then, not 201).
    pub async fn create(&self, new: &CreateSandbox) -> Result<ServerReply<Sandbox>> {
        self.tell(Method::POST, ROOT, new).await
    }

    /// Lists sandboxes.
    pub async fn list(&self, which: &ListSandboxes) -> Result<ServerReply<SandboxPage>> {
        self.ask(Method::GET, &format!("{ROOT}{}", which.query())).await
    }

    /// One sandbox.
    pub async fn get(&self, id: Uuid) -> Result<ServerReply<Sandbox>> {
        self.ask(Method::GET, &at(id, "")).await
    }

    /// Changes a sandbox.
    pub async fn patch(&self, id: Uuid, change: &PatchSandbox) -> Result<ServerReply<Sandbox>> {
        self.tell(Method::PATCH, &at(id, ""), change).await
    }

    /// Stops it; its files stay.
    pub async fn stop(&self, id: Uuid) -> Result<ServerReply<Sandbox>> {
        self.ask(Method::POST, &at(id, "/stop")).await
    }

    /// Pauses it; a request that needs its container resumes it.
    pub async fn pause(&self, id: Uuid) -> Result<ServerReply<Sandbox>> {
        self.ask(Method::POST, &at(id, "/pause")).await
    }

    /// Resumes a paused one, or starts a stopped one again.
    pub async fn resume(&self, id: Uuid) -> Result<ServerReply<Sandbox>> {
        self.ask(Method::POST, &at(id, "/resume")).await
    }

    /// Destroys it, and its files.
    pub async fn destroy(&self, id: Uuid) -> Result<()> {
        self.send(Method::DELETE, &at(id, ""), None, empty()).await.map(drop)
    }

    /// Its activities, the latest first.
    pub async fn activity(&self, id: Uuid, limit: Option<u32>) -> Result<ServerReply<Vec<Activity>>> {
        let query = query(&[("limit", limit.map(|n| n.to_string()))]);
        self.ask(Method::GET, &at(id, &format!("/activity{query}"))).await
    }
}
