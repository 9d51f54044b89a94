//! Starting what the image of a sandbox says, in each new container of it, and waiting until that is ready.
//!
//! It is due in the record from the moment in which the container runs until this is done, also while the sandbox is paused. Where a
//! server dies in between, or a caller leaves, the lifecycle finds it so and does it. The command's id is that of its container: begun
//! twice, it runs once.
//!
//! A new sandbox holds only what its image does. Where that does not become ready, the sandbox is destroyed and its create
//! refused. Every other sandbox has files of its own, which its owner must be able to mend: it runs, and its record says why it is not
//! ready.

use crate::{
    Caller, RollbackOptions, RolledBack, Sandboxes,
    lifecycle::Quiet,
    operation::OperationSpec,
    run_to_end::run_to_end,
    start_check::{check_started, start_exec, wait_until_ready},
};
use atoll_provider::Command;
use atoll_store::{SandboxId, SandboxRecord, Status};
use atoll_types::{ContainerId, ErrorCode, ExecId, ImageStart, Operation, Result, SnapshotId};
use futures_util::{FutureExt, StreamExt, future::BoxFuture};
use std::time::Duration;

/// Sandboxes with a start that was left that are started together.
const AT_ONCE: usize = 16;
/// How long a sandbox that waits for its start is quiet before that counts as left.
const LEFT_AFTER: Duration = Duration::from_secs(5);
/// The mode of a ready check in the audit trail, where a command has its own.
const READY_CHECK: &str = "ready_check";

impl Sandboxes {
    /// What is still to be started in a sandbox, and in which container.
    fn to_start(&self, record: &SandboxRecord) -> Option<(ImageStart, ContainerId)> {
        let is_due = record.status == Status::Ready && record.start_due;
        self.catalogue.start(&record.profile.image).zip(record.container).filter(|_| is_due)
    }

    /// Starts what the image of a new sandbox says. Where that fails the sandbox is destroyed.
    pub(super) async fn start_new(&self, record: SandboxRecord) -> Result<SandboxRecord> {
        let Some((start, container)) = self.to_start(&record) else { return Ok(record) };
        let started = match self.start_image(&record, &start, start_exec(container)).await {
            Ok(()) => self.registry.started(record.id, container, None).await,
            Err(error) => Err(error),
        };
        if started.is_err()
            && let Err(left) = self.registry.finish_destruction(record.id).await
        {
            tracing::error!(sandbox = %record.id, error = %left, "a sandbox that is not ready is left");
        }
        started
    }

    /// Starts what the image of a sandbox says that has files of its own, where that is still to be done. Where it fails the record
    /// says why.
    pub(crate) async fn start_again(&self, record: SandboxRecord) -> Result<SandboxRecord> {
        let Some((start, container)) = self.to_start(&record) else { return Ok(record) };
        self.start_to_its_end(record, start, container, start_exec(container)).await
    }

    async fn start_to_its_end(
        &self,
        record: SandboxRecord,
        start: ImageStart,
        container: ContainerId,
        exec: ExecId,
    ) -> Result<SandboxRecord> {
        let sandboxes = self.clone();
        run_to_end("the start of the image's command", async move {
            let started = sandboxes.start_image(&record, &start, exec).await;
            let reason = started.err().map(|error| format!("not ready: {}", error.message));
            sandboxes.registry.started(record.id, container, reason).await
        })
        .await
    }

    /// Starts the command and waits until the check succeeds.
    fn start_image<'a>(
        &'a self,
        record: &'a SandboxRecord,
        start: &'a ImageStart,
        exec: ExecId,
    ) -> BoxFuture<'a, Result<()>> {
        self.start_and_wait(record, start, exec).boxed()
    }

    async fn start_and_wait(&self, record: &SandboxRecord, start: &ImageStart, exec: ExecId) -> Result<()> {
        let caller = Caller::lifecycle(&record.owner, &record.owner_name);
        self.kernels.execs.run_of_image(&caller, record.id, exec, &start.command).await?;
        let Some(check) = &start.ready else {
            let container = self.registry.container(record.id, "its start").await?;
            return check_started(&container, start, exec).await;
        };
        let what = OperationSpec::to(Operation::Exec, record.id).with(&check.line).and("mode", READY_CHECK);
        let audited = self.operations.audited(&caller, what).await?;
        let ready = async {
            let container = self.registry.container_in(&audited, "its ready check").await?;
            let working_directory = self.catalogue.working_directory(&record.profile);
            let usual = Command { working_directory, ..Command::shell("") };
            wait_until_ready(&container, start, check, exec, &usual).await
        };
        let ready = ready.await;
        audited.done(ready).await
    }

    /// Whether a sandbox waits for its start, and no request or task is at work on it: a server, or a caller of one, left it so.
    pub(crate) fn was_left(&self, record: &SandboxRecord, still: Quiet) -> bool {
        let is_left = match still {
            Quiet::Busy => false,
            Quiet::For(quiet) => quiet >= LEFT_AFTER,
            Quiet::Unknown => true,
        };
        is_left && self.to_start(record).is_some()
    }

    /// Starts what was left to start. Ends in the background.
    pub(crate) fn start_left(&self, left: Vec<SandboxRecord>) {
        if left.is_empty() {
            return;
        }
        let this = self.clone();
        tokio::spawn(async move {
            let each = |record: SandboxRecord| {
                let this = &this;
                async move {
                    let id = record.id;
                    if let Err(error) = this.start_again(record).await {
                        tracing::warn!(sandbox = %id, %error, "what a sandbox's image says was not started");
                    }
                }
            };
            futures_util::stream::iter(left).for_each_concurrent(AT_ONCE, each).await;
        });
    }

    /// Makes a sandbox's files what they were ([`crate::Snapshots`]), and starts again what its image says, whether a new container
    /// was started or the command ended for kernels that stayed.
    pub async fn roll_back(
        &self,
        caller: &Caller,
        sandbox: SandboxId,
        to: SnapshotId,
        options: RollbackOptions,
    ) -> Result<RolledBack> {
        let rolled = self.kernels.snapshots.roll_back(caller, sandbox, to, options).await;
        // The files were rolled back without the kernels, in another container.
        if rolled.as_ref().is_err_and(|error| error.code == ErrorCode::KernelDied)
            && let Some(record) = self.store.sandbox(sandbox).await?
        {
            self.start_again(record).await?;
        }
        let RolledBack { record, before } = rolled?;
        let record = match self.catalogue.start(&record.profile.image) {
            Some(start) if options.kernels => self.start_beside(record, start).await?,
            _ => self.start_again(record).await?,
        };
        Ok(RolledBack { record, before })
    }

    /// Starts the command in a container that has begun one before, which was ended.
    async fn start_beside(&self, record: SandboxRecord, start: ImageStart) -> Result<SandboxRecord> {
        match record.container {
            Some(container) if record.status == Status::Ready => {
                self.start_to_its_end(record, start, container, ExecId::random()).await
            }
            _ => Ok(record),
        }
    }
}
