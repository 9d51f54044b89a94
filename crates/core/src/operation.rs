//! Every operation lies between two rows of the audit trail. A method that changes something, or returns the
//! content of a sandbox's files, begins with [`Operations::audited`]: without the first row there is no
//! [`AuditedOperation`], and without an [`AuditedOperation`] there is no record to write to. A caller that may not do it gets
//! none either, but an error whose second row is written already.
//! [`AuditedOperation::done`] writes the second row; where the caller went away, the drop does.

use crate::{
    Caller,
    egress::{Entered, Running, Secrets},
    output_audit::{OutputAudit, enter_files},
    vault::{Environment, Vault},
};
use atoll_audit::{Ledger, OperationGuard, Redactor};
use atoll_provider::Changed;
use atoll_store::{
    Activity, Begin, Detail, End, NewEvent, OperationId, Outcome, Problem, SandboxId, SandboxRecord, Store,
};
use atoll_types::{Error, ErrorCode, ExecId, Operation, Result, Target};
use std::{collections::BTreeMap, sync::Arc};

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

/// An operation under way. Dropped, it ends as cancelled: one that is forgotten has an end too.
#[must_use = "dropped, it ends as cancelled"]
pub(crate) struct AuditedOperation {
    kind: Operation,
    operation: OperationGuard,
    ledger: Ledger,
    redactor: Redactor,
    record: Option<SandboxRecord>,
    end: End,
    activities: Vec<Activity>,
    events: Vec<NewEvent>,
    /// Of what runs a command.
    exec: Option<Entered>,
}

/// The one entry of every operation: it finds the record, checks the caller's key against the operation's
/// permission, and writes the first row of the audit trail.
#[derive(Clone)]
pub struct Operations {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) vault: Arc<Vault>,
    pub(crate) ledger: Ledger,
    pub(crate) running: Arc<Running>,
}

impl Operations {
    /// The record of a sandbox that this caller may see. One that it may not see does not exist for it.
    pub(crate) async fn visible(&self, caller: &Caller, id: SandboxId) -> Result<SandboxRecord> {
        match self.store.sandbox(id).await? {
            Some(record) if caller.may_see(&record.owner) => Ok(record),
            _ => Err(Error::new(ErrorCode::NotFound, format!("there is no sandbox {}", id.uuid()))),
        }
    }

    /// Writes the first row, and where the caller may not do this the second. An operation whose first row cannot be written
    /// must not be carried out.
    pub(crate) async fn audited(&self, caller: &Caller, what: OperationSpec) -> Result<AuditedOperation> {
        let OperationSpec { kind, sandbox, detail, directory, variables, extra, mut secrets, exec } = what;
        let own = !secrets.is_empty();
        let found = match (kind.target(), sandbox) {
            (Target::Sandbox(_), Some(id)) => self.visible(caller, id).await.map(Some),
            (Target::NewSandbox, Some(_)) | (Target::Server, None) => Ok(None),
            (target, _) => Err(Error::internal(format!("{} is about {target:?}", kind.name()))),
        };
        if let Ok(Some(record)) = &found {
            secrets.extend(self.environment_of(record)?.secret_values());
        }
        let permitted = caller.must_have(kind.permission()).and(found);
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
        let id = operation.id();
        crate::caused::note(id);
        let (ledger, end) = (self.ledger.clone(), End::new(Outcome::Ok, 0));
        let (activities, events) = (Vec::new(), Vec::new());
        let audited = |record, exec| AuditedOperation {
            kind,
            operation,
            ledger,
            redactor: redactor.clone(),
            record,
            end,
            activities,
            events,
            exec,
        };
        let record = match permitted {
            Ok(record) => record,
            Err(error) => return audited(None, None).done(Err(error)).await,
        };
        // Before the command begins: its first request to the network may come at once.
        let exec = exec.zip(sandbox).map(|(exec, sandbox)| {
            let secrets = if own { Secrets::Own(redactor.clone()) } else { Secrets::None };
            self.running.enter(sandbox, exec, id, secrets)
        });
        Ok(audited(record, exec))
    }

    /// What the sandbox's commands start with.
    pub(crate) fn environment_of(&self, record: &SandboxRecord) -> Result<Environment> {
        self.vault.open(&record.id.to_string(), &record.environment)
    }
}

/// An error says whether anything was done.
pub(crate) fn outcome_of(error: &Error) -> Outcome {
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

impl AuditedOperation {
    /// The sandbox that the operation is about.
    pub(crate) fn record(&self) -> Result<&SandboxRecord> {
        let missing = || Error::internal("an operation without a sandbox asks for its record");
        self.record.as_ref().ok_or_else(missing)
    }

    /// What is done.
    pub(crate) fn kind(&self) -> Operation {
        self.kind
    }

    /// Which operation it is.
    pub(crate) fn operation(&self) -> OperationId {
        self.operation.id()
    }

    /// A text as it may be kept.
    pub(crate) fn redacted(&self, text: &str) -> String {
        self.redactor.text(text)
    }

    /// What takes secret values out of texts that are kept.
    pub(crate) fn redactor(&self) -> Redactor {
        self.redactor.clone()
    }

    /// How much was moved.
    pub(crate) fn moved(&mut self, bytes: u64) {
        self.end.bytes = Some(bytes);
    }

    /// Which files it changed.
    pub(crate) fn changed(&mut self, changed: &Changed) {
        enter_files(&mut self.end, changed, &self.redactor);
    }

    /// What happened in the sandbox, for the same transaction.
    pub(crate) fn note(&mut self, activity: Activity) {
        self.activities.push(Activity { detail: self.redactor.text(&activity.detail), ..activity });
    }

    /// An event for the same transaction.
    pub(crate) fn add_event(&mut self, event: NewEvent) {
        self.events.push(event);
    }

    /// Writes how it ended. Where that fails nothing is undone: the ledger writes it later.
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

    /// Goes on as the audit of a command or a cell, whose end its task writes.
    pub(crate) fn follow(self) -> OutputAudit {
        let Self { operation, ledger, redactor, record, exec, .. } = self;
        OutputAudit::new(ledger, operation.leave(), redactor, record.as_ref()).with(exec)
    }
}
