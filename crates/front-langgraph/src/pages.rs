//! Web pages as clients: a page of an allowed origin may read the answers, and any other is refused. There is no `*`.

use crate::errors::is_for_clients;
use atoll_http::{Cors, Failure, OriginCheck, RequestOrigin};
use atoll_types::{Error, ErrorCode};
use axum::{
    extract::{Request, State},
    http::{Method, StatusCode, header},
    middleware::Next,
    response::{IntoResponse, Response},
};
use std::sync::Arc;

const CORS: Cors = Cors {
    methods: "GET, POST, PUT, PATCH, DELETE",
    sent: "authorization, content-type, last-event-id, x-api-key, x-auth-scheme, cache-control",
    read: "content-location, location, retry-after, x-pagination-next",
};

/// Answers preflights and names the page that may read the answer. A request that no page sends passes.
pub(crate) async fn check(State(origins): State<Arc<OriginCheck>>, request: Request, next: Next) -> Response {
    let page = request.headers().get(header::ORIGIN).cloned();
    let (true, Some(page)) = (is_for_clients(request.uri().path()), page) else {
        return next.run(request).await;
    };
    let asked = match RequestOrigin::read(request.uri(), request.headers()) {
        Ok(asked) => asked,
        Err(failure) => return failure.into_response(),
    };
    if !asked.is_own_page()
        && let Err(why) = origins.check(&asked)
    {
        return Failure::from(Error::new(ErrorCode::PermissionDenied, why)).into_response();
    }
    let preflight = request.method() == Method::OPTIONS
        && request.headers().contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
    let mut answer = match preflight {
        true => StatusCode::NO_CONTENT.into_response(),
        false => next.run(request).await,
    };
    let headers = answer.headers_mut();
    CORS.show(headers, Some(page));
    if preflight {
        CORS.preflight(headers);
    }
    answer
}
