//! What steps of image templates made, kept so that a later build begins there.

use crate::{Millis, Result, Sha256};
use async_trait::async_trait;
use atoll_types::BuildStepRecord;

/// Kept steps.
#[async_trait]
pub trait BuildSteps: Send + Sync {
    /// Inserts one that is used now. Where its key is there already, that one stays and is returned.
    async fn insert_build_step(&self, new: BuildStepRecord) -> Result<Option<BuildStepRecord>>;
    /// One by its key; it is used at this moment.
    async fn use_build_step(&self, key: Sha256, at: Millis) -> Result<Option<BuildStepRecord>>;
    /// All of them, the most recently used first.
    async fn build_steps(&self) -> Result<Vec<BuildStepRecord>>;
    /// Removes one. Nothing where there is none.
    async fn remove_build_step(&self, key: Sha256) -> Result<()>;
}
