//! About the server itself.

use crate::{App, auth::Who, error::Failure};
use atoll_types::Error;
use axum::{
    Json,
    extract::{ConnectInfo, FromRequestParts, Request, State},
    http::header,
    response::{IntoResponse, Response},
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

/// Whether the server works. Needs no key.
#[utoipa::path(get, path = "/health", tag = "server", security(()), responses((status = 200, body = Health), (status = 503)))]
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

/// Figures for Prometheus. Needs a key, unless asked from this machine.
#[utoipa::path(get, path = "/metrics", tag = "server", responses((status = 200, body = String, content_type = "text/plain")))]
pub(crate) async fn metrics(State(app): State<App>, request: Request) -> Result<Response, Failure> {
    let peer = request.extensions().get::<ConnectInfo<SocketAddr>>().map(|c| c.0);
    if !peer.is_some_and(|p| p.ip().is_loopback()) {
        let (mut parts, _) = request.into_parts();
        Who::from_request_parts(&mut parts, &app).await?;
    }
    let counts = app.core.status_counts().await?;
    let used = app.core.usage_totals();
    let text = app
        .metrics
        .render(&counts, &used, &app.core.pool_figures())
        .map_err(|_| Error::internal("metrics cannot be rendered"))?;
    Ok(([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response())
}
