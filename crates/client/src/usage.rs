//! Usage of a sandbox.

use crate::{Client, Result, ServerReply, encode::query, sandboxes::at};
use hyper::Method;
use serde::Deserialize;
use uuid::Uuid;

/// Usage of a sandbox at one moment. A figure that is not counted is none; limits are present only for now.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Usage {
    pub at: String,
    pub cpu_cores: Option<f64>,
    pub cpu_total_seconds: Option<f64>,
    pub cpu_throttled_seconds: Option<f64>,
    pub memory_bytes: Option<u64>,
    pub memory_peak_bytes: Option<u64>,
    pub memory_limit_bytes: Option<u64>,
    pub processes: Option<u64>,
    pub processes_limit: Option<u64>,
    pub disk_bytes: Option<u64>,
    pub disk_limit_bytes: Option<u64>,
    pub oom_kills: Option<u64>,
}

/// A sandbox's present usage, and its history.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Metrics {
    pub sandbox_id: Uuid,
    /// None when it does not run.
    #[serde(default)]
    pub now: Option<Usage>,
    /// The oldest first.
    #[serde(default)]
    pub history: Vec<Usage>,
    #[serde(default)]
    pub interval_seconds: u32,
}

impl Client {
    /// A sandbox's usage; of its history the newest `limit`, none before `since` (RFC 3339).
    pub async fn metrics(
        &self,
        id: Uuid,
        since: Option<&str>,
        limit: Option<u32>,
    ) -> Result<ServerReply<Metrics>> {
        let query = query(&[("since", since.map(str::to_owned)), ("limit", limit.map(|n| n.to_string()))]);
        self.ask(Method::GET, &at(id, &format!("/metrics{query}"))).await
    }
}
