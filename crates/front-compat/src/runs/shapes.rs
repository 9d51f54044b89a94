//! Sandboxes and runs on the wire.

use crate::{
    at,
    ids::{run_text, sandbox_text},
};
use atoll_core::{AGENT_LABEL, CellError, CellReport};
use atoll_types::{
    CellId, ErrorCode, SandboxRecord, Status,
    audit::{End, Outcome, Problem},
};
use serde::Serialize;

/// A sandbox.
#[derive(Debug, Serialize)]
pub(super) struct SandboxItem {
    sandbox_id: String,
    status: &'static str,
    mode: &'static str,
    created_at: String,
    /// None of a sandbox that another API made without a lifetime.
    expires_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    agent_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status_reason: Option<String>,
}

fn status(status: Status, runs: bool) -> &'static str {
    match status {
        Status::Provisioning => "provisioning",
        Status::Ready if runs => "running",
        // A run resumes a paused one.
        Status::Ready | Status::Paused => "ready",
        Status::Stopped | Status::Dead => "error",
        Status::Destroyed => "destroyed",
    }
}

impl SandboxItem {
    /// As it is now.
    pub(super) fn new(mut record: SandboxRecord, runs: bool) -> Self {
        let agent_id = record.labels.remove(AGENT_LABEL);
        let status_reason = record.status_reason.take();
        Self { agent_id, status_reason, status: status(record.status, runs), ..Self::created(&record) }
    }

    /// As the answer to its creation has it.
    pub(super) fn created(record: &SandboxRecord) -> Self {
        let life = record.max_lifetime_seconds.map(|seconds| i64::from(seconds) * 1000);
        Self {
            sandbox_id: sandbox_text(record.id),
            status: status(record.status, false),
            mode: "container",
            created_at: at(record.created_at),
            expires_at: life.map(|life| at(record.created_at.saturating_add(life))),
            agent_id: None,
            status_reason: None,
        }
    }
}

/// A run that has not ended.
#[derive(Debug, Serialize)]
pub(super) struct StartedRun {
    run_id: String,
    status: &'static str,
}

impl StartedRun {
    pub(super) fn new(cell: CellId) -> Self {
        Self { run_id: run_text(cell), status: "running" }
    }
}

/// A run that has ended.
#[derive(Debug, Serialize)]
pub(crate) struct RunItem {
    run_id: String,
    /// completed, failed or timed_out.
    status: &'static str,
    exit_code: i32,
    stdout: String,
    stderr: String,
    /// The value of the last expression, or of the variable `result`, as Python writes it.
    result: Option<String>,
    error: Option<RunError>,
    duration_ms: u64,
}

/// What went wrong in a run.
#[derive(Debug, Serialize)]
struct RunError {
    r#type: String,
    message: String,
    traceback: Option<String>,
}

/// The exit code of a process that went the same way.
fn exit_code(report: &CellReport) -> i32 {
    match &report.death {
        _ if report.success => 0,
        _ if report.timed_out => 124,
        _ if report.interrupted => 130,
        Some(death) => death.signal.map_or(death.exit_status.unwrap_or(1), |signal| 128 + signal),
        None => 1,
    }
}

impl RunItem {
    pub(crate) fn new(run_id: String, report: CellReport) -> Self {
        let exit_code = exit_code(&report);
        let status = match report {
            CellReport { success: true, .. } => "completed",
            CellReport { timed_out: true, .. } => "timed_out",
            _ => "failed",
        };
        let error =
            |CellError { kind, message, traceback }| RunError { r#type: kind.into(), message, traceback };
        Self {
            run_id,
            status,
            exit_code,
            stdout: report.stdout,
            stderr: report.stderr,
            result: report.result.and_then(|mut forms| forms.remove("text/plain")),
            error: report.error.map(error),
            duration_ms: report.duration_us / 1000,
        }
    }

    /// As the audit trail keeps it: without its result, and with as much of its output as that has.
    pub(super) fn kept(run_id: String, end: End, stdout: String, stderr: String) -> Self {
        let completed = end.outcome == Outcome::Ok;
        let timed_out = end.error.as_ref().is_some_and(|problem| problem.code == ErrorCode::Timeout.as_str());
        let error = |Problem { code, message }| RunError { r#type: code, message, traceback: None };
        Self {
            run_id,
            status: match completed {
                true => "completed",
                false if timed_out => "timed_out",
                false => "failed",
            },
            exit_code: end.exit_code.unwrap_or(i32::from(!completed)),
            stdout,
            stderr,
            result: None,
            error: end.error.map(error),
            duration_ms: end.duration_us / 1000,
        }
    }
}
