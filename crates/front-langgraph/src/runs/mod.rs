//! Runs: the agent at work in a thread, and runs without a thread of their client's.

mod body;
mod follow;
mod lists;
mod outcome;

use crate::{App, ids};
use atoll_core::Caller;
use atoll_http::{Ending, Failure, LARGEST_CALL, Params, ServerAddress, Who, read_request, required_json};
use atoll_types::{ThreadId, conversation::RunRecord, time::rfc3339};
use axum::{
    Json, Router,
    body::Bytes,
    extract::{Path, Request, State},
    http::HeaderMap,
    response::{IntoResponse, Response},
    routing::{get, post},
};
pub(crate) use body::RunBody;
pub(crate) use follow::follow;
use serde_json::{Value, json};

pub(crate) fn routes() -> Router<App> {
    Router::new()
        .route("/runs", post(create_stateless))
        .route("/runs/batch", post(lists::batch))
        .route("/runs/cancel", post(lists::cancel_many))
        .route("/runs/stream", post(stream_stateless))
        .route("/runs/wait", post(wait_stateless))
        .route("/threads/{thread_id}/runs", post(create).get(lists::list))
        .route("/threads/{thread_id}/runs/stream", post(stream))
        .route("/threads/{thread_id}/runs/wait", post(wait))
        .route("/threads/{thread_id}/runs/{run_id}", get(lists::read).delete(lists::remove))
        .route("/threads/{thread_id}/runs/{run_id}/cancel", post(lists::cancel))
        .route("/threads/{thread_id}/runs/{run_id}/join", get(join))
        .route("/threads/{thread_id}/runs/{run_id}/stream", get(join_stream))
        .route("/threads/{thread_id}/stream", get(follow::follow_thread))
}

/// A run.
pub(crate) fn item(run: &RunRecord) -> Value {
    let new = &run.new;
    json!({
        "run_id": ids::hyphenated(new.id.uuid()), "thread_id": new.thread.as_str(),
        "assistant_id": ids::hyphenated(new.assistant.uuid()), "created_at": rfc3339(new.created_at),
        "updated_at": rfc3339(run.updated_at), "status": run.status, "metadata": new.metadata, "kwargs": new.kwargs,
        "multitask_strategy": new.multitask,
        "usage": { "iterations": run.iterations, "total_tokens": run.tokens },
        "stop_reason": run.stopped, "error": run.failure.as_ref().map(|failure| &failure.message),
    })
}

/// Where a run is, always relative: the client knows the server by another name than the server does.
fn places(run: &RunRecord, below: &str) -> HeaderMap {
    let path = format!("/threads/{}/runs/{}", run.new.thread, ids::hyphenated(run.new.id.uuid()));
    let mut headers = HeaderMap::new();
    for (name, place) in [("content-location", path.clone()), ("location", format!("{path}/{below}"))] {
        headers.extend(place.parse().ok().map(|place| (axum::http::HeaderName::from_static(name), place)));
    }
    headers
}

/// Begins a run.
async fn start(
    app: &App,
    caller: &Caller,
    thread: Option<&ThreadId>,
    address: Option<ServerAddress>,
    body: &Bytes,
) -> Result<(RunBody, RunRecord), Failure> {
    let asked: RunBody = required_json(body)?;
    let run = asked.start(app, caller, thread, address.map(|address| address.url())).await?;
    Ok((asked, run))
}

async fn create(
    State(app): State<App>,
    Who(caller): Who,
    Path(thread): Path<String>,
    address: Option<ServerAddress>,
    request: Request,
) -> Result<Response, Failure> {
    let thread = ids::thread_of(&thread)?;
    let body = read_request(request, LARGEST_CALL).await?;
    let (_, run) = start(&app, &caller, Some(&thread), address, &body).await?;
    Ok((places(&run, "join"), Json(item(&run))).into_response())
}

async fn create_stateless(
    State(app): State<App>,
    Who(caller): Who,
    address: Option<ServerAddress>,
    request: Request,
) -> Result<Response, Failure> {
    let body = read_request(request, LARGEST_CALL).await?;
    let (_, run) = start(&app, &caller, None, address, &body).await?;
    Ok((places(&run, "join"), Json(item(&run))).into_response())
}

async fn stream(
    State(app): State<App>,
    Who(caller): Who,
    Path(thread): Path<String>,
    ending: Ending,
    address: Option<ServerAddress>,
    request: Request,
) -> Result<Response, Failure> {
    let thread = ids::thread_of(&thread)?;
    stream_new(&app, caller, Some(&thread), ending, address, request).await
}

async fn stream_stateless(
    State(app): State<App>,
    Who(caller): Who,
    ending: Ending,
    address: Option<ServerAddress>,
    request: Request,
) -> Result<Response, Failure> {
    stream_new(&app, caller, None, ending, address, request).await
}

async fn stream_new(
    app: &App,
    caller: Caller,
    thread: Option<&ThreadId>,
    ending: Ending,
    address: Option<ServerAddress>,
    request: Request,
) -> Result<Response, Failure> {
    let body = read_request(request, LARGEST_CALL).await?;
    // A mode that there is not is a reason not to begin.
    let modes = required_json::<RunBody>(&body)?.modes()?;
    let (asked, run) = start(app, &caller, thread, address, &body).await?;
    let leaves = asked.cancels_on_disconnect()?;
    let events = follow(app, caller, &run, modes, 0, leaves, ending).await?;
    Ok((places(&run, "stream"), events).into_response())
}

async fn wait(
    State(app): State<App>,
    Who(caller): Who,
    Path(thread): Path<String>,
    address: Option<ServerAddress>,
    request: Request,
) -> Result<Response, Failure> {
    let thread = ids::thread_of(&thread)?;
    let body = read_request(request, LARGEST_CALL).await?;
    let (asked, run) = start(&app, &caller, Some(&thread), address, &body).await?;
    let leaves = asked.cancels_on_disconnect()?;
    Ok((places(&run, "join"), outcome::answer(&app, caller, &run, leaves)).into_response())
}

async fn wait_stateless(
    State(app): State<App>,
    Who(caller): Who,
    address: Option<ServerAddress>,
    request: Request,
) -> Result<Response, Failure> {
    let body = read_request(request, LARGEST_CALL).await?;
    let (asked, run) = start(&app, &caller, None, address, &body).await?;
    let leaves = asked.cancels_on_disconnect()?;
    Ok((places(&run, "join"), outcome::answer(&app, caller, &run, leaves)).into_response())
}

/// How a client joins. One client repeats `stream_mode`, another sends a list in JSON.
struct JoinQuery(Vec<(String, String)>);

impl JoinQuery {
    fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        self.0
            .iter()
            .filter(move |(of, value)| of == name && !value.is_empty())
            .map(|(_, value)| value.as_str())
    }

    fn leaves(&self) -> bool {
        self.all("cancel_on_disconnect").any(|value| matches!(value, "1" | "true" | "True"))
    }

    fn modes(&self) -> String {
        self.all("stream_mode").collect::<Vec<_>>().join(",")
    }
}

async fn join(
    State(app): State<App>,
    Who(caller): Who,
    Path((thread, run)): Path<(String, String)>,
    Params(query): Params<Vec<(String, String)>>,
) -> Result<Response, Failure> {
    let query = JoinQuery(query);
    let (thread, run) = ids::run_of(&thread, &run)?;
    let run = app.agents.run(&caller, &thread, run).await?;
    Ok((places(&run, "join"), outcome::answer(&app, caller, &run, query.leaves())).into_response())
}

/// The number after which a client resumes: `-1` and nothing mean from the start.
pub(crate) fn resumes_after(headers: &HeaderMap) -> Result<u64, Failure> {
    let Some(value) = headers.get("last-event-id") else { return Ok(0) };
    let wrong = || {
        let message = "expected the id of an event of this stream, or -1";
        Failure::in_header(atoll_types::Error::invalid("Last-Event-ID", message))
    };
    match value.to_str().map_err(|_| wrong())?.trim() {
        "" | "-1" => Ok(0),
        text => text.parse().map_err(|_| wrong()),
    }
}

async fn join_stream(
    State(app): State<App>,
    Who(caller): Who,
    Path((thread, run)): Path<(String, String)>,
    Params(query): Params<Vec<(String, String)>>,
    ending: Ending,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let query = JoinQuery(query);
    let (thread, run) = ids::run_of(&thread, &run)?;
    let after = resumes_after(&headers)?;
    let run = app.agents.run(&caller, &thread, run).await?;
    let modes = body::modes_of_join(Some(&query.modes()), &run)?;
    let events = follow(&app, caller, &run, modes, after, query.leaves(), ending).await?;
    Ok((places(&run, "stream"), events).into_response())
}
