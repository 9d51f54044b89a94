//! Egress policies of sandboxes, and their decisions.

use crate::{Client, Result, ServerReply, encode::query, sandboxes::at};
use hyper::Method;
use serde::{Deserialize, Serialize};
use serde_json::{Number, Value};
use std::collections::BTreeMap;
use uuid::Uuid;

/// An egress policy. Entries are texts, or objects with `to`, `methods` and `paths`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct EgressPolicy {
    /// none, allowlist or full.
    #[serde(default)]
    pub mode: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub presets: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allow: Vec<Value>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deny: Vec<Value>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub limits: BTreeMap<String, Option<Number>>,
}

/// An entry in force, and its source.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct EgressEntry {
    pub entry: Value,
    /// allow, or a preset.
    #[serde(default)]
    pub by: String,
    /// Of an entry of a preset: where it was learned.
    #[serde(default)]
    pub origin: String,
}

/// The refusals of one host.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct EgressRefusals {
    pub host: String,
    #[serde(default)]
    pub port: Option<u16>,
    #[serde(default)]
    pub rule: String,
    #[serde(default)]
    pub count: u64,
    #[serde(default)]
    pub last_at: String,
}

/// A sandbox's egress policy, and what it reached.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct EgressInfo {
    pub policy: EgressPolicy,
    #[serde(default)]
    pub allow: Vec<EgressEntry>,
    #[serde(default)]
    pub served: bool,
    #[serde(default)]
    pub transparent: Option<bool>,
    #[serde(default)]
    pub problem: Option<String>,
    #[serde(default)]
    pub connections_open: u64,
    #[serde(default)]
    pub allowed: u64,
    #[serde(default)]
    pub refused: u64,
    #[serde(default)]
    pub bytes_sent: u64,
    #[serde(default)]
    pub bytes_received: u64,
    #[serde(default)]
    pub refusals: Vec<EgressRefusals>,
}

/// A decision.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct EgressDecision {
    /// The row of the audit trail.
    pub seq: u64,
    #[serde(default)]
    pub at: String,
    #[serde(default)]
    pub operation_id: Option<Uuid>,
    #[serde(default)]
    pub via: String,
    #[serde(default)]
    pub host: String,
    #[serde(default)]
    pub port: Option<u16>,
    #[serde(default)]
    pub address: Option<String>,
    #[serde(default)]
    pub method: Option<String>,
    #[serde(default)]
    pub path: Option<String>,
    /// allowed or refused.
    #[serde(default)]
    pub verdict: String,
    #[serde(default)]
    pub rule: String,
    #[serde(default)]
    pub error: Option<String>,
    #[serde(default)]
    pub bytes_sent: u64,
    #[serde(default)]
    pub bytes_received: u64,
    #[serde(default)]
    pub duration_ms: f64,
    #[serde(default)]
    pub count: u64,
}

/// A page of decisions, the latest first.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct EgressLog {
    pub entries: Vec<EgressDecision>,
    /// The next page's `before`.
    #[serde(default)]
    pub next_before: Option<u64>,
}

/// A query for decisions; the server's defaults for what is left out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListEgress {
    /// allowed or refused.
    pub verdict: Option<String>,
    pub host: Option<String>,
    pub before: Option<u64>,
    pub limit: Option<u32>,
}

/// A preset: a named list of hosts.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct EgressPreset {
    pub name: String,
    #[serde(default)]
    pub entries: Vec<EgressEntry>,
    #[serde(default)]
    pub notes: Vec<String>,
}

impl Client {
    /// A sandbox's egress policy, and what it reached.
    pub async fn egress(&self, id: Uuid) -> Result<ServerReply<EgressInfo>> {
        self.ask(Method::GET, &at(id, "/egress")).await
    }

    /// Replaces a sandbox's egress policy, as JSON.
    pub async fn set_egress(&self, id: Uuid, policy: &Value) -> Result<ServerReply<EgressInfo>> {
        self.tell(Method::PUT, &at(id, "/egress"), policy).await
    }

    /// A sandbox's egress decisions.
    pub async fn egress_log(&self, id: Uuid, which: &ListEgress) -> Result<ServerReply<EgressLog>> {
        let ListEgress { verdict, host, before, limit } = which;
        let query = query(&[
            ("verdict", verdict.clone()),
            ("host", host.clone()),
            ("before", before.map(|row| row.to_string())),
            ("limit", limit.map(|count| count.to_string())),
        ]);
        self.ask(Method::GET, &at(id, &format!("/egress/log{query}"))).await
    }

    /// The presets, for an image or the machine.
    pub async fn egress_presets(&self, image: Option<&str>) -> Result<ServerReply<Vec<EgressPreset>>> {
        let query = query(&[("image", image.map(str::to_owned))]);
        self.ask(Method::GET, &format!("/api/v1/egress/presets{query}")).await
    }
}
