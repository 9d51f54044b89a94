//! Kernels as they were: a copy of the interpreter, which costs what it and the live one do not share.

use super::{JsonResult, KernelItem, checkpoint_id, kernel_id, wire::CheckpointItem};
use crate::{
    App,
    parse::{Raw, json, sandbox_id},
};
use atoll_http::{Failure, Who};
use axum::{
    Json,
    extract::{Path, State},
    http::StatusCode,
};
use serde::Deserialize;
use utoipa::ToSchema;

type Ids = Path<(String, String, String)>;

/// What a checkpoint is to be called.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct CheckpointBody {
    name: Option<String>,
}

/// Remembers a kernel as it is, after the cells that wait (Python). Threads, open connections and what
/// other processes hold are not in it.
#[utoipa::path(post, operation_id = "kernels_checkpoint_make", path = "/api/v1/sandboxes/{id}/kernels/{kid}/checkpoints", tag = "kernels",
    params(("id" = uuid::Uuid, Path), ("kid" = String, Path)), request_body = CheckpointBody,
    responses((status = 201, body = CheckpointItem), (status = 404), (status = 409, description = "Not running"),
        (status = 429, description = "Too many"), (status = 501, description = "The language cannot")))]
pub(crate) async fn make(
    State(app): State<App>,
    Who(caller): Who,
    Path((id, kid)): super::Ids,
    Raw(body): Raw,
) -> Result<(StatusCode, Json<CheckpointItem>), Failure> {
    let (sandbox, kernel) = (sandbox_id(&id)?, kernel_id(&kid)?);
    let CheckpointBody { name } = json(&body)?;
    let info = app.core.kernels.checkpoint(&caller, sandbox, kernel, &name.unwrap_or_default()).await?;
    Ok((StatusCode::CREATED, Json(info.into())))
}

/// Lists the checkpoints of a kernel, the oldest first.
#[utoipa::path(get, operation_id = "kernels_checkpoint_list", path = "/api/v1/sandboxes/{id}/kernels/{kid}/checkpoints", tag = "kernels",
    params(("id" = uuid::Uuid, Path), ("kid" = String, Path)),
    responses((status = 200, body = Vec<CheckpointItem>), (status = 404)))]
pub(crate) async fn list(
    State(app): State<App>,
    Who(caller): Who,
    Path((id, kid)): super::Ids,
) -> JsonResult<Vec<CheckpointItem>> {
    let info = app.core.kernels.get(&caller, sandbox_id(&id)?, kernel_id(&kid)?).await?;
    Ok(Json(info.checkpoints.into_iter().map(CheckpointItem::from).collect()))
}

/// Forgets a checkpoint and frees its memory.
#[utoipa::path(delete, operation_id = "kernels_checkpoint_remove", path = "/api/v1/sandboxes/{id}/kernels/{kid}/checkpoints/{cid}", tag = "kernels",
    params(("id" = uuid::Uuid, Path), ("kid" = String, Path), ("cid" = String, Path)),
    responses((status = 204), (status = 404), (status = 409, description = "Not running")))]
pub(crate) async fn remove(
    State(app): State<App>,
    Who(caller): Who,
    Path((id, kid, cid)): Ids,
) -> Result<StatusCode, Failure> {
    let (sandbox, kernel) = (sandbox_id(&id)?, kernel_id(&kid)?);
    app.core.kernels.drop_checkpoint(&caller, sandbox, kernel, checkpoint_id(&cid)?).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Puts a kernel back as it was. Cells that run or wait are ended. The checkpoint stays.
#[utoipa::path(post, operation_id = "kernels_checkpoint_rollback", path = "/api/v1/sandboxes/{id}/kernels/{kid}/checkpoints/{cid}/rollback", tag = "kernels",
    params(("id" = uuid::Uuid, Path), ("kid" = String, Path), ("cid" = String, Path)),
    responses((status = 200, body = KernelItem), (status = 404), (status = 409, description = "Not running")))]
pub(crate) async fn rollback(
    State(app): State<App>,
    Who(caller): Who,
    Path((id, kid, cid)): Ids,
) -> JsonResult<KernelItem> {
    let (sandbox, kernel) = (sandbox_id(&id)?, kernel_id(&kid)?);
    Ok(Json(app.core.kernels.roll_back(&caller, sandbox, kernel, checkpoint_id(&cid)?).await?.into()))
}
