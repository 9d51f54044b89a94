//! The shape of errors: `{error, message, detail}`. The HTTP floor refuses requests that no handler of this front sees (no
//! key, no such path, too many requests); so what is rendered is the failure that each answer carries.

use atoll_http::RenderedFailure;
use axum::{
    Json,
    extract::Request,
    http::{Method, StatusCode, header},
    middleware::Next,
    response::{IntoResponse, Response},
};
use serde_json::json;
use std::borrow::Cow;

/// The first segments of this front's paths.
const FIRST: [&str; 7] = ["assistants", "info", "ok", "runs", "settings", "store", "threads"];

/// Whether a path is one that clients of this API use. Files and sessions of threads are among them; the REST front serves
/// those.
pub(crate) fn is_for_clients(path: &str) -> bool {
    path.strip_prefix('/').and_then(|rest| rest.split('/').next()).is_some_and(|word| FIRST.contains(&word))
}

/// Whether this front, and not REST, says what is wrong with a request.
fn is_ours(method: &Method, path: &str) -> bool {
    let words: Vec<_> = path.split('/').skip(1).collect();
    match words.as_slice() {
        ["threads", _, "files" | "sessions" | "tools", ..] => false,
        ["threads", _] => method != Method::DELETE,
        _ => is_for_clients(path),
    }
}

/// What went wrong; of a wrong request with its field.
fn message(failure: &RenderedFailure) -> Cow<'_, str> {
    let RenderedFailure { error, validation } = failure;
    if *validation { error.sentence() } else { Cow::Borrowed(&error.message) }
}

/// Renders the failure that an answer carries. The status and the headers stay.
pub(crate) async fn render(request: Request, next: Next) -> Response {
    if !is_ours(request.method(), request.uri().path()) {
        return next.run(request).await;
    }
    let (mut parts, old) = next.run(request).await.into_parts();
    let Some(failure) = parts.extensions.get::<RenderedFailure>() else {
        return Response::from_parts(parts, old);
    };
    let code = match parts.status {
        StatusCode::UNAUTHORIZED => "unauthorized",
        StatusCode::METHOD_NOT_ALLOWED => "method_not_allowed",
        _ => failure.error.code.as_str(),
    };
    let message = message(failure);
    let body =
        Json(json!({ "error": code, "message": message, "detail": message })).into_response().into_body();
    parts.headers.remove(header::CONTENT_LENGTH);
    Response::from_parts(parts, body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_and_sessions_of_threads_are_of_rest() {
        for path in ["/threads", "/threads/t/state", "/runs/wait", "/info", "/settings", "/store/items"] {
            assert!(is_ours(&Method::POST, path), "{path}");
        }
        for path in
            ["/", "/health", "/api/v1/threads", "/threadsx", "/threads/t/files/upload", "/threads/t/sessions"]
        {
            assert!(!is_ours(&Method::POST, path), "{path}");
        }
        assert!(is_ours(&Method::GET, "/threads/t") && !is_ours(&Method::DELETE, "/threads/t"));
        assert!(is_for_clients("/threads/t/files/upload") && !is_for_clients("/mcp"));
    }
}
