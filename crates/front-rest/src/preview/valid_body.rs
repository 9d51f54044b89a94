//! The body of an answer that a token opened: it breaks off when the token ends, so that a page that streams does too.

use atoll_types::{Error, ErrorCode};
use bytes::Bytes;
use futures_util::{FutureExt, future::BoxFuture};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use std::{
    pin::Pin,
    task::{Context, Poll},
};

pub(super) struct ValidBody {
    pub(super) body: Incoming,
    /// Completes when the token ends. It is not polled after that: a body that has failed is dropped.
    pub(super) ended: BoxFuture<'static, ()>,
}

impl Body for ValidBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.ended.poll_unpin(cx).is_ready() {
            let error = Error::new(ErrorCode::PermissionDenied, "the preview token has ended");
            return Poll::Ready(Some(Err(axum::Error::new(error))));
        }
        Pin::new(&mut self.body).poll_frame(cx).map_err(axum::Error::new)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
