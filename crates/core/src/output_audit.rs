//! What the audit trail keeps of a command or a cell: what it prints, and in the end how it went. One task
//! owns it (see [`crate::execution`]); dropped without an end, as when the server ends, its operation stays
//! open for the next server.

use crate::{egress::Entered, events::new_event, execution::Ended, operation::outcome_of};
use atoll_audit::{Capture, Ledger, Redactor};
use atoll_kernels::CellReport;
use atoll_provider::{Changed, ExecReport, FileAction, OutputStream};
use atoll_store::{
    Activity, End, FileChanged, NewEvent, OperationId, Outcome, Problem, SandboxId, SandboxRecord,
};
use atoll_types::{CellId, Error, ErrorCode, EventKind};

/// The audit of one command or cell that runs.
pub(crate) struct OutputAudit {
    ledger: Ledger,
    operation: OperationId,
    redactor: Redactor,
    /// Whose sandbox, and which.
    about: Option<(String, SandboxId)>,
    stdout: Capture,
    stderr: Capture,
    /// The first byte that was not seen yet.
    next: u64,
    /// Nothing of what is printed may be kept: it may hold secrets that no server knows any more.
    mute: bool,
    /// Egress of the command is audited under this operation.
    exec: Option<Entered>,
}

impl OutputAudit {
    /// The audit of an operation that was begun, perhaps by a server that died.
    pub(crate) fn new(
        ledger: Ledger,
        operation: OperationId,
        redactor: Redactor,
        record: Option<&SandboxRecord>,
    ) -> Self {
        let (stdout, stderr) = (Capture::new(&redactor), Capture::new(&redactor));
        let about = record.map(|record| (record.owner.clone(), record.id));
        Self { ledger, operation, redactor, about, stdout, stderr, next: 0, mute: false, exec: None }
    }

    /// Egress of the command is audited under this operation from now on.
    pub(crate) fn with(mut self, exec: Option<Entered>) -> Self {
        self.exec = exec;
        self
    }

    /// Keeps nothing of what is printed but how much it was.
    pub(crate) fn mute(mut self) -> Self {
        self.mute = true;
        self
    }

    /// The offset of the first byte that it has not seen.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// An error without secret values.
    pub(crate) fn redacted(&self, error: Error) -> Error {
        Error { message: self.redactor.text(&error.message), ..error }
    }

    /// The same without the event of its end.
    pub(crate) fn without_event(self) -> Self {
        Self { about: None, ..self }
    }

    /// Takes secret values out of a copy that is kept.
    pub(crate) fn redactor(&self) -> Redactor {
        self.redactor.clone()
    }

    /// Takes what was printed.
    pub(crate) fn take(&mut self, stream: OutputStream, offset: u64, data: &[u8]) {
        let to = match stream {
            OutputStream::Stdout => &mut self.stdout,
            OutputStream::Stderr => &mut self.stderr,
        };
        if offset > self.next {
            to.skip(offset - self.next);
        }
        if self.mute {
            to.skip(data.len() as u64);
        } else {
            to.take(data);
        }
        self.next = offset + data.len() as u64;
    }

    /// Writes the end, and in the same transaction what is noted beside it. Where that fails nothing is
    /// undone: the ledger writes it later.
    pub(crate) async fn end(
        mut self,
        ended: &Ended<'_>,
        cancelled: bool,
        changed: Option<&Changed>,
        activity: Option<Activity>,
    ) {
        let mut end = match ended {
            Ended::Command(report) => {
                let printed = report.output_bytes.saturating_add(report.dropped_bytes);
                let missing = printed.saturating_sub(self.next);
                if missing > 0 {
                    self.stdout.skip(missing);
                }
                exec_end(report)
            }
            Ended::Cell(_, report) => {
                self.stdout.take(report.stdout.as_bytes());
                self.stderr.take(report.stderr.as_bytes());
                cell_end(report)
            }
            Ended::LostCommand { error, .. } => End::new(Outcome::Lost, 0).because(Problem::from(*error)),
            Ended::LostCell(error) => End::new(outcome_of(error), 0).because(Problem::from(*error)),
        };
        if cancelled {
            let message = "its caller went away before it ended".to_owned();
            end.outcome = Outcome::Failed;
            end = end.because(Problem { code: "cancelled".into(), message });
        }
        end.error = end
            .error
            .map(|Problem { code, message }| Problem { code, message: self.redactor.text(&message) });
        if let Some(changed) = changed {
            enter_files(&mut end, changed, &self.redactor);
        }
        let Self { ledger, operation, redactor, about, stdout, stderr, exec, .. } = self;
        if !matches!(ended, Ended::LostCell(_)) {
            (end.stdout, end.stderr) = (Some(stdout.finish()), Some(stderr.finish()));
        }
        let activity = activity.map(|a| Activity { detail: redactor.text(&a.detail), ..a });
        let event = about.and_then(|(owner, sandbox)| match ended {
            Ended::Command(report) => Some(ended_event(owner, sandbox, Ok(report), cancelled)),
            Ended::LostCommand { error, .. } => Some(ended_event(owner, sandbox, Err(error), cancelled)),
            Ended::Cell(cell, report) => Some(cell_event(owner, sandbox, *cell, report, &redactor)),
            Ended::LostCell(error) if error.code == ErrorCode::RolledBack => Some(new_event(
                &owner,
                Some(sandbox),
                EventKind::CellEnded,
                Some(error.code.as_str().to_owned()),
                &serde_json::json!({}),
            )),
            Ended::LostCell(_) => None,
        });
        let written = ledger.end(operation, end, activity.into_iter().collect(), event.into_iter().collect());
        drop(exec);
        if let Err(error) = written.await {
            tracing::error!(%error, "the end of a command or a cell waits to be written");
        }
    }
}

/// Says in an end which files were changed. A path that held a secret names its file no more.
pub(crate) fn enter_files(end: &mut End, changed: &Changed, redactor: &Redactor) {
    let file = |f: &atoll_provider::FileChange| FileChanged {
        path: redactor.text(&f.path),
        action: f.action,
        size: (f.action != FileAction::Deleted).then_some(f.size_bytes),
    };
    end.files = changed.files.iter().take(atoll_store::FILES_KEPT).map(file).collect();
    end.files_count = changed.files.len() as u64;
    let named = end.files.iter().zip(&changed.files).all(|(kept, file)| kept.path == file.path);
    end.files_truncated = changed.truncated || !named;
}

/// The exit code of what took longer than it may, as `timeout` of coreutils has it.
const TIMED_OUT: i32 = 124;

/// How a cell went. An error of its own code is an outcome, as a command's exit code is.
fn cell_end(report: &CellReport) -> End {
    let mut end = End::new(if report.success { Outcome::Ok } else { Outcome::Failed }, report.duration_us);
    let problem = |code: ErrorCode, message: String| Problem { code: code.as_str().into(), message };
    end.exit_code = Some(if report.timed_out { TIMED_OUT } else { i32::from(!report.success) });
    match &report.death {
        _ if report.timed_out => end.because(problem(ErrorCode::Timeout, "its time was up".into())),
        Some(death) => end.because(problem(ErrorCode::KernelDied, death.reason())),
        None => end,
    }
}

/// The event of a cell's end.
fn cell_event(
    owner: String,
    sandbox: SandboxId,
    cell: CellId,
    report: &CellReport,
    redactor: &Redactor,
) -> NewEvent {
    let short = |text: &str| redactor.text(&text.chars().take(200).collect::<String>());
    let reason = match (&report.death, &report.error) {
        (Some(death), _) => format!("its kernel died: {}", death.reason()),
        (None, _) if report.timed_out => "its time was up".to_owned(),
        (None, _) if report.interrupted => "it was interrupted".to_owned(),
        (None, Some(error)) => format!("it failed with {}", short(error.kind.as_str())),
        (None, None) => "it ran to its end".to_owned(),
    };
    let data = serde_json::json!({
        "cell_id": cell.to_string(),
        "kernel_id": report.kernel.to_string(),
        "success": report.success,
        "duration_ms": report.duration_us / 1000,
    });
    new_event(&owner, Some(sandbox), EventKind::CellEnded, Some(reason), &data)
}

/// The event of a command's end, and why it came.
fn ended_event(
    owner: String,
    sandbox: SandboxId,
    report: Result<&ExecReport, &Error>,
    cancelled: bool,
) -> NewEvent {
    let reason = match report {
        _ if cancelled => "its caller went away".to_owned(),
        Err(error) if error.code == ErrorCode::RolledBack => error.code.as_str().to_owned(),
        Err(_) => "its sandbox ended first".to_owned(),
        Ok(report) if report.timed_out => "its time was up".to_owned(),
        Ok(report) if report.oom_killed => "the memory limit ended it".to_owned(),
        Ok(report) if report.killed => "it was killed on request".to_owned(),
        Ok(ExecReport { failure: Some(failure), .. }) => failure.message.clone(),
        Ok(ExecReport { signal: Some(signal), .. }) => format!("signal {signal} ended it"),
        Ok(report) => format!("it exited with {}", report.shell_code()),
    };
    let data = match report {
        Err(_) => serde_json::json!({}),
        Ok(report) => serde_json::json!({
            "exec_id": report.id.to_string(),
            "exit_code": report.shell_code().get(),
            "duration_ms": u64::try_from(report.duration.as_millis()).unwrap_or(u64::MAX),
        }),
    };
    new_event(&owner, Some(sandbox), EventKind::ExecEnded, Some(reason), &data)
}

/// How a command went.
fn exec_end(report: &ExecReport) -> End {
    let micros = |d: std::time::Duration| u64::try_from(d.as_micros()).unwrap_or(u64::MAX);
    let mut end = End::new(Outcome::Ok, micros(report.duration));
    end.exit_code = Some(report.shell_code().get());
    end.signal = report.signal;
    end.cpu_us = Some(micros(report.cpu_user).saturating_add(micros(report.cpu_system)));
    end.peak_memory = Some(report.max_rss_bytes);
    if let Some(failure) = &report.failure {
        end.outcome = Outcome::Failed;
        end = end.because(Problem { code: "exec_failed".into(), message: failure.message.clone() });
    } else if !report.shell_code().is_success() {
        end.outcome = Outcome::Failed;
    }
    end
}
