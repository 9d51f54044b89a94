//! Starting kernels, looking at them and acting on them.

use super::{
    link::Link,
    request::{ForkKernel, KernelRequest},
    wire::other_answer,
};
use crate::{
    Caller, Kernels,
    bounds::CHECKPOINT_NAME,
    lifecycle::ActiveContainer,
    operation::{AuditedOperation, OperationSpec},
};
use atoll_kernels::{Answer, CheckpointInfo, Completion, Fork, KernelInfo, RequestKind, Start};
use atoll_store::SandboxId;
use atoll_types::{CheckpointId, Error, ErrorCode, KernelId, Operation, Result};
use std::sync::Arc;

fn missing() -> Error {
    Error::new(ErrorCode::NotFound, "there is no kernel with this id")
}

fn of_kernel(answer: Answer) -> Result<KernelInfo> {
    match answer {
        Answer::Kernel(info) => Ok(info),
        _ => other_answer(),
    }
}

fn done(answer: Answer) -> Result<()> {
    match answer {
        Answer::Done => Ok(()),
        _ => other_answer(),
    }
}

impl Kernels {
    /// The kernel manager of an operation's sandbox; one that is not there has no kernels.
    async fn managers_link(&self, audited: &AuditedOperation) -> Result<(Arc<Link>, ActiveContainer)> {
        let container = self.registry.acquire_in(audited, "a kernel").await?;
        let link = self.managers.existing(container.inner()).await?.ok_or_else(missing)?;
        Ok((link, container))
    }

    /// One question about a kernel, as an operation.
    async fn ask<T>(
        &self,
        caller: &Caller,
        what: OperationSpec,
        ask: RequestKind,
        read: impl FnOnce(Answer) -> Result<T>,
    ) -> Result<T> {
        let audited = self.operations.audited(caller, what).await?;
        let result = async {
            let (link, _working) = self.managers_link(&audited).await?;
            read(link.ask(ask).await?)
        };
        let result = result.await;
        audited.done(result).await
    }

    /// Starts a kernel; answers when its interpreter is ready.
    pub async fn start(
        &self,
        caller: &Caller,
        sandbox: SandboxId,
        request: &KernelRequest,
    ) -> Result<KernelInfo> {
        self.limits.take_exec(caller)?;
        let kernel = KernelId::random();
        let audited = self.operations.audited(caller, request.what(sandbox, kernel)).await?;
        let result = self.start_as(&audited, kernel, request).await;
        audited.done(result).await
    }

    async fn start_as(
        &self,
        audited: &AuditedOperation,
        kernel: KernelId,
        request: &KernelRequest,
    ) -> Result<KernelInfo> {
        request.check()?;
        let record = audited.record()?;
        let sandbox = record.id;
        let of_image = || self.execs.catalogue.working_directory(&record.profile);
        let container = self.registry.acquire_in(audited, "a kernel").await?;
        let link = self.managers.link(container.inner()).await?;
        // Egress of the kernel's start is audited under this operation.
        let _entered = self.running.enter_cell(sandbox, link.exec(), audited.operation());
        let KernelRequest { language, default, working_directory, env_vars } = request.clone();
        let start = Start {
            kernel,
            language,
            default,
            working_directory: working_directory.unwrap_or_else(of_image),
            variables: env_vars,
        };
        let mut started = Started { link: &link, kernel: (!default).then_some(kernel) };
        let info = of_kernel(link.ask(RequestKind::Start(start)).await?)?;
        started.kernel = None;
        link.remember_default(&info);
        Ok(info)
    }

    /// All kernels of a sandbox, the oldest first. One that runs nothing inside has none.
    pub async fn list(&self, caller: &Caller, sandbox: SandboxId) -> Result<Vec<KernelInfo>> {
        self.operations.visible(caller, sandbox).await?;
        let container = match self.registry.acquire(sandbox, "a look at its kernels").await {
            Err(error) if error.code == ErrorCode::NotRunning => return Ok(Vec::new()),
            active => active?,
        };
        let Some(link) = self.managers.existing(container.inner()).await? else { return Ok(Vec::new()) };
        match link.ask(RequestKind::List).await? {
            Answer::Kernels(all) => Ok(all),
            _ => other_answer(),
        }
    }

    /// One of them.
    pub async fn get(&self, caller: &Caller, sandbox: SandboxId, kernel: KernelId) -> Result<KernelInfo> {
        let all = self.list(caller, sandbox).await?;
        all.into_iter().find(|info| info.kernel == kernel).ok_or_else(missing)
    }

    /// Ends the running cell.
    pub async fn interrupt(&self, caller: &Caller, sandbox: SandboxId, kernel: KernelId) -> Result<()> {
        let what = OperationSpec::to(Operation::KernelInterrupt, sandbox).and("kernel_id", kernel);
        self.ask(caller, what, RequestKind::Interrupt { kernel, cell: None }, done).await
    }

    /// How the text before a cursor could go on, and whether it is a whole piece of code.
    pub async fn complete(
        &self,
        caller: &Caller,
        sandbox: SandboxId,
        kernel: KernelId,
        code: String,
    ) -> Result<Completion> {
        self.limits.take_exec(caller)?;
        let what = OperationSpec::to(Operation::KernelComplete, sandbox).and("kernel_id", kernel);
        let read = |answer| match answer {
            Answer::Completion(found) => Ok(found),
            _ => other_answer(),
        };
        self.ask(caller, what, RequestKind::Complete { kernel, code }, read).await
    }

    /// A fresh interpreter under the same id.
    pub async fn restart(&self, caller: &Caller, sandbox: SandboxId, kernel: KernelId) -> Result<KernelInfo> {
        let what = OperationSpec::to(Operation::KernelRestart, sandbox).and("kernel_id", kernel);
        self.ask(caller, what, RequestKind::Restart { kernel }, of_kernel).await
    }

    /// Ends a kernel and everything that it started.
    pub async fn delete(&self, caller: &Caller, sandbox: SandboxId, kernel: KernelId) -> Result<()> {
        let what = OperationSpec::to(Operation::KernelDelete, sandbox).and("kernel_id", kernel);
        let audited = self.operations.audited(caller, what).await?;
        let result = async {
            let (link, _working) = self.managers_link(&audited).await?;
            done(link.ask(RequestKind::Delete { kernel }).await?)?;
            link.forget_default(kernel);
            Ok(())
        };
        let result = result.await;
        audited.done(result).await
    }

    /// Remembers a kernel as it is.
    pub async fn checkpoint(
        &self,
        caller: &Caller,
        sandbox: SandboxId,
        kernel: KernelId,
        name: &str,
    ) -> Result<CheckpointInfo> {
        let checkpoint = CheckpointId::random();
        let what = OperationSpec::to(Operation::KernelCheckpoint, sandbox)
            .with(name)
            .and("kernel_id", kernel)
            .and("checkpoint_id", checkpoint);
        let audited = self.operations.audited(caller, what).await?;
        let result = async {
            CHECKPOINT_NAME.check("name", name)?;
            let (link, _working) = self.managers_link(&audited).await?;
            let name = name.to_owned();
            match link.ask(RequestKind::Checkpoint { kernel, checkpoint, name }).await? {
                Answer::Checkpoint(info) => Ok(info),
                _ => other_answer(),
            }
        };
        let result = result.await;
        audited.done(result).await
    }

    /// Puts a kernel back as it was.
    pub async fn roll_back(
        &self,
        caller: &Caller,
        sandbox: SandboxId,
        kernel: KernelId,
        checkpoint: CheckpointId,
    ) -> Result<KernelInfo> {
        let what = OperationSpec::to(Operation::KernelRollback, sandbox)
            .and("kernel_id", kernel)
            .and("checkpoint_id", checkpoint);
        self.ask(caller, what, RequestKind::Rollback { kernel, checkpoint }, of_kernel).await
    }

    /// Forgets a checkpoint.
    pub async fn drop_checkpoint(
        &self,
        caller: &Caller,
        sandbox: SandboxId,
        kernel: KernelId,
        checkpoint: CheckpointId,
    ) -> Result<()> {
        let what = OperationSpec::to(Operation::KernelCheckpointDelete, sandbox)
            .and("kernel_id", kernel)
            .and("checkpoint_id", checkpoint);
        self.ask(caller, what, RequestKind::DropCheckpoint { kernel, checkpoint }, done).await
    }

    /// A second kernel with everything that the first has.
    pub async fn fork(
        &self,
        caller: &Caller,
        sandbox: SandboxId,
        request: &ForkKernel,
    ) -> Result<KernelInfo> {
        let ForkKernel { kernel, checkpoint } = *request;
        let new = KernelId::random();
        let mut what = OperationSpec::to(Operation::KernelFork, sandbox)
            .and("kernel_id", kernel)
            .and("new_kernel_id", new);
        if let Some(checkpoint) = checkpoint {
            what = what.and("checkpoint_id", checkpoint);
        }
        self.ask(caller, what, RequestKind::Fork(Fork { kernel, checkpoint, new }), of_kernel).await
    }
}

/// Deletes a new kernel when dropped: its caller went away before it learned the kernel's id.
struct Started<'a> {
    link: &'a Arc<Link>,
    kernel: Option<KernelId>,
}

impl Drop for Started<'_> {
    fn drop(&mut self) {
        if let Some(kernel) = self.kernel.take() {
            let link = Arc::clone(self.link);
            tokio::spawn(async move { link.ask(RequestKind::Delete { kernel }).await });
        }
    }
}
