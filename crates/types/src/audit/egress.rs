//! A sandbox's network request and its decision, as a row of the audit trail; and queries for such rows. They
//! belong to a sandbox, and to the operation that caused them where that is known.

use super::facts::{LONG, SHORT, is_zero, shorten};
use crate::{Millis, OperationId, SandboxId};
use serde::{Deserialize, Serialize};

/// How many rows a page has at most.
pub const EGRESS_PER_PAGE: u32 = 500;

/// A decision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Egress {
    /// The sandbox whose network it came from.
    pub sandbox: SandboxId,
    /// How it was requested, such as `connect` or `name`.
    pub via: String,
    /// The requested host.
    pub host: String,
    /// The port; none for a DNS query.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// The address that was connected to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// The method, where it was seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// The path, where it was seen; never the query.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The verdict.
    pub allowed: bool,
    /// The rule that decided.
    pub rule: String,
    /// What went wrong after it was allowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Bytes that left.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub sent: u64,
    /// Bytes that came.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub received: u64,
    /// How long it took.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub duration_us: u64,
    /// How many equal decisions this row adds up.
    pub count: u64,
}

impl Egress {
    /// The decision as it is stored.
    #[must_use]
    pub fn kept(mut self) -> Self {
        let Self { via, host, address, method, path, rule, error, .. } = &mut self;
        for text in [via, host].into_iter().chain(address).chain(method) {
            shorten(text, SHORT);
        }
        for text in [rule].into_iter().chain(path).chain(error) {
            shorten(text, LONG);
        }
        self
    }
}

/// A decision as it is listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EgressRow {
    /// The row.
    pub seq: u64,
    /// The operation that caused it.
    pub operation: Option<OperationId>,
    /// When it was recorded.
    pub at: Millis,
    /// What was decided.
    pub facts: Egress,
}

/// Which decisions; every condition that is set must hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EgressQuery {
    /// Of this sandbox.
    pub sandbox: Option<SandboxId>,
    /// Of this operation.
    pub operation: Option<OperationId>,
    /// With this verdict.
    pub allowed: Option<bool>,
    /// For this host; the case of ASCII letters makes no difference.
    pub host: Option<String>,
    /// In a row before this one: the last of the page before.
    pub before: Option<u64>,
    /// How many; at most [`EGRESS_PER_PAGE`].
    pub limit: u32,
}

impl Default for EgressQuery {
    /// The newest fifty.
    fn default() -> Self {
        Self { sandbox: None, operation: None, allowed: None, host: None, before: None, limit: 50 }
    }
}

/// The totals of a sandbox's decisions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EgressTotals {
    pub allowed: u64,
    pub refused: u64,
    pub sent: u64,
    pub received: u64,
}
