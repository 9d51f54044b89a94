//! What a sandbox uses.

use crate::{
    App,
    parse::{Params, sandbox_id},
};
use atoll_core::{SAMPLES_KEPT, SandboxMetrics, SandboxUsage, UsageNow, UsageSample};
use atoll_http::{Failure, Who};
use atoll_types::{
    Activity, ActivityEntry, Error, SandboxId,
    time::{moment, rfc3339},
};
use axum::{
    Json,
    extract::{Path, State},
};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

/// Something that happened in a sandbox.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ActivityItem {
    number: u64,
    kind: &'static str,
    at: String,
    detail: String,
    exit_code: Option<i32>,
    duration_ms: Option<u64>,
    bytes: Option<u64>,
}

impl From<ActivityEntry> for ActivityItem {
    fn from(entry: ActivityEntry) -> Self {
        let ActivityEntry { number, activity } = entry;
        let Activity { sandbox: _, kind, at, detail, exit_code, duration_ms, bytes } = activity;
        Self { number, kind: kind.as_str(), at: rfc3339(at), detail, exit_code, duration_ms, bytes }
    }
}

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
    /// How often its commands were ended because their sockets held too much memory, which no cgroup counts.
    socket_kills: Option<u64>,
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
            socket_kills,
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
            socket_kills,
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
    Ok(Json(MetricsReply::new(id.uuid(), found.map_err(Failure::in_query)?)))
}

impl MetricsReply {
    fn new(sandbox_id: Uuid, metrics: SandboxMetrics) -> Self {
        let SandboxMetrics { now, history, interval_seconds } = metrics;
        Self {
            sandbox_id,
            now: now.map(UsageNowItem::from),
            history: history.into_iter().map(UsageItem::from).collect(),
            interval_seconds,
        }
    }
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct UsageParams {
    /// Ids, separated by commas; 200 at most.
    ids: String,
    /// The newest so many samples of each; 24 unless said otherwise.
    limit: Option<usize>,
}

/// What a list shows of a sandbox.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SandboxUsageItem {
    sandbox_id: Uuid,
    /// Null where it is not counted.
    metrics: Option<MetricsReply>,
    /// What last ran, of the newest activities.
    last_command: Option<ActivityItem>,
}

/// In its usual spelling.
const UUID_LENGTH: usize = 36;
/// What `ids` is, as a regular expression.
pub(crate) const IDS: &str = "^[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\
    (?:,[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}){0,199}$";

/// Samples of each that a list shows.
const SHOWN: usize = 24;

/// What several sandboxes use, and the last command of each. Those that there are not, or not for you, are left out.
#[utoipa::path(get, path = "/api/v1/usage", tag = "sandboxes", params(UsageParams),
    responses((status = 200, body = Vec<SandboxUsageItem>), (status = 422)))]
pub(crate) async fn usage(
    State(app): State<App>,
    Who(caller): Who,
    Params(params): Params<UsageParams>,
) -> Result<Json<Vec<SandboxUsageItem>>, Failure> {
    let UsageParams { ids, limit } = params;
    let wrong = || Failure::in_query(Error::invalid("ids", "expected ids of sandboxes, separated by commas"));
    let one =
        |id: &str| Uuid::try_parse(id).ok().filter(|_| id.len() == UUID_LENGTH).map(SandboxId::from_uuid);
    let ids = ids.split(',').map(|id| one(id).ok_or_else(wrong)).collect::<Result<Vec<_>, _>>()?;
    let found = app.core.usage.many(&caller, &ids, limit.unwrap_or(SHOWN)).await;
    let item = |SandboxUsage { id, metrics, last_command }| SandboxUsageItem {
        sandbox_id: id.uuid(),
        metrics: metrics.map(|metrics| MetricsReply::new(id.uuid(), metrics)),
        last_command: last_command.map(ActivityItem::from),
    };
    Ok(Json(found.map_err(Failure::in_query)?.into_iter().map(item).collect()))
}
