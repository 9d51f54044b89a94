//! Commands: running them here, reading and steering them in the modules below.

pub(crate) mod control;
mod encode;
mod outcome;
pub(crate) mod output;
mod report;
pub(crate) mod signals;
mod sse;

use crate::{
    App,
    parse::{Raw, json, sandbox_id},
};
use atoll_core::{Caller, ExecCommand, ExecMode, Execs};
use atoll_http::{Busy, Ending, Failure, Redacted, Repeat, Who, once, once_streamed};
use atoll_types::{Error, ErrorCode, ExecId, SandboxId};
use axum::{
    extract::{Path, State},
    http::{HeaderMap, StatusCode},
    response::Response,
};
pub(crate) use outcome::ChangedFile;
use outcome::{ExecAnswer, ExecBody, ExecResult};
use report::ExecItem;

/// Runs a command: to its end, with `stream` as events while it runs (see the output of a command), with
/// `background` without waiting for it. Both together answer with events and leave the command running
/// when the caller goes.
///
/// A caller that goes away ends its command, unless it runs in the background or the request has an
/// `Idempotency-Key`. With a key the command is run once, and a repeated request gets the same
/// command, also after the server was restarted.
#[utoipa::path(post, path = "/api/v1/sandboxes/{id}/exec", tag = "exec", params(("id" = uuid::Uuid, Path)),
    request_body = ExecBody,
    responses(
        (status = 200, content((ExecResult = "application/json"), (String = "text/event-stream"))),
        (status = 202, body = ExecItem, description = "Runs in the background"),
        (status = 400, description = "Cannot be started so"), (status = 404),
        (status = 409, description = "Not running"), (status = 422, description = "A field is wrong")))]
pub(crate) async fn exec(
    State(app): State<App>,
    Who(caller): Who,
    Path(id): Path<String>,
    ending: Ending,
    headers: HeaderMap,
    Raw(body): Raw,
) -> Result<Response, Failure> {
    let sandbox = sandbox_id(&id)?;
    let request: ExecBody = json(&body)?;
    let repeat = Repeat::of(&headers, &format!("exec {sandbox}"), &body)?;
    let (stream, background) = (request.stream(), request.background());
    let mut command = ExecCommand::from(request);
    command.id = repeat.as_ref().map(|r| Execs::repeatable_id(&caller, sandbox, &r.key, &r.request));
    let mode = match (stream, background) {
        (_, true) => ExecMode::Background,
        (true, false) => ExecMode::Streamed,
        (false, false) => ExecMode::Foreground,
    };
    if stream {
        return streamed(&app, &caller, sandbox, &command, (mode, repeat), ending).await;
    }
    let core = app.core.clone();
    let asker = caller.clone();
    if background {
        let work = async move {
            let (report, redactor) = core.execs.run_background(&asker, sandbox, &command).await?;
            Ok((StatusCode::ACCEPTED, Redacted { answer: ExecItem::from(report), redactor }))
        };
        return once(&app.core, &caller, repeat, Busy::Join, work).await;
    }
    let work = async move {
        let outcome = core.execs.run(&asker, sandbox, &command).await?;
        Ok((StatusCode::OK, ExecAnswer::from(outcome)))
    };
    once(&app.core, &caller, repeat, Busy::Join, work).await
}

async fn streamed(
    app: &App,
    caller: &Caller,
    sandbox: SandboxId,
    command: &ExecCommand,
    (mode, repeat): (ExecMode, Option<Repeat>),
    ending: Ending,
) -> Result<Response, Failure> {
    let known = still_known(app, caller, sandbox, command.id);
    let work = async {
        let follow = app.core.execs.run_streamed(caller, sandbox, command, mode).await?;
        Ok((follow.report.id.to_string(), follow))
    };
    let follow = once_streamed(&app.core, caller, repeat, known, work).await?;
    Ok(sse::respond(follow, sse::OutputRequest::whole(), ending))
}

/// A command that was run and is forgotten must not be run again.
async fn still_known(
    app: &App,
    caller: &Caller,
    sandbox: SandboxId,
    id: Option<ExecId>,
) -> Result<(), Failure> {
    let Some(id) = id else { return Ok(()) };
    match app.core.execs.get(caller, sandbox, id).await {
        Err(error) if error.code == ErrorCode::NotFound => {
            let message = "the command was run, and the sandbox has forgotten its output";
            Err(Error::new(ErrorCode::Conflict, message).into())
        }
        other => other.map(|_| ()).map_err(Failure::from),
    }
}
