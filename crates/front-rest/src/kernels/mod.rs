//! Live interpreters: starting, looking, steering. Cells are in [`execute`], what can be returned to in
//! [`checkpoints`], packages in [`dependencies`].

pub(crate) mod checkpoints;
pub(crate) mod complete;
pub(crate) mod dependencies;
pub(crate) mod execute;
mod stream;
mod wire;

use crate::{
    App,
    parse::{Raw, json, sandbox_id},
    shapes::Variables,
};
use atoll_core::{ForkKernel, KernelRequest, Language};
use atoll_http::{Failure, Who};
use atoll_types::{CheckpointId, Error, ErrorCode, KernelId};
use axum::{
    Json,
    extract::{Path, State},
    http::StatusCode,
};
use serde::Deserialize;
use std::collections::BTreeMap;
use utoipa::ToSchema;
use uuid::Uuid;
pub(crate) use wire::KernelItem;

type Ids = Path<(String, String)>;
type JsonResult<T> = Result<Json<T>, Failure>;

/// The id of a kernel, in either spelling of a UUID.
fn kernel_id(text: &str) -> Result<KernelId, Failure> {
    let missing = || Error::new(ErrorCode::NotFound, "there is no kernel with this id");
    Ok(KernelId::from_uuid(Uuid::try_parse(text).map_err(|_| missing())?))
}

/// The id of a checkpoint, in either spelling of a UUID.
fn checkpoint_id(text: &str) -> Result<CheckpointId, Failure> {
    let missing = || Error::new(ErrorCode::NotFound, "there is no checkpoint with this id");
    Ok(CheckpointId::from_uuid(Uuid::try_parse(text).map_err(|_| missing())?))
}

/// A language by any of its names; python where none is given.
fn language(name: Option<&str>) -> Result<Language, Failure> {
    Ok(name.map_or(Ok(Language::Python), str::parse)?)
}

/// A new kernel.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct StartBody {
    /// python, node, r or bash; python where nothing is said.
    language: Option<String>,
    /// Whether it is the one that `run` uses. Where there is one already, that one is the answer.
    default: Option<bool>,
    /// Absolute, or relative to /workspace; the image's where it is left out.
    working_directory: Option<String>,
    /// On top of the sandbox's own.
    #[schema(value_type = Option<Variables>)]
    env_vars: Option<BTreeMap<String, String>>,
}

/// Starts an interpreter that keeps its variables between cells. Answers when it is ready.
#[utoipa::path(post, path = "/api/v1/sandboxes/{id}/kernels", tag = "kernels", params(("id" = uuid::Uuid, Path)),
    request_body = StartBody,
    responses((status = 201, body = KernelItem), (status = 404), (status = 409, description = "Not running"),
        (status = 422, description = "A field is wrong, or the image has no such interpreter"),
        (status = 429, description = "Too many")))]
pub(crate) async fn start(
    State(app): State<App>,
    Who(caller): Who,
    Path(id): Path<String>,
    Raw(body): Raw,
) -> Result<(StatusCode, Json<KernelItem>), Failure> {
    let sandbox = sandbox_id(&id)?;
    let StartBody { language: name, default, working_directory, env_vars } = json(&body)?;
    let request = KernelRequest {
        language: language(name.as_deref())?,
        default: default.unwrap_or(false),
        working_directory,
        env_vars: env_vars.unwrap_or_default(),
    };
    let info = app.core.kernels.start(&caller, sandbox, &request).await?;
    Ok((StatusCode::CREATED, Json(info.into())))
}

/// Lists the kernels of a sandbox, the oldest first. One that is stopped has none.
#[utoipa::path(get, path = "/api/v1/sandboxes/{id}/kernels", tag = "kernels", params(("id" = uuid::Uuid, Path)),
    responses((status = 200, body = Vec<KernelItem>), (status = 404)))]
pub(crate) async fn list(
    State(app): State<App>,
    Who(caller): Who,
    Path(id): Path<String>,
) -> JsonResult<Vec<KernelItem>> {
    let all = app.core.kernels.list(&caller, sandbox_id(&id)?).await?;
    Ok(Json(all.into_iter().map(KernelItem::from).collect()))
}

/// Shows a kernel.
#[utoipa::path(get, path = "/api/v1/sandboxes/{id}/kernels/{kid}", tag = "kernels",
    params(("id" = uuid::Uuid, Path), ("kid" = String, Path)),
    responses((status = 200, body = KernelItem), (status = 404)))]
pub(crate) async fn get(
    State(app): State<App>,
    Who(caller): Who,
    Path((id, kid)): Ids,
) -> JsonResult<KernelItem> {
    Ok(Json(app.core.kernels.get(&caller, sandbox_id(&id)?, kernel_id(&kid)?).await?.into()))
}

/// Ends a kernel and everything that it started.
#[utoipa::path(delete, path = "/api/v1/sandboxes/{id}/kernels/{kid}", tag = "kernels",
    params(("id" = uuid::Uuid, Path), ("kid" = String, Path)),
    responses((status = 204), (status = 404), (status = 409, description = "Not running")))]
pub(crate) async fn remove(
    State(app): State<App>,
    Who(caller): Who,
    Path((id, kid)): Ids,
) -> Result<StatusCode, Failure> {
    app.core.kernels.delete(&caller, sandbox_id(&id)?, kernel_id(&kid)?).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Interrupts the running cell, as Ctrl-C does. Its variables stay where the language allows; one that does
/// not end by this is killed with its interpreter, and its answer says so.
#[utoipa::path(post, path = "/api/v1/sandboxes/{id}/kernels/{kid}/interrupt", tag = "kernels",
    params(("id" = uuid::Uuid, Path), ("kid" = String, Path)),
    responses((status = 204), (status = 404), (status = 409, description = "Not running")))]
pub(crate) async fn interrupt(
    State(app): State<App>,
    Who(caller): Who,
    Path((id, kid)): Ids,
) -> Result<StatusCode, Failure> {
    app.core.kernels.interrupt(&caller, sandbox_id(&id)?, kernel_id(&kid)?).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Starts a fresh interpreter under the same id. Its variables are lost, its checkpoints are not.
#[utoipa::path(post, path = "/api/v1/sandboxes/{id}/kernels/{kid}/restart", tag = "kernels",
    params(("id" = uuid::Uuid, Path), ("kid" = String, Path)),
    responses((status = 200, body = KernelItem), (status = 404), (status = 409, description = "Not running")))]
pub(crate) async fn restart(
    State(app): State<App>,
    Who(caller): Who,
    Path((id, kid)): Ids,
) -> JsonResult<KernelItem> {
    Ok(Json(app.core.kernels.restart(&caller, sandbox_id(&id)?, kernel_id(&kid)?).await?.into()))
}

/// Which kernel to make another from.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ForkBody {
    /// Not as it is now but as it was at this checkpoint.
    checkpoint: Option<String>,
}

/// Makes a second kernel that begins with everything that this one has (Python).
#[utoipa::path(post, path = "/api/v1/sandboxes/{id}/kernels/{kid}/fork", tag = "kernels",
    params(("id" = uuid::Uuid, Path), ("kid" = String, Path)), request_body = ForkBody,
    responses((status = 201, body = KernelItem), (status = 404), (status = 409, description = "Not running"),
        (status = 501, description = "The language cannot")))]
pub(crate) async fn fork(
    State(app): State<App>,
    Who(caller): Who,
    Path((id, kid)): Ids,
    Raw(body): Raw,
) -> Result<(StatusCode, Json<KernelItem>), Failure> {
    let (sandbox, kernel) = (sandbox_id(&id)?, kernel_id(&kid)?);
    let ForkBody { checkpoint } = json(&body)?;
    let checkpoint = checkpoint.as_deref().map(checkpoint_id).transpose()?;
    let info = app.core.kernels.fork(&caller, sandbox, &ForkKernel { kernel, checkpoint }).await?;
    Ok((StatusCode::CREATED, Json(info.into())))
}
