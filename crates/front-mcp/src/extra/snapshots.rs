//! Snapshots of a session's files: making, listing and labelling them, returning to one, comparing it with the files of now or
//! with another one, and deleting it.

use super::{Extra, ExtraTool, json_of, nothing, schema};
use crate::tools::tool;
use atoll_core::{NewSnapshot, RollbackOptions};
use atoll_tool_sessions::{
    Hints, ToolCaller, ToolReply,
    tools::check::{Checked, InputProblem, parse},
};
use atoll_types::{Error, ErrorCode, Result, SnapshotId, SnapshotQuery, SnapshotRecord, files::FileChange};
use rmcp::model::Tool;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What create_snapshot wants.
#[derive(Debug, Deserialize, JsonSchema)]
struct CreateSnapshot {
    /// The session, as create_session returned it.
    session_id: String,
    /// What to call it.
    label: Option<String>,
    /// Whether the variables of the session's Python code are kept too; false where left out.
    #[serde(default)]
    kernels: bool,
}

/// What list_snapshots wants.
#[derive(Debug, Deserialize, JsonSchema)]
struct ListSnapshots {
    /// The session, as create_session returned it.
    session_id: String,
    /// How many of the newest to leave out; `next_offset` of the answer before, to read on.
    #[serde(default)]
    offset: u64,
}

/// What roll_back wants.
#[derive(Debug, Deserialize, JsonSchema)]
struct RollBack {
    /// The session, as create_session returned it.
    session_id: String,
    /// The snapshot, as create_snapshot or list_snapshots returned it.
    snapshot_id: String,
    /// Whether the variables that were kept with the snapshot come back too; false where left out, and variables are lost.
    #[serde(default)]
    kernels: bool,
    /// Whether the files as they are now are kept in a snapshot first; true where left out.
    keep_before: Option<bool>,
}

/// A session's files as they were.
#[derive(Debug, Serialize, JsonSchema)]
struct SnapshotInfo {
    /// What roll_back wants.
    snapshot_id: String,
    label: Option<String>,
    /// manual, automatic or before_rollback.
    kind: String,
    /// When it was made, in milliseconds since 1970.
    created_at: i64,
    /// Whether it has variables too, and not files alone.
    kernels: bool,
}

impl From<SnapshotRecord> for SnapshotInfo {
    fn from(record: SnapshotRecord) -> Self {
        let SnapshotRecord { id, label, kind, created_at, kernels, .. } = record;
        let (snapshot_id, kernels) = (id.to_string(), kernels.is_some());
        Self { snapshot_id, label, kind: kind.as_str().to_owned(), created_at, kernels }
    }
}

/// A snapshot that was made.
#[derive(Debug, Serialize, JsonSchema)]
struct SnapshotReply {
    success: bool,
    snapshot: SnapshotInfo,
}

/// The snapshots of a session.
#[derive(Debug, Serialize, JsonSchema)]
struct SnapshotList {
    success: bool,
    /// The newest first, 50 at most.
    snapshots: Vec<SnapshotInfo>,
    /// How many there are.
    total: u64,
    /// Where to read on; null at the end.
    next_offset: Option<u64>,
}

/// A session that was rolled back.
#[derive(Debug, Serialize, JsonSchema)]
struct RollbackReply {
    success: bool,
    /// The snapshot of the files as they were before, if one was wanted.
    before: Option<SnapshotInfo>,
}

/// The most snapshots in one answer.
const MOST_SNAPSHOTS: u32 = 50;

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
    action: &'static str,
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

impl Checked for CreateSnapshot {
    fn wrongs(&self) -> Vec<InputProblem> {
        nothing(&self.session_id, "session_id").into_iter().collect()
    }
}

impl Checked for ListSnapshots {
    fn wrongs(&self) -> Vec<InputProblem> {
        nothing(&self.session_id, "session_id").into_iter().collect()
    }
}

impl Checked for RollBack {
    fn wrongs(&self) -> Vec<InputProblem> {
        nothing(&self.snapshot_id, "snapshot_id").into_iter().collect()
    }
}

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
fn snapshot_of(text: &str) -> Result<SnapshotId> {
    let missing = || Error::new(ErrorCode::NotFound, "there is no snapshot with this id in this session");
    text.parse().map_err(|_| missing())
}

/// Those that every session with snapshots needs.
pub(super) fn tools_to_keep(plain: Hints) -> Vec<Tool> {
    let looks = Hints { read_only: true, idempotent: true, ..plain };
    let ends = Hints { destructive: true, idempotent: true, ..plain };
    let keep = "Keeps the files of a session as they are, so that roll_back can return to them. Variables of Python code are \
                kept too with `kernels`, until the session's container ends.";
    let kept = "Lists the snapshots of a session, the newest first.";
    let back = "Makes the files of a session what they were at a snapshot. Commands and code that run end, and variables are \
                lost, unless they were kept with the snapshot and `kernels` is true. The files as they were before are kept in a snapshot, which the answer names, unless `keep_before` is false.";
    vec![
        tool(
            ExtraTool::CreateSnapshot.as_str(),
            "Keep the files as they are",
            keep,
            schema::<CreateSnapshot>(),
            schema::<SnapshotReply>(),
            plain,
        ),
        tool(
            ExtraTool::ListSnapshots.as_str(),
            "List kept files",
            kept,
            schema::<ListSnapshots>(),
            schema::<SnapshotList>(),
            looks,
        ),
        tool(
            ExtraTool::RollBack.as_str(),
            "Return to kept files",
            back,
            schema::<RollBack>(),
            schema::<RollbackReply>(),
            ends,
        ),
    ]
}

/// The others.
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
    pub(super) async fn create_snapshot(
        &self,
        who: &ToolCaller,
        arguments: Value,
    ) -> Result<ToolReply, Vec<InputProblem>> {
        let CreateSnapshot { session_id, label, kernels } = parse(arguments)?;
        let new = NewSnapshot { label, kernels };
        let work = |sandbox| async move {
            let made = self.core.snapshots.create(&who.caller, sandbox, new).await?;
            json_of(&SnapshotReply { success: true, snapshot: made.into() })
        };
        Ok(self.sessions.beyond(who, &session_id, work).await)
    }

    pub(super) async fn list_snapshots(
        &self,
        who: &ToolCaller,
        arguments: Value,
    ) -> Result<ToolReply, Vec<InputProblem>> {
        let ListSnapshots { session_id, offset } = parse(arguments)?;
        let work = |sandbox| async move {
            let query = SnapshotQuery { sandbox, offset, limit: MOST_SNAPSHOTS };
            let page = self.core.snapshots.list(&who.caller, query).await?;
            let snapshots: Vec<_> = page.items.into_iter().map(SnapshotInfo::from).collect();
            let next = offset.saturating_add(snapshots.len() as u64);
            let next_offset = (!snapshots.is_empty() && next < page.total).then_some(next);
            json_of(&SnapshotList { success: true, snapshots, total: page.total, next_offset })
        };
        Ok(self.sessions.beyond(who, &session_id, work).await)
    }

    pub(super) async fn roll_back(
        &self,
        who: &ToolCaller,
        arguments: Value,
    ) -> Result<ToolReply, Vec<InputProblem>> {
        let RollBack { session_id, snapshot_id, kernels, keep_before } = parse(arguments)?;
        let options = RollbackOptions { kernels, keep_before: keep_before.unwrap_or(true) };
        let work = |sandbox| async move {
            let to = snapshot_of(&snapshot_id)?;
            let rolled = self.core.sandboxes.roll_back(&who.caller, sandbox, to, options).await?;
            json_of(&RollbackReply { success: true, before: rolled.before.map(SnapshotInfo::from) })
        };
        Ok(self.sessions.beyond(who, &session_id, work).await)
    }

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
                action: file.action.as_str(),
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
