//! Every operation lies between two rows of the audit trail. Whatever changes something, or gives out what
//! is in a sandbox's files, begins with [`Core::audited`]: without the first row there is no [`AuditedOperation`], and
//! without an [`AuditedOperation`] there is no record to write to. The second row comes with [`AuditedOperation::done`], or, where
//! whoever asked went away, by itself.

use crate::{
    Caller, Core,
    egress::{Entered, Secrets},
    vault::Environment,
};
use atoll_audit::{Capture, Ledger, OperationGuard, Redactor};
use atoll_kernels::CellReport;
use atoll_provider::{Changed, ExecReport, FileAction, OutputStream};
use atoll_store::{
    Activity, Begin, Detail, End, FileChanged, NewEvent, OperationId, Outcome, Problem, SandboxId,
    SandboxRecord,
};
use atoll_types::{CellId, Error, ErrorCode, ExecId, Operation, Result, Target, time::now_ms};
use std::collections::BTreeMap;

/// What is to be done.
#[derive(Debug, Clone)]
pub(crate) struct OperationSpec {
    kind: Operation,
    sandbox: Option<SandboxId>,
    /// The command, the code or the path.
    pub(crate) detail: String,
    pub(crate) directory: Option<String>,
    pub(crate) variables: Vec<String>,
    pub(crate) extra: BTreeMap<String, String>,
    /// Values that no row may show.
    pub(crate) secrets: Vec<String>,
    /// The command that it runs.
    exec: Option<ExecId>,
}

impl OperationSpec {
    /// An operation on the server.
    pub(crate) fn new(kind: Operation) -> Self {
        Self {
            kind,
            sandbox: None,
            detail: String::new(),
            directory: None,
            variables: Vec::new(),
            extra: BTreeMap::new(),
            secrets: Vec::new(),
            exec: None,
        }
    }

    /// An operation on a sandbox.
    pub(crate) fn to(kind: Operation, sandbox: SandboxId) -> Self {
        Self { sandbox: Some(sandbox), ..Self::new(kind) }
    }

    pub(crate) fn with(self, detail: impl Into<String>) -> Self {
        Self { detail: detail.into(), ..self }
    }

    /// What runs a command.
    pub(crate) fn running(kind: Operation, sandbox: SandboxId, exec: ExecId) -> Self {
        Self { exec: Some(exec), ..Self::to(kind, sandbox) }.and("exec_id", exec)
    }

    /// One more thing worth knowing.
    pub(crate) fn and(mut self, name: &str, value: impl ToString) -> Self {
        self.extra.insert(name.into(), value.to_string());
        self
    }
}

/// An operation under way. Dropped, it ends as cancelled.
pub(crate) struct AuditedOperation {
    operation: OperationGuard,
    ledger: Ledger,
    redactor: Redactor,
    record: Result<Option<SandboxRecord>>,
    end: End,
    activities: Vec<Activity>,
    events: Vec<NewEvent>,
    /// Of what runs a command.
    exec: Option<Entered>,
}

impl Core {
    /// Writes that something is about to be done. Where that cannot be written it must not be done.
    pub(crate) async fn audited(&self, caller: &Caller, what: OperationSpec) -> Result<AuditedOperation> {
        let OperationSpec { kind, sandbox, detail, directory, variables, extra, mut secrets, exec } = what;
        let own = !secrets.is_empty();
        let mut record = match sandbox {
            Some(id) if kind.target() == Target::Sandbox => self.visible(caller, id).await.map(Some),
            _ => Ok(None),
        };
        if let Ok(Some(record)) = &record {
            secrets.extend(self.environment_of(record)?.secret_values());
        }
        if let Err(error) = caller.must_have(kind.permission()) {
            record = Err(error);
        }
        let redactor = Redactor::new(&secrets);
        let begin = Begin {
            front: caller.front.to_owned(),
            key: caller.key,
            owner: caller.owner.clone(),
            address: caller.address.clone(),
            kind: kind.name().to_owned(),
            sandbox,
            detail: Detail::new(&redactor.text(&detail)),
            directory: directory.map(|d| redactor.text(&d)),
            variables,
            extra: extra.into_iter().map(|(name, value)| (name, redactor.text(&value))).collect(),
        };
        let operation = self.ledger.start(begin).await?;
        // Before the command begins: it may ask to get out at once.
        let exec = exec.zip(sandbox).map(|(exec, sandbox)| {
            let secrets = if own { Secrets::Own(redactor.clone()) } else { Secrets::None };
            self.running.enter(sandbox, exec, operation.id(), secrets)
        });
        let (ledger, end) = (self.ledger.clone(), End::new(Outcome::Ok, 0));
        let (activities, events) = (Vec::new(), Vec::new());
        Ok(AuditedOperation { operation, ledger, redactor, record, end, activities, events, exec })
    }

    /// What the sandbox's commands start with.
    pub(crate) fn environment_of(&self, record: &SandboxRecord) -> Result<Environment> {
        self.vault.open(&record.id.to_string(), &record.environment)
    }
}

/// An error says whether anything was done.
fn outcome_of(error: &Error) -> Outcome {
    match error.code {
        ErrorCode::Internal
        | ErrorCode::Unavailable
        | ErrorCode::Timeout
        | ErrorCode::ContainerDied
        | ErrorCode::KernelDied
        | ErrorCode::ExecFailed
        | ErrorCode::DiskFull => Outcome::Failed,
        _ => Outcome::Refused,
    }
}

fn files_of(changed: &Changed) -> Vec<FileChanged> {
    let action = |action| match action {
        FileAction::Created => "created",
        FileAction::Modified => "modified",
        FileAction::Deleted => "deleted",
    };
    let file = |f: &atoll_provider::FileChange| FileChanged {
        path: f.path.clone(),
        action: action(f.action).to_owned(),
    };
    changed.files.iter().take(atoll_store::FILES_KEPT).map(file).collect()
}

impl AuditedOperation {
    /// The sandbox that the operation is about, where the caller may do this to it.
    pub(crate) fn record(&self) -> Result<&SandboxRecord> {
        match &self.record {
            Ok(Some(record)) => Ok(record),
            Ok(None) => Err(Error::internal("an operation on no sandbox asks for one")),
            Err(error) => Err(error.clone()),
        }
    }

    /// Which operation it is.
    pub(crate) fn operation(&self) -> OperationId {
        self.operation.id()
    }

    /// Whether the caller may do this at all.
    pub(crate) fn allowed(&self) -> Result<()> {
        self.record.as_ref().map(drop).map_err(Clone::clone)
    }

    /// A text as it may be kept.
    pub(crate) fn redacted(&self, text: &str) -> String {
        self.redactor.text(text)
    }

    /// How much was moved.
    pub(crate) fn moved(&mut self, bytes: u64) {
        self.end.bytes = Some(bytes);
    }

    /// What happened in the sandbox, for the same transaction.
    pub(crate) fn note(&mut self, activity: Activity) {
        self.activities.push(Activity { detail: self.redactor.text(&activity.detail), ..activity });
    }

    /// Writes how it ended. That this cannot be written undoes nothing: it is tried again.
    pub(crate) async fn done<T>(self, result: Result<T>) -> Result<T> {
        let Self { operation, redactor, mut end, activities, events, .. } = self;
        end.duration_us = operation.elapsed_us();
        if let Err(error) = &result {
            end.outcome = outcome_of(error);
            let Problem { code, message } = error.into();
            end = end.because(Problem { code, message: redactor.text(&message) });
        }
        if let Err(error) = operation.end(end, activities, events).await {
            tracing::error!(%error, "the end of an operation waits to be written");
        }
        result.map_err(|error| Error { message: redactor.text(&error.message), ..error })
    }

    /// Goes on as the trail of a command, which ends by itself.
    pub(crate) fn follow(self) -> OutputAudit {
        let Self { operation, ledger, redactor, record, exec, .. } = self;
        OutputAudit::new(ledger, operation.leave(), redactor, record.ok().flatten().as_ref()).with(exec)
    }
}

/// A command on its way through the trail: what it prints, and in the end how it went.
pub(crate) struct OutputAudit {
    ledger: Ledger,
    operation: OperationId,
    redactor: Redactor,
    /// Whose sandbox, and which.
    about: Option<(String, SandboxId)>,
    stdout: Capture,
    stderr: Capture,
    /// The first byte that was not seen yet.
    pub(crate) next: u64,
    /// Nothing of what is printed may be kept: it may hold what nobody knows any more to be secret.
    mute: bool,
    ended: bool,
    /// What it asks for on the way out is told under this operation.
    exec: Option<Entered>,
}

impl OutputAudit {
    /// The trail of a command that was begun, perhaps by a server that died.
    pub(crate) fn new(
        ledger: Ledger,
        operation: OperationId,
        redactor: Redactor,
        record: Option<&SandboxRecord>,
    ) -> Self {
        let (stdout, stderr) = (Capture::new(&redactor), Capture::new(&redactor));
        let about = record.map(|record| (record.owner.clone(), record.id));
        Self {
            ledger,
            operation,
            redactor,
            about,
            stdout,
            stderr,
            next: 0,
            mute: false,
            ended: false,
            exec: None,
        }
    }

    /// What the command asks for on the way out is told under this operation from now on.
    pub(crate) fn with(mut self, exec: Option<Entered>) -> Self {
        self.exec = exec;
        self
    }

    /// Keeps nothing of what is printed but how much it was.
    pub(crate) fn mute(mut self) -> Self {
        self.mute = true;
        self
    }

    /// Which operation it is.
    pub(crate) fn operation(&self) -> OperationId {
        self.operation
    }

    /// A text as it may be kept.
    pub(crate) fn redacted(&self, text: &str) -> String {
        self.redactor.text(text)
    }

    /// What takes secret values out of texts that are kept.
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

    /// Ends it; the row and what is noted beside it are on their way when this returns.
    pub(crate) fn end(
        mut self,
        report: Option<&ExecReport>,
        changed: Option<&Changed>,
        activity: Option<Activity>,
    ) -> impl Future<Output = Result<()>> + Send + use<> {
        self.ended = true;
        let fresh = || Capture::new(&self.redactor);
        let (no_out, no_err) = (fresh(), fresh());
        let mut stdout = std::mem::replace(&mut self.stdout, no_out);
        let stderr = std::mem::replace(&mut self.stderr, no_err);
        let mut end = End::new(Outcome::Lost, 0);
        if let Some(report) = report {
            let missing = report.output_bytes.saturating_add(report.dropped_bytes).saturating_sub(self.next);
            if missing > 0 {
                stdout.skip(missing);
            }
            end = told(report);
        }
        if let Some(changed) = changed {
            end.files = files_of(changed);
            end.files_count = changed.files.len() as u64;
        }
        (end.stdout, end.stderr) = (Some(stdout.finish()), Some(stderr.finish()));
        let activity = activity.map(|a| Activity { detail: self.redactor.text(&a.detail), ..a });
        let event = self.about.take().map(|(owner, sandbox)| ended_event(owner, sandbox, report));
        self.ledger.end(self.operation, end, activity.into_iter().collect(), event.into_iter().collect())
    }

    /// Ends it for a cell. Where whoever asked went away, that is the reason.
    pub(crate) fn end_cell(
        mut self,
        told: CellAudit<'_>,
        changed: Option<&Changed>,
        activity: Option<Activity>,
    ) -> impl Future<Output = Result<()>> + Send + use<> {
        self.ended = true;
        let CellAudit { cell, report, cancelled } = told;
        let (mut stdout, mut stderr) = (Capture::new(&self.redactor), Capture::new(&self.redactor));
        stdout.take(report.stdout.as_bytes());
        stderr.take(report.stderr.as_bytes());
        let mut end = cell_end(report, cancelled);
        end.error = end
            .error
            .map(|Problem { code, message }| Problem { code, message: self.redactor.text(&message) });
        if let Some(changed) = changed {
            end.files = files_of(changed);
            end.files_count = changed.files.len() as u64;
        }
        (end.stdout, end.stderr) = (Some(stdout.finish()), Some(stderr.finish()));
        let activity = activity.map(|a| Activity { detail: self.redactor.text(&a.detail), ..a });
        let redactor = self.redactor.clone();
        let event =
            self.about.take().map(|(owner, sandbox)| cell_event(owner, sandbox, cell, report, &redactor));
        self.ledger.end(self.operation, end, activity.into_iter().collect(), event.into_iter().collect())
    }

    /// Ends it for a command that never came to its program, or of which nothing more can be known.
    pub(crate) async fn failed<T>(mut self, error: Error) -> Result<T> {
        self.ended = true;
        let Problem { code, message } = (&error).into();
        let message = self.redactor.text(&message);
        let end = End::new(outcome_of(&error), 0).because(Problem { code, message: message.clone() });
        if let Err(error) = self.ledger.end(self.operation, end, Vec::new(), Vec::new()).await {
            tracing::error!(%error, "the end of an operation waits to be written");
        }
        Err(Error { message, ..error })
    }
}

/// What is told of a cell that ended.
pub(crate) struct CellAudit<'a> {
    pub(crate) cell: CellId,
    pub(crate) report: &'a CellReport,
    /// Nobody waited for it any more.
    pub(crate) cancelled: bool,
}

/// How a cell went. An error of its own code is an outcome, as a command's exit code is.
fn cell_end(report: &CellReport, cancelled: bool) -> End {
    let mut end = End::new(if report.success { Outcome::Ok } else { Outcome::Failed }, report.duration_us);
    end.exit_code = Some(i32::from(!report.success));
    if cancelled {
        end.outcome = Outcome::Failed;
        let message = "whoever asked went away before it ended".to_owned();
        return end.because(Problem { code: "cancelled".into(), message });
    }
    match &report.death {
        Some(death) => end.because(Problem { code: "kernel_died".into(), message: death.reason() }),
        None => end,
    }
}

/// What listeners are told of a cell's end.
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
        (None, Some(error)) => format!("it failed with {}", short(&error.kind)),
        (None, None) => "it ran to its end".to_owned(),
    };
    let data = serde_json::json!({
        "cell_id": cell.to_string(),
        "kernel_id": report.kernel.to_string(),
        "success": report.success,
        "duration_ms": report.duration_us / 1000,
    });
    let (kind, sandbox) = ("cell.ended".to_owned(), Some(sandbox));
    NewEvent { at: now_ms(), owner, sandbox, kind, reason: Some(reason), data: data.to_string() }
}

/// What listeners are told of a command's end, and why it came.
fn ended_event(owner: String, sandbox: SandboxId, report: Option<&ExecReport>) -> NewEvent {
    let reason = match report {
        None => "its sandbox ended first".to_owned(),
        Some(report) if report.timed_out => "its time was up".to_owned(),
        Some(report) if report.oom_killed => "the memory limit ended it".to_owned(),
        Some(report) if report.killed => "it was killed on request".to_owned(),
        Some(ExecReport { failure: Some(failure), .. }) => failure.message.clone(),
        Some(ExecReport { signal: Some(signal), .. }) => format!("signal {signal} ended it"),
        Some(report) => format!("it exited with {}", report.shell_code()),
    };
    let data = match report {
        None => serde_json::json!({}),
        Some(report) => serde_json::json!({
            "exec_id": report.id.to_string(),
            "exit_code": report.shell_code().get(),
            "duration_ms": u64::try_from(report.duration.as_millis()).unwrap_or(u64::MAX),
        }),
    };
    let (kind, sandbox) = ("exec.ended".to_owned(), Some(sandbox));
    NewEvent { at: now_ms(), owner, sandbox, kind, reason: Some(reason), data: data.to_string() }
}

impl Drop for OutputAudit {
    fn drop(&mut self) {
        if !self.ended {
            let message = "whoever asked went away before it ended".to_owned();
            let end = End::new(Outcome::Failed, 0).because(Problem { code: "cancelled".into(), message });
            // On its way though nobody waits. A server that is ending leaves it to the next.
            drop(self.ledger.end(self.operation, end, Vec::new(), Vec::new()));
        }
    }
}

/// How a command went.
fn told(report: &ExecReport) -> End {
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
