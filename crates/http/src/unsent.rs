//! Requests and answers in memory count for their owner, and no owner may hold more than is set: what was read of a
//! request until it is answered, and an answer until it is sent. Answers that are streamed from a sandbox hold a buffer
//! each: the core counts how many an owner has open.

use crate::{Failure, HttpContext, body::holding, request_body::RequestAccount};
use axum::{
    body::HttpBody,
    extract::{Request, State},
    http::Method,
    middleware::Next,
    response::{IntoResponse, Response},
};

/// Smaller answers are not counted: what a connection holds anyway.
const SMALL: u64 = 64 << 10;

/// An extension of the answer to a request that is no GET and only looks.
#[derive(Debug, Clone, Copy)]
pub struct ChangedNothing;

/// Counts what a request and its answer hold. What only looks is refused where its owner holds too much; an operation that
/// was carried out is answered all the same, and its owner may begin nothing more until it has read.
pub(crate) async fn count(State(context): State<HttpContext>, mut request: Request, next: Next) -> Response {
    let (account, is_get) = (RequestAccount::default(), *request.method() == Method::GET);
    request.extensions_mut().insert(account.clone());
    let response = next.run(request).await;
    account.release();
    // The place is free when the answer is counted.
    let place = account.take_look_up();
    let looks = is_get || place.is_some() || response.extensions().get::<ChangedNothing>().is_some();
    let size = response.body().size_hint().exact().unwrap_or(0);
    let (Some(owner), true) = (account.owner(), size > SMALL) else { return response };
    let mut held = match context.core.answers.hold(&owner) {
        Ok(held) => held,
        Err(error) if looks => return Failure::from(error).into_response(),
        Err(_) => return response,
    };
    if !held.grow(usize::try_from(size).unwrap_or(usize::MAX)) {
        if looks {
            return Failure::too_large_unread().into_response();
        }
        held.fill();
    }
    holding(response, held)
}
