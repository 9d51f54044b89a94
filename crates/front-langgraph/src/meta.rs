//! What a client asks before it begins.

use crate::App;
use axum::{Json, Router, routing::get};
use serde_json::{Value, json};

pub(crate) fn routes() -> Router<App> {
    Router::new().route("/info", get(info)).route("/ok", get(ok))
}

/// What this server can do. Studio wants a version.
async fn info() -> Json<Value> {
    Json(json!({
        "version": env!("CARGO_PKG_VERSION"),
        "flags": {
            "assistants": true, "crons": false, "langsmith": false, "strict_resume": true,
        },
        "host": { "kind": "self-hosted", "name": "atoll" },
    }))
}

async fn ok() -> Json<Value> {
    Json(json!({ "ok": true }))
}
