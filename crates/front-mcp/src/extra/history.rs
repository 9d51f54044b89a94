//! A file's story: what changed it, the latest first, from the audit trail.

use super::{Extra, ExtraTool, json_of, nothing, schema};
use crate::tools::tool;
use atoll_core::FileHistoryEntry;
use atoll_tool_sessions::{
    Hints, ToolCaller, ToolReply,
    tools::check::{Checked, InputProblem, parse},
};
use atoll_types::files::FileAction;
use rmcp::model::Tool;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What file_history wants.
#[derive(Debug, Deserialize, JsonSchema)]
struct FileHistory {
    /// The session, as create_session returned it.
    session_id: String,
    /// A file of /workspace, which may be gone; absolute, or relative to /workspace.
    path: String,
    /// `next_before` of the answer before, to read on.
    before: Option<u64>,
}

/// A change of a file.
#[derive(Debug, Serialize, JsonSchema)]
struct HistoryEntry {
    /// When what made it had ended, in milliseconds since 1970.
    at: i64,
    /// created, modified, deleted, or unknown where more files were changed than are recorded.
    action: &'static str,
    /// Its size afterwards, where that is known.
    size_bytes: Option<u64>,
    /// What made it, such as exec, kernel.execute or file.write; null where that is another owner's.
    made_by: Option<String>,
    /// The command, the code or the path: its first 4 KiB.
    detail: Option<String>,
}

impl From<FileHistoryEntry> for HistoryEntry {
    fn from(entry: FileHistoryEntry) -> Self {
        let FileHistoryEntry { at, action, size, operation } = entry;
        let (made_by, detail) = operation.map(|of| (of.begin.kind, of.begin.detail.text)).unzip();
        Self { at, action: action.map_or("unknown", FileAction::as_str), size_bytes: size, made_by, detail }
    }
}

/// What changed a file.
#[derive(Debug, Serialize, JsonSchema)]
struct HistoryReply {
    success: bool,
    /// Relative to /workspace.
    path: String,
    /// The latest first, 20 at most.
    entries: Vec<HistoryEntry>,
    /// Where to read on; null at the end.
    next_before: Option<u64>,
}

/// The most changes in one answer.
const MOST_ENTRIES: u32 = 20;

impl Checked for FileHistory {
    fn wrongs(&self) -> Vec<InputProblem> {
        nothing(&self.path, "path").into_iter().collect()
    }
}

pub(super) fn tool_of(plain: Hints) -> Tool {
    let about = "Tells which commands and code of a session created, modified or deleted a file of /workspace, the latest first.";
    tool(
        ExtraTool::FileHistory.as_str(),
        "What changed a file",
        about,
        schema::<FileHistory>(),
        schema::<HistoryReply>(),
        Hints { read_only: true, idempotent: true, ..plain },
    )
}

impl Extra {
    pub(super) async fn file_history(
        &self,
        who: &ToolCaller,
        arguments: Value,
    ) -> Result<ToolReply, Vec<InputProblem>> {
        let FileHistory { session_id, path, before } = parse(arguments)?;
        let work = |sandbox| async move {
            let found = self.core.files.history(&who.caller, sandbox, &path, before, MOST_ENTRIES).await?;
            let entries = found.entries.into_iter().map(HistoryEntry::from).collect();
            json_of(&HistoryReply {
                success: true,
                path: found.path,
                entries,
                next_before: found.next_before,
            })
        };
        Ok(self.sessions.beyond(who, &session_id, work).await)
    }
}
