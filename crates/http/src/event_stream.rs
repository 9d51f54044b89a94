//! Answers that are streams of server-sent events.

use atoll_types::sse;
use axum::{
    body::Body,
    http::{HeaderValue, header},
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use std::{convert::Infallible, time::Duration};

/// An answer of events, each text one or several of them. The body is pulled.
pub fn event_stream(events: impl Stream<Item = String> + Send + 'static) -> Response {
    let body = Body::from_stream(events.map(|events| Ok::<_, Infallible>(Bytes::from(events))));
    let mut response = body.into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    // Proxies that collect answers would keep them from the client that waits.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

/// How often a silent stream shows that it lives.
pub const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// The same events, and a comment whenever none came for a while: proxies give up on connections that are
/// silent.
pub fn keep_alive(events: impl Stream<Item = String> + Send + 'static) -> impl Stream<Item = String> + Send {
    stream::unfold(events.boxed(), |mut events| async {
        let next = tokio::time::timeout(KEEP_ALIVE, events.next()).await;
        Some((next.unwrap_or_else(|_| Some(sse::alive("listening", None)))?, events))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_silent_stream_shows_that_it_lives() {
        let late = async {
            tokio::time::sleep(KEEP_ALIVE + KEEP_ALIVE / 2).await;
            "event".to_owned()
        };
        let seen: Vec<_> = keep_alive(stream::once(late)).collect().await;
        assert_eq!(seen, [sse::alive("listening", None), "event".to_owned()]);
    }
}
