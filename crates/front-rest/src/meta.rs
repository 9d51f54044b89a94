//! About the server itself.

use crate::{App, metrics};
use atoll_http::{Failure, RequestOrigin, Who};
use atoll_types::Error;
use axum::{
    Json,
    extract::{ConnectInfo, FromRequestParts, Request, State},
    http::{HeaderMap, header},
    response::{IntoResponse, Redirect, Response},
};
use serde::Serialize;
use std::net::SocketAddr;
use utoipa::ToSchema;

/// How the server is.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Health {
    /// ok, or degraded when the launcher or the database does not answer.
    status: &'static str,
    version: &'static str,
}

/// What answers here, and where to go on.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Welcome {
    #[schema(example = "atoll")]
    name: &'static str,
    version: &'static str,
    links: Links,
}

/// Paths of this server.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Links {
    /// The API, which needs a key.
    api: &'static str,
    /// The web console.
    console: &'static str,
    /// Its description for people.
    docs: &'static str,
    /// Its description for programs.
    openapi: &'static str,
    health: &'static str,
    /// The Model Context Protocol.
    mcp: &'static str,
}

const LINKS: Links = Links {
    api: "/api/v1/sandboxes",
    console: "/ui/",
    docs: "/docs",
    openapi: "/openapi.json",
    health: "/health",
    mcp: "/mcp",
};

/// What answers here, for programs; browsers are sent to the console. Needs no key.
#[utoipa::path(get, path = "/", tag = "server", security(()),
    responses((status = 200, body = Welcome),
        (status = 303, description = "To the console, for a client that accepts text/html")))]
pub(crate) async fn root(headers: HeaderMap) -> Response {
    let accepted = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if !accepted.contains("text/html") {
        let version = env!("CARGO_PKG_VERSION");
        return Json(Welcome { name: "atoll", version, links: LINKS }).into_response();
    }
    Redirect::to(LINKS.console).into_response()
}

/// Whether the server works. Needs no key.
#[utoipa::path(get, path = "/health", tag = "server", security(()), responses((status = 200, body = Health), (status = 503, body = Health)))]
pub(crate) async fn health(State(app): State<App>) -> Response {
    let version = env!("CARGO_PKG_VERSION");
    match app.core.ready().await {
        Ok(()) => Json(Health { status: "ok", version }).into_response(),
        Err(error) => {
            tracing::warn!(%error, "not healthy");
            let body = Json(Health { status: "degraded", version });
            (axum::http::StatusCode::SERVICE_UNAVAILABLE, body).into_response()
        }
    }
}

/// Whether this machine asks by a name of its own: not a page whose name was made to lead here, nor a proxy that
/// passes on what others ask.
fn asked_here(request: &Request) -> bool {
    let peer = request.extensions().get::<ConnectInfo<SocketAddr>>().map(|c| c.0);
    let forwarded = ["forwarded", "x-forwarded-for", "x-real-ip", "via"];
    peer.is_some_and(|p| p.ip().is_loopback())
        && RequestOrigin::read(request.uri(), request.headers()).is_ok_and(|asked| asked.is_local())
        && !forwarded.iter().any(|name| request.headers().contains_key(*name))
}

/// Figures for Prometheus. Needs a key, unless asked from this machine by the name localhost or a loopback address.
#[utoipa::path(get, path = "/metrics", tag = "server", responses((status = 200, body = String, content_type = "text/plain")))]
pub(crate) async fn metrics(State(app): State<App>, request: Request) -> Result<Response, Failure> {
    if !asked_here(&request) {
        let (mut parts, _) = request.into_parts();
        Who::from_request_parts(&mut parts, &app).await?;
    }
    let counts = app.core.sandboxes.status_counts().await?;
    let used = app.core.usage.totals();
    let text = metrics::render(&counts, &used, app.core.lifecycle.disk_room(), &app.core.pool.figures())
        .and_then(|mut page| app.http.render_requests(&mut page).map(|()| page))
        .map_err(|_| Error::internal("metrics cannot be rendered"))?;
    Ok(([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response())
}
