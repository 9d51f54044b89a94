//! Steps that a reconciler found due. It decided on a snapshot; the actor, which serialises all changes,
//! checks once more that the step still is.

use super::SandboxActor;
use crate::lifecycle::Quiet;
use atoll_store::{Millis, SandboxRecord};
use atoll_types::{Error, ErrorCode, Result};
use std::time::Duration;

/// The status that a sandbox is to have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StepTarget {
    Paused,
    Stopped,
    Destroyed,
}

/// The observation that a sandbox is idle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Idle {
    pub(crate) last_activity_at: Millis,
    /// How long it must have been idle, where this server knows.
    pub(crate) least: Duration,
}

/// A step, and its preconditions.
#[derive(Debug, Clone)]
pub(crate) struct Step {
    pub(crate) to: StepTarget,
    pub(crate) reason: String,
    /// The record must have this revision; none: any.
    pub(crate) revision: Option<u64>,
    /// The sandbox must still be idle.
    pub(crate) idle: Option<Idle>,
}

impl Step {
    fn is_due(&self, record: &SandboxRecord, quiet_for: Quiet) -> bool {
        let same = self.revision.is_none_or(|revision| record.revision == revision);
        let still = self.idle.is_none_or(|Idle { last_activity_at, least }| {
            let quiet = match quiet_for {
                Quiet::Busy => false,
                Quiet::For(quiet) => quiet >= least,
                Quiet::Unknown => true,
            };
            quiet && record.last_activity_at == last_activity_at
        });
        same && still
    }
}

impl SandboxActor {
    pub(super) async fn step(&mut self, step: Step) -> Result<SandboxRecord> {
        let record = self.record().await?;
        if !step.is_due(&record, self.shared.activity_tracker.quiet_for(self.id)) {
            return Err(Error::new(ErrorCode::Conflict, "it was used or changed meanwhile"));
        }
        match step.to {
            StepTarget::Paused => self.pause(step.reason, step.idle.is_some()).await,
            StepTarget::Stopped => self.stop(Some(step.reason)).await,
            StepTarget::Destroyed => self.destroy(Some(step.reason)).await,
        }
    }
}
