//! The shapes of errors. The HTTP floor refuses requests that no handler of this front sees (no key, no such path, too
//! many requests); so what is rendered here is the failure that each answer carries, and not what a handler returns.

use crate::containers::SEGMENTS;
use atoll_http::RenderedFailure;
use axum::{
    Json,
    extract::{Request, State},
    http::{StatusCode, header},
    middleware::Next,
    response::{IntoResponse, Response},
};
use serde_json::{Value, json};
use std::{borrow::Cow, sync::Arc};

/// The protocol that a path is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Protocol {
    /// [`crate::runs`].
    Runs,
    /// [`crate::containers`].
    Containers,
}

fn protocol(path: &str) -> Option<Protocol> {
    let below = |base| path.strip_prefix(base).filter(|rest: &&str| rest.is_empty() || rest.starts_with('/'));
    if below("/api/v1/sandbox").is_some() {
        return Some(Protocol::Runs);
    }
    let first = below("/api/sandbox")?.split('/').nth(1).unwrap_or_default();
    Some(if SEGMENTS.contains(&first) { Protocol::Containers } else { Protocol::Runs })
}

/// What went wrong; of a wrong request with its field.
fn message(failure: &RenderedFailure) -> Cow<'_, str> {
    let RenderedFailure { error, validation } = failure;
    if *validation { error.sentence() } else { Cow::Borrowed(&error.message) }
}

fn slug(status: StatusCode, failure: &RenderedFailure) -> &'static str {
    match status {
        StatusCode::UNAUTHORIZED => "unauthorized",
        StatusCode::METHOD_NOT_ALLOWED => "method_not_allowed",
        _ => failure.error.code.as_str(),
    }
}

fn body(protocol: Protocol, status: StatusCode, failure: &RenderedFailure, docs: &str) -> Value {
    match protocol {
        Protocol::Runs => json!({
            "error": slug(status, failure), "message": message(failure), "code": status.as_u16(), "docs": docs,
        }),
        Protocol::Containers => json!({ "error": message(failure) }),
    }
}

/// Renders the failure that an answer carries in the shape of the path's protocol. The headers stay, and so does the
/// status, but that a wrong request is 400 to clients of [`crate::containers`].
pub(crate) async fn render(State(docs): State<Arc<str>>, request: Request, next: Next) -> Response {
    let Some(protocol) = protocol(request.uri().path()) else { return next.run(request).await };
    let (mut parts, old) = next.run(request).await.into_parts();
    let Some(failure) = parts.extensions.remove::<RenderedFailure>() else {
        return Response::from_parts(parts, old);
    };
    if protocol == Protocol::Containers && parts.status == StatusCode::UNPROCESSABLE_ENTITY {
        parts.status = StatusCode::BAD_REQUEST;
    }
    let body = Json(body(protocol, parts.status, &failure, &docs)).into_response().into_body();
    parts.headers.remove(header::CONTENT_LENGTH);
    Response::from_parts(parts, body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use atoll_types::{Error, ErrorCode};

    #[test]
    fn a_path_has_the_protocol_of_its_first_segment() {
        for path in
            ["/api/sandbox", "/api/sandbox/create", "/api/sandbox/sbx_1/run", "/api/v1/sandbox/config"]
        {
            assert_eq!(protocol(path), Some(Protocol::Runs), "{path}");
        }
        for path in [
            "/api/sandbox/config",
            "/api/sandbox/containers/x/stop",
            "/api/sandbox/run",
            "/api/sandbox/gpu/x",
        ] {
            assert_eq!(protocol(path), Some(Protocol::Containers), "{path}");
        }
        for path in ["/api/v1/sandboxes", "/api/sandboxes/create", "/api", "/"] {
            assert_eq!(protocol(path), None, "{path}");
        }
    }

    #[test]
    fn a_message_names_its_field_once() {
        let of = |error: Error, validation| message(&RenderedFailure { error, validation }).into_owned();
        assert_eq!(
            of(Error::invalid("mode", "expected container or wasm"), true),
            "mode: expected container or wasm"
        );
        assert_eq!(of(Error::invalid("code", "code must not be empty"), true), "code must not be empty");
        assert_eq!(of(Error::new(ErrorCode::NotFound, "there is none"), false), "there is none");
    }
}
