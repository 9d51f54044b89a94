//! Answers that the SDK has no part in: refusals, in the shape of the protocol, and those to preflights of
//! browsers.

use super::Page;
use atoll_http::Cors;
use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, combinators::BoxBody};
use serde_json::json;
use std::{borrow::Cow, convert::Infallible};

/// What is sent.
pub(super) type HttpAnswer = Response<BoxBody<Bytes, Infallible>>;

const CORS: Cors = Cors {
    methods: "GET, POST, DELETE",
    sent: "accept, authorization, content-type, last-event-id, mcp-method, mcp-name, mcp-protocol-version, \
           mcp-session-id, x-api-key, x-thread-id",
    read: "mcp-session-id",
};

/// For errors that belong to no request, as the SDKs have it.
const NO_REQUEST: i32 = -32_000;

fn answer(status: StatusCode, body: String) -> HttpAnswer {
    let mut answer = Response::new(Full::new(Bytes::from(body)).boxed());
    *answer.status_mut() = status;
    answer
}

/// A refusal and its reason.
#[derive(Debug)]
pub(super) struct Refusal {
    status: StatusCode,
    why: Cow<'static, str>,
}

impl Refusal {
    pub(super) fn new(status: StatusCode, why: impl Into<Cow<'static, str>>) -> Self {
        Self { status, why: why.into() }
    }

    pub(super) fn answer(self) -> HttpAnswer {
        let Self { status, why } = self;
        let error = json!({ "code": NO_REQUEST, "message": why });
        let mut answer = answer(status, json!({ "jsonrpc": "2.0", "id": null, "error": error }).to_string());
        let headers = answer.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if status == StatusCode::TOO_MANY_REQUESTS {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("60"));
        }
        answer
    }
}

/// The session is ended.
pub(super) fn ended() -> HttpAnswer {
    answer(StatusCode::NO_CONTENT, String::new())
}

/// The answer to a preflight of a browser.
pub(super) fn preflight(page: Page) -> HttpAnswer {
    let mut answer = answer(StatusCode::NO_CONTENT, String::new());
    let headers = answer.headers_mut();
    headers.insert(header::ALLOW, HeaderValue::from_static("GET, POST, DELETE, OPTIONS"));
    if page.is_some() {
        CORS.preflight(headers);
    }
    allow(answer, page)
}

/// Lets the page that sent the request see the answer.
pub(super) fn allow(mut answer: HttpAnswer, origin: Page) -> HttpAnswer {
    CORS.show(answer.headers_mut(), origin);
    answer
}
