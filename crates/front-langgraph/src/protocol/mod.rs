//! Protocol v2: commands to a thread, and one stream of its events. The WebSocket of the same path is not served.

mod commands;

use crate::{
    App, ids,
    stream::{Filter, ProtocolRenderer},
};
use atoll_http::{Ending, Failure, Raw, Who, event_stream, keep_alive, required_json};
use axum::{
    Router,
    extract::{Path, State},
    response::Response,
    routing::post,
};
use futures_util::stream;
use serde::Deserialize;

pub(crate) fn routes() -> Router<App> {
    Router::new()
        .route("/threads/{thread_id}/commands", post(commands::command))
        .route("/threads/{thread_id}/stream/events", post(events))
}

#[derive(Debug, Deserialize)]
struct EventsBody {
    channels: Vec<String>,
    #[serde(default)]
    namespaces: Option<Vec<Vec<String>>>,
    #[serde(default)]
    since: Option<u64>,
}

/// The events of all runs of a thread after a number, without an end. The thread need not exist yet.
async fn events(
    State(app): State<App>,
    Who(caller): Who,
    Path(thread): Path<String>,
    ending: Ending,
    Raw(body): Raw,
) -> Result<Response, Failure> {
    let thread = ids::thread_of(&thread)?;
    let EventsBody { channels, namespaces, since } = required_json(&body)?;
    let filter = Filter::new(channels, &namespaces.unwrap_or_default(), since)?;
    let follow = app.agents.follow_thread(&caller, &thread, 0).await?;
    let renderer = ProtocolRenderer::new(filter);
    let events =
        stream::unfold((follow, renderer, ending), |(mut follow, mut renderer, ending)| async move {
            loop {
                let event = tokio::select! {
                    next = follow.next() => next.ok()??,
                    () = ending.wait() => return None,
                };
                let text = renderer.feed(&event);
                if !text.is_empty() {
                    return Some((text, (follow, renderer, ending)));
                }
            }
        });
    Ok(event_stream(keep_alive(events)))
}
