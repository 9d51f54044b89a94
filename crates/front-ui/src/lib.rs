//! The web console at `/ui/`: a page that is a client of the REST API like any other, from assets inside the program
//! ([`assets`]), the exchange of a key for a session cookie ([`session`]), and the API reference at `/docs`. Everything that the console shows or
//! changes goes through the REST API; nothing here decides.
//!
//! Nothing that a sandbox serves or prints may act as the console. Its pages run only scripts that carry the nonce of
//! their own answer, load nothing from elsewhere, and cannot be framed ([`policy`]).

mod assets;
mod doctor;
mod policy;
mod session;

pub use doctor::Finding;

use atoll_http::{FrontName, HttpContext, OpenCalls};
use axum::{Router, extract::FromRef, response::Redirect, routing::get};
use std::sync::Arc;

/// What every handler can reach.
#[derive(Clone)]
pub(crate) struct App {
    pub(crate) http: HttpContext,
    pub(crate) sign_ins: OpenCalls,
    /// What the program found out about this machine.
    pub(crate) findings: Arc<[Finding]>,
}

impl FromRef<App> for HttpContext {
    fn from_ref(app: &App) -> Self {
        app.http.clone()
    }
}

impl FromRef<App> for FrontName {
    fn from_ref(_: &App) -> Self {
        session::FRONT
    }
}

/// The console's routes. `findings` is what the program found out about this machine.
pub fn routes(http: HttpContext, findings: Vec<Finding>) -> Router {
    Router::new()
        .route("/ui", get(async || Redirect::permanent("/ui/")))
        .route("/ui/", get(assets::index))
        .route("/docs", get(assets::reference))
        .route("/ui/session", get(session::current).post(session::sign_in).delete(session::sign_out))
        .route("/ui/doctor.json", get(doctor::report))
        .route("/ui/{*path}", get(assets::asset))
        .with_state(App { http, sign_ins: session::sign_ins(), findings: findings.into() })
}
