//! Packages, installed while the sandbox runs.

use super::language;
use crate::{
    App,
    parse::{Raw, json, sandbox_id},
};
use atoll_core::{Dependencies, Execs, Installed};
use atoll_http::{Busy, Failure, Redacted, Repeat, Who, once};
use axum::{
    extract::{Path, State},
    http::{HeaderMap, StatusCode},
    response::Response,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// Packages that are wanted.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DependenciesBody {
    /// python (pip), node (npm) or r; python where nothing is said.
    language: Option<String>,
    /// Versions by name; an empty one is the latest.
    packages: BTreeMap<String, String>,
    /// In seconds; 600 where nothing is said.
    timeout: Option<f64>,
}

/// What came of it.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct InstalledItem {
    /// Whether all of them are there.
    success: bool,
    /// What the package manager said.
    stdout: String,
    /// What it complained.
    stderr: String,
}

/// Installs packages into the user's home, which is on the sandbox's volume, through what the sandbox may
/// reach. An install that fails is an answer with `success` false.
///
/// A caller that goes away ends it, unless the request has an `Idempotency-Key`: with one it is begun once, and a
/// repeated request waits for it and gets the same, also after the server was restarted.
#[utoipa::path(post, path = "/api/v1/sandboxes/{id}/dependencies", tag = "kernels",
    params(("id" = uuid::Uuid, Path)), request_body = DependenciesBody,
    responses((status = 200, body = InstalledItem), (status = 404), (status = 409, description = "Not running"),
        (status = 422, description = "A field is wrong")))]
pub(crate) async fn install(
    State(app): State<App>,
    Who(caller): Who,
    Path(id): Path<String>,
    headers: HeaderMap,
    Raw(body): Raw,
) -> Result<Response, Failure> {
    let sandbox = sandbox_id(&id)?;
    let DependenciesBody { language: name, packages, timeout } = json(&body)?;
    let language = language(name.as_deref())?;
    let repeat = Repeat::of(&headers, &format!("dependencies {sandbox}"), &body)?;
    let id = repeat.as_ref().map(|r| Execs::repeatable_id(&caller, sandbox, &r.key, &r.request));
    let wanted = Dependencies { language, packages, timeout_seconds: timeout, usual_seconds: None, id };
    let (core, asker) = (app.core.clone(), caller.clone());
    let work = async move {
        let Installed { success, exit_code: _, timed_out: _, stdout, stderr, redactor } =
            core.kernels.install(&asker, sandbox, &wanted).await?;
        Ok((StatusCode::OK, Redacted { answer: InstalledItem { success, stdout, stderr }, redactor }))
    };
    once(&app.core, &caller, repeat, Busy::Join, work).await
}
