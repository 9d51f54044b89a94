//! Authentication: by the key in the request, by the session of a signed-in browser, or, where the server was started
//! so, none for any program of this machine.

use crate::{
    Failure, HttpContext, LARGEST_BODY,
    request_body::RequestAccount,
    session::{self, BrowserSession, SessionSlot},
};
use atoll_core::Caller;
use axum::{
    extract::{ConnectInfo, FromRef, FromRequest, FromRequestParts, Request},
    http::{HeaderMap, header, request::Parts},
};
use bytes::Bytes;
use std::net::SocketAddr;

/// Whether keys are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Every request needs a key.
    Keys,
    /// None does. Only for a server that listens on loopback; names and origins are then checked.
    Open,
}

/// The name of a front, as the audit trail records it with each caller.
#[derive(Debug, Clone, Copy)]
pub struct FrontName(pub &'static str);

/// The caller of a request.
pub struct Who(pub Caller);

/// The key in a request's headers.
#[must_use]
pub fn presented(headers: &HeaderMap) -> Option<&str> {
    let bearer = headers.get(header::AUTHORIZATION).and_then(|v| v.to_str().ok());
    let bearer =
        bearer.and_then(|v| v.split_once(' ')).filter(|(kind, _)| kind.eq_ignore_ascii_case("bearer"));
    // The second is what clients of the API at `/api/sandbox/create` send.
    let plain = ["x-api-key", "x-agentcop-key"].into_iter().find_map(|name| headers.get(name));
    let plain = plain.and_then(|v| v.to_str().ok());
    bearer.map(|(_, key)| key.trim()).or(plain).filter(|key| !key.is_empty())
}

/// The caller whose key this is.
pub async fn caller_of(context: &HttpContext, key: &str) -> Result<Caller, Failure> {
    context.core.keys.authenticate(key).await.map_err(Failure::unknown_caller)
}

impl<S: Send + Sync> FromRequestParts<S> for Who
where
    HttpContext: FromRef<S>,
    FrontName: FromRef<S>,
{
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failure> {
        let (context, front) = (HttpContext::from_ref(state), FrontName::from_ref(state));
        match presented(&parts.headers) {
            None if context.access == Access::Keys => by_session(&context, parts).await.map(Self),
            key => identify(&context, front, parts, key).await.map(Self),
        }
    }
}

/// The caller and the body of a request that only looks into the store, and whose answer may be large: the answers to an
/// owner are built a few at a time. It waits after its body was read, so a client that sends slowly keeps no place.
pub struct LookUp(pub Caller, pub Bytes);

impl<S: Send + Sync> FromRequest<S> for LookUp
where
    HttpContext: FromRef<S>,
    FrontName: FromRef<S>,
{
    type Rejection = Failure;

    async fn from_request(request: Request, state: &S) -> Result<Self, Failure> {
        let (mut parts, body) = request.into_parts();
        let Who(caller) = Who::from_request_parts(&mut parts, state).await?;
        let account = parts.extensions.get::<RequestAccount>().cloned().unwrap_or_default();
        let body = account.read(body, LARGEST_BODY).await?;
        account.look_up(HttpContext::from_ref(state).core.answers.look_up(&caller.owner).await?);
        Ok(Self(caller, body))
    }
}

/// The caller of a WebSocket. A browser cannot set headers there, so the key may also come among the
/// protocols that it offers, as `atoll.key.<key>`.
pub struct SocketWho(pub Caller);

const KEY_PROTOCOL: &str = "atoll.key.";

fn offered(parts: &Parts) -> Option<&str> {
    let lists = parts.headers.get_all(header::SEC_WEBSOCKET_PROTOCOL).iter().filter_map(|v| v.to_str().ok());
    let mut names = lists.flat_map(|list| list.split(',')).map(str::trim);
    names.find_map(|name| name.strip_prefix(KEY_PROTOCOL)).filter(|key| !key.is_empty())
}

impl<S: Send + Sync> FromRequestParts<S> for SocketWho
where
    HttpContext: FromRef<S>,
    FrontName: FromRef<S>,
{
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failure> {
        let (context, front) = (HttpContext::from_ref(state), FrontName::from_ref(state));
        match presented(&parts.headers).or_else(|| offered(parts)) {
            None if context.access == Access::Keys => by_session(&context, parts).await.map(Self),
            key => identify(&context, front, parts, key).await.map(Self),
        }
    }
}

/// The caller of a request by the session of its browser; without a session, a key is missing.
async fn by_session(context: &HttpContext, parts: &mut Parts) -> Result<Caller, Failure> {
    let Some(secret) = session::presented_session(parts).map(str::to_owned) else {
        return Err(Failure::unauthorized(SEND_A_KEY));
    };
    session::prove_own_page(parts)?;
    let caller = context.core.keys.authenticate_session(&secret).await.map_err(Failure::unknown_caller)?;
    let session = BrowserSession::new(context, &secret);
    if let Some(slot) = parts.extensions.get::<SessionSlot>() {
        slot.set(session.clone());
    }
    parts.extensions.insert(session);
    admit(context, session::CONSOLE, parts, caller)
}

const SEND_A_KEY: &str = "send a key: Authorization: Bearer <key>";

/// The caller of this request to a front, by its key; the request is counted.
pub(crate) async fn identify(
    context: &HttpContext,
    front: FrontName,
    parts: &Parts,
    key: Option<&str>,
) -> Result<Caller, Failure> {
    let caller = match (key, context.access) {
        (Some(key), _) => caller_of(context, key).await?,
        (None, Access::Open) => Caller::local(),
        (None, Access::Keys) => return Err(Failure::unauthorized(SEND_A_KEY)),
    };
    admit(context, front, parts, caller)
}

/// Counts the request of a known caller.
fn admit(context: &HttpContext, front: FrontName, parts: &Parts, caller: Caller) -> Result<Caller, Failure> {
    if !context.may_ask(&caller.owner) {
        return Err(Failure::too_many());
    }
    // An owner whose unread answers hold all that they may gets no further one.
    let held = context.core.answers.hold(&caller.owner)?;
    if let Some(account) = parts.extensions.get::<RequestAccount>() {
        account.charge(&caller.owner, held);
    }
    let address = parts.extensions.get::<ConnectInfo<SocketAddr>>().map(|peer| peer.0.ip().to_string());
    Ok(caller.from(front.0, address))
}
