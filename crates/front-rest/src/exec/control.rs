//! Looking at commands and acting on them.

use super::{report::ExecItem, signals::SignalBody};
use crate::{
    App,
    files::steady,
    parse::{Params, Raw, exec_id, json, sandbox_id},
};
use atoll_http::{Failure, Who};
use axum::{
    Json,
    body::Body,
    extract::{Path, State},
    http::StatusCode,
};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

type Ids = Path<(String, String)>;

/// Lists the commands that the sandbox remembers, the latest first. It forgets ended ones, the oldest
/// first, when there are too many, and all when it stops.
#[utoipa::path(get, path = "/api/v1/sandboxes/{id}/execs", tag = "exec", params(("id" = uuid::Uuid, Path)),
    responses((status = 200, body = Vec<ExecItem>), (status = 404), (status = 409, description = "Not running")))]
pub(crate) async fn list(
    State(app): State<App>,
    Who(caller): Who,
    Path(id): Path<String>,
) -> Result<Json<Vec<ExecItem>>, Failure> {
    let all = app.core.execs.list(&caller, sandbox_id(&id)?).await?;
    Ok(Json(all.into_iter().map(ExecItem::from).collect()))
}

/// Shows a command.
#[utoipa::path(get, path = "/api/v1/sandboxes/{id}/execs/{eid}", tag = "exec",
    params(("id" = uuid::Uuid, Path), ("eid" = String, Path)),
    responses((status = 200, body = ExecItem), (status = 404), (status = 409, description = "Not running")))]
pub(crate) async fn get(
    State(app): State<App>,
    Who(caller): Who,
    Path((id, eid)): Ids,
) -> Result<Json<ExecItem>, Failure> {
    Ok(Json(app.core.execs.get(&caller, sandbox_id(&id)?, exec_id(&eid)?).await?.into()))
}

/// Forgets an ended command and its output.
#[utoipa::path(delete, path = "/api/v1/sandboxes/{id}/execs/{eid}", tag = "exec",
    params(("id" = uuid::Uuid, Path), ("eid" = String, Path)),
    responses((status = 204), (status = 404), (status = 409, description = "It, or what it started, still runs")))]
pub(crate) async fn forget(
    State(app): State<App>,
    Who(caller): Who,
    Path((id, eid)): Ids,
) -> Result<StatusCode, Failure> {
    app.core.execs.forget(&caller, sandbox_id(&id)?, exec_id(&eid)?).await?;
    Ok(StatusCode::NO_CONTENT)
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct StdinParams {
    /// Whether this is the end of its input.
    close: Option<bool>,
}

/// What a command took.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Written {
    written: u64,
}

/// Gives a command input. Answers when it has taken all of it, or takes no more.
#[utoipa::path(post, path = "/api/v1/sandboxes/{id}/execs/{eid}/stdin", tag = "exec",
    params(("id" = uuid::Uuid, Path), ("eid" = String, Path), StdinParams),
    request_body(content = Vec<u8>, content_type = "application/octet-stream"),
    responses((status = 200, body = Written), (status = 404), (status = 409, description = "Its input is closed")))]
pub(crate) async fn stdin(
    State(app): State<App>,
    Who(caller): Who,
    Path((id, eid)): Ids,
    Params(params): Params<StdinParams>,
    body: Body,
) -> Result<Json<Written>, Failure> {
    let (sandbox, exec, close) = (sandbox_id(&id)?, exec_id(&eid)?, params.close.unwrap_or(false));
    let written = app.core.execs.write_stdin(&caller, sandbox, exec, steady(body), close).await?;
    Ok(Json(Written { written }))
}

/// Sends a signal to a command's own processes.
#[utoipa::path(post, path = "/api/v1/sandboxes/{id}/execs/{eid}/signal", tag = "exec",
    params(("id" = uuid::Uuid, Path), ("eid" = String, Path)), request_body = SignalBody,
    responses((status = 204), (status = 404), (status = 409, description = "It has ended"), (status = 422)))]
pub(crate) async fn signal(
    State(app): State<App>,
    Who(caller): Who,
    Path((id, eid)): Ids,
    Raw(body): Raw,
) -> Result<StatusCode, Failure> {
    let (sandbox, exec) = (sandbox_id(&id)?, exec_id(&eid)?);
    let signal = json::<SignalBody>(&body)?.number()?;
    app.core.execs.signal(&caller, sandbox, exec, signal).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Ends a command and everything that it started. Answers when none of it is left.
#[utoipa::path(post, path = "/api/v1/sandboxes/{id}/execs/{eid}/kill", tag = "exec",
    params(("id" = uuid::Uuid, Path), ("eid" = String, Path)),
    responses((status = 200, body = ExecItem), (status = 404), (status = 409, description = "Not running")))]
pub(crate) async fn kill(
    State(app): State<App>,
    Who(caller): Who,
    Path((id, eid)): Ids,
) -> Result<Json<ExecItem>, Failure> {
    Ok(Json(app.core.execs.kill(&caller, sandbox_id(&id)?, exec_id(&eid)?).await?.into()))
}
