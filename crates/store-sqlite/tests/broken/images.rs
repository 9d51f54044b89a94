//! Faults of images.

use super::{Broken, Fault};
use async_trait::async_trait;
use atoll_store::{Images, Millis, Result, SandboxId};
use atoll_types::{BuildId, BuildRecord, BuildState, ImageId, ImageRecord};

#[async_trait]
impl Images for Broken {
    async fn insert_image(
        &self,
        new: ImageRecord,
        build: BuildId,
        replace: bool,
    ) -> Result<Option<ImageRecord>> {
        self.inner.insert_image(new, build, replace || self.is(Fault::TakesTags)).await
    }

    async fn image(&self, id: ImageId) -> Result<Option<ImageRecord>> {
        self.inner.image(id).await
    }

    async fn images(&self) -> Result<Vec<ImageRecord>> {
        self.inner.images().await
    }

    async fn update_image(&self, record: ImageRecord) -> Result<Option<ImageRecord>> {
        self.inner.update_image(record).await
    }

    async fn image_users(&self, id: ImageId) -> Result<Vec<SandboxId>> {
        self.inner.image_users(id).await
    }

    async fn begin_delete_image(&self, id: ImageId) -> Result<Vec<SandboxId>> {
        let users = self.inner.begin_delete_image(id).await?;
        Ok(if self.is(Fault::DeletesTheUsed) { Vec::new() } else { users })
    }

    async fn end_delete_image(&self, id: ImageId) -> Result<()> {
        self.inner.end_delete_image(id).await
    }

    async fn insert_build(&self, new: BuildRecord) -> Result<()> {
        self.inner.insert_build(new).await
    }

    async fn build(&self, id: BuildId) -> Result<Option<BuildRecord>> {
        self.inner.build(id).await
    }

    async fn builds(&self, most: u32) -> Result<Vec<BuildRecord>> {
        self.inner.builds(most).await
    }

    async fn running_builds(&self) -> Result<Vec<BuildRecord>> {
        let running = self.inner.running_builds().await?;
        Ok(if self.is(Fault::ForgetsRunningBuilds) { Vec::new() } else { running })
    }

    async fn remove_build(&self, id: BuildId) -> Result<()> {
        self.inner.remove_build(id).await
    }

    async fn end_build(
        &self,
        id: BuildId,
        state: BuildState,
        error: Option<String>,
        at: Millis,
    ) -> Result<()> {
        self.inner.end_build(id, state, error, at).await
    }
}
