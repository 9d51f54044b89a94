//! Answers that are streams of server-sent events.

use axum::{
    body::Body,
    http::{HeaderValue, header},
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use std::convert::Infallible;

/// An answer of events, each text one or several of them. The body is pulled.
pub(crate) fn event_stream(events: impl Stream<Item = String> + Send + 'static) -> Response {
    let body = Body::from_stream(events.map(|events| Ok::<_, Infallible>(Bytes::from(events))));
    let mut response = body.into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    // Proxies that collect answers would keep them from the client that waits.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}
