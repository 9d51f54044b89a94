//! HTTP/2 streams whose client gives them no window. The connection below may be quite alive, with answers to pings and
//! to other requests, so no write ever waits: the stream itself has its time.
//!
//! An answer's body is taken in small pieces, each when the window has room for a byte of it. So a body that has given a
//! piece, and for the write timeout is not asked for another, waits for its client; its stream is reset, and what it holds
//! goes with it. The last byte of what a body gives at once is a piece of its own: that there is room for it says that
//! there was room for all before it, so an answer counts for its owner until its client has taken it.

use crate::body::with_rest;
use axum::{
    body::{Body, HttpBody},
    http::Response,
};
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use std::{
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, ready},
    time::Duration,
};
use tokio::time::{Instant, sleep};

/// The most that a body gives at once: what a stream may hold beyond its window.
const PIECE: usize = 16 << 10;
/// What is given whole, last byte and all: a stream may hold as much without a window.
const SMALL: usize = 1 << 10;

tokio::task_local! {
    /// The stream whose task this is.
    static STREAM: Progress;
}

/// Since when a stream's body has been waiting for its client to take what it gave.
#[derive(Debug, Clone, Default)]
struct Progress(Arc<Mutex<Option<Instant>>>);

impl Progress {
    fn since(&self) -> MutexGuard<'_, Option<Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns when the client has taken nothing for so long.
    async fn stalled(&self, patience: Duration) {
        loop {
            let since = *self.since();
            let left = since.map_or(patience, |since| patience.saturating_sub(since.elapsed()));
            if left.is_zero() {
                return;
            }
            sleep(left).await;
        }
    }
}

/// Runs the streams of HTTP/2 connections, each with its time.
#[derive(Debug, Clone)]
pub(crate) struct StreamExecutor {
    pub(crate) write_timeout: Duration,
}

impl<F> hyper::rt::Executor<F> for StreamExecutor
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, stream: F) {
        let (progress, patience) = (Progress::default(), self.write_timeout);
        tokio::spawn(async move {
            tokio::select! {
                _ = STREAM.scope(progress.clone(), stream) => {}
                // Dropping a stream that has not ended resets it.
                () = progress.stalled(patience) => {}
            }
        });
    }
}

/// The answer of the stream whose task this is, with its time; any other answer as it is.
pub(crate) fn timed(response: Response<Body>) -> Response<Body> {
    match STREAM.try_with(Progress::clone) {
        Ok(progress) if !response.body().is_end_stream() => response.map(|body| {
            Body::new(TimedBody { body: Some(body), rest: Bytes::new(), given: false, progress })
        }),
        _ => response,
    }
}

struct TimedBody {
    /// None after its end.
    body: Option<Body>,
    /// What was taken of the body and not given yet.
    rest: Bytes,
    /// Whether anything was given.
    given: bool,
    progress: Progress,
}

impl TimedBody {
    /// The next piece of what was taken.
    fn piece(&mut self) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let length = match self.rest.len() {
            length @ ..=SMALL => length,
            length => PIECE.min(length - 1),
        };
        let piece = self.rest.split_to(length);
        *self.progress.since() = Some(Instant::now());
        self.given = true;
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }
}

impl HttpBody for TimedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        // Asked again: there is a window for what was given before.
        *self.progress.since() = None;
        if !self.rest.is_empty() {
            return self.piece();
        }
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        match ready!(Pin::new(body).poll_frame(context)) {
            Some(Ok(frame)) => match frame.into_data() {
                Ok(data) => {
                    self.rest = data;
                    self.piece()
                }
                Err(trailers) => Poll::Ready(Some(Ok(trailers))),
            },
            Some(Err(error)) => Poll::Ready(Some(Err(error))),
            None => {
                self.body = None;
                Poll::Ready(None)
            }
        }
    }

    /// Not before the end was asked for: the last piece may still wait for its window.
    fn is_end_stream(&self) -> bool {
        !self.given && self.body.as_ref().is_none_or(HttpBody::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let hint = self.body.as_ref().map_or_else(|| SizeHint::with_exact(0), HttpBody::size_hint);
        with_rest(hint, &self.rest)
    }
}
