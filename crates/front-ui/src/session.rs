//! Signing in and out. The key comes once, in the body of a request of the console's own page; from then on the browser
//! has a cookie that scripts cannot read.

use crate::App;
use atoll_core::{Caller, Core, SessionInfo, SignedIn};
use atoll_http::{
    Access, Failure, FrontName, OpenCalls, PresentedSession, RequestOrigin, SessionCookie, Who,
    read_body_within, required_json,
};
use atoll_types::{
    Ceiling, Error, ErrorCode, Limits,
    time::{now_ms, rfc3339},
};
use axum::{
    Json,
    extract::{ConnectInfo, Request, State},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use serde::{Deserialize, Serialize};
use std::{net::SocketAddr, time::Duration};

/// The front's name in the audit trail.
pub(crate) const FRONT: FrontName = FrontName("console");

/// What a request to sign in may have, and how long it may take: it comes without a key, and has one in it.
const SIGN_IN_BYTES: usize = 4 << 10;
const SIGN_IN_PATIENCE: Duration = Duration::from_secs(5);
/// Requests to sign in at a time: of all peers, and of one.
const SIGN_INS: usize = 256;
const SIGN_INS_OF_PEER: usize = 16;

/// The places of requests to sign in.
pub(crate) fn sign_ins() -> OpenCalls {
    OpenCalls::new(SIGN_INS, SIGN_INS_OF_PEER)
}

/// A request to sign in.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SignInBody {
    key: String,
}

/// The signed-in browser, as the console shows it.
#[derive(Serialize)]
pub(crate) struct SessionItem {
    /// keys, or open where the server asks for none.
    access: &'static str,
    owner: String,
    scope: &'static str,
    /// None of an admin key, which has no ceiling.
    tier: Option<&'static str>,
    /// None where the server asks for no keys.
    key: Option<KeyName>,
    expires_at: Option<String>,
    /// What a new sandbox gets that names no limits, of an image that has none of its own.
    defaults: LimitsItem,
    /// The image of a new sandbox that names none, and after how many seconds without work it is paused.
    default_image: String,
    default_idle_timeout_seconds: u32,
    /// The most that its limits may be by the key's tier.
    ceiling: Option<LimitsItem>,
    version: &'static str,
}

/// Limits of a sandbox.
#[derive(Serialize)]
struct LimitsItem {
    memory_mb: u64,
    cpu_cores: f64,
    disk_mb: u64,
    processes: u32,
    /// none, restricted or full: what the tier lets it reach.
    network: Option<&'static str>,
}

impl LimitsItem {
    fn usual() -> Self {
        let Limits { memory_bytes, cpu_millis, disk_bytes, processes, .. } = Limits::default();
        let cpu_cores = f64::from(cpu_millis) / 1000.0;
        let (memory_mb, disk_mb) = (memory_bytes >> 20, disk_bytes >> 20);
        Self { memory_mb, cpu_cores, disk_mb, processes, network: None }
    }

    fn of(ceiling: &Ceiling) -> Self {
        let Ceiling { memory_mb, cpu_millis, disk_mb, processes, network, .. } = *ceiling;
        let cpu_cores = f64::from(cpu_millis) / 1000.0;
        Self { memory_mb, cpu_cores, disk_mb, processes, network: Some(network.as_str()) }
    }
}

#[derive(Serialize)]
struct KeyName {
    id: String,
    name: String,
}

impl SessionItem {
    fn new(core: &Core, caller: &Caller, session: Option<&SessionInfo>) -> Self {
        let ceiling = caller.tier.map(|tier| LimitsItem::of(&core.settings.tiers().of(tier)));
        Self {
            access: if session.is_some() { "keys" } else { "open" },
            owner: caller.owner_name.clone(),
            scope: caller.scope.as_str(),
            tier: caller.tier.map(|tier| tier.as_str()),
            key: session
                .zip(caller.key)
                .map(|(session, id)| KeyName { id: id.uuid().to_string(), name: session.key_name.clone() }),
            expires_at: session.map(|session| rfc3339(session.expires_at)),
            defaults: LimitsItem::usual(),
            default_image: core.settings.default_image(),
            default_idle_timeout_seconds: core.settings.now().idle_timeout_seconds,
            ceiling,
            version: env!("CARGO_PKG_VERSION"),
        }
    }
}

/// The session of this browser.
pub(crate) async fn current(
    State(app): State<App>,
    Who(caller): Who,
    PresentedSession(secret): PresentedSession,
) -> Result<Response, Failure> {
    let session = match (app.http.access, secret) {
        (Access::Keys, Some(secret)) => {
            Some(app.http.core.keys.session(&secret).await.map_err(Failure::unknown_caller)?)
        }
        (Access::Keys, None) => return Err(Failure::unauthorized("this browser has no session; sign in")),
        (Access::Open, _) => None,
    };
    Ok(Json(SessionItem::new(&app.http.core, &caller, session.as_ref())).into_response())
}

/// Exchanges a key for a session.
pub(crate) async fn sign_in(
    State(app): State<App>,
    asked: RequestOrigin,
    peer: Option<axum::Extension<ConnectInfo<SocketAddr>>>,
    request: Request,
) -> Result<Response, Failure> {
    if !asked.names_own_page() {
        let message =
            "only the console's own page signs a browser in; programs send their key with each request";
        return Err(Error::new(ErrorCode::PermissionDenied, message).into());
    }
    // The asker is not known yet: whatever is read or looked up for it is bounded by its address.
    let peer = peer.map(|axum::Extension(peer)| peer.0);
    if peer.is_some_and(|peer| !app.http.may_ask_without_key(peer)) {
        return Err(Failure::too_many());
    }
    let _place = app.sign_ins.take(peer).ok_or_else(Failure::too_many)?;
    let body = read_body_within(request.into_body(), SIGN_IN_BYTES, SIGN_IN_PATIENCE).await?;
    let SignInBody { key } = required_json(&body)?;
    let address = peer.map(|peer| peer.ip().to_string());
    let signed_in = app.http.core.keys.sign_in(key.trim(), |caller| caller.from(FRONT.0, address)).await;
    let SignedIn { secret, session } = signed_in.map_err(Failure::unknown_caller)?;
    let seconds = (session.expires_at - now_ms()) / 1000;
    let cookie = SessionCookie::set(&asked, &secret, seconds);
    let item = SessionItem::new(&app.http.core, &session.caller, Some(&session));
    Ok(([(header::SET_COOKIE, cookie)], Json(item)).into_response())
}

/// Ends the session of this browser.
pub(crate) async fn sign_out(
    State(app): State<App>,
    asked: RequestOrigin,
    Who(caller): Who,
    PresentedSession(secret): PresentedSession,
) -> Result<Response, Failure> {
    if let Some(secret) = secret {
        app.http.core.keys.sign_out(&caller, &secret).await?;
    }
    Ok((StatusCode::NO_CONTENT, [(header::SET_COOKIE, SessionCookie::set(&asked, "", 0))]).into_response())
}
