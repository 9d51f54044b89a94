//! Bodies of requests. What is read of a body counts for its owner until the request is answered, and the whole of it has
//! its time. Handlers read a body at once ([`crate::read_request`]); fronts at mounts read theirs by libraries of their
//! own, which see an error where a body has more: the mount says why, in the form of the front's protocol.

use crate::{
    Failure,
    body::{BodyError, CALL_PATIENCE, read_body},
};
use atoll_core::{HeldAnswer, LookUpPlace};
use atoll_types::{Error, ErrorCode};
use axum::body::{Body, Bytes, HttpBody};
use hyper::body::{Frame, SizeHint};
use std::{
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
};
use tokio::time::{Sleep, sleep};

/// Whose request it is, what it holds, and why its body could not be read.
#[derive(Debug, Default)]
struct State {
    owner: Option<String>,
    held: Option<HeldAnswer>,
    failure: Option<Failure>,
    /// While it looks something up in the store: its place among its owner's look-ups.
    looking: Option<LookUpPlace>,
}

/// The account of one request, until it is answered.
#[derive(Debug, Clone, Default)]
pub(crate) struct RequestAccount(Arc<Mutex<State>>);

impl RequestAccount {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts for this owner from now on, who is known after authentication. Nothing counts before that, and nothing is
    /// read.
    pub(crate) fn charge(&self, owner: &str, held: HeldAnswer) {
        let mut state = self.state();
        if state.owner.is_none() {
            (state.owner, state.held) = (Some(owner.to_owned()), Some(held));
        }
    }

    /// Whose request it is, where that is known.
    pub(crate) fn owner(&self) -> Option<String> {
        self.state().owner.clone()
    }

    /// The request only looks, and builds its answer in this place.
    pub(crate) fn look_up(&self, place: LookUpPlace) {
        self.state().looking = Some(place);
    }

    /// Its place among its owner's look-ups, if it is one.
    pub(crate) fn take_look_up(&self) -> Option<LookUpPlace> {
        self.state().looking.take()
    }

    /// The request is answered, and holds nothing more.
    pub(crate) fn release(&self) {
        self.state().held = None;
    }

    /// Why the body could not be read.
    pub(crate) fn failure(&self) -> Option<Failure> {
        self.state().failure.take()
    }

    /// Counts bytes that were read.
    fn grow(&self, bytes: usize) -> Result<(), Failure> {
        match self.state().held.as_mut().is_none_or(|held| held.grow(bytes)) {
            true => Ok(()),
            false => Err(Error::new(
                ErrorCode::LimitExceeded,
                "your other requests and unread answers leave no room for this request; let them end first",
            )
            .fact("limit", "http.owner_answers_mb")
            .retry_after(1)
            .into()),
        }
    }

    /// The body of the request, which counts here.
    pub(crate) fn body(&self, body: Body) -> Body {
        Body::new(CountedBody { body, account: self.clone(), deadline: Box::pin(sleep(CALL_PATIENCE)) })
    }

    /// The whole of the body, which may have this many bytes.
    pub(crate) async fn read(&self, body: Body, most: usize) -> Result<Bytes, Failure> {
        let read = read_body(self.body(body), most).await;
        read.map_err(|error| self.failure().unwrap_or_else(|| error.into()))
    }
}

/// A request's body.
struct CountedBody {
    body: Body,
    account: RequestAccount,
    deadline: Pin<Box<Sleep>>,
}

impl CountedBody {
    fn fail(&self, failure: Failure) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let message = failure.error().message.clone();
        self.account.state().failure = Some(failure);
        Poll::Ready(Some(Err(axum::Error::new(message))))
    }
}

impl HttpBody for CountedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.deadline.as_mut().poll(context).is_ready() {
            return self.fail(BodyError::TooSlow.into());
        }
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if let Poll::Ready(Some(Ok(frame))) = &polled
            && let Err(failure) = self.account.grow(frame.data_ref().map_or(0, Bytes::len))
        {
            return self.fail(failure);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;
    use tower::BoxError;

    #[tokio::test(start_paused = true)]
    async fn a_request_has_a_time() {
        let account = RequestAccount::default();
        assert_eq!(account.body(Body::from("four")).collect().await.unwrap().to_bytes(), "four");
        assert!(account.failure().is_none());
        let silent = Body::from_stream(futures_util::stream::pending::<Result<Bytes, BoxError>>());
        assert!(account.body(silent).collect().await.is_err());
        assert_eq!(account.failure().unwrap().error().message, BodyError::TooSlow.to_string());
        // One byte at a time is no answer to it.
        let drip = futures_util::stream::unfold((), |()| async {
            sleep(CALL_PATIENCE / 100).await;
            Some((Ok::<_, BoxError>(Bytes::from_static(b".")), ()))
        });
        assert!(account.body(Body::from_stream(drip)).collect().await.is_err());
        assert!(account.failure().is_some());
    }
}
