//! Keeping volumes that belong to an owner and outlive sandboxes, and which sandbox has which.

use crate::{Result, SandboxId};
use async_trait::async_trait;
use atoll_types::{VolumeId, VolumeRecord};

/// Volumes and their attachments. An attachment is written with the sandbox whose profile names the volume, and goes
/// when that is destroyed: an insert or a change of a sandbox that names a volume which is not there, is being deleted or
/// belongs to another owner is `NotFound`, and leaves nothing.
#[async_trait]
pub trait Volumes: Send + Sync {
    /// Inserts a record. Returns the one that the owner has already with this name or this tenant, if there is one; then
    /// nothing is inserted.
    async fn insert_volume(&self, new: VolumeRecord) -> Result<Option<VolumeRecord>>;
    /// One by its owner and its name.
    async fn volume(&self, owner: &str, name: &str) -> Result<Option<VolumeRecord>>;
    /// One by its owner and its tenant.
    async fn tenant_volume(&self, owner: &str, tenant: &str) -> Result<Option<VolumeRecord>>;
    /// An owner's, or all of them, in the order of their owners and names. Those that are being deleted are among them.
    async fn volumes(&self, owner: Option<&str>) -> Result<Vec<VolumeRecord>>;
    /// Writes another limit. Nothing where there is none.
    async fn set_volume_limit(&self, id: VolumeId, disk_bytes: u64) -> Result<()>;
    /// The sandboxes that have it.
    async fn attached_to(&self, id: VolumeId) -> Result<Vec<SandboxId>>;
    /// Marks it as being deleted, unless a sandbox has it: those are returned then, and nothing is changed.
    async fn begin_delete_volume(&self, id: VolumeId) -> Result<Vec<SandboxId>>;
    /// Removes the record of one that is being deleted. Nothing where there is none.
    async fn end_delete_volume(&self, id: VolumeId) -> Result<()>;
}
