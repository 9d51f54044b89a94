//! `Idempotency-Key`: a request with a key is carried out once, and whoever repeats it gets the answer
//! of the first time.

use crate::{App, error::Failure};
use atoll_core::Caller;
use atoll_types::{Error, ErrorCode, Result};
use axum::{
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use serde::Serialize;
use sha2::{Digest, Sha256};

/// What an operation answers.
pub(crate) type Answer<T> = Result<(StatusCode, T), Failure>;

fn key_of(headers: &HeaderMap) -> Result<Option<&str>, Failure> {
    let Some(value) = headers.get("idempotency-key") else { return Ok(None) };
    match value.to_str() {
        Ok(key) if (1..=255).contains(&key.len()) && key.bytes().all(|b| b.is_ascii_graphic()) => {
            Ok(Some(key))
        }
        _ => {
            Err(Error::invalid("Idempotency-Key", "must be 1 to 255 printable characters without spaces")
                .into())
        }
    }
}

/// Carries a request out, or answers as the first time. Only successes are kept: what failed may be
/// tried again.
pub(crate) async fn once<T, F>(
    app: &App,
    caller: &Caller,
    headers: &HeaderMap,
    (operation, body): (&str, &Bytes),
    work: F,
) -> Result<Response, Failure>
where
    T: Serialize,
    F: Future<Output = Answer<T>>,
{
    let Some(key) = key_of(headers)? else {
        let (status, value) = work.await?;
        return Ok((status, axum::Json(value)).into_response());
    };
    let mut hash = Sha256::new();
    hash.update(operation.as_bytes());
    hash.update([0]);
    hash.update(body);
    let ticket = match app.core.begin_idempotent(caller, key, hash.finalize().into()).await? {
        atoll_store::Begun::New(ticket) => ticket,
        atoll_store::Begun::InProgress => {
            let message = "a request with this Idempotency-Key is being carried out; ask again later";
            return Err(Error::new(ErrorCode::Conflict, message).into());
        }
        atoll_store::Begun::Mismatch => {
            return Err(Error::invalid("Idempotency-Key", "it was used for another request").into());
        }
        atoll_store::Begun::Done(reply) => return Ok(replay(reply)),
    };
    match work.await {
        Ok((status, value)) => {
            let body = serde_json::to_vec(&value).map_err(|e| Error::internal(e.to_string()))?;
            app.core.finish_idempotent(&ticket, status.as_u16(), body.clone()).await;
            Ok((status, [(header::CONTENT_TYPE, "application/json")], body).into_response())
        }
        Err(failure) => {
            app.core.abandon_idempotent(&ticket).await;
            Err(failure)
        }
    }
}

fn replay(reply: atoll_store::Reply) -> Response {
    let status = StatusCode::from_u16(reply.status).unwrap_or(StatusCode::OK);
    let headers = [
        (header::CONTENT_TYPE, "application/json"),
        (header::HeaderName::from_static("idempotent-replay"), "true"),
    ];
    match reply.body {
        Some(body) => (status, headers, body).into_response(),
        None => {
            let message = "the request was carried out, but its answer was too large to keep";
            Failure::from(Error::new(ErrorCode::Conflict, message)).into_response()
        }
    }
}
