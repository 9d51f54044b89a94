//! Keeping images, which sandbox uses which, and the builds that make them.

use crate::{Millis, Result, SandboxId};
use async_trait::async_trait;
use atoll_types::{BuildId, BuildRecord, BuildState, ImageId, ImageRecord};

/// Builds that are kept after their end.
pub const BUILDS_KEPT: u32 = 200;

/// Images and their builds. That a sandbox uses an image is written with the sandbox whose profile names it, and goes when
/// that is destroyed: an insert of a sandbox that names an image which is not there or is being deleted is `NotFound`, and
/// leaves nothing. Both the insert and the destruction move the image's `last_used_at`.
#[async_trait]
pub trait Images: Send + Sync {
    /// Inserts the record of an image that a build has made, and ends the build with it. Tags that another image has under
    /// the same name are taken from it with `replace`; without, that image is returned and nothing is written.
    async fn insert_image(
        &self,
        new: ImageRecord,
        build: BuildId,
        replace: bool,
    ) -> Result<Option<ImageRecord>>;
    /// One.
    async fn image(&self, id: ImageId) -> Result<Option<ImageRecord>>;
    /// All of them, by name and then by age. Those that are being deleted are among them.
    async fn images(&self) -> Result<Vec<ImageRecord>>;
    /// Replaces a record, but for `last_used_at` and `deleting`. Returns the image that has one of the tags under the same
    /// name, if there is one; then nothing is written. `NotFound` where there is no such image.
    async fn update_image(&self, record: ImageRecord) -> Result<Option<ImageRecord>>;
    /// The sandboxes that use it.
    async fn image_users(&self, id: ImageId) -> Result<Vec<SandboxId>>;
    /// Marks it as being deleted, unless a sandbox uses it: those are returned then, and nothing is changed.
    async fn begin_delete_image(&self, id: ImageId) -> Result<Vec<SandboxId>>;
    /// Removes the record of one that is being deleted. Nothing where there is none.
    async fn end_delete_image(&self, id: ImageId) -> Result<()>;

    /// Inserts a build. Of those that have ended, the newest [`BUILDS_KEPT`] are kept.
    async fn insert_build(&self, new: BuildRecord) -> Result<()>;
    /// One.
    async fn build(&self, id: BuildId) -> Result<Option<BuildRecord>>;
    /// The newest of them.
    async fn builds(&self, most: u32) -> Result<Vec<BuildRecord>>;
    /// Those that run.
    async fn running_builds(&self) -> Result<Vec<BuildRecord>>;
    /// Removes the record of a build that has ended. Nothing where there is none, or it runs.
    async fn remove_build(&self, id: BuildId) -> Result<()>;
    /// Ends a build that runs. Nothing where it has ended.
    async fn end_build(
        &self,
        id: BuildId,
        state: BuildState,
        error: Option<String>,
        at: Millis,
    ) -> Result<()>;
}
