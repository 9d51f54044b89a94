//! A run that may name no sandbox. The reference API has no call that runs code, though its configuration decides about
//! such calls; this is the one of this server.

use crate::{
    App,
    ids::{any_sandbox, container_text, run_text},
    runs::RunItem,
};
use atoll_core::{CallScope, Caller, CellRequest, CellTarget, Core, Kernels, Language, OutputLimits};
use atoll_http::{Busy, Failure, Raw, Redacted, Repeat, Who, json, once};
use axum::{
    extract::State,
    http::{HeaderMap, StatusCode},
    response::Response,
};
use serde::{Deserialize, Serialize};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RunBody {
    code: String,
    /// `sbx_…` or `container_…`; by the configuration where it is left out.
    #[serde(default)]
    sandbox_id: Option<String>,
    #[serde(default)]
    agent_id: Option<String>,
    #[serde(default)]
    session_id: Option<String>,
    #[serde(default)]
    timeout: Option<f64>,
}

#[derive(Serialize)]
struct Ran {
    container_id: String,
    #[serde(flatten)]
    run: RunItem,
}

/// Finds or makes the sandbox and runs the code in it. A repeated request finds the same sandbox, and joins its run.
async fn carried_out(
    core: &Core,
    caller: &Caller,
    asked: RunBody,
    repeat: Option<(String, [u8; 32])>,
) -> Result<(StatusCode, Redacted<Ran>), Failure> {
    let RunBody { code, sandbox_id: named, agent_id, session_id, timeout } = asked;
    let configs = &core.owner_configs;
    let config = configs.must_be_on(caller).await?;
    let sandbox = match named {
        Some(id) => any_sandbox(&id)?,
        None => configs.sandbox_for(caller, &CallScope { agent_id, session_id }).await?.record.id,
    };
    let timeout_seconds = match timeout {
        Some(seconds) => Some(seconds),
        None => configs.usual_timeout(caller, &config)?,
    };
    let request = CellRequest {
        target: CellTarget::Default(Language::Python),
        code,
        timeout_seconds,
        limits: OutputLimits::default(),
        id: repeat.map(|(key, request)| Kernels::repeatable_id(caller, sandbox, &key, &request)),
        result_variable: true,
    };
    let outcome = core.kernels.execute(caller, sandbox, &request).await?;
    let run = RunItem::new(run_text(outcome.cell), outcome.report);
    let answer = Ran { container_id: container_text(sandbox), run };
    Ok((StatusCode::OK, Redacted { answer, redactor: outcome.redactor }))
}

pub(super) async fn run(
    State(app): State<App>,
    Who(caller): Who,
    headers: HeaderMap,
    Raw(body): Raw,
) -> Result<Response, Failure> {
    let asked: RunBody = json(&body)?;
    let repeat = Repeat::of(&headers, "compat run", &body)?;
    let of = repeat.as_ref().map(|repeat| (repeat.key.clone(), repeat.request));
    let (core, asker) = (app.core.clone(), caller.clone());
    let work = async move { carried_out(&core, &asker, asked, of).await };
    once(&app.core, &caller, repeat, Busy::Join, work).await
}
