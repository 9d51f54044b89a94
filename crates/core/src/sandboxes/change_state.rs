//! Stopping, pausing, resuming and destroying a sandbox. Its actor judges whether its state allows it.

use crate::{
    Caller, Sandboxes,
    actor::{Step, StepTarget},
    operation::OperationSpec,
};
use atoll_store::{SandboxId, SandboxRecord};
use atoll_types::{Operation, Result};

impl Sandboxes {
    /// One sandbox.
    pub async fn get(&self, caller: &Caller, id: SandboxId) -> Result<SandboxRecord> {
        self.operations.visible(caller, id).await
    }

    /// Ends the container; the volume is kept.
    pub async fn stop(&self, caller: &Caller, id: SandboxId) -> Result<SandboxRecord> {
        let audited = self.operations.audited(caller, OperationSpec::to(Operation::SandboxStop, id)).await?;
        let result = async {
            audited.record()?;
            self.changes.forget(id);
            self.registry.stop(id).await
        }
        .await;
        audited.done(result).await
    }

    /// Pauses the sandbox; a request that needs its container resumes it. Succeeds when it is paused already.
    pub async fn pause(&self, caller: &Caller, id: SandboxId) -> Result<SandboxRecord> {
        let audited = self.operations.audited(caller, OperationSpec::to(Operation::SandboxPause, id)).await?;
        let result = async {
            audited.record()?;
            self.registry.pause(id, "paused by request".into()).await
        }
        .await;
        audited.done(result).await
    }

    /// Makes the sandbox run: a paused one continues where it was, a stopped one is started with its volume
    /// as it was.
    pub async fn resume(&self, caller: &Caller, id: SandboxId) -> Result<SandboxRecord> {
        let audited =
            self.operations.audited(caller, OperationSpec::to(Operation::SandboxResume, id)).await?;
        let result = async {
            audited.record()?;
            self.start(caller, id, "request").await
        }
        .await;
        audited.done(result).await
    }

    /// Destroys the sandbox and its volume. The record stays.
    pub async fn destroy(&self, caller: &Caller, id: SandboxId) -> Result<()> {
        self.destroy_at(caller, id, None).await
    }

    /// The same, unless the sandbox was changed, resumed for example, since this record of it was read: then it stays, and
    /// that is a conflict.
    pub async fn destroy_unchanged(&self, caller: &Caller, seen: &SandboxRecord) -> Result<()> {
        self.destroy_at(caller, seen.id, Some(seen.revision)).await
    }

    async fn destroy_at(&self, caller: &Caller, id: SandboxId, revision: Option<u64>) -> Result<()> {
        let audited =
            self.operations.audited(caller, OperationSpec::to(Operation::SandboxDestroy, id)).await?;
        let result = async {
            audited.record()?;
            match revision {
                None => self.registry.destroy(id).await?,
                Some(_) => {
                    let reason = "cleaned up".to_owned();
                    let step = Step { to: StepTarget::Destroyed, reason, revision, idle: None };
                    self.registry.step(id, step).await?
                }
            };
            self.changes.forget(id);
            Ok(())
        }
        .await;
        audited.done(result).await
    }
}
