//! The server over Streamable HTTP. Before the SDK sees a request it is known that the page that asks may
//! ([`gate`]), who asks (by whoever mounts this), that the body is within the limits, whose MCP session is
//! meant ([`book`]), and in which thread.
//!
//! The thread is what the header `X-Thread-Id` names; without it, that of the MCP session, and for clients of
//! protocol 2026-07-28, which knows no sessions, one thread for all that the key's owner does so.

mod book;
mod gate;
mod reply;

use crate::server::{Asked, Face, Server};
use atoll_core::Caller;
use atoll_sessions::{CancellationToken, ThreadId, Who};
use atoll_types::Result;
use book::{Book, Entry};
use bytes::Bytes;
use gate::{Gate, Page};
use http::{HeaderMap, Method, Request, StatusCode, header::HeaderName, request::Parts};
use http_body_util::{BodyExt, Full, Limited};
use reply::{Answer, Refusal, allow, preflight};
use rmcp::transport::streamable_http_server::{
    StreamableHttpServerConfig, StreamableHttpService, session::local::LocalSessionManager,
};
use serde::Deserialize;
use std::{
    convert::Infallible,
    fmt::Display,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

/// Where it is served.
pub const PATH: &str = "/mcp";
/// The largest body, as everywhere in the API.
const LARGEST_BODY: usize = 4 << 20;
/// How long a body may take, as everywhere in the API.
const PATIENCE: Duration = Duration::from_secs(30);
/// An MCP session that nobody used for this long is ended; its client is told to begin anew.
const IDLE: Duration = Duration::from_secs(30 * 60);
/// The thread of those who name none and have no session.
const UNNAMED: &str = "mcp";

pub(crate) const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
pub(crate) const THREAD: HeaderName = HeaderName::from_static("x-thread-id");

/// MCP over HTTP. Cheap to clone.
#[derive(Clone)]
pub struct Http(Arc<Inner>);

struct Inner {
    face: Arc<Face>,
    gate: Gate,
    book: Book,
    manager: Arc<LocalSessionManager>,
    sdk: StreamableHttpService<Server, LocalSessionManager>,
}

impl Http {
    /// Serves the tools. `loopback` says whether only this machine can reach the listener; `end` ends what
    /// would not end by itself.
    #[must_use]
    pub fn new(face: Arc<Face>, loopback: bool, end: CancellationToken) -> Self {
        let mut manager = LocalSessionManager::default();
        manager.session_config.keep_alive = Some(IDLE);
        let manager = Arc::new(manager);
        // What the SDK would check itself was checked before.
        let config = StreamableHttpServerConfig::default()
            .disable_allowed_hosts()
            .disable_allowed_origins()
            .with_max_request_body_bytes(LARGEST_BODY)
            .with_cancellation_token(end);
        let (gate, book) = (Gate::new(&face.settings, loopback), Book::new(face.settings.sessions_per_key));
        let shared = Arc::clone(&face);
        let make = move || Ok(Server::shared(Arc::clone(&shared)));
        let sdk = StreamableHttpService::new(make, Arc::clone(&manager), config);
        Self(Arc::new(Inner { face, gate, book, manager, sdk }))
    }
}

impl<B> tower_service::Service<Request<B>> for Http
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Display + Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Response = Answer;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Answer, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let inner = Arc::clone(&self.0);
        Box::pin(async move { Ok(inner.answer(request).await) })
    }
}

/// What a body asks for, as far as it matters here.
#[derive(Deserialize)]
struct Peek {
    method: Option<String>,
}

fn opens(parts: &Parts, body: &[u8]) -> bool {
    let asks = || serde_json::from_slice::<Peek>(body).ok().and_then(|peek| peek.method);
    parts.method == Method::POST
        && !parts.headers.contains_key(SESSION)
        && asks().as_deref() == Some("initialize")
}

/// A header of one line of text, where it is there.
fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, Refusal> {
    let mut values = headers.get_all(name).iter();
    let wrong = || {
        Refusal::new(StatusCode::BAD_REQUEST, format!("the header {name} must be there once, in plain text"))
    };
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => value.to_str().map(Some).map_err(|_| wrong()),
        (Some(_), Some(_)) => Err(wrong()),
    }
}

/// By which address the caller asks; only the caller is told, and only where to look.
fn base(headers: &HeaderMap) -> Option<String> {
    let host = headers.get(http::header::HOST)?.to_str().ok()?;
    let https = headers.get("x-forwarded-proto").is_some_and(|scheme| scheme == "https");
    Some(format!("{}://{host}", if https { "https" } else { "http" }))
}

async fn read<B>(body: B) -> Result<Bytes, Refusal>
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let limited = Limited::new(body, LARGEST_BODY).collect();
    match tokio::time::timeout(PATIENCE, limited).await {
        Ok(Ok(read)) => Ok(read.to_bytes()),
        Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => {
            Err(Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, "the body is larger than 4 MiB"))
        }
        Ok(Err(_)) => Err(Refusal::new(StatusCode::BAD_REQUEST, "the body was cut off")),
        Err(_) => Err(Refusal::new(StatusCode::REQUEST_TIMEOUT, "the body took too long")),
    }
}

impl Inner {
    async fn answer<B>(&self, request: Request<B>) -> Answer
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let page = match self.gate.check(request.uri(), request.headers()) {
            Ok(page) => page,
            Err(why) => return Refusal::new(StatusCode::FORBIDDEN, why).answer(),
        };
        if request.method() == Method::OPTIONS {
            return preflight(&page);
        }
        let answer = self.known(request).await.unwrap_or_else(Refusal::answer);
        let Page(origin) = page;
        allow(answer, origin)
    }

    /// Answers whoever may ask.
    async fn known<B>(&self, request: Request<B>) -> Result<Answer, Refusal>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let (mut parts, body) = request.into_parts();
        let Some(caller) = parts.extensions.get::<Caller>().cloned() else {
            return Err(Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "it is not known who asks"));
        };
        let entry = self.session(&parts, &caller)?;
        let named = self.thread(&parts)?;
        let thread = named.clone().or_else(|| entry.as_ref().and_then(|entry| entry.thread.clone()));
        let thread = match (thread, text(&parts.headers, &SESSION)?) {
            (Some(thread), _) => Some(thread),
            (None, Some(session)) => session.parse().ok(),
            (None, None) => UNNAMED.parse().ok(),
        };
        let Some(thread) = thread else { return Err(no_session()) };
        let who = Who { caller: caller.clone(), thread };
        let base = base(&parts.headers);
        parts.extensions.insert(Asked { who: who.clone(), base });
        let body = read(body).await?;
        if opens(&parts, &body) {
            return self.open(parts, body, &caller, named).await;
        }
        let ends = parts.method == Method::DELETE;
        let answer = self.sdk.handle(Request::from_parts(parts, Full::new(body))).await;
        if ends && answer.status().is_success() {
            self.close(entry, &who).await;
        }
        Ok(answer)
    }

    /// The session that is meant, which must be the caller's own.
    fn session(&self, parts: &Parts, caller: &Caller) -> Result<Option<Entry>, Refusal> {
        let Some(id) = text(&parts.headers, &SESSION)? else { return Ok(None) };
        self.book.find(id, caller).map(Some).ok_or_else(no_session)
    }

    /// The thread that is named.
    fn thread(&self, parts: &Parts) -> Result<Option<ThreadId>, Refusal> {
        let Some(name) = text(&parts.headers, &THREAD)? else { return Ok(None) };
        let wrong = |error: atoll_types::Error| {
            Refusal::new(StatusCode::BAD_REQUEST, format!("{THREAD}: {}", error.message))
        };
        name.parse().map(Some).map_err(wrong)
    }

    /// Begins an MCP session, if the caller may have another.
    async fn open(
        &self,
        parts: Parts,
        body: Bytes,
        caller: &Caller,
        thread: Option<ThreadId>,
    ) -> Result<Answer, Refusal> {
        // One at a time, so that nobody gets more than the limit by asking often at once.
        let mut opening = self.book.opening().await;
        let alive = self.manager.sessions.read().await.keys().cloned().collect();
        if !opening.has_room(caller, &alive) {
            let message = "this key has too many MCP sessions open; end some with DELETE, or let them be idle for 30 minutes";
            return Err(Refusal::new(StatusCode::TOO_MANY_REQUESTS, message));
        }
        let answer = self.sdk.handle(Request::from_parts(parts, Full::new(body))).await;
        if let Some(id) = answer.headers().get(SESSION).and_then(|id| id.to_str().ok()) {
            opening.add(id, Entry::new(caller, thread));
        }
        Ok(answer)
    }

    /// Ends what belonged to an MCP session alone: nobody could reach its thread again.
    async fn close(&self, entry: Option<Entry>, who: &Who) {
        if entry.is_some_and(|entry| entry.thread.is_none())
            && let Err(error) = self.face.sessions.delete_thread(who, "its MCP session was ended").await
        {
            tracing::warn!(%error, "the sessions of an MCP session cannot be ended");
        }
    }
}

/// As the protocol wants it; clients then begin anew.
fn no_session() -> Refusal {
    Refusal::new(StatusCode::NOT_FOUND, "there is no such MCP session; begin a new one with initialize")
}
