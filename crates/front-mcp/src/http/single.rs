//! Answers of one message, as JSON. The SDK answers requests of a session as events; clients bound how long
//! an event may be, and a picture is longer. So an answer without notifications before it is one JSON text,
//! with white space before it as a sign of life. Where the client wants progress, the answer stays a stream
//! of events.

use super::{presence::PresenceGuard, reply::HttpAnswer};
use atoll_tool_sessions::CancellationToken;
use atoll_types::sse::SseReader;
use bytes::{Bytes, BytesMut};
use http::{HeaderValue, Response, StatusCode, header};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Full, combinators::BoxBody};
use serde::{Deserialize, de::IgnoredAny};
use serde_json::{Value, json};
use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

type SdkBody = BoxBody<Bytes, Infallible>;

/// How long a client whose stream broke may take to go on with it.
const GRACE: Duration = Duration::from_secs(15);

/// Ends a call when its client goes away before the answer.
pub(super) struct Waiting {
    gone: CancellationToken,
    here: Option<PresenceGuard>,
    answered: bool,
    /// Whether the client can resume the stream, and so is gone only when it does not.
    resumable: bool,
}

impl Waiting {
    pub(super) fn new(gone: CancellationToken, here: Option<PresenceGuard>) -> Self {
        Self { gone, here, answered: false, resumable: false }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let client = self.here.take().map(PresenceGuard::leave);
        match (client, tokio::runtime::Handle::try_current()) {
            _ if self.answered => {}
            (Some(client), Ok(runtime)) if self.resumable => {
                let gone = self.gone.clone();
                runtime.spawn(async move {
                    tokio::time::sleep(GRACE).await;
                    if client.is_away() {
                        gone.cancel();
                    }
                });
            }
            _ => self.gone.cancel(),
        }
    }
}

/// What the next event says, if all of it is there: a message, or nothing. The SDK writes text, with no bound
/// but its own.
fn next(events: &mut SseReader) -> Option<Option<Bytes>> {
    let event = events.next_event().unwrap_or_default()?;
    Some(event.data.filter(|data| !data.is_empty()).map(Bytes::from))
}

#[derive(Deserialize)]
struct Kind {
    method: Option<IgnoredAny>,
}

/// Whether a message is an answer, and no notification before it.
fn answers(message: &[u8]) -> bool {
    serde_json::from_slice(message).is_ok_and(|Kind { method }| method.is_none())
}

fn is_stream(answer: &HttpAnswer) -> bool {
    let kind = answer.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    answer.status() == StatusCode::OK && kind.is_some_and(|kind| kind.starts_with("text/event-stream"))
}

/// An answer of the SDK to the request with this id, as one JSON text where that can be.
pub(super) async fn single(
    answer: HttpAnswer,
    id: Value,
    progress: bool,
    mut waiting: Waiting,
) -> HttpAnswer {
    if !is_stream(&answer) {
        waiting.answered = true;
        return answer;
    }
    let (mut parts, mut body) = answer.into_parts();
    let json = HeaderValue::from_static("application/json");
    if !progress {
        parts.headers.insert(header::CONTENT_TYPE, json);
        let single = Single { body, events: SseReader::new(usize::MAX), id, waiting, done: false };
        return Response::from_parts(parts, single.boxed());
    }
    let (mut seen, mut events) = (BytesMut::new(), SseReader::new(usize::MAX));
    loop {
        match next(&mut events) {
            Some(Some(message)) if answers(&message) => {
                parts.headers.insert(header::CONTENT_TYPE, json);
                waiting.answered = true;
                return Response::from_parts(parts, Full::new(message).boxed());
            }
            Some(Some(_)) => break,
            Some(None) => continue,
            None => {}
        }
        match body.frame().await {
            Some(Ok(frame)) => {
                let piece = frame.into_data().unwrap_or_default();
                seen.extend_from_slice(&piece);
                events.push(&piece);
            }
            Some(Err(never)) => match never {},
            None => break,
        }
    }
    waiting.resumable = true;
    let first = Some(seen.freeze());
    Response::from_parts(parts, Held { first, body, _waiting: waiting }.boxed())
}

/// The body of an answer that is one JSON text.
struct Single {
    body: SdkBody,
    events: SseReader,
    id: Value,
    waiting: Waiting,
    done: bool,
}

impl Single {
    fn end(&mut self, message: Bytes) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.done = true;
        self.waiting.answered = true;
        Poll::Ready(Some(Ok(Frame::data(message))))
    }
}

impl Body for Single {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        loop {
            if self.done {
                return Poll::Ready(None);
            }
            match next(&mut self.events) {
                Some(Some(message)) if answers(&message) => return self.end(message),
                Some(None) => return Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"\n"))))),
                Some(Some(_)) => continue,
                None => {}
            }
            match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                Some(Ok(frame)) => {
                    let piece = frame.into_data().unwrap_or_default();
                    self.events.push(&piece);
                }
                Some(Err(never)) => match never {},
                None => {
                    let error =
                        json!({ "code": -32_000, "message": "the call was ended before it had an answer" });
                    let message = json!({ "jsonrpc": "2.0", "id": self.id, "error": error });
                    return self.end(Bytes::from(message.to_string()));
                }
            }
        }
    }
}

/// A body, with the guard of its client while it lasts.
pub(super) struct Held<G> {
    first: Option<Bytes>,
    body: SdkBody,
    _waiting: G,
}

impl<G: Send + Sync + Unpin + 'static> Held<G> {
    /// An answer whose client is there as long as its body is.
    pub(super) fn answer(answer: HttpAnswer, guard: G) -> HttpAnswer {
        answer.map(|body| Self { first: None, body, _waiting: guard }.boxed())
    }
}

impl<G: Unpin> Body for Held<G> {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.first.take() {
            Some(first) => Poll::Ready(Some(Ok(Frame::data(first)))),
            None => Pin::new(&mut self.body).poll_frame(cx),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn streamed(text: &'static str) -> HttpAnswer {
        let mut answer = Response::new(Full::new(Bytes::from(text)).boxed());
        answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        answer
    }

    async fn sent(text: &'static str, progress: bool) -> (bool, String, bool) {
        let gone = CancellationToken::new();
        let waiting = Waiting::new(gone.clone(), None);
        let answer = single(streamed(text), json!(1), progress, waiting).await;
        let json = answer.headers()[header::CONTENT_TYPE] == "application/json";
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        (json, String::from_utf8(body.to_vec()).unwrap(), gone.is_cancelled())
    }

    #[tokio::test]
    async fn one_message_is_json_and_more_are_events() {
        const ANSWER: &str =
            "id: 0/1\nretry: 3000\ndata:\n\n:\n\ndata: {\"id\":1,\"result\":{}}\nid: 1/1\n\n";
        const TOLD: &str = "data: {\"method\":\"x\"}\n\ndata: {\"id\":1,\"result\":{}}\n\n";
        let (json, body, gone) = sent(ANSWER, false).await;
        assert!(
            json && !gone && body.trim() == r#"{"id":1,"result":{}}"# && body.starts_with('\n'),
            "{body:?}"
        );
        let (json, body, _) = sent(ANSWER, true).await;
        assert!(json && body == r#"{"id":1,"result":{}}"#, "{body:?}");
        let (json, body, _) = sent(TOLD, true).await;
        assert!(!json && body == TOLD, "{body:?}");
        let (json, body, _) = sent("data:\n\n", false).await;
        assert!(json && body.contains("\"error\""), "{body:?}");
    }

    #[tokio::test]
    async fn who_goes_away_before_the_answer_is_gone() {
        let gone = CancellationToken::new();
        let answer = streamed("data: {\"id\":1,\"result\":{}}\n\n");
        drop(single(answer, json!(1), false, Waiting::new(gone.clone(), None)).await);
        assert!(gone.is_cancelled());
    }
}
