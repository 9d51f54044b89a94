//! What was put on the streams of clients that listen, and is not sent yet. A change counts as told when the stream
//! that it was put on has nothing left to send: the answer of the call that made the change comes by another
//! connection, and must not overtake it.

use super::{reply::HttpAnswer, single::Waiting};
use crate::hub::Telling;
use bytes::Bytes;
use http_body::{Body, Frame};
use http_body_util::{BodyExt, combinators::BoxBody};
use std::{
    collections::HashMap,
    convert::Infallible,
    mem,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    task::{Context, Poll, Waker},
};

/// What of one session is not sent yet.
#[derive(Debug, Default)]
pub(crate) struct Outbox(Mutex<Unsent>);

#[derive(Debug, Default)]
struct Unsent {
    /// The streams that are open.
    streams: usize,
    tellings: Vec<Telling>,
    waker: Option<Waker>,
}

impl Outbox {
    fn unsent(&self) -> MutexGuard<'_, Unsent> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a change, which was put on the session's stream just now, until it is sent.
    pub(crate) fn until_sent(&self, telling: Telling) {
        let mut unsent = self.unsent();
        if unsent.streams > 0 {
            unsent.tellings.push(telling);
            if let Some(waker) = unsent.waker.take() {
                waker.wake();
            }
        }
    }

    /// A stream has nothing left to send.
    fn sent(&self, waker: &Waker) {
        let tellings = {
            let mut unsent = self.unsent();
            unsent.waker = Some(waker.clone());
            mem::take(&mut unsent.tellings)
        };
        if !tellings.is_empty() {
            // After this poll, at whose end the connection writes what it was given.
            tokio::spawn(async move { drop(tellings) });
        }
    }
}

/// Those of all sessions that listen.
#[derive(Debug, Default)]
pub(super) struct Outboxes(Mutex<HashMap<String, Weak<Outbox>>>);

impl Outboxes {
    /// That of a session.
    pub(super) fn of(&self, session: &str) -> Arc<Outbox> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = all.get(session).and_then(Weak::upgrade) {
            return known;
        }
        all.retain(|_, outbox| outbox.strong_count() > 0);
        let outbox = Arc::default();
        all.insert(session.to_owned(), Arc::downgrade(&outbox));
        outbox
    }
}

/// The stream of a client that listens.
pub(super) struct Listening {
    body: BoxBody<Bytes, Infallible>,
    outbox: Arc<Outbox>,
    _waiting: Waiting,
}

impl Listening {
    /// An answer whose client is there as long as its stream is.
    pub(super) fn answer(answer: HttpAnswer, outbox: Arc<Outbox>, waiting: Waiting) -> HttpAnswer {
        outbox.unsent().streams += 1;
        answer.map(|body| Self { body, outbox, _waiting: waiting }.boxed())
    }
}

impl Body for Listening {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        if frame.is_pending() {
            self.outbox.sent(cx.waker());
        }
        frame
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let mut unsent = self.outbox.unsent();
        unsent.streams = unsent.streams.saturating_sub(1);
        unsent.tellings.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use atoll_tool_sessions::CancellationToken;
    use http::Response;
    use tokio::sync::mpsc;

    /// What comes from a channel.
    struct Coming(mpsc::Receiver<Bytes>);

    impl Body for Coming {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            self.0.poll_recv(cx).map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
        }
    }

    #[tokio::test]
    async fn a_change_is_told_when_the_stream_has_sent_it() {
        let outboxes = Outboxes::default();
        let outbox = outboxes.of("a");
        assert!(Arc::ptr_eq(&outbox, &outboxes.of("a")));
        let (telling, mut told) = mpsc::channel(1);
        outbox.until_sent(telling);
        assert!(told.recv().await.is_none(), "nobody listens");
        let (put, stream) = mpsc::channel(4);
        let waiting = Waiting::new(CancellationToken::new(), None);
        let answer = Response::new(Coming(stream).boxed());
        let mut body = Listening::answer(answer, Arc::clone(&outbox), waiting).into_body();
        put.send(Bytes::from_static(b"a change")).await.unwrap();
        let (telling, mut told) = mpsc::channel(1);
        outbox.until_sent(telling);
        assert!(told.try_recv().is_err_and(|e| e == mpsc::error::TryRecvError::Empty));
        assert!(body.frame().await.is_some());
        assert!(
            told.try_recv().is_err_and(|e| e == mpsc::error::TryRecvError::Empty),
            "it is given, not sent"
        );
        let rest = tokio::spawn(async move { body.frame().await.is_none() });
        assert!(told.recv().await.is_none());
        let (telling, mut told) = mpsc::channel(1);
        outbox.until_sent(telling);
        assert!(told.recv().await.is_none(), "the stream is asked again");
        drop(put);
        assert!(rest.await.unwrap());
    }
}
