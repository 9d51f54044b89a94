//! The API of containers, at `/api/sandbox`: an owner's configuration, its containers with their snapshots, and what the server
//! knows of templates, the audit trail, the pool, tiers and graphics processors. A container of this API is a sandbox.

mod audit;
mod config;
mod life;
mod run;
mod server;
mod shapes;
mod snapshots;
mod templates;

use crate::App;
use axum::{
    Json, Router,
    routing::{delete, get, post},
};
use serde_json::{Value, json};

/// The first segments below `/api/sandbox` that are this API's.
pub(crate) const SEGMENTS: &[&str] =
    &["config", "status", "containers", "templates", "audit", "pool", "gpu", "tiers", "run"];

/// What a change answers.
fn done(message: impl Into<String>) -> Json<Value> {
    Json(json!({ "status": "ok", "message": message.into() }))
}

/// What a change answers that removes something.
fn removed(count: u64) -> Json<Value> {
    Json(json!({ "status": "ok", "removed": count }))
}

pub(crate) fn routes() -> Router<App> {
    Router::new()
        .route("/api/sandbox/config", get(config::read).put(config::merge))
        .route("/api/sandbox/status", get(server::status))
        .route("/api/sandbox/run", post(run::run))
        .route("/api/sandbox/containers", get(life::list))
        .route("/api/sandbox/containers/cleanup", post(life::cleanup))
        .route("/api/sandbox/containers/{id}", get(life::detail).delete(life::destroy))
        .route("/api/sandbox/containers/{id}/stop", post(life::stop))
        .route("/api/sandbox/containers/{id}/restart", post(life::restart))
        .route("/api/sandbox/containers/{id}/snapshots", get(snapshots::list).post(snapshots::create))
        .route("/api/sandbox/containers/{id}/snapshots/{sid}", delete(snapshots::remove))
        .route("/api/sandbox/containers/{id}/snapshots/{sid}/rollback", post(snapshots::roll_back))
        .route("/api/sandbox/templates", get(templates::list).post(templates::create))
        .route("/api/sandbox/templates/{id}", delete(templates::remove))
        .route("/api/sandbox/templates/{id}/build", post(templates::build))
        .route("/api/sandbox/templates/{id}/pull", post(templates::pull))
        .route("/api/sandbox/audit", get(audit::list))
        .route("/api/sandbox/audit/summary", get(audit::summary))
        .route("/api/sandbox/audit/cleanup", post(audit::cleanup))
        .route("/api/sandbox/audit/{id}/output", get(audit::output))
        .route("/api/sandbox/pool", get(server::pool))
        .route("/api/sandbox/pool/drain", post(server::drain))
        .route("/api/sandbox/gpu", get(server::gpu))
        .route("/api/sandbox/tiers", get(server::tiers))
}
