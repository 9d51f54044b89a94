//! One request to a server inside, and its answer. Bodies are streams in both directions; an upgraded
//! connection is bytes in both directions, until either side or the sandbox ends. What a token opened is closed when the
//! token is revoked or expires, whether an answer is on its way or not.

use super::{
    access::{self, Granted},
    headers::{self, ForwardedHeaders, PreviewLocation, ReturnedHeaders},
    valid_body::ValidBody,
};
use crate::App;
use atoll_core::{Port, TokenUse};
use atoll_http::{Failure, Life};
use atoll_types::{Error, ErrorCode};
use axum::{
    body::Body,
    extract::{ConnectInfo, Request},
    http::{StatusCode, Uri, Version, header, uri::PathAndQuery},
    response::Response,
};
use futures_util::{FutureExt, future::BoxFuture};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use std::net::SocketAddr;

/// What goes where.
pub(super) struct Exchange {
    pub(super) granted: Granted,
    pub(super) place: PreviewLocation,
    /// The app's own path.
    pub(super) target: PathAndQuery,
}

/// Carries out one exchange.
pub(super) async fn exchange(app: &App, exchange: Exchange, request: Request) -> Result<Response, Failure> {
    let Exchange { granted: Granted { port, token }, place, target } = exchange;
    let by_token = token.is_some();
    let mut ended = token.map_or_else(|| std::future::pending().boxed(), TokenUse::ended);
    let (mut parts, body) = request.into_parts();
    let upgrade = headers::upgrade_of(&parts.headers).filter(|_| parts.version == Version::HTTP_11);
    let ours = parts.extensions.remove::<OnUpgrade>().filter(|_| upgrade.is_some());
    let hold = parts.extensions.get::<Life>().cloned();
    let peer = parts.extensions.get::<ConnectInfo<SocketAddr>>().map(|c| c.0.ip());
    let public = parts.headers.get(header::HOST).and_then(|v| v.to_str().ok()).map(str::to_owned);
    let keep_authorization = by_token && !access::carries_a_key(app, &parts.headers).await;
    let wants = ours.is_some();
    let upgrade = upgrade.filter(|_| wants);
    let onward = ForwardedHeaders { place: &place, port: port.number, peer, keep_authorization, upgrade };
    headers::request(&mut parts.headers, onward);
    parts.extensions.clear();
    parts.version = Version::HTTP_11;
    parts.uri = Uri::from(target);
    let method = parts.method.clone();
    let sent = app.preview.upstream.send(&port, Request::from_parts(parts, body), wants);
    let answer = tokio::select! {
        answer = sent => answer?,
        () = &mut ended => return Err(Failure::unauthorized("the preview token was revoked or has expired")),
    };
    let (mut parts, body) = answer.into_parts();
    let theirs = parts.extensions.remove::<OnUpgrade>();
    // Whatever else the connection's code noted of it is not for ours.
    parts.extensions.clear();
    parts.version = Version::HTTP_11;
    let back =
        ReturnedHeaders { place: &place, method: &method, port: port.number, public: public.as_deref() };
    headers::answer(&mut parts.headers, parts.status, &back);
    if parts.status != StatusCode::SWITCHING_PROTOCOLS {
        let body = if by_token { Body::new(ValidBody { body, ended }) } else { Body::new(body) };
        return Ok(Response::from_parts(parts, body));
    }
    let (Some(ours), Some(theirs), true) = (ours, theirs, parts.headers.contains_key(header::UPGRADE)) else {
        let message = format!("the server on port {} in the sandbox upgraded to nothing", port.number);
        return Err(Error::new(ErrorCode::BadGateway, message).into());
    };
    tokio::spawn(tunnel(ours, theirs, port, hold, ended));
    Ok(Response::from_parts(parts, Body::empty()))
}

/// Carries bytes between the two until both are done, or the token, the sandbox or the server ends.
async fn tunnel(
    ours: OnUpgrade,
    theirs: OnUpgrade,
    port: Port,
    hold: Option<Life>,
    ended: BoxFuture<'static, ()>,
) {
    let Ok(closed) = port.closed() else { return };
    drop(port);
    let carry = async {
        let (ours, theirs) = tokio::try_join!(ours, theirs)?;
        let (mut ours, mut theirs) = (TokioIo::new(ours), TokioIo::new(theirs));
        // A side that breaks off ends both, and is no fault of ours.
        let _ = tokio::io::copy_bidirectional(&mut ours, &mut theirs).await;
        Ok::<_, hyper::Error>(())
    };
    let ending = async {
        match &hold {
            Some(hold) => hold.ending().await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        _ = carry => {}
        () = closed => {}
        () = ended => {}
        () = ending => {}
    }
}
