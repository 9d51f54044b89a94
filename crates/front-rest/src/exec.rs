//! Commands.

use crate::{
    App,
    auth::Who,
    error::Failure,
    idempotency::once,
    parse::{Raw, json, sandbox_id},
    shapes::{ExecBody, ExecResult},
};
use axum::{
    extract::{Path, State},
    http::{HeaderMap, StatusCode},
    response::Response,
};

/// Runs a command to its end.
#[utoipa::path(post, path = "/api/v1/sandboxes/{id}/exec", tag = "exec", params(("id" = uuid::Uuid, Path)),
    request_body = ExecBody,
    responses((status = 200, body = ExecResult), (status = 404), (status = 409, description = "Not running"),
        (status = 422, description = "A field is wrong")))]
pub(crate) async fn exec(
    State(app): State<App>,
    Who(caller): Who,
    Path(id): Path<String>,
    headers: HeaderMap,
    Raw(body): Raw,
) -> Result<Response, Failure> {
    let sandbox = sandbox_id(&id)?;
    let request: ExecBody = json(&body)?;
    let operation = format!("exec {sandbox}");
    once(&app, &caller, &headers, (&operation, &body), async {
        let outcome = app.core.exec(&caller, sandbox, &request.into()).await?;
        Ok((StatusCode::OK, ExecResult::from(outcome)))
    })
    .await
}
