//! Kernels and cells on the wire.

use crate::exec::ChangedFile;
use atoll_core::{CellError, CellOutcome, CellReport, CheckpointInfo, Display, KernelInfo, KernelStatus};
use atoll_http::Redacted;
use atoll_types::{CellId, files::Changed, time::rfc3339};
use serde::Serialize;
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// A live interpreter.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct KernelItem {
    /// 32 hexadecimal digits.
    kernel_id: String,
    /// python, node, r or bash.
    language: &'static str,
    /// Whether it is the one that `run` uses.
    default: bool,
    /// starting, idle, busy or dead.
    status: &'static str,
    /// What it is, such as `Python 3.11.2, IPython 8.5.0`.
    interpreter: String,
    /// Its process id inside.
    pid: Option<u32>,
    /// The cells that it has run since its interpreter began.
    execution_count: u64,
    /// How many times its interpreter was started anew.
    restarts: u32,
    /// The cell that runs.
    cell_id: Option<String>,
    /// How many cells wait.
    queued: u32,
    /// How its last interpreter ended, when it is dead.
    death: Option<String>,
    /// What can be returned to, the oldest first.
    checkpoints: Vec<CheckpointItem>,
    /// The kernel that it was forked from.
    parent_id: Option<String>,
    started_at: String,
    last_activity_at: String,
}

/// A kernel as it was.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CheckpointItem {
    /// 32 hexadecimal digits.
    checkpoint_id: String,
    name: String,
    created_at: String,
    /// The cells that had been run then.
    execution_count: u64,
    /// The threads that it is without: only the one that runs cells is in it.
    threads_lost: u32,
}

/// A time that the sandbox reported.
fn at(unix_ms: u64) -> String {
    rfc3339(i64::try_from(unix_ms).unwrap_or(0))
}

impl From<CheckpointInfo> for CheckpointItem {
    fn from(info: CheckpointInfo) -> Self {
        let CheckpointInfo { checkpoint, name, made_unix_ms, execution_count, threads_lost } = info;
        let (checkpoint_id, created_at) = (checkpoint.to_string(), at(made_unix_ms));
        Self { checkpoint_id, name, created_at, execution_count, threads_lost }
    }
}

impl From<KernelInfo> for KernelItem {
    fn from(info: KernelInfo) -> Self {
        let KernelInfo {
            kernel,
            language,
            default,
            status,
            interpreter,
            pid,
            execution_count,
            restarts,
            running,
            queued,
            death,
            checkpoints,
            parent,
            started_unix_ms,
            active_unix_ms,
        } = info;
        Self {
            kernel_id: kernel.to_string(),
            language: language.name(),
            default,
            status: match status {
                KernelStatus::Starting => "starting",
                KernelStatus::Idle => "idle",
                KernelStatus::Busy => "busy",
                KernelStatus::Dead => "dead",
            },
            interpreter,
            pid,
            execution_count,
            restarts,
            cell_id: running.map(|cell| cell.to_string()),
            queued,
            death: death.map(|death| death.reason()),
            checkpoints: checkpoints.into_iter().map(CheckpointItem::from).collect(),
            parent_id: parent.map(|kernel| kernel.to_string()),
            started_at: at(started_unix_ms),
            last_activity_at: at(active_unix_ms),
        }
    }
}

/// A display output: an image, a chart, audio, a table.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct DisplayItem {
    /// Its MIME type.
    r#type: String,
    /// Text, or base64 where the type is not text, SVG or JSON.
    data: String,
}

/// What went wrong in a cell.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CellErrorItem {
    /// The language's own name of it; or TIMEOUT, INTERRUPTED, KERNEL_DIED.
    r#type: String,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    traceback: Option<String>,
}

/// How a cell went.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CellResult {
    success: bool,
    stdout: String,
    stderr: String,
    /// The value of its last expression, by MIME type.
    result: Option<BTreeMap<String, String>>,
    error: Option<CellErrorItem>,
    /// What it showed, in the order in which it did.
    display_outputs: Vec<DisplayItem>,
    kernel_id: String,
    cell_id: String,
    /// Which cell of its interpreter it was.
    execution_count: u64,
    duration_ms: u64,
    timed_out: bool,
    interrupted: bool,
    /// Variables of before are lost: the interpreter died or would not be interrupted, or had died.
    state_lost: bool,
    /// Whether a fresh interpreter took its place.
    restarted: bool,
    /// Whether some output is missing; a notice stands where.
    truncated: bool,
    /// Files of /workspace that changed since what ran before.
    files_changed: Vec<ChangedFile>,
    /// Whether there may be more of them.
    files_changed_truncated: bool,
}

impl From<Display> for DisplayItem {
    fn from(display: Display) -> Self {
        let Display { mime, data } = display;
        Self { r#type: mime, data }
    }
}

impl CellResult {
    /// As its caller gets it, and as it may be kept.
    pub(crate) fn redacted(outcome: CellOutcome) -> Redacted<Self> {
        let CellOutcome { cell, report, changed, redactor } = outcome;
        Redacted { answer: Self::new(cell, report, changed), redactor }
    }

    pub(crate) fn new(cell: CellId, report: CellReport, changed: Option<Changed>) -> Self {
        let CellReport {
            kernel,
            success,
            stdout,
            stderr,
            result,
            error,
            display_outputs,
            execution_count,
            duration_us,
            timed_out,
            interrupted,
            state_lost,
            restarted,
            death: _,
            truncated,
        } = report;
        let changed = changed.unwrap_or(Changed { files: Vec::new(), truncated: true });
        let error = error.map(|CellError { kind, message, traceback }| CellErrorItem {
            r#type: kind.into(),
            message,
            traceback,
        });
        Self {
            success,
            stdout,
            stderr,
            result,
            error,
            display_outputs: display_outputs.into_iter().map(DisplayItem::from).collect(),
            kernel_id: kernel.to_string(),
            cell_id: cell.to_string(),
            execution_count,
            duration_ms: duration_us / 1000,
            timed_out,
            interrupted,
            state_lost,
            restarted,
            truncated,
            files_changed: changed.files.into_iter().map(ChangedFile::from).collect(),
            files_changed_truncated: changed.truncated,
        }
    }
}
