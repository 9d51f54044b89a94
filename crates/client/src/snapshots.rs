//! Snapshots of sandboxes, rollbacks and forks.

use crate::{Client, Result, Sandbox, ServerReply, client::empty, encode::query, sandboxes::at};
use hyper::Method;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use uuid::Uuid;

type Map = BTreeMap<String, String>;

/// A snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Snapshot {
    pub id: Uuid,
    #[serde(default)]
    pub label: Option<String>,
    /// manual, automatic, before_rollback, or one that came later.
    #[serde(default)]
    pub kind: String,
    /// The command, the cell or the rolled back snapshot that it was made before.
    #[serde(default)]
    pub made_before: Option<String>,
    #[serde(default)]
    pub created_at: String,
    #[serde(default)]
    pub size_bytes: u64,
    /// The kernels whose variables were kept with it.
    #[serde(default)]
    pub kernels: Vec<SnapshotKernel>,
}

/// A kernel whose variables were kept with a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub struct SnapshotKernel {
    pub kernel_id: Uuid,
    pub checkpoint_id: Uuid,
}

/// A new snapshot.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct NewSnapshot {
    /// For people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Whether the variables of the sandbox's Python kernels are kept too.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub kernels: bool,
}

/// How to roll back; nothing given: the files, with a snapshot of before.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Rollback {
    /// Whether the kernels that were kept with the snapshot become what they were too.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub kernels: bool,
    /// Whether the files as they were before are kept; they are where nothing is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_before: Option<bool>,
}

/// One page of snapshots.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct SnapshotPage {
    pub items: Vec<Snapshot>,
    pub total: u64,
}

/// A file that differs between two snapshots.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct DiffFile {
    /// Absolute, as the sandbox has it.
    pub path: String,
    /// created, modified or deleted.
    pub action: String,
    #[serde(default)]
    pub size_bytes: u64,
}

/// The files that differ.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct SnapshotDiff {
    pub files: Vec<DiffFile>,
    /// Whether there may be more.
    #[serde(default)]
    pub truncated: bool,
}

/// A sandbox that was rolled back.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct RolledBack {
    pub sandbox: Sandbox,
    /// The snapshot of its files as they were before, where one was to be made.
    #[serde(default)]
    pub before: Option<Snapshot>,
}

/// A fork; what is left out is as in the sandbox that it is made of.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct ForkSandbox {
    /// The snapshot that it is made of; the sandbox as it is now where there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<Uuid>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_timeout_seconds: Option<u32>,
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
    #[serde(skip_serializing_if = "Option::is_none")]
    pub env_vars: Option<Map>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secrets: Option<Map>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub labels: Option<Map>,
    /// `off`, `before_exec` or `before_run`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auto_snapshot: Option<String>,
}

#[derive(Serialize)]
struct Label<'a> {
    label: Option<&'a str>,
}

fn one(sandbox: Uuid, snapshot: Uuid, below: &str) -> String {
    at(sandbox, &format!("/snapshots/{snapshot}{below}"))
}

impl Client {
    /// Makes a snapshot of a sandbox.
    pub async fn create_snapshot(&self, id: Uuid, new: &NewSnapshot) -> Result<ServerReply<Snapshot>> {
        self.tell(Method::POST, &at(id, "/snapshots"), new).await
    }

    /// A page of the snapshots of a sandbox, the newest first.
    pub async fn list_snapshots(
        &self,
        id: Uuid,
        page: u64,
        page_size: u32,
    ) -> Result<ServerReply<SnapshotPage>> {
        let query = query(&[("page", Some(page.to_string())), ("page_size", Some(page_size.to_string()))]);
        self.ask(Method::GET, &at(id, &format!("/snapshots{query}"))).await
    }

    /// One snapshot.
    pub async fn get_snapshot(&self, id: Uuid, snapshot: Uuid) -> Result<ServerReply<Snapshot>> {
        self.ask(Method::GET, &one(id, snapshot, "")).await
    }

    /// Gives a snapshot another label, or none.
    pub async fn label_snapshot(
        &self,
        id: Uuid,
        snapshot: Uuid,
        label: Option<&str>,
    ) -> Result<ServerReply<Snapshot>> {
        self.tell(Method::PATCH, &one(id, snapshot, ""), &Label { label }).await
    }

    /// Deletes a snapshot.
    pub async fn delete_snapshot(&self, id: Uuid, snapshot: Uuid) -> Result<()> {
        self.send(Method::DELETE, &one(id, snapshot, ""), None, empty()).await.map(drop)
    }

    /// The files that differ between a snapshot and another, or the sandbox as it is now.
    pub async fn diff_snapshot(
        &self,
        id: Uuid,
        snapshot: Uuid,
        to: Option<Uuid>,
    ) -> Result<ServerReply<SnapshotDiff>> {
        let query = query(&[("to", to.map(|to| to.to_string()))]);
        self.ask(Method::GET, &one(id, snapshot, &format!("/diff{query}"))).await
    }

    /// Makes a sandbox's files what they were.
    pub async fn roll_back(
        &self,
        id: Uuid,
        snapshot: Uuid,
        how: Rollback,
    ) -> Result<ServerReply<RolledBack>> {
        self.tell(Method::POST, &one(id, snapshot, "/rollback"), &how).await
    }

    /// Makes a sandbox of another one, or of a snapshot of it.
    pub async fn fork(&self, id: Uuid, fork: &ForkSandbox) -> Result<ServerReply<Sandbox>> {
        self.tell(Method::POST, &at(id, "/fork"), fork).await
    }
}
