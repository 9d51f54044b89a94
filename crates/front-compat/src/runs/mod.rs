//! The API of runs, at `/api/sandbox` and `/api/v1/sandbox`: short-lived sandboxes that run Python code. A sandbox is
//! destroyed when its `timeout` elapses and its record stays readable; a run is a cell of the sandbox's Python kernel.

mod create;
mod shapes;
mod units;

use crate::{
    App,
    ids::{run_id, run_text, sandbox_id},
    kept_text,
};
use atoll_core::{Caller, CellRequest, CellTarget, FoundCell, Kernels, Language, OutputLimits};
use atoll_http::{Busy, Failure, Raw, Redacted, Repeat, Who, json, once};
use atoll_types::{
    CellId, Error, ErrorCode, Operation, SandboxId,
    audit::{OPERATIONS_PER_PAGE, OperationQuery},
};
use axum::{
    Json, Router,
    extract::{Path, State},
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use create::{CreateBody, USUAL_LIFE_SECONDS, in_our_words};
use serde::Deserialize;
pub(crate) use shapes::RunItem;
use shapes::{SandboxItem, StartedRun};
use std::ops::RangeInclusive;

/// How long a run may be allowed to last, in seconds.
const RUN_SECONDS: RangeInclusive<u32> = 1..=600;

pub(crate) fn routes() -> Router<App> {
    let below = |base: &str| {
        Router::new()
            .route(&format!("{base}/create"), post(create))
            .route(&format!("{base}/{{sandbox_id}}"), get(status).delete(destroy))
            .route(&format!("{base}/{{sandbox_id}}/run"), post(run))
            .route(&format!("{base}/{{sandbox_id}}/runs/{{run_id}}"), get(poll))
    };
    below("/api/sandbox").merge(below("/api/v1/sandbox"))
}

/// Makes a sandbox, which is ready when this answers.
async fn create(
    State(app): State<App>,
    Who(caller): Who,
    headers: HeaderMap,
    Raw(body): Raw,
) -> Result<Response, Failure> {
    let usual_life = app.core.sandboxes.usual_lifetime(USUAL_LIFE_SECONDS);
    let request = json::<CreateBody>(&body)?.request(usual_life)?;
    let repeat = Repeat::of(&headers, "compat create", &body)?;
    let (core, asker) = (app.core.clone(), caller.clone());
    let work = async move {
        // No image is pulled or built on use: no admin has approved it then, and this API takes approved ones alone.
        let created = core.owner_configs.create(&asker, request).await.map_err(in_our_words)?;
        Ok((StatusCode::CREATED, SandboxItem::created(&created.record)))
    };
    once(&app.core, &caller, repeat, Busy::Refuse, work).await
}

/// A sandbox, destroyed ones too.
async fn status(
    State(app): State<App>,
    Who(caller): Who,
    Path(id): Path<String>,
) -> Result<Json<SandboxItem>, Failure> {
    let record = app.core.sandboxes.get(&caller, sandbox_id(&id)?).await?;
    let runs = app.core.kernels.is_executing(record.id);
    Ok(Json(SandboxItem::new(record, runs)))
}

/// Destroys a sandbox with its files and ends its runs.
async fn destroy(
    State(app): State<App>,
    Who(caller): Who,
    Path(id): Path<String>,
) -> Result<StatusCode, Failure> {
    app.core.sandboxes.destroy(&caller, sandbox_id(&id)?).await?;
    Ok(StatusCode::NO_CONTENT)
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RunBody {
    code: String,
    #[serde(default)]
    timeout: Option<u32>,
    #[serde(default)]
    r#async: Option<bool>,
}

impl RunBody {
    /// The same as a cell for the default Python kernel.
    fn cell(&self, id: Option<CellId>) -> Result<CellRequest, Failure> {
        if let Some(seconds) = self.timeout.filter(|seconds| !RUN_SECONDS.contains(seconds)) {
            let (least, most) = (RUN_SECONDS.start(), RUN_SECONDS.end());
            let message =
                format!("timeout must be between {least} and {most} seconds; {seconds} was asked for");
            return Err(Error::invalid("timeout", message).into());
        }
        Ok(CellRequest {
            target: CellTarget::Default(Language::Python),
            code: self.code.clone(),
            timeout_seconds: self.timeout.map(f64::from),
            limits: OutputLimits::default(),
            id,
            result_variable: true,
        })
    }
}

/// Runs code to its end; with `async` answers when it is begun, and the caller polls.
async fn run(
    State(app): State<App>,
    Who(caller): Who,
    Path(id): Path<String>,
    headers: HeaderMap,
    Raw(body): Raw,
) -> Result<Response, Failure> {
    let sandbox = sandbox_id(&id)?;
    let asked: RunBody = json(&body)?;
    app.core.owner_configs.must_be_on(&caller).await?;
    let repeat = Repeat::of(&headers, &format!("compat run {sandbox}"), &body)?;
    let cell = repeat.as_ref().map(|r| Kernels::repeatable_id(&caller, sandbox, &r.key, &r.request));
    let (core, asker) = (app.core.clone(), caller.clone());
    if asked.r#async.unwrap_or(false) {
        let cell = cell.unwrap_or_else(CellId::random);
        let request = asked.cell(Some(cell))?;
        let work = async move {
            core.kernels.begin(&asker, sandbox, &request).await?;
            Ok((StatusCode::ACCEPTED, StartedRun::new(cell)))
        };
        return once(&app.core, &caller, repeat, Busy::Join, work).await;
    }
    let request = asked.cell(cell)?;
    let work = async move {
        let outcome = core.kernels.execute(&asker, sandbox, &request).await?;
        let answer = RunItem::new(run_text(outcome.cell), outcome.report);
        Ok((StatusCode::OK, Redacted { answer, redactor: outcome.redactor }))
    };
    once(&app.core, &caller, repeat, Busy::Join, work).await
}

/// How a run went, or that it runs. A container remembers its last 64 runs; what the audit trail keeps of a run stays when its
/// container is gone.
async fn poll(
    State(app): State<App>,
    Who(caller): Who,
    Path((id, run)): Path<(String, String)>,
) -> Result<Response, Failure> {
    let (sandbox, cell) = (sandbox_id(&id)?, run_id(&run)?);
    Ok(match app.core.kernels.find_cell(&caller, sandbox, cell).await {
        Ok(FoundCell::Running) => Json(StartedRun::new(cell)).into_response(),
        Ok(FoundCell::Ended(report)) => Json(RunItem::new(run_text(cell), *report)).into_response(),
        Err(error) if GONE.contains(&error.code) => match kept_run(&app, &caller, sandbox, cell).await? {
            KeptRun::Ended(kept) => Json(kept).into_response(),
            // Its end is not written yet.
            KeptRun::Begun => return Err(error.into()),
            KeptRun::Unknown if error.code == ErrorCode::NotFound => return Err(error.into()),
            KeptRun::Unknown => {
                let message = format!("the sandbox has no run {run}");
                return Err(Error::new(ErrorCode::NotFound, message).into());
            }
        },
        Err(error) => return Err(error.into()),
    })
}

/// The errors of a sandbox that remembers no such run.
const GONE: &[ErrorCode] =
    &[ErrorCode::NotRunning, ErrorCode::NotFound, ErrorCode::ContainerDied, ErrorCode::KernelDied];

/// What the audit trail knows of a run.
enum KeptRun {
    Ended(RunItem),
    Begun,
    /// The sandbox never had it, or it is none of the newest.
    Unknown,
}

/// What the audit trail keeps of a run, where it is among the newest of its sandbox.
async fn kept_run(app: &App, caller: &Caller, sandbox: SandboxId, cell: CellId) -> Result<KeptRun, Failure> {
    let query = OperationQuery {
        sandbox: Some(sandbox),
        kind: Some(Operation::KernelExecute.name().to_owned()),
        limit: OPERATIONS_PER_PAGE,
        ..OperationQuery::default()
    };
    let cell_text = cell.to_string();
    let rows = app.core.audit.page(caller, query).await?;
    let row = rows.into_iter().find(|row| row.begin.extra.get("cell_id") == Some(&cell_text));
    let Some(row) = row else { return Ok(KeptRun::Unknown) };
    let Some(end) = row.end else { return Ok(KeptRun::Begun) };
    let output = app.core.audit.output(caller, row.id).await?;
    let (stdout, stderr) = (kept_text(output.stdout), kept_text(output.stderr));
    Ok(KeptRun::Ended(RunItem::kept(run_text(cell), end.facts, stdout, stderr)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use atoll_core::DEFAULT_CELL_SECONDS;

    #[test]
    fn a_run_without_a_timeout_has_the_30_seconds_of_a_cell() {
        let timeout = |body: &str| {
            let asked: RunBody = json(&body.to_owned().into()).unwrap();
            asked.cell(None).map(|cell| cell.timeout_seconds)
        };
        assert_eq!((timeout(r#"{"code":"1"}"#).unwrap(), DEFAULT_CELL_SECONDS), (None, 30));
        assert_eq!(timeout(r#"{"code":"1","timeout":600}"#).unwrap(), Some(600.0));
        assert!(timeout(r#"{"code":"1","timeout":0}"#).is_err());
    }
}
