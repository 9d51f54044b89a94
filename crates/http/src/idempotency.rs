//! `Idempotency-Key`: a request with a key is carried out once, and a repetition gets the answer of the first
//! time. The server carries it out to its end even if its caller goes away: the caller may come back for the
//! answer.

use crate::Failure;
use atoll_core::{Caller, Core};
use atoll_types::{Error, ErrorCode, ReplyState, Result, StoredReply};
use axum::{
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use serde::Serialize;
use sha2::{Digest, Sha256};

/// What an operation answers.
pub type HandlerResult<T> = Result<(StatusCode, T), Failure>;

/// What becomes an answer.
pub trait Rendered: Send + 'static {
    /// The body as it is kept, sealed, for a repetition; none where it is too large to keep. It is without the
    /// secret values of sandboxes; only the answer to a request for a key holds a secret, which is the answer.
    fn kept(&self) -> Option<Vec<u8>>;
    /// The answer itself.
    fn respond(self, status: StatusCode) -> Response;
}

impl<T: Serialize + Send + 'static> Rendered for T {
    fn kept(&self) -> Option<Vec<u8>> {
        serde_json::to_vec(self).ok()
    }

    fn respond(self, status: StatusCode) -> Response {
        (status, axum::Json(self)).into_response()
    }
}

/// A request that may be repeated.
pub struct Repeat {
    pub key: String,
    /// The hash of what is asked.
    pub request: [u8; 32],
}

/// What to do when the request is being carried out already, perhaps by a server that is dead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Busy {
    /// Say so.
    Refuse,
    /// Do it again: it joins what was begun.
    Join,
}

impl Repeat {
    /// The key of a request, if it has one.
    pub fn of(headers: &HeaderMap, operation: &str, body: &Bytes) -> Result<Option<Self>, Failure> {
        let Some(value) = headers.get("idempotency-key") else { return Ok(None) };
        let key = match value.to_str() {
            Ok(key) if (1..=255).contains(&key.len()) && key.bytes().all(|b| b.is_ascii_graphic()) => key,
            _ => {
                let message = "must be 1 to 255 printable characters without spaces";
                return Err(Failure::in_header(Error::invalid("Idempotency-Key", message)));
            }
        };
        let mut hash = Sha256::new();
        hash.update(operation.as_bytes());
        hash.update([0]);
        hash.update(body);
        Ok(Some(Self { key: key.to_owned(), request: hash.finalize().into() }))
    }

    /// Whether the request is new, in progress or done.
    async fn begin(&self, core: &Core, caller: &Caller) -> Result<ReplyState> {
        core.idempotent_replies.begin(caller, &self.key, self.request).await
    }

    fn mismatch() -> Failure {
        Failure::in_header(Error::invalid("Idempotency-Key", "it was used for another request"))
    }
}

/// Carries a request out, or answers as the first time. Only successes are kept: what failed may be
/// tried again.
pub async fn once<T, F>(
    core: &Core,
    caller: &Caller,
    repeat: Option<Repeat>,
    busy: Busy,
    work: F,
) -> Result<Response, Failure>
where
    T: Rendered,
    F: Future<Output = HandlerResult<T>> + Send + 'static,
{
    let Some(repeat) = repeat else {
        let (status, value) = work.await?;
        return Ok(value.respond(status));
    };
    let (core, caller) = (core.clone(), caller.clone());
    let done = tokio::spawn(async move { carry_out(&core, &caller, &repeat, busy, work).await });
    done.await.map_err(|_| Failure::from(Error::internal("the request was not carried out to its end")))?
}

async fn carry_out<T: Rendered>(
    core: &Core,
    caller: &Caller,
    repeat: &Repeat,
    busy: Busy,
    work: impl Future<Output = HandlerResult<T>>,
) -> Result<Response, Failure> {
    let ticket = match repeat.begin(core, caller).await? {
        ReplyState::New(ticket) => Some(ticket),
        ReplyState::InProgress if busy == Busy::Join => None,
        ReplyState::InProgress => {
            let message = "a request with this Idempotency-Key is being carried out; ask again later";
            return Err(Error::new(ErrorCode::Conflict, message).into());
        }
        ReplyState::Mismatch => return Err(Repeat::mismatch()),
        ReplyState::Done(reply) => return Ok(replay(reply)),
    };
    match (work.await, ticket) {
        (Ok((status, value)), ticket) => {
            if let Some(ticket) = ticket {
                core.idempotent_replies.finish(&ticket, status.as_u16(), value.kept()).await;
            }
            Ok(value.respond(status))
        }
        (Err(failure), ticket) => {
            if let Some(ticket) = ticket {
                core.idempotent_replies.abandon(&ticket).await;
            }
            Err(failure)
        }
    }
}

/// The same for an operation that is followed. Only its id is kept, which comes with the work; a repeated
/// request joins what was begun, if that is still `known`.
pub async fn once_streamed<T>(
    core: &Core,
    caller: &Caller,
    repeat: Option<Repeat>,
    known: impl Future<Output = Result<(), Failure>>,
    work: impl Future<Output = Result<(String, T)>>,
) -> Result<T, Failure> {
    let ticket = match &repeat {
        None => None,
        Some(repeat) => match repeat.begin(core, caller).await? {
            ReplyState::New(ticket) => Some(ticket),
            ReplyState::InProgress => None,
            ReplyState::Done(_) => {
                known.await?;
                None
            }
            ReplyState::Mismatch => return Err(Repeat::mismatch()),
        },
    };
    match (work.await, ticket) {
        (Ok((id, followed)), ticket) => {
            if let Some(ticket) = ticket {
                core.idempotent_replies.finish(&ticket, StatusCode::OK.as_u16(), Some(id.into_bytes())).await;
            }
            Ok(followed)
        }
        (Err(error), ticket) => {
            if let Some(ticket) = ticket {
                core.idempotent_replies.abandon(&ticket).await;
            }
            Err(error.into())
        }
    }
}

fn replay(reply: StoredReply) -> Response {
    let status = StatusCode::from_u16(reply.status).unwrap_or(StatusCode::OK);
    let headers = [
        (header::CONTENT_TYPE, "application/json"),
        (header::HeaderName::from_static("idempotent-replay"), "true"),
    ];
    match reply.body {
        Some(body) => (status, headers, body).into_response(),
        None => {
            let message = "the request was carried out, but its answer is not kept: it was too large, or others needed the room";
            Failure::from(Error::new(ErrorCode::Conflict, message)).into_response()
        }
    }
}
