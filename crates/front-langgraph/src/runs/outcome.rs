//! Waiting for a run. The answer is the thread's values after it; while the run goes on, the body is kept alive with
//! line ends, which JSON permits before a value: proxies give up on connections that are silent.

use super::follow::CancelOnDrop;
use crate::{App, interrupts, state};
use atoll_agent::RunOutcome;
use atoll_core::Caller;
use atoll_http::KEEP_ALIVE;
use atoll_types::{Result, conversation::RunRecord};
use axum::{
    body::{Body, Bytes},
    http::header,
    response::{IntoResponse, Response},
};
use futures_util::{future::BoxFuture, stream};
use serde_json::{Value, json};
use std::convert::Infallible;

/// What a run came to.
fn values(outcome: Result<RunOutcome>) -> Value {
    let failed = |code: &str, message: &str| json!({ "__error__": { "error": code, "message": message } });
    match outcome {
        Ok(RunOutcome { run: RunRecord { failure: Some(failure), .. }, .. }) => {
            failed(failure.code.as_str(), &failure.message)
        }
        Ok(RunOutcome { state: Some(head), .. }) => {
            let mut values = state::values(&head.state);
            if let Some(interrupt) = interrupts::write(&head.interrupts) {
                values["__interrupt__"] = json!([interrupt]);
            }
            values
        }
        Ok(RunOutcome { state: None, .. }) => json!({ "messages": [] }),
        Err(error) => failed(error.code.as_str(), &error.message),
    }
}

/// The answer of a request that waits for a run.
pub(super) fn answer(app: &App, caller: Caller, run: &RunRecord, leaves: bool) -> Response {
    let guard = CancelOnDrop::new(app, &caller, run, leaves);
    let (agents, thread, id) = (app.agents.clone(), run.new.thread.clone(), run.new.id);
    let waiting: BoxFuture<'static, Result<RunOutcome>> =
        Box::pin(async move { agents.wait(&caller, &thread, id).await });
    let body = stream::unfold(Some((waiting, guard)), |state| async move {
        let (mut waiting, mut guard) = state?;
        match tokio::time::timeout(KEEP_ALIVE, &mut waiting).await {
            Ok(outcome) => {
                guard.disarm();
                let text = values(outcome).to_string();
                Some((Ok::<_, Infallible>(Bytes::from(text)), None))
            }
            Err(_) => Some((Ok(Bytes::from_static(b"\n")), Some((waiting, guard)))),
        }
    });
    ([(header::CONTENT_TYPE, "application/json")], Body::from_stream(body)).into_response()
}
