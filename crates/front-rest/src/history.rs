//! A file's story, from the audit trail.

use crate::{
    App,
    parse::{Params, sandbox_id},
};
use atoll_core::{FileHistory, FileHistoryEntry};
use atoll_http::{Failure, Who};
use atoll_types::{
    audit::{Begin, Detail, OperationRow},
    files::FileAction,
    time::rfc3339,
};
use axum::{
    Json,
    extract::{Path, State},
};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct HistoryParams {
    /// A file of /workspace, which may be gone; absolute, or relative to /workspace.
    path: String,
    /// `next_before` of the page before.
    before: Option<u64>,
    /// 50, unless said otherwise.
    limit: Option<u32>,
}

/// Some changes of a file, the latest first.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct FileHistoryPage {
    /// Relative to /workspace.
    path: String,
    entries: Vec<FileHistoryItem>,
    /// Where the next page begins: its `before`. None after the last page.
    next_before: Option<u64>,
    /// Some operation of this page changed more files than its row names, and this one may be among them: its
    /// `action` is unknown.
    truncated: bool,
}

/// A change of a file, and the operation that made it. Of an operation that the caller may not see, as an
/// admin's, only the change is told.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct FileHistoryItem {
    /// When the operation had ended.
    at: String,
    /// created, modified, deleted or unknown.
    action: &'static str,
    /// Of the file afterwards, where that is known.
    size: Option<u64>,
    operation_id: Option<Uuid>,
    /// Such as exec, kernel.execute or file.write.
    kind: Option<String>,
    /// The command that made it.
    exec_id: Option<String>,
    /// The cell that made it.
    cell_id: Option<String>,
    /// The command, the code or the path: its first 4 KiB.
    detail: Option<String>,
    exit_code: Option<i32>,
    key_id: Option<Uuid>,
    owner: Option<String>,
}

impl From<FileHistoryEntry> for FileHistoryItem {
    fn from(entry: FileHistoryEntry) -> Self {
        let FileHistoryEntry { at, action, size, operation } = entry;
        let mut item = Self {
            at: rfc3339(at),
            action: action.map_or("unknown", FileAction::as_str),
            size,
            operation_id: None,
            kind: None,
            exec_id: None,
            cell_id: None,
            detail: None,
            exit_code: None,
            key_id: None,
            owner: None,
        };
        if let Some(OperationRow { seq: _, id, at: _, begin, end }) = operation {
            let Begin { key, owner, kind, detail: Detail { text, length: _ }, mut extra, .. } = begin;
            item.operation_id = Some(id.uuid());
            item.kind = Some(kind);
            (item.exec_id, item.cell_id) = (extra.remove("exec_id"), extra.remove("cell_id"));
            item.detail = Some(text);
            item.exit_code = end.and_then(|end| end.facts.exit_code);
            (item.key_id, item.owner) = (key.map(|key| key.uuid()), Some(owner));
        }
        item
    }
}

/// Which operations changed a file: commands, cells and requests, the latest first.
#[utoipa::path(get, path = "/api/v1/sandboxes/{id}/fs/history", tag = "files",
    params(("id" = Uuid, Path), HistoryParams),
    responses((status = 200, body = FileHistoryPage),
        (status = 400, description = "The path is not that of a file in /workspace"), (status = 404),
        (status = 422, description = "A parameter is wrong")))]
pub(crate) async fn history(
    State(app): State<App>,
    Who(caller): Who,
    Path(id): Path<String>,
    Params(params): Params<HistoryParams>,
) -> Result<Json<FileHistoryPage>, Failure> {
    let HistoryParams { path, before, limit } = params;
    let found = app.core.files.history(&caller, sandbox_id(&id)?, &path, before, limit.unwrap_or(50)).await;
    let FileHistory { path, entries, next_before } = found.map_err(Failure::in_query)?;
    let truncated = entries.iter().any(|entry| entry.action.is_none());
    let entries = entries.into_iter().map(FileHistoryItem::from).collect();
    Ok(Json(FileHistoryPage { path, entries, next_before, truncated }))
}
