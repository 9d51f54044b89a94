//! How code could go on, for a person who types it.

use super::{Ids, JsonResult, kernel_id};
use crate::{
    App,
    parse::{Raw, json, sandbox_id},
};
use atoll_core::{CodeStatus, Completion};
use atoll_http::Who;
use axum::{
    Json,
    extract::{Path, State},
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Code that is being typed.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct CompleteBody {
    code: String,
    /// Where the cursor is, in characters; at the end where nothing is said, or more than there are.
    cursor: Option<usize>,
}

/// How the code could go on.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CompletionItem {
    /// What could stand between `cursor_start` and `cursor_end`, in order.
    matches: Vec<String>,
    /// In characters.
    cursor_start: usize,
    cursor_end: usize,
    /// Of the code before the cursor: complete, incomplete (more lines have to follow), invalid, or unknown.
    status: &'static str,
}

fn status(status: CodeStatus) -> &'static str {
    match status {
        CodeStatus::Complete => "complete",
        CodeStatus::Incomplete => "incomplete",
        CodeStatus::Invalid => "invalid",
        CodeStatus::Unknown => "unknown",
    }
}

/// Says how code could go on at the cursor, and whether it is whole so far. The kernel must not be running a
/// cell. Looking at an object's attributes may run code of its class.
#[utoipa::path(post, path = "/api/v1/sandboxes/{id}/kernels/{kid}/complete", tag = "kernels",
    params(("id" = uuid::Uuid, Path), ("kid" = String, Path)), request_body = CompleteBody,
    responses((status = 200, body = CompletionItem), (status = 404),
        (status = 409, description = "Not running, or the kernel runs a cell"),
        (status = 422, description = "A field is wrong")))]
pub(crate) async fn complete(
    State(app): State<App>,
    Who(caller): Who,
    Path((id, kid)): Ids,
    Raw(body): Raw,
) -> JsonResult<CompletionItem> {
    let (sandbox, kernel) = (sandbox_id(&id)?, kernel_id(&kid)?);
    let CompleteBody { code, cursor } = json(&body)?;
    let length = code.chars().count();
    let cursor = cursor.unwrap_or(length).min(length);
    let before: String = code.chars().take(cursor).collect();
    let found = app.core.kernels.complete(&caller, sandbox, kernel, before).await?;
    let Completion { prefix, matches, status: whole } = found;
    let start = cursor.saturating_sub(prefix.chars().count());
    Ok(Json(CompletionItem { matches, cursor_start: start, cursor_end: cursor, status: status(whole) }))
}
