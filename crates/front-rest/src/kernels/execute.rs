//! Cells: whole, or as they come.

use super::{Ids, kernel_id, language, stream, wire::CellResult};
use crate::{
    App,
    parse::{Raw, json, sandbox_id},
};
use atoll_core::{Caller, CellRequest, CellTarget, Kernels, OutputLimits};
use atoll_http::{Busy, Ending, Failure, Repeat, Who, once, once_streamed};
use atoll_types::{Error, ErrorCode, SandboxId};
use axum::{
    extract::{Path, State},
    http::{HeaderMap, StatusCode},
    response::Response,
};
use bytes::Bytes;
use serde::Deserialize;
use utoipa::ToSchema;

/// A cell for a kernel.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExecuteBody {
    code: String,
    /// In seconds; 30 where nothing is said.
    #[serde(default)]
    timeout: Option<f64>,
    /// Answer with events while it runs.
    #[serde(default)]
    stream: Option<bool>,
}

/// A cell for the default kernel of a language.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RunBody {
    code: String,
    /// python, node, r or bash; python where nothing is said.
    #[serde(default)]
    language: Option<String>,
    /// In seconds; 30 where nothing is said.
    #[serde(default)]
    timeout: Option<f64>,
    /// Answer with events while it runs.
    #[serde(default)]
    stream: Option<bool>,
}

/// Runs code in a kernel: to its end, or with `stream` as events of JSON while it runs: `started`; `began`
/// when its turn has come; `output` with `stream` and `text`; `display` with `display`; at last `ended` with
/// the whole answer, or `error`.
///
/// Cells of one kernel run one after another. A timeout interrupts the cell and keeps the variables where the
/// language allows. A caller that goes away interrupts its cell, unless the request has an
/// `Idempotency-Key`: with one the cell is run once, and a repeated request gets the same, also
/// after the server was restarted.
#[utoipa::path(post, path = "/api/v1/sandboxes/{id}/kernels/{kid}/execute", tag = "kernels",
    params(("id" = uuid::Uuid, Path), ("kid" = String, Path)), request_body = ExecuteBody,
    responses(
        (status = 200, content((CellResult = "application/json"), (String = "text/event-stream"))),
        (status = 404), (status = 409, description = "Not running, or the kernel died"),
        (status = 422, description = "A field is wrong"), (status = 429, description = "Too many")))]
pub(crate) async fn execute(
    State(app): State<App>,
    Who(caller): Who,
    Path((id, kid)): Ids,
    ending: Ending,
    headers: HeaderMap,
    Raw(body): Raw,
) -> Result<Response, Failure> {
    let (sandbox, kernel) = (sandbox_id(&id)?, kernel_id(&kid)?);
    let ExecuteBody { code, timeout, stream } = json(&body)?;
    let wanted = Wanted { code, timeout, stream, target: CellTarget::Kernel(kernel) };
    let operation = format!("execute {sandbox} {kernel}");
    answer(&app, &caller, sandbox, wanted, ending, (&headers, &operation, &body)).await
}

/// Runs code in the default kernel of a language, which is started where there is none; as `execute` does.
#[utoipa::path(post, path = "/api/v1/sandboxes/{id}/run", tag = "kernels", params(("id" = uuid::Uuid, Path)),
    request_body = RunBody,
    responses(
        (status = 200, content((CellResult = "application/json"), (String = "text/event-stream"))),
        (status = 404), (status = 409, description = "Not running"),
        (status = 422, description = "A field is wrong, or the image has no such interpreter"),
        (status = 429, description = "Too many")))]
pub(crate) async fn run(
    State(app): State<App>,
    Who(caller): Who,
    Path(id): Path<String>,
    ending: Ending,
    headers: HeaderMap,
    Raw(body): Raw,
) -> Result<Response, Failure> {
    let sandbox = sandbox_id(&id)?;
    let RunBody { code, language: name, timeout, stream } = json(&body)?;
    let target = CellTarget::Default(language(name.as_deref())?);
    let wanted = Wanted { code, timeout, stream, target };
    answer(&app, &caller, sandbox, wanted, ending, (&headers, &format!("run {sandbox}"), &body)).await
}

/// What either asks for.
struct Wanted {
    code: String,
    timeout: Option<f64>,
    stream: Option<bool>,
    target: CellTarget,
}

async fn answer(
    app: &App,
    caller: &Caller,
    sandbox: SandboxId,
    wanted: Wanted,
    ending: Ending,
    (headers, operation, body): (&HeaderMap, &str, &Bytes),
) -> Result<Response, Failure> {
    let Wanted { code, timeout, stream, target } = wanted;
    let repeat = Repeat::of(headers, operation, body)?;
    let id = repeat.as_ref().map(|r| Kernels::repeatable_id(caller, sandbox, &r.key, &r.request));
    let limits = OutputLimits::default();
    let request = CellRequest { target, code, timeout_seconds: timeout, limits, id, result_variable: false };
    if stream.unwrap_or(false) {
        return streamed(app, caller, sandbox, &request, repeat, ending).await;
    }
    let (core, asker) = (app.core.clone(), caller.clone());
    let work = async move {
        let outcome = core.kernels.execute(&asker, sandbox, &request).await?;
        Ok((StatusCode::OK, CellResult::redacted(outcome)))
    };
    once(&app.core, caller, repeat, Busy::Join, work).await
}

async fn streamed(
    app: &App,
    caller: &Caller,
    sandbox: SandboxId,
    request: &CellRequest,
    repeat: Option<Repeat>,
    ending: Ending,
) -> Result<Response, Failure> {
    let known = still_known(app, caller, sandbox, request);
    let work = async {
        let follow = app.core.kernels.execute_stream(caller, sandbox, request).await?;
        Ok((follow.cell.to_string(), follow))
    };
    Ok(stream::respond(once_streamed(&app.core, caller, repeat, known, work).await?, ending))
}

/// A cell that was run and is forgotten must not be run again.
async fn still_known(
    app: &App,
    caller: &Caller,
    sandbox: SandboxId,
    request: &CellRequest,
) -> Result<(), Failure> {
    let Some(id) = request.id else { return Ok(()) };
    match app.core.kernels.knows_cell(caller, sandbox, id).await? {
        true => Ok(()),
        false => {
            let message = "the cell was run, and the sandbox has forgotten what came of it";
            Err(Error::new(ErrorCode::Conflict, message).into())
        }
    }
}
