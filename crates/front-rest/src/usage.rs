//! What a sandbox uses.

use crate::{
    App,
    parse::{Params, sandbox_id},
};
use atoll_core::{SAMPLES_KEPT, SandboxMetrics, UsageNow, UsageSample};
use atoll_http::{Failure, Who};
use atoll_types::{
    Error,
    time::{moment, rfc3339},
};
use axum::{
    Json,
    extract::{Path, State},
};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

/// What a sandbox uses at one moment. What the machine does not count is null.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct UsageNowItem {
    at: String,
    /// Cores used since the last sample of the history, or since the sandbox started.
    cpu_cores: Option<f64>,
    /// Since it was started or resumed.
    cpu_total_seconds: Option<f64>,
    /// How long its limit kept it from a processor.
    cpu_throttled_seconds: Option<f64>,
    /// As the limit counts it: page cache and files in memory included.
    memory_bytes: Option<u64>,
    memory_peak_bytes: Option<u64>,
    memory_limit_bytes: Option<u64>,
    /// Processes and threads, with those that Atoll itself needs inside.
    processes: Option<u32>,
    processes_limit: Option<u64>,
    /// What its volume holds.
    disk_bytes: Option<u64>,
    disk_limit_bytes: Option<u64>,
    /// Processes that were ended for memory.
    oom_kills: Option<u32>,
}

/// What a sandbox used at one moment.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct UsageItem {
    at: String,
    /// Cores used since the sample before.
    cpu_cores: Option<f64>,
    cpu_total_seconds: Option<f64>,
    memory_bytes: Option<u64>,
    processes: Option<u32>,
    disk_bytes: Option<u64>,
    oom_kills: Option<u32>,
}

/// What a sandbox uses, and used.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct MetricsReply {
    sandbox_id: Uuid,
    /// Null when it does not run.
    now: Option<UsageNowItem>,
    /// The oldest first.
    history: Vec<UsageItem>,
    /// Between two samples of the history.
    interval_seconds: u32,
}

fn seconds(usec: u64) -> f64 {
    usec as f64 / 1e6
}

/// Thousandths are as fine as it is measured.
fn cores(cores: f32) -> f64 {
    (f64::from(cores) * 1000.0).round() / 1000.0
}

impl From<UsageNow> for UsageNowItem {
    fn from(now: UsageNow) -> Self {
        let UsageNow {
            sample,
            throttled_usec,
            memory_peak_bytes,
            memory_limit_bytes,
            processes_limit,
            disk_limit_bytes,
        } = now;
        let UsageItem { at, cpu_cores, cpu_total_seconds, memory_bytes, processes, disk_bytes, oom_kills } =
            sample.into();
        Self {
            at,
            cpu_cores,
            cpu_total_seconds,
            cpu_throttled_seconds: throttled_usec.map(seconds),
            memory_bytes,
            memory_peak_bytes,
            memory_limit_bytes,
            processes,
            processes_limit,
            disk_bytes,
            disk_limit_bytes,
            oom_kills,
        }
    }
}

impl From<UsageSample> for UsageItem {
    fn from(sample: UsageSample) -> Self {
        let UsageSample { at, cpu_cores, cpu_usec, memory_bytes, processes, disk_bytes, oom_kills } = sample;
        Self {
            at: rfc3339(at),
            cpu_cores: cpu_cores.map(cores),
            cpu_total_seconds: cpu_usec.map(seconds),
            memory_bytes,
            processes,
            disk_bytes,
            oom_kills,
        }
    }
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct MetricsParams {
    /// No sample before this: RFC 3339, or milliseconds since 1970.
    since: Option<String>,
    /// The newest so many samples; 360 unless said otherwise.
    limit: Option<usize>,
}

/// What a sandbox uses now, and used in the last 360 intervals.
#[utoipa::path(get, path = "/api/v1/sandboxes/{id}/metrics", tag = "sandboxes",
    params(("id" = uuid::Uuid, Path), MetricsParams),
    responses((status = 200, body = MetricsReply), (status = 404), (status = 422)))]
pub(crate) async fn metrics(
    State(app): State<App>,
    Who(caller): Who,
    Path(id): Path<String>,
    Params(params): Params<MetricsParams>,
) -> Result<Json<MetricsReply>, Failure> {
    let id = sandbox_id(&id)?;
    let MetricsParams { since, limit } = params;
    let wrong = || Failure::in_query(Error::invalid("since", "expected RFC 3339 or milliseconds since 1970"));
    let since = since.map(|text| moment(&text).ok_or_else(wrong)).transpose()?;
    let found = app.core.usage.metrics(&caller, id, since, limit.unwrap_or(SAMPLES_KEPT)).await;
    let SandboxMetrics { now, history, interval_seconds } = found.map_err(Failure::in_query)?;
    Ok(Json(MetricsReply {
        sandbox_id: id.uuid(),
        now: now.map(UsageNowItem::from),
        history: history.into_iter().map(UsageItem::from).collect(),
        interval_seconds,
    }))
}
