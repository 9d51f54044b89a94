//! A command on the wire.

use atoll_types::{ExecReport, StartFailure, TerminalSize, time::rfc3339};
use serde::Serialize;
use utoipa::ToSchema;

/// A command, running or ended.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ExecItem {
    /// 32 hexadecimal digits.
    exec_id: String,
    /// running or ended.
    status: &'static str,
    /// As a person would type it: at most 1000 characters, in a list 200.
    command: String,
    /// Its process id inside; 0 when it never ran.
    pid: u32,
    /// When it has ended: the command's own; 124 after a timeout, 127 or 126 when it could not start, 128
    /// and the signal.
    exit_code: Option<i32>,
    signal: Option<i32>,
    timed_out: bool,
    /// Ended by kill, or because its caller went away.
    killed: bool,
    /// The memory limit ended it.
    oom_killed: bool,
    /// Why its program could not be started.
    failure: Option<FailureItem>,
    started_at: String,
    duration_ms: u64,
    /// Processor time of everything that it started, as far as it has ended or still runs.
    cpu_user_ms: u64,
    cpu_system_ms: u64,
    /// The most memory that one of its processes had.
    peak_memory_bytes: u64,
    /// How much it printed, over both outputs; the offset of the next byte.
    output_bytes: u64,
    /// The first byte that is still there: older ones made room for newer.
    first_offset: u64,
    /// What it printed beyond what is kept.
    dropped_bytes: u64,
    /// Whether something that it started still runs.
    descendants_alive: bool,
    /// Where its streams are a terminal.
    terminal: Option<TerminalItem>,
}

/// Why a program could not be started.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct FailureItem {
    stage: &'static str,
    errno: i32,
    message: String,
}

/// The size of a terminal.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TerminalItem {
    rows: u16,
    columns: u16,
}

fn millis(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl From<ExecReport> for ExecItem {
    fn from(report: ExecReport) -> Self {
        let exit_code = report.ended.then(|| report.shell_code().get());
        let ExecReport {
            id,
            ended,
            exit_code: _,
            signal,
            timed_out,
            killed,
            oom_killed,
            oom_kills: _,
            failure,
            output_bytes,
            dropped_bytes,
            started_unix_ms,
            duration,
            cpu_user,
            cpu_system,
            max_rss_bytes,
            pid,
            command,
            descendants_alive,
            terminal,
            first_offset,
            tool: _,
        } = report;
        Self {
            exec_id: id.to_string(),
            status: if ended { "ended" } else { "running" },
            command,
            pid,
            exit_code,
            signal,
            timed_out,
            killed,
            oom_killed,
            failure: failure.map(|StartFailure { stage, errno, message }| FailureItem {
                stage: stage.as_str(),
                errno,
                message,
            }),
            started_at: rfc3339(i64::try_from(started_unix_ms).unwrap_or(0)),
            duration_ms: millis(duration),
            cpu_user_ms: millis(cpu_user),
            cpu_system_ms: millis(cpu_system),
            peak_memory_bytes: max_rss_bytes,
            output_bytes,
            first_offset,
            dropped_bytes,
            descendants_alive,
            terminal: terminal.map(|TerminalSize { rows, columns }| TerminalItem { rows, columns }),
        }
    }
}
