//! What `atoll doctor` says of this machine, for admins. The program looked when the server started; a trial with a real
//! sandbox is the command's alone.

use crate::App;
use atoll_http::{Failure, Who};
use atoll_types::{Error, ErrorCode};
use axum::{Json, extract::State};
use serde::Serialize;

/// What a probe found.
#[derive(Debug, Clone, Serialize)]
pub struct Finding {
    /// What was probed.
    pub name: &'static str,
    /// good, lacking or bad.
    pub verdict: &'static str,
    /// What was seen.
    pub seen: String,
    /// The remedy.
    pub fix: Option<String>,
}

#[derive(Serialize)]
pub(crate) struct Report {
    findings: Vec<Finding>,
}

/// The findings.
pub(crate) async fn report(State(app): State<App>, Who(caller): Who) -> Result<Json<Report>, Failure> {
    if caller.scope.as_str() != "admin" {
        return Err(Error::new(ErrorCode::PermissionDenied, "this needs an admin key").into());
    }
    Ok(Json(Report { findings: app.findings.to_vec() }))
}
