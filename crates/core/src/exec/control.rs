//! Looking at commands and acting on them while they run.

use crate::{
    Caller, Execs,
    actor::rolled_back,
    operation::{AuditedOperation, OperationSpec},
};
use atoll_provider::{Container, ExecReport};
use atoll_store::SandboxId;
use atoll_types::{Error, ExecId, Operation, Result};
use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use std::sync::{Arc, Mutex, PoisonError};

impl Execs {
    async fn looked_at(&self, caller: &Caller, sandbox: SandboxId) -> Result<Arc<dyn Container>> {
        self.operations.visible(caller, sandbox).await?;
        self.registry.container(sandbox, "a look at its commands").await
    }

    async fn acted_on(&self, audited: &AuditedOperation) -> Result<Arc<dyn Container>> {
        self.registry.container_in(audited, "a running command's input or signal").await
    }

    /// The commands that the sandbox remembers, the latest first.
    pub async fn list(&self, caller: &Caller, sandbox: SandboxId) -> Result<Vec<ExecReport>> {
        let mut all = self.looked_at(caller, sandbox).await?.guest().list_execs().await?;
        // What the API itself runs inside is not the user's.
        all.retain(|report| !report.tool);
        all.sort_by_key(|report| (std::cmp::Reverse(report.started_unix_ms), report.id));
        Ok(all)
    }

    /// How a command is.
    pub async fn get(&self, caller: &Caller, sandbox: SandboxId, exec: ExecId) -> Result<ExecReport> {
        let report = self.looked_at(caller, sandbox).await?.guest().get_exec(exec).await;
        self.unless_rolled_back(exec, report)
    }

    /// What a container answered about a command, unless a rollback ended that: the container may be another one by now, which
    /// does not know the command.
    pub(super) fn unless_rolled_back<T>(&self, exec: ExecId, answer: Result<T>) -> Result<T> {
        if self.registry.was_rolled_back(exec.uuid()) { Err(rolled_back()) } else { answer }
    }

    /// Gives a command input, and where asked its end. A body that breaks off ends nothing: what came is
    /// written, and more may follow. Returns how much was taken.
    pub async fn write_stdin(
        &self,
        caller: &Caller,
        sandbox: SandboxId,
        exec: ExecId,
        body: impl Stream<Item = Result<Bytes>> + Send + 'static,
        close: bool,
    ) -> Result<u64> {
        let mut audited = self
            .operations
            .audited(caller, OperationSpec::to(Operation::ExecStdin, sandbox).and("exec_id", exec))
            .await?;
        let result = self.feed(&audited, exec, body, close).await;
        audited.moved(result.as_ref().map_or(0, |written| *written));
        audited.done(result).await
    }

    async fn feed(
        &self,
        audited: &AuditedOperation,
        exec: ExecId,
        body: impl Stream<Item = Result<Bytes>> + Send + 'static,
        close: bool,
    ) -> Result<u64> {
        let container = self.acted_on(audited).await?;
        let broken: Arc<Mutex<Option<Error>>> = Arc::default();
        let cause = Arc::clone(&broken);
        let pieces = body.map(move |piece| {
            piece.map_err(|e| *cause.lock().unwrap_or_else(PoisonError::into_inner) = Some(e)).ok()
        });
        let pieces = pieces.take_while(|p| std::future::ready(p.is_some())).filter_map(std::future::ready);
        let written = container.guest().add_stdin(exec, pieces).await?;
        if let Some(error) = broken.lock().unwrap_or_else(PoisonError::into_inner).take() {
            return Err(error);
        }
        if close {
            container.guest().write_stdin(exec, futures_util::stream::empty()).await?;
        }
        Ok(written)
    }

    /// Sends a signal to a command's own processes.
    pub async fn signal(&self, caller: &Caller, sandbox: SandboxId, exec: ExecId, signal: i32) -> Result<()> {
        let what =
            OperationSpec::to(Operation::ExecSignal, sandbox).and("exec_id", exec).and("signal", signal);
        let audited = self.operations.audited(caller, what).await?;
        let result = async { self.acted_on(&audited).await?.guest().signal(exec, signal).await }.await;
        audited.done(result).await
    }

    /// Ends a command and everything that it started; answers when none of it is left.
    pub async fn kill(&self, caller: &Caller, sandbox: SandboxId, exec: ExecId) -> Result<ExecReport> {
        let audited = self
            .operations
            .audited(caller, OperationSpec::to(Operation::ExecKill, sandbox).and("exec_id", exec))
            .await?;
        let result = async { self.acted_on(&audited).await?.guest().kill(exec).await }.await;
        audited.done(result).await
    }

    /// Forgets an ended command and its output.
    pub async fn forget(&self, caller: &Caller, sandbox: SandboxId, exec: ExecId) -> Result<()> {
        let audited = self
            .operations
            .audited(caller, OperationSpec::to(Operation::ExecForget, sandbox).and("exec_id", exec))
            .await?;
        let result = async { self.acted_on(&audited).await?.guest().forget_exec(exec).await }.await;
        audited.done(result).await
    }
}
