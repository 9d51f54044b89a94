//! Snapshots of sandboxes: making, listing, labelling, comparing, deleting, and rolling back; and forks.

use crate::{
    App,
    exec::ChangedFile,
    parse::{Params, Raw, json, sandbox_id, seconds, snapshot_id},
    sandboxes::page_asked,
    shapes::{Labels, Sandbox, Variables, auto_snapshot},
};
use atoll_core::{ForkSandbox, NewSnapshot, RollbackOptions, RolledBack};
use atoll_http::{Busy, Failure, Repeat, Who, once};
use atoll_types::{
    AutoSnapshot, KernelCheckpoint, SnapshotId, SnapshotPage, SnapshotQuery, SnapshotRecord, files::Changed,
    time::rfc3339,
};
use axum::{
    Json,
    extract::{Path, State},
    http::{HeaderMap, StatusCode},
    response::Response,
};
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

type Ids = Path<(String, String)>;
type JsonResult<T> = Result<Json<T>, Failure>;
type Map = BTreeMap<String, String>;

/// A snapshot.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SnapshotItem {
    id: Uuid,
    sandbox_id: Uuid,
    label: Option<String>,
    /// manual, automatic or before_rollback. Retention removes only those that are not manual and have no label.
    kind: &'static str,
    /// The id of the command, the cell or the rolled back snapshot that it was made before.
    made_before: Option<String>,
    created_at: String,
    /// What the sandbox's files held then.
    size_bytes: u64,
    /// The kernels whose variables were kept with it, each with its checkpoint; empty where it has files alone.
    kernels: Vec<SnapshotKernel>,
}

/// A kernel whose variables were kept with a snapshot.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SnapshotKernel {
    kernel_id: Uuid,
    checkpoint_id: Uuid,
}

impl From<KernelCheckpoint> for SnapshotKernel {
    fn from(one: KernelCheckpoint) -> Self {
        let KernelCheckpoint { kernel, checkpoint } = one;
        Self { kernel_id: kernel.uuid(), checkpoint_id: checkpoint.uuid() }
    }
}

impl From<SnapshotRecord> for SnapshotItem {
    fn from(record: SnapshotRecord) -> Self {
        let SnapshotRecord {
            id,
            sandbox,
            owner: _,
            kind,
            label,
            made_before,
            created_at,
            size_bytes,
            kernels,
            skills: _,
            ready: _,
        } = record;
        Self {
            id: id.uuid(),
            sandbox_id: sandbox.uuid(),
            label,
            kind: kind.as_str(),
            made_before,
            created_at: rfc3339(created_at),
            size_bytes,
            kernels: kernels.into_iter().flat_map(|all| all.checkpoints).map(Into::into).collect(),
        }
    }
}

/// A new snapshot.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct SnapshotBody {
    label: Option<String>,
    /// Whether the variables of the sandbox's Python kernels are kept at the same moment.
    kernels: bool,
}

/// Makes a snapshot of a sandbox's files, whether it runs or not; with `kernels`, also of the variables of its Python kernels.
#[utoipa::path(post, operation_id = "snapshots_create", path = "/api/v1/sandboxes/{id}/snapshots", tag = "snapshots",
    params(("id" = uuid::Uuid, Path)), request_body = SnapshotBody,
    responses((status = 201, body = SnapshotItem), (status = 429, description = "The sandbox has as many as it may have"),
        (status = 404), (status = 409, description = "Being made or destroyed")))]
pub(crate) async fn create(
    State(app): State<App>,
    Who(caller): Who,
    Path(id): Path<String>,
    headers: HeaderMap,
    Raw(body): Raw,
) -> Result<Response, Failure> {
    let sandbox = sandbox_id(&id)?;
    let SnapshotBody { label, kernels } = json(&body)?;
    let repeat = Repeat::of(&headers, &format!("snapshot {sandbox}"), &body)?;
    let (core, asker) = (app.core.clone(), caller.clone());
    let work = async move {
        let made = core.snapshots.create(&asker, sandbox, NewSnapshot { label, kernels }).await?;
        Ok((StatusCode::CREATED, SnapshotItem::from(made)))
    };
    once(&app.core, &caller, repeat, Busy::Refuse, work).await
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct SnapshotParams {
    page: Option<u64>,
    page_size: Option<u32>,
}

/// One page of snapshots.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SnapshotList {
    items: Vec<SnapshotItem>,
    total: u64,
    page: u64,
    page_size: u32,
}

/// Lists the snapshots of a sandbox, the newest first.
#[utoipa::path(get, operation_id = "snapshots_list", path = "/api/v1/sandboxes/{id}/snapshots", tag = "snapshots",
    params(("id" = uuid::Uuid, Path), SnapshotParams),
    responses((status = 200, body = SnapshotList), (status = 404), (status = 422)))]
pub(crate) async fn list(
    State(app): State<App>,
    Who(caller): Who,
    Path(id): Path<String>,
    Params(params): Params<SnapshotParams>,
) -> JsonResult<SnapshotList> {
    let (page, page_size) = page_asked(params.page, params.page_size)?;
    let offset = (page - 1).saturating_mul(u64::from(page_size));
    let query = SnapshotQuery { sandbox: sandbox_id(&id)?, offset, limit: page_size };
    let found = app.core.snapshots.list(&caller, query).await.map_err(Failure::in_query)?;
    let SnapshotPage { items, total } = found;
    let items = items.into_iter().map(SnapshotItem::from).collect();
    Ok(Json(SnapshotList { items, total, page, page_size }))
}

/// One snapshot.
#[utoipa::path(get, operation_id = "snapshots_get", path = "/api/v1/sandboxes/{id}/snapshots/{sid}", tag = "snapshots",
    params(("id" = uuid::Uuid, Path), ("sid" = uuid::Uuid, Path)),
    responses((status = 200, body = SnapshotItem), (status = 404)))]
pub(crate) async fn get(
    State(app): State<App>,
    Who(caller): Who,
    Path((id, sid)): Ids,
) -> JsonResult<SnapshotItem> {
    Ok(Json(app.core.snapshots.get(&caller, sandbox_id(&id)?, snapshot_id(&sid)?).await?.into()))
}

/// Another label; null for none.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SnapshotPatch {
    #[serde(deserialize_with = "given")]
    #[schema(required = true)]
    label: Option<String>,
}

/// Null is a value, and a field that is left out is none.
fn given<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    Option::deserialize(from)
}

/// Labels a snapshot. One with a label is not removed by retention.
#[utoipa::path(patch, operation_id = "snapshots_label", path = "/api/v1/sandboxes/{id}/snapshots/{sid}", tag = "snapshots",
    params(("id" = uuid::Uuid, Path), ("sid" = uuid::Uuid, Path)), request_body = SnapshotPatch,
    responses((status = 200, body = SnapshotItem), (status = 404), (status = 422)))]
pub(crate) async fn label(
    State(app): State<App>,
    Who(caller): Who,
    Path((id, sid)): Ids,
    Raw(body): Raw,
) -> JsonResult<SnapshotItem> {
    let (sandbox, snapshot) = (sandbox_id(&id)?, snapshot_id(&sid)?);
    let SnapshotPatch { label } = json(&body)?;
    Ok(Json(app.core.snapshots.label(&caller, sandbox, snapshot, label).await?.into()))
}

/// Deletes a snapshot.
#[utoipa::path(delete, operation_id = "snapshots_delete", path = "/api/v1/sandboxes/{id}/snapshots/{sid}", tag = "snapshots",
    params(("id" = uuid::Uuid, Path), ("sid" = uuid::Uuid, Path)), responses((status = 204), (status = 404)))]
pub(crate) async fn delete(
    State(app): State<App>,
    Who(caller): Who,
    Path((id, sid)): Ids,
) -> Result<StatusCode, Failure> {
    app.core.snapshots.delete(&caller, sandbox_id(&id)?, snapshot_id(&sid)?).await?;
    Ok(StatusCode::NO_CONTENT)
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct DiffParams {
    /// Another snapshot's id, or `now` for the files as they are; `now` where it is left out.
    to: Option<String>,
}

/// The files that differ.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SnapshotDiff {
    /// By path. Folders are not listed, the files in them are.
    files: Vec<ChangedFile>,
    /// Whether there may be more: the comparison has bounds.
    truncated: bool,
}

/// The files that differ between a snapshot and another, or the sandbox as it is now. Paths are absolute, as the sandbox
/// has them.
#[utoipa::path(get, operation_id = "snapshots_diff", path = "/api/v1/sandboxes/{id}/snapshots/{sid}/diff", tag = "snapshots",
    params(("id" = uuid::Uuid, Path), ("sid" = uuid::Uuid, Path), DiffParams),
    responses((status = 200, body = SnapshotDiff), (status = 404), (status = 422), (status = 429)))]
pub(crate) async fn diff(
    State(app): State<App>,
    Who(caller): Who,
    Path((id, sid)): Ids,
    Params(params): Params<DiffParams>,
) -> JsonResult<SnapshotDiff> {
    let to = match params.to.as_deref() {
        None | Some("now") => None,
        Some(text) => Some(snapshot_id(text)?),
    };
    let found = app.core.snapshots.diff(&caller, sandbox_id(&id)?, snapshot_id(&sid)?, to).await?;
    let Changed { files, truncated } = found;
    Ok(Json(SnapshotDiff { files: files.into_iter().map(ChangedFile::from).collect(), truncated }))
}

/// A sandbox that was rolled back.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RolledBackItem {
    sandbox: Sandbox,
    /// The snapshot of the files as they were before; null where none was to be made.
    before: Option<SnapshotItem>,
}

/// How to roll back.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RollbackBody {
    /// Whether the kernels that were kept with the snapshot become what they were too. The container stays then.
    kernels: bool,
    /// Whether the files as they were before are kept in a snapshot.
    keep_before: bool,
}

impl Default for RollbackBody {
    fn default() -> Self {
        let RollbackOptions { kernels, keep_before } = RollbackOptions::default();
        Self { kernels, keep_before }
    }
}

/// Makes a sandbox's files what they were. Commands, terminals and kernels that run end with the code `rolled_back`; a
/// sandbox that runs gets a new container, unless kernels are rolled back too, and a stopped one stays stopped. The files
/// as they were before are kept in a snapshot of the kind `before_rollback`, unless `keep_before` is false.
#[utoipa::path(post, operation_id = "snapshots_rollback", path = "/api/v1/sandboxes/{id}/snapshots/{sid}/rollback", tag = "snapshots",
    params(("id" = uuid::Uuid, Path), ("sid" = uuid::Uuid, Path)), request_body = RollbackBody,
    responses((status = 200, body = RolledBackItem), (status = 404),
        (status = 409, description = "Being made or destroyed, or the kernels of the snapshot have ended"), (status = 422)))]
pub(crate) async fn rollback(
    State(app): State<App>,
    Who(caller): Who,
    Path((id, sid)): Ids,
    headers: HeaderMap,
    Raw(body): Raw,
) -> Result<Response, Failure> {
    let (sandbox, snapshot) = (sandbox_id(&id)?, snapshot_id(&sid)?);
    let RollbackBody { kernels, keep_before } = json(&body)?;
    let options = RollbackOptions { kernels, keep_before };
    let repeat = Repeat::of(&headers, &format!("rollback {sandbox} {snapshot}"), &body)?;
    let (core, asker) = (app.core.clone(), caller.clone());
    let work = async move {
        let RolledBack { record, before } =
            core.sandboxes.roll_back(&asker, sandbox, snapshot, options).await?;
        let (sandbox, before) = (record.into(), before.map(SnapshotItem::from));
        Ok((StatusCode::OK, RolledBackItem { sandbox, before }))
    };
    once(&app.core, &caller, repeat, Busy::Refuse, work).await
}

/// A fork; what is left out is as in the sandbox that it is made of.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ForkSandboxBody {
    /// The snapshot that it is made of; the sandbox as it is now where it is left out.
    snapshot: Option<Uuid>,
    #[schema(value_type = Option<f64>)]
    #[serde(default, deserialize_with = "seconds")]
    idle_timeout_seconds: Option<u32>,
    #[schema(value_type = Option<f64>)]
    #[serde(default, deserialize_with = "seconds")]
    max_lifetime_seconds: Option<u32>,
    memory_mb: Option<u64>,
    cpu_cores: Option<f64>,
    /// What the files hold that it begins with counts as used.
    disk_mb: Option<u64>,
    processes: Option<u32>,
    /// Instead of those of the sandbox that it is made of, as the next two.
    #[schema(value_type = Option<Variables>)]
    env_vars: Option<Map>,
    #[schema(write_only, value_type = Option<Variables>)]
    secrets: Option<Map>,
    #[schema(value_type = Option<Labels>)]
    labels: Option<Map>,
    /// off, before_exec or before_run.
    #[schema(value_type = Option<String>)]
    #[serde(deserialize_with = "auto_snapshot")]
    auto_snapshot: Option<AutoSnapshot>,
}

impl From<ForkSandboxBody> for ForkSandbox {
    fn from(body: ForkSandboxBody) -> Self {
        let ForkSandboxBody {
            snapshot,
            idle_timeout_seconds,
            max_lifetime_seconds,
            memory_mb,
            cpu_cores,
            disk_mb,
            processes,
            env_vars,
            secrets,
            labels,
            auto_snapshot,
        } = body;
        Self {
            snapshot: snapshot.map(SnapshotId::from_uuid),
            idle_timeout_seconds,
            max_lifetime_seconds,
            memory_mb,
            cpu_cores,
            disk_mb,
            processes,
            env_vars,
            secrets,
            labels,
            auto_snapshot,
        }
    }
}

/// Makes a sandbox whose files are those of this one, now or at a snapshot, and starts it. It shares storage with this one
/// until one of the two writes. Image, limits, environment and egress policy are this one's, unless the body says more.
#[utoipa::path(post, operation_id = "snapshots_fork", path = "/api/v1/sandboxes/{id}/fork", tag = "snapshots",
    params(("id" = uuid::Uuid, Path)), request_body = ForkSandboxBody,
    responses((status = 201, body = Sandbox),
        (status = 403, description = "Above what the key's tier, the owner's plan or the machine allows"),
        (status = 404), (status = 409), (status = 422, description = "A field is wrong"),
        (status = 429, description = "Too many at a time, or no room on the machine")))]
pub(crate) async fn fork(
    State(app): State<App>,
    Who(caller): Who,
    Path(id): Path<String>,
    headers: HeaderMap,
    Raw(body): Raw,
) -> Result<Response, Failure> {
    let sandbox = sandbox_id(&id)?;
    let request: ForkSandboxBody = json(&body)?;
    let repeat = Repeat::of(&headers, &format!("fork {sandbox}"), &body)?;
    let (core, asker) = (app.core.clone(), caller.clone());
    let work = async move {
        let fork = core.sandboxes.fork(&asker, sandbox, request.into()).await?;
        Ok((StatusCode::CREATED, Sandbox::from(fork)))
    };
    once(&app.core, &caller, repeat, Busy::Refuse, work).await
}
