//! What a front serves at one path of its own. The mount authenticates the caller, applies its rate limit and
//! names the front for the audit; the front answers. What is read of a request counts for its owner, and a mount that asks
//! for no key has a few calls at a time, of all callers and of one peer.

use crate::{
    Failure, HttpContext,
    auth::{FrontName, identify, presented},
    body::holding,
    peers::OpenCalls,
    request_body::RequestAccount,
};
use axum::{
    Router,
    body::{Body, Bytes, HttpBody},
    extract::{ConnectInfo, Request},
    http::{Method, Response},
    response::IntoResponse,
    routing::any,
};
use std::{convert::Infallible, net::SocketAddr};
use tower::{BoxError, Service, ServiceExt, util::BoxCloneSyncService};

/// Calls without a key at a time: of all callers, and of one peer.
const OPEN_CALLS: usize = 512;
const OPEN_CALLS_PER_PEER: usize = 64;

/// A front at one path.
#[derive(Clone)]
pub struct Mount {
    path: &'static str,
    front: FrontName,
    answer: BoxCloneSyncService<Request, Response<Body>, Infallible>,
    /// How a caller that may not ask is answered.
    refuse: fn(Failure) -> Response<Body>,
    /// The calls, where any caller may ask.
    open: Option<OpenCalls>,
}

impl Mount {
    /// What answers at a path. Each request has its caller among its extensions, except for `OPTIONS`, which
    /// browsers send without a key.
    pub fn new<S, B>(path: &'static str, front: &'static str, service: S) -> Self
    where
        S: Service<Request, Response = Response<B>, Error = Infallible> + Clone + Send + Sync + 'static,
        S::Future: Send + 'static,
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let answer = BoxCloneSyncService::new(service.map_response(|response| response.map(Body::new)));
        Self { path, front: FrontName(front), answer, refuse: Failure::into_response, open: None }
    }

    /// Refuses in the form of the front's own protocol.
    #[must_use]
    pub fn refusing(self, refuse: fn(Failure) -> Response<Body>) -> Self {
        Self { refuse, ..self }
    }

    /// Answers without a key, and names no caller to the front.
    #[must_use]
    pub fn open(self) -> Self {
        Self { open: Some(OpenCalls::new(OPEN_CALLS, OPEN_CALLS_PER_PEER)), ..self }
    }

    pub(crate) fn router(self, context: HttpContext) -> Router {
        let path = self.path;
        Router::new().route(path, any(move |request: Request| self.serve(context, request)))
    }

    async fn serve(self, context: HttpContext, request: Request) -> Response<Body> {
        let (mut parts, body) = request.into_parts();
        // Of its own: a body may go on after the answer has begun, and counts until it ends.
        let (mut place, account) = (None, RequestAccount::default());
        if let Some(open) = &self.open {
            let peer = parts.extensions.get::<ConnectInfo<SocketAddr>>();
            place = open.take(peer.map(|peer| peer.0));
            if place.is_none() {
                return (self.refuse)(Failure::too_many());
            }
        } else if parts.method != Method::OPTIONS {
            let caller = identify(&context, self.front, &parts, presented(&parts.headers)).await;
            let held = caller.and_then(|caller| Ok((context.core.answers.hold(&caller.owner)?, caller)));
            match held {
                Ok((held, caller)) => {
                    account.charge(&caller.owner, held);
                    parts.extensions.insert(caller);
                }
                Err(failure) => return (self.refuse)(failure),
            }
        }
        let answer = match self.answer.oneshot(Request::from_parts(parts, account.body(body))).await {
            Ok(response) => response,
            Err(never) => match never {},
        };
        match account.failure() {
            Some(failure) => (self.refuse)(failure),
            None => holding(answer, place),
        }
    }
}
