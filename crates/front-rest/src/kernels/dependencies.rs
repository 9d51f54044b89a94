//! Packages, installed while the sandbox runs.

use super::{JsonResult, language};
use crate::{
    App,
    parse::{Raw, json, sandbox_id},
};
use atoll_core::{Dependencies, Installed};
use atoll_http::Who;
use axum::{
    Json,
    extract::{Path, State},
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
#[utoipa::path(post, path = "/api/v1/sandboxes/{id}/dependencies", tag = "kernels",
    params(("id" = uuid::Uuid, Path)), request_body = DependenciesBody,
    responses((status = 200, body = InstalledItem), (status = 404), (status = 409, description = "Not running"),
        (status = 422, description = "A field is wrong")))]
pub(crate) async fn install(
    State(app): State<App>,
    Who(caller): Who,
    Path(id): Path<String>,
    Raw(body): Raw,
) -> JsonResult<InstalledItem> {
    let sandbox = sandbox_id(&id)?;
    let DependenciesBody { language: name, packages, timeout } = json(&body)?;
    let wanted = Dependencies { language: language(name.as_deref())?, packages, timeout_seconds: timeout };
    let Installed { success, stdout, stderr } = app.core.kernels.install(&caller, sandbox, &wanted).await?;
    Ok(Json(InstalledItem { success, stdout, stderr }))
}
