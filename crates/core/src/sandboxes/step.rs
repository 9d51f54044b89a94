//! Steps that a reconciler takes: no caller asked for them.

use crate::{
    Caller, Sandboxes,
    actor::{Step, StepTarget},
    operation::OperationSpec,
};
use atoll_store::SandboxRecord;
use atoll_types::{Error, ErrorCode, Operation, Result};
use std::time::Duration;

/// How long one step may take: a launcher may hang, and the others must not wait for it.
const STEP_PATIENCE: Duration = Duration::from_secs(60);

impl Sandboxes {
    /// Takes a step that no caller asked for, as an operation that says why.
    pub(crate) async fn step(&self, record: &SandboxRecord, step: Step) -> Result<()> {
        let kind = match step.to {
            StepTarget::Paused => Operation::SandboxPause,
            StepTarget::Stopped => Operation::SandboxStop,
            StepTarget::Destroyed => Operation::SandboxDestroy,
        };
        let (caller, ends) =
            (Caller::lifecycle(&record.owner, &record.owner_name), step.to != StepTarget::Paused);
        let audited = self
            .operations
            .audited(&caller, OperationSpec::to(kind, record.id).and("reason", &step.reason))
            .await?;
        let late = || Error::new(ErrorCode::Timeout, "it does not answer");
        let taken = tokio::time::timeout(STEP_PATIENCE, self.registry.step(record.id, step)).await;
        let result = taken.unwrap_or_else(|_| Err(late()));
        if ends && result.is_ok() {
            self.changes.forget(record.id);
        }
        audited.done(result).await.map(drop)
    }
}
