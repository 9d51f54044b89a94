//! What else is done with kept files: comparing them with those of now or of another snapshot, and deleting them.

use super::{Extra, ExtraTool, SnapshotReply, json_of, nothing, schema};
use crate::tools::tool;
use atoll_tool_sessions::{
    Hints, ToolCaller, ToolReply,
    tools::check::{Checked, InputProblem, parse},
};
use atoll_types::{
    Error, ErrorCode, Result, SnapshotId,
    files::{FileAction, FileChange},
};
use rmcp::model::Tool;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What delete_snapshot wants.
#[derive(Debug, Deserialize, JsonSchema)]
struct DeleteSnapshot {
    /// The session, as create_session returned it.
    session_id: String,
    /// The snapshot, as create_snapshot or list_snapshots returned it.
    snapshot_id: String,
}

/// What label_snapshot wants.
#[derive(Debug, Deserialize, JsonSchema)]
struct LabelSnapshot {
    /// The session, as create_session returned it.
    session_id: String,
    /// The snapshot, as create_snapshot or list_snapshots returned it.
    snapshot_id: String,
    /// What to call it from now on; nothing where left out.
    label: Option<String>,
}

/// What diff_snapshot wants.
#[derive(Debug, Deserialize, JsonSchema)]
struct DiffSnapshot {
    /// The session, as create_session returned it.
    session_id: String,
    /// The snapshot to compare from, as create_snapshot or list_snapshots returned it.
    snapshot_id: String,
    /// The snapshot to compare with; the files as they are now where left out.
    to_snapshot_id: Option<String>,
}

/// A snapshot that was deleted.
#[derive(Debug, Serialize, JsonSchema)]
struct SnapshotGone {
    success: bool,
}

/// A file that differs.
#[derive(Debug, Serialize, JsonSchema)]
struct DifferentFile {
    path: String,
    /// created, modified or deleted.
    action: String,
    /// Its size afterwards; 0 of one that was deleted.
    size_bytes: u64,
}

/// What differs.
#[derive(Debug, Serialize, JsonSchema)]
struct SnapshotDiff {
    success: bool,
    /// By path, 500 at most.
    files: Vec<DifferentFile>,
    /// Whether more files may differ.
    truncated: bool,
}

/// The most files in one answer.
const MOST_FILES: usize = 500;

impl Checked for DeleteSnapshot {
    fn wrongs(&self) -> Vec<InputProblem> {
        nothing(&self.snapshot_id, "snapshot_id").into_iter().collect()
    }
}

impl Checked for LabelSnapshot {
    fn wrongs(&self) -> Vec<InputProblem> {
        nothing(&self.snapshot_id, "snapshot_id").into_iter().collect()
    }
}

impl Checked for DiffSnapshot {
    fn wrongs(&self) -> Vec<InputProblem> {
        nothing(&self.snapshot_id, "snapshot_id").into_iter().collect()
    }
}

/// The id that a text is; an error as of one that there is not.
pub(super) fn snapshot_of(text: &str) -> Result<SnapshotId> {
    let missing = || Error::new(ErrorCode::NotFound, "there is no snapshot with this id in this session");
    text.parse().map_err(|_| missing())
}

fn name_of(action: FileAction) -> &'static str {
    match action {
        FileAction::Created => "created",
        FileAction::Modified => "modified",
        FileAction::Deleted => "deleted",
    }
}

pub(super) fn tools(plain: Hints) -> Vec<Tool> {
    let looks = Hints { read_only: true, idempotent: true, ..plain };
    let ends = Hints { destructive: true, ..plain };
    let diff = "Lists the files of a session that were created, modified or deleted since a snapshot, or between two of them.";
    let label = "Gives a snapshot of a session another label, or none. One with a label is only deleted by delete_snapshot.";
    let delete = "Deletes a snapshot of a session. The session's files stay as they are.";
    vec![
        tool(
            ExtraTool::DiffSnapshot.as_str(),
            "Compare with kept files",
            diff,
            schema::<DiffSnapshot>(),
            schema::<SnapshotDiff>(),
            looks,
        ),
        tool(
            ExtraTool::DeleteSnapshot.as_str(),
            "Delete kept files",
            delete,
            schema::<DeleteSnapshot>(),
            schema::<SnapshotGone>(),
            ends,
        ),
        tool(
            ExtraTool::LabelSnapshot.as_str(),
            "Label kept files",
            label,
            schema::<LabelSnapshot>(),
            schema::<SnapshotReply>(),
            Hints { idempotent: true, ..plain },
        ),
    ]
}

impl Extra {
    pub(super) async fn diff_snapshot(
        &self,
        who: &ToolCaller,
        arguments: Value,
    ) -> Result<ToolReply, Vec<InputProblem>> {
        let DiffSnapshot { session_id, snapshot_id, to_snapshot_id } = parse(arguments)?;
        let work = |sandbox| async move {
            let from = snapshot_of(&snapshot_id)?;
            let to = to_snapshot_id.as_deref().map(snapshot_of).transpose()?;
            let changed = self.core.snapshots.diff(&who.caller, sandbox, from, to).await?;
            let truncated = changed.truncated || changed.files.len() > MOST_FILES;
            let file = |file: FileChange| DifferentFile {
                path: file.path,
                action: name_of(file.action).to_owned(),
                size_bytes: file.size_bytes,
            };
            let files = changed.files.into_iter().take(MOST_FILES).map(file).collect();
            json_of(&SnapshotDiff { success: true, files, truncated })
        };
        Ok(self.sessions.beyond(who, &session_id, work).await)
    }

    pub(super) async fn label_snapshot(
        &self,
        who: &ToolCaller,
        arguments: Value,
    ) -> Result<ToolReply, Vec<InputProblem>> {
        let LabelSnapshot { session_id, snapshot_id, label } = parse(arguments)?;
        let work = |sandbox| async move {
            let id = snapshot_of(&snapshot_id)?;
            let labelled = self.core.snapshots.label(&who.caller, sandbox, id, label).await?;
            json_of(&SnapshotReply { success: true, snapshot: labelled.into() })
        };
        Ok(self.sessions.beyond(who, &session_id, work).await)
    }

    pub(super) async fn delete_snapshot(
        &self,
        who: &ToolCaller,
        arguments: Value,
    ) -> Result<ToolReply, Vec<InputProblem>> {
        let DeleteSnapshot { session_id, snapshot_id } = parse(arguments)?;
        let work = |sandbox| async move {
            self.core.snapshots.delete(&who.caller, sandbox, snapshot_of(&snapshot_id)?).await?;
            json_of(&SnapshotGone { success: true })
        };
        Ok(self.sessions.beyond(who, &session_id, work).await)
    }
}
