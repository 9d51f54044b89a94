//! The audit trail.

use crate::{Client, Download, EgressDecision, Result, ServerReply, client::empty, encode::query};
use base64::{Engine, engine::general_purpose::STANDARD};
use hyper::Method;
use serde::{Deserialize, Deserializer};
use serde_json::json;
use std::collections::BTreeMap;
use uuid::Uuid;

const ROOT: &str = "/api/v1/audit";

/// A query for operations; the server's defaults for what is left out. Times are RFC 3339, or milliseconds
/// since 1970.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListAudit {
    pub sandbox_id: Option<Uuid>,
    pub owner: Option<String>,
    pub key_id: Option<Uuid>,
    pub kind: Option<String>,
    pub exit_code: Option<i32>,
    pub outcome: Option<String>,
    pub text: Option<String>,
    pub since: Option<String>,
    pub until: Option<String>,
    pub open: bool,
    pub before: Option<u64>,
    pub limit: Option<u32>,
}

impl ListAudit {
    fn query(&self) -> String {
        let Self {
            sandbox_id,
            owner,
            key_id,
            kind,
            exit_code,
            outcome,
            text,
            since,
            until,
            open,
            before,
            limit,
        } = self;
        query(&[
            ("sandbox_id", sandbox_id.map(|id| id.to_string())),
            ("owner", owner.clone()),
            ("key_id", key_id.map(|id| id.to_string())),
            ("kind", kind.clone()),
            ("exit_code", exit_code.map(|code| code.to_string())),
            ("outcome", outcome.clone()),
            ("text", text.clone()),
            ("since", since.clone()),
            ("until", until.clone()),
            ("open", open.then(|| "true".to_owned())),
            ("before", before.map(|row| row.to_string())),
            ("limit", limit.map(|count| count.to_string())),
        ])
    }
}

/// A page of operations, the last begun first.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct AuditPage {
    pub entries: Vec<AuditEntry>,
    /// The next page's `before`.
    #[serde(default)]
    pub next_before: Option<u64>,
}

/// An operation.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct AuditEntry {
    pub operation_id: Uuid,
    /// The row of its beginning.
    pub seq: u64,
    #[serde(default)]
    pub at: String,
    #[serde(default)]
    pub front: String,
    #[serde(default)]
    pub key_id: Option<Uuid>,
    #[serde(default)]
    pub owner: String,
    #[serde(default)]
    pub address: Option<String>,
    #[serde(default)]
    pub kind: String,
    #[serde(default)]
    pub sandbox_id: Option<Uuid>,
    #[serde(default)]
    pub detail: String,
    #[serde(default)]
    pub detail_length: u64,
    #[serde(default)]
    pub working_directory: Option<String>,
    #[serde(default)]
    pub variables: Vec<String>,
    #[serde(default)]
    pub extra: BTreeMap<String, String>,
    #[serde(default)]
    pub ended: Option<AuditEnd>,
    /// Its egress decisions, the latest first; not in lists.
    #[serde(default, deserialize_with = "null_is_none")]
    pub egress: Vec<EgressDecision>,
}

/// A list that may be null.
fn null_is_none<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Vec<T>, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

/// How an operation ended.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct AuditEnd {
    #[serde(default)]
    pub at: String,
    /// ok, failed, refused or lost.
    pub outcome: String,
    #[serde(default)]
    pub error: Option<AuditError>,
    #[serde(default)]
    pub exit_code: Option<i32>,
    #[serde(default)]
    pub signal: Option<i32>,
    #[serde(default)]
    pub duration_ms: f64,
    #[serde(default)]
    pub cpu_ms: Option<f64>,
    #[serde(default)]
    pub peak_memory_bytes: Option<u64>,
    #[serde(default)]
    pub files_count: u64,
    #[serde(default)]
    pub bytes: Option<u64>,
}

/// What went wrong.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct AuditError {
    #[serde(default)]
    pub code: String,
    #[serde(default)]
    pub message: String,
}

/// The stored parts of both outputs.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct AuditOutputs {
    #[serde(default)]
    pub stdout: Option<AuditKept>,
    #[serde(default)]
    pub stderr: Option<AuditKept>,
}

/// The stored part of an output.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct AuditKept {
    /// utf8 or base64.
    #[serde(default)]
    pub encoding: String,
    #[serde(default)]
    pub head: String,
    #[serde(default)]
    pub tail: String,
    #[serde(default)]
    pub length: u64,
    #[serde(default)]
    pub truncated: bool,
}

impl AuditKept {
    /// The beginning and the end; `None` when the data does not match its lengths.
    #[must_use]
    pub fn bytes(&self) -> Option<(Vec<u8>, Vec<u8>)> {
        match self.encoding.as_str() {
            "base64" => Some((STANDARD.decode(&self.head).ok()?, STANDARD.decode(&self.tail).ok()?)),
            "utf8" => Some((self.head.clone().into_bytes(), self.tail.clone().into_bytes())),
            _ => None,
        }
    }
}

/// How many, and how long; with what they have in common.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct AuditTally {
    #[serde(default)]
    pub day: Option<String>,
    #[serde(default)]
    pub sandbox_id: Option<Uuid>,
    #[serde(default)]
    pub outcome: Option<String>,
    pub count: u64,
    #[serde(default)]
    pub ok: u64,
    #[serde(default)]
    pub failed: u64,
    #[serde(default)]
    pub duration_ms: f64,
    #[serde(default)]
    pub mean_ms: f64,
}

/// The totals of operations.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct AuditSummary {
    pub total: AuditTally,
    #[serde(default)]
    pub by_day: Vec<AuditTally>,
    #[serde(default)]
    pub by_sandbox: Vec<AuditTally>,
    #[serde(default)]
    pub by_outcome: Vec<AuditTally>,
}

/// The verdict of a verification.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct AuditVerdict {
    pub sound: bool,
    #[serde(default)]
    pub first_fault: Option<AuditFault>,
    #[serde(default)]
    pub noted: Vec<AuditFault>,
    /// Why verification was not possible.
    #[serde(default)]
    pub unsure: Option<String>,
    #[serde(default)]
    pub first: Option<u64>,
    #[serde(default)]
    pub last: Option<u64>,
    #[serde(default)]
    pub mac: Option<String>,
    #[serde(default)]
    pub operations: Option<u64>,
    #[serde(default)]
    pub open: Option<u64>,
    #[serde(default)]
    pub remarks: Vec<String>,
}

/// A fault of the trail, and its row.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct AuditFault {
    pub seq: u64,
    pub kind: String,
    #[serde(default)]
    pub message: String,
}

/// The result of a cleanup.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct AuditCleaned {
    pub removed: u64,
    #[serde(default)]
    pub removed_to: u64,
    /// An operation that has not ended: it and what follows it stay.
    #[serde(default)]
    pub held_by: Option<Uuid>,
}

impl Client {
    /// A page of operations.
    pub async fn audit(&self, which: &ListAudit) -> Result<ServerReply<AuditPage>> {
        self.ask(Method::GET, &format!("{ROOT}{}", which.query())).await
    }

    /// The totals of operations.
    pub async fn audit_summary(&self, which: &ListAudit) -> Result<ServerReply<AuditSummary>> {
        self.ask(Method::GET, &format!("{ROOT}/summary{}", which.query())).await
    }

    /// One operation.
    pub async fn audit_entry(&self, id: Uuid) -> Result<ServerReply<AuditEntry>> {
        self.ask(Method::GET, &format!("{ROOT}/{id}")).await
    }

    /// The stored output of an operation.
    pub async fn audit_output(&self, id: Uuid) -> Result<ServerReply<AuditOutputs>> {
        self.ask(Method::GET, &format!("{ROOT}/{id}/output")).await
    }

    /// The trail from a row on as JSON Lines.
    pub async fn audit_export(&self, from: u64, output: bool) -> Result<Download> {
        let query = query(&[("from", Some(from.to_string())), ("output", Some(output.to_string()))]);
        let response = self.send(Method::GET, &format!("{ROOT}/export{query}"), None, empty()).await?;
        Ok(Download { body: response.into_body() })
    }

    /// Makes the server verify the trail, and that a row with its MAC is still there.
    pub async fn audit_verify(&self, expect: Option<&str>) -> Result<ServerReply<AuditVerdict>> {
        let query = query(&[("expect", expect.map(str::to_owned))]);
        self.ask(Method::GET, &format!("{ROOT}/verify{query}")).await
    }

    /// Removes rows older than a time.
    pub async fn audit_cleanup(&self, before: &str) -> Result<ServerReply<AuditCleaned>> {
        self.tell(Method::POST, &format!("{ROOT}/cleanup"), &json!({ "before": before })).await
    }
}
