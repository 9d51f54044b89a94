//! The server over Streamable HTTP. Before the SDK sees a request, this front has checked its origin
//! ([`atoll_http::OriginCheck`]), its caller (by the HTTP floor), the size of its body, the owner of its MCP
//! session ([`owners`]), and its thread.
//!
//! The thread is what the header `X-Thread-Id` names; without it, that of the MCP session, and for clients of
//! protocol 2026-07-28, which has no sessions, one thread for each key's owner.

mod gone;
mod outbox;
mod owners;
mod presence;
mod reply;
mod single;

use crate::server::{Asked, Server, ServerContext};
use atoll_core::Caller;
use atoll_http::{
    BodyError, HttpContext, LARGEST_CALL, OriginCheck, RequestOrigin, ServerAddress, read_body,
};
use atoll_tool_sessions::{CancellationToken, ThreadId, ToolCaller};
use atoll_types::{McpSession, Result};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri, header::HeaderName, request::Parts};
use http_body_util::Full;
pub(crate) use outbox::Outbox;
use outbox::{Listening, Outboxes};
use owners::SessionOwners;
use presence::{Left, Presence};
use reply::{HttpAnswer, Refusal, allow, ended, preflight};
use rmcp::transport::streamable_http_server::{
    StreamableHttpServerConfig, StreamableHttpService,
    session::{SessionManager, local::LocalSessionManager},
};
use serde::Deserialize;
use serde_json::Value;
use single::{Held, Waiting, single};
use std::{
    convert::Infallible,
    fmt::Display,
    future::Future,
    pin::Pin,
    sync::{Arc, Weak},
    task::{Context, Poll},
    time::Duration,
};

/// Where it is served.
pub const PATH: &str = "/mcp";
/// The thread of clients that name none and have no session.
const UNNAMED: &str = "mcp";

pub(crate) const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
pub(crate) const THREAD: HeaderName = HeaderName::from_static("x-thread-id");

/// MCP over HTTP. Cheap to clone.
#[derive(Clone)]
pub struct Http(Arc<Inner>);

struct Inner {
    face: Arc<ServerContext>,
    origins: Arc<OriginCheck>,
    owners: SessionOwners,
    presence: Arc<Presence>,
    outboxes: Outboxes,
    /// Called when a client may have vanished.
    left: Left,
    manager: Arc<LocalSessionManager>,
    sdk: StreamableHttpService<Server, LocalSessionManager>,
}

impl Http {
    /// Serves the tools. `end` ends streams that would not end by themselves.
    #[must_use]
    pub fn new(face: Arc<ServerContext>, context: &HttpContext, end: CancellationToken) -> Self {
        let mut manager = LocalSessionManager::default();
        // The SDK would end the session of a client that only listens.
        manager.session_config.keep_alive = None;
        let manager = Arc::new(manager);
        let seconds = |seconds: u32| Duration::from_secs(seconds.into());
        let idle = seconds(face.settings.idle_seconds);
        let owners = SessionOwners::new(context.core.clone(), face.settings.sessions_per_key, idle);
        // What the SDK would check itself was checked before.
        let mut config = StreamableHttpServerConfig::default()
            .disable_allowed_hosts()
            .disable_allowed_origins()
            .with_json_response(true)
            .with_max_request_body_bytes(LARGEST_CALL)
            .with_cancellation_token(end.clone());
        config.session_store = Some(Arc::new(owners.clone()));
        let origins = Arc::clone(&context.origins);
        let shared = Arc::clone(&face);
        let make = move || Ok(Server::shared(Arc::clone(&shared)));
        let sdk = StreamableHttpService::new(make, Arc::clone(&manager), config);
        let inner = Arc::new_cyclic(|inner: &Weak<Inner>| {
            let left = gone::left(inner.clone(), seconds(face.settings.vanished_seconds));
            Inner {
                face,
                origins,
                owners,
                presence: Arc::default(),
                outboxes: Outboxes::default(),
                left,
                manager,
                sdk,
            }
        });
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(gone::keep(Arc::downgrade(&inner), idle, end));
        }
        Self(inner)
    }
}

impl<B> tower_service::Service<Request<B>> for Http
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Display + Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Response = HttpAnswer;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<HttpAnswer, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let inner = Arc::clone(&self.0);
        Box::pin(async move { Ok(inner.answer(request).await) })
    }
}

/// What a body asks for, as far as it matters here.
#[derive(Default, Deserialize)]
struct Peek {
    method: Option<String>,
    id: Option<Value>,
    params: Option<PeekParams>,
}

#[derive(Deserialize)]
struct PeekParams {
    #[serde(rename = "_meta")]
    meta: Option<PeekMeta>,
}

#[derive(Deserialize)]
struct PeekMeta {
    #[serde(rename = "progressToken")]
    progress: Option<Value>,
}

impl Peek {
    fn of(method: &Method, body: &[u8]) -> Self {
        if *method == Method::POST {
            serde_json::from_slice(body).unwrap_or_default()
        } else {
            Self::default()
        }
    }

    /// Whether the client wants progress of the request.
    fn wants_progress(&self) -> bool {
        let meta = self.params.as_ref().and_then(|params| params.meta.as_ref());
        meta.is_some_and(|meta| meta.progress.is_some())
    }

    /// The id of a request, whose answer is waited for.
    fn request(&self) -> Option<Value> {
        self.id.clone().filter(|id| self.method.is_some() && !id.is_null())
    }
}

/// The thread of a session: the one that was named when it began, or its own.
fn thread_of(session: &McpSession) -> Option<ThreadId> {
    session.thread.as_ref().unwrap_or(&session.id).parse().ok()
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

/// A body, which is mostly the call of a tool.
async fn read<B>(body: B) -> Result<Bytes, Refusal>
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    read_body(body, LARGEST_CALL).await.map_err(|error| {
        let status = match error {
            BodyError::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
            BodyError::CutOff => StatusCode::BAD_REQUEST,
            BodyError::TooSlow => StatusCode::REQUEST_TIMEOUT,
        };
        Refusal::new(status, error.to_string())
    })
}

/// The origin of the request, where it is allowed.
type Page = Option<HeaderValue>;

impl Inner {
    async fn answer<B>(&self, request: Request<B>) -> HttpAnswer
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let page = match self.page(request.uri(), request.headers()) {
            Ok(page) => page,
            Err(refusal) => return refusal.answer(),
        };
        if request.method() == Method::OPTIONS {
            return preflight(page);
        }
        let answer = self.known(request).await.unwrap_or_else(Refusal::answer);
        allow(answer, page)
    }

    /// The origin of the request, if its host and origin are allowed.
    fn page(&self, uri: &Uri, headers: &HeaderMap) -> Result<Page, Refusal> {
        let twice =
            |_| Refusal::new(StatusCode::BAD_REQUEST, "the header host or origin is there more than once");
        let asked = RequestOrigin::read(uri, headers).map_err(twice)?;
        self.origins.check(&asked).map_err(|why| Refusal::new(StatusCode::FORBIDDEN, why))?;
        Ok(headers.get(http::header::ORIGIN).cloned())
    }

    /// Answers a caller that is authenticated.
    async fn known<B>(&self, request: Request<B>) -> Result<HttpAnswer, Refusal>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let (mut parts, body) = request.into_parts();
        let Some(caller) = parts.extensions.get::<Caller>().cloned() else {
            return Err(Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "it is not known who asks"));
        };
        let session = self.session(&parts, &caller).await?;
        let named = self.thread(&parts)?;
        let thread = match (named.clone(), &session) {
            (Some(thread), _) => Some(thread),
            (None, Some(session)) => thread_of(session),
            (None, None) => UNNAMED.parse().ok(),
        };
        let Some(thread) = thread else { return Err(no_session()) };
        let address = ServerAddress::read(&parts).map(|address| address.url());
        let who = ToolCaller { caller: caller.clone(), thread, address };
        let (gone, method) = (CancellationToken::new(), parts.method.clone());
        let outbox = session.as_ref().map(|session| self.outboxes.of(&session.id));
        parts.extensions.insert(Asked { who, gone: gone.clone(), outbox: outbox.clone() });
        let body = read(body).await?;
        let peek = Peek::of(&method, &body);
        let Some(session) = session else {
            if peek.method.as_deref() == Some("initialize") && method == Method::POST {
                return self.open(parts, body, &caller, named).await;
            }
            return Ok(self.sdk.handle(Request::from_parts(parts, Full::new(body))).await);
        };
        let here = self.presence.enter(&session.id, method == Method::GET, Arc::clone(&self.left));
        // The client may go away while the SDK works.
        let waiting = Waiting::new(gone, Some(here));
        let answer = self.sdk.handle(Request::from_parts(parts, Full::new(body))).await;
        Ok(match (method, peek.request()) {
            (Method::DELETE, _) if answer.status().is_success() => {
                self.presence.forget(&session.id);
                self.leave_thread(&session, caller).await;
                ended()
            }
            (Method::POST, Some(id)) => single(answer, id, peek.wants_progress(), waiting).await,
            (method, _) => match outbox {
                Some(outbox) if method == Method::GET => Listening::answer(answer, outbox, waiting),
                _ => Held::answer(answer, waiting),
            },
        })
    }

    /// The session that the request names, which must be the caller's own.
    async fn session(&self, parts: &Parts, caller: &Caller) -> Result<Option<McpSession>, Refusal> {
        let Some(id) = text(&parts.headers, &SESSION)? else { return Ok(None) };
        let found = self.owners.find(id, caller).await.map_err(unavailable)?;
        found.map(Some).ok_or_else(no_session)
    }

    /// The thread that the request names.
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
    ) -> Result<HttpAnswer, Refusal> {
        let opening = self.owners.opening().await;
        if !opening.has_room(caller).await.map_err(unavailable)? {
            // Those that are due may not have been seen yet.
            self.sweep().await.map_err(unavailable)?;
        }
        if !opening.has_room(caller).await.map_err(unavailable)? {
            let idle = self.face.settings.idle_seconds;
            let message = format!(
                "this key has too many MCP sessions open; end some with DELETE, or use them no more for {idle} seconds"
            );
            return Err(Refusal::new(StatusCode::TOO_MANY_REQUESTS, message));
        }
        let begin: Value = serde_json::from_slice(&body).unwrap_or_default();
        let answer = self.sdk.handle(Request::from_parts(parts, Full::new(body))).await;
        if let Some(id) = answer.headers().get(SESSION).and_then(|id| id.to_str().ok()) {
            if let Some(thread) = thread.clone() {
                self.face.sessions.client_came(&ToolCaller { caller: caller.clone(), thread, address: None });
            }
            if let Err(error) = opening.add(id, caller, thread, &begin["params"]).await {
                // What is not stored would never end.
                let _ = self.manager.close_session(&id.to_owned().into()).await;
                return Err(unavailable(error));
            }
        }
        let waiting = Waiting::new(CancellationToken::new(), None);
        Ok(single(answer, begin["id"].clone(), false, waiting).await)
    }
}

/// The store does not answer.
fn unavailable(error: atoll_types::Error) -> Refusal {
    tracing::warn!(%error, "MCP sessions cannot be looked up");
    Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "MCP sessions cannot be looked up at the moment; try again")
}

/// As the protocol wants it; clients then begin anew.
fn no_session() -> Refusal {
    Refusal::new(StatusCode::NOT_FOUND, "there is no such MCP session; begin a new one with initialize")
}
