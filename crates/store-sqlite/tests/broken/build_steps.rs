use super::{Broken, Fault};
use async_trait::async_trait;
use atoll_store::{BuildSteps, Millis, Result, Sha256};
use atoll_types::BuildStepRecord;

#[async_trait]
impl BuildSteps for Broken {
    async fn insert_build_step(&self, new: BuildStepRecord) -> Result<Option<BuildStepRecord>> {
        self.inner.insert_build_step(new).await
    }

    async fn use_build_step(&self, key: Sha256, at: Millis) -> Result<Option<BuildStepRecord>> {
        let at = if self.is(Fault::ForgetsUsesOfSteps) { 0 } else { at };
        self.inner.use_build_step(key, at).await
    }

    async fn build_steps(&self) -> Result<Vec<BuildStepRecord>> {
        self.inner.build_steps().await
    }

    async fn remove_build_step(&self, key: Sha256) -> Result<()> {
        self.inner.remove_build_step(key).await
    }
}
