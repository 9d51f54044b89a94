//! Runs of a thread: lists, one of them, cancelling and deleting; and several runs at once.

use super::{RunBody, item};
use crate::{App, ids};
use atoll_agent::CancelAction;
use atoll_core::Caller;
use atoll_http::{
    Failure, LARGEST_CALL, LookUp, Params, Raw, ServerAddress, Who, read_request, required_json,
};
use atoll_types::{
    Error, ErrorCode, Result, ThreadId,
    conversation::{RunStatus, ThreadQuery, ThreadStatus},
};
use axum::{
    Json,
    extract::{Path, Request, State},
    http::StatusCode,
};
use serde::Deserialize;
use serde_json::Value;

/// The most runs of one request.
const MOST_AT_ONCE: usize = 100;
/// The most threads whose runs one request cancels.
const MOST_THREADS: u32 = 1000;

#[derive(Debug, Deserialize)]
pub(super) struct ListQuery {
    limit: Option<u32>,
    offset: Option<u32>,
    status: Option<String>,
}

pub(super) async fn list(
    State(app): State<App>,
    Path(thread): Path<String>,
    Params(query): Params<ListQuery>,
    LookUp(caller, _): LookUp,
) -> Result<Json<Value>, Failure> {
    let thread = ids::thread_of(&thread)?;
    let unknown = || Failure::in_query(Error::invalid("status", "there is no such status"));
    let status = query.status.as_deref().filter(|name| !name.is_empty());
    let status = status.map(|name| RunStatus::from_name(name).ok_or_else(unknown)).transpose()?;
    let limit = crate::assistants::limit(query.limit).map_err(Failure::in_query)?;
    let runs = app.agents.runs(&caller, &thread, status, limit, query.offset.unwrap_or(0)).await?;
    Ok(Json(runs.iter().map(item).collect()))
}

pub(super) async fn read(
    State(app): State<App>,
    Who(caller): Who,
    Path((thread, run)): Path<(String, String)>,
) -> Result<Json<Value>, Failure> {
    let (thread, run) = ids::run_of(&thread, &run)?;
    Ok(Json(item(&app.agents.run(&caller, &thread, run).await?)))
}

pub(super) async fn remove(
    State(app): State<App>,
    Who(caller): Who,
    Path((thread, run)): Path<(String, String)>,
) -> Result<StatusCode, Failure> {
    let (thread, run) = ids::run_of(&thread, &run)?;
    app.agents.delete_run(&caller, &thread, run).await?;
    Ok(StatusCode::NO_CONTENT)
}

fn action(name: Option<&str>) -> Result<CancelAction> {
    match name {
        None | Some("interrupt") => Ok(CancelAction::Interrupt),
        Some("rollback") => Ok(CancelAction::Rollback),
        Some(_) => Err(Error::invalid("action", "expected interrupt or rollback")),
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct CancelQuery {
    wait: Option<String>,
    action: Option<String>,
}

pub(super) async fn cancel(
    State(app): State<App>,
    Who(caller): Who,
    Path((thread, run)): Path<(String, String)>,
    Params(query): Params<CancelQuery>,
) -> Result<StatusCode, Failure> {
    let (thread, run) = ids::run_of(&thread, &run)?;
    let waits = matches!(query.wait.as_deref(), Some("1" | "true" | "True"));
    let action = action(query.action.as_deref()).map_err(Failure::in_query)?;
    app.agents.cancel_run(&caller, &thread, run, action, waits).await?;
    Ok(if waits { StatusCode::NO_CONTENT } else { StatusCode::ACCEPTED })
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct CancelBody {
    thread_id: Option<String>,
    run_ids: Option<Vec<String>>,
    status: Option<String>,
}

/// Cancels runs by their ids, or all of a status: of one thread, or of all the caller's.
pub(super) async fn cancel_many(
    State(app): State<App>,
    Who(caller): Who,
    Params(query): Params<CancelQuery>,
    Raw(body): Raw,
) -> Result<StatusCode, Failure> {
    let CancelBody { thread_id, run_ids, status } = required_json(&body)?;
    let action = action(query.action.as_deref()).map_err(Failure::in_query)?;
    let thread = thread_id.map(|id| id.parse::<ThreadId>()).transpose()?;
    let wanted = match (run_ids, status.as_deref()) {
        (Some(ids), None) => {
            let Some(thread) = thread else {
                return Err(Error::invalid("thread_id", "runs are named together with their thread").into());
            };
            for id in ids.iter().map(|id| ids::run_id(id)).collect::<Result<Vec<_>>>()? {
                app.agents.cancel_run(&caller, &thread, id, action, false).await?;
            }
            return Ok(StatusCode::NO_CONTENT);
        }
        (None, Some("all")) => vec![RunStatus::Pending, RunStatus::Running],
        (None, Some("pending")) => vec![RunStatus::Pending],
        (None, Some("running")) => vec![RunStatus::Running],
        _ => {
            return Err(Error::invalid(
                "run_ids",
                "name either run_ids or a status: all, pending or running",
            )
            .into());
        }
    };
    let threads = match thread {
        Some(thread) => vec![thread],
        None => busy_threads(&app, &caller).await?,
    };
    for thread in threads {
        for status in &wanted {
            for run in app.agents.runs(&caller, &thread, Some(*status), MOST_THREADS, 0).await? {
                match app.agents.cancel_run(&caller, &thread, run.new.id, action, false).await {
                    Ok(()) => {}
                    // It has ended meanwhile.
                    Err(error) if matches!(error.code, ErrorCode::NotFound | ErrorCode::Conflict) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
    }
    Ok(StatusCode::NO_CONTENT)
}

async fn busy_threads(app: &App, caller: &Caller) -> Result<Vec<ThreadId>> {
    let query = ThreadQuery {
        status: Some(ThreadStatus::Busy),
        limit: MOST_THREADS,
        ..ThreadQuery::of(&caller.owner)
    };
    let found = app.agents.threads(caller, &query).await?;
    Ok(found.into_iter().map(|thread| thread.id).collect())
}

/// Begins several runs, each without a thread of the client's.
pub(super) async fn batch(
    State(app): State<App>,
    Who(caller): Who,
    address: Option<ServerAddress>,
    request: Request,
) -> Result<Json<Value>, Failure> {
    let address = address.map(|address| address.url());
    let body = read_request(request, LARGEST_CALL).await?;
    let asked: Vec<RunBody> = serde_json::from_slice(&body)
        .map_err(|error| Error::invalid("body", format!("expected a list of runs: {error}")))?;
    if asked.len() > MOST_AT_ONCE {
        return Err(Error::invalid("body", format!("at most {MOST_AT_ONCE} runs at once")).into());
    }
    let mut begun = Vec::with_capacity(asked.len());
    for run in &asked {
        begun.push(item(&run.start(&app, &caller, None, address.clone()).await?));
    }
    Ok(Json(begun.into()))
}
