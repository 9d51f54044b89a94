//! Faults of volumes.

use super::{Broken, Fault};
use async_trait::async_trait;
use atoll_store::{Result, SandboxId, Volumes};
use atoll_types::{VolumeId, VolumeRecord};

#[async_trait]
impl Volumes for Broken {
    async fn insert_volume(&self, mut new: VolumeRecord) -> Result<Option<VolumeRecord>> {
        if self.is(Fault::MixesTenants) {
            new.tenant = None;
        }
        if self.is(Fault::AttachesAnything) {
            new.owner = "owner".into();
            new.name = format!("{}-{}", new.name, new.id).parse().unwrap();
        }
        self.inner.insert_volume(new).await
    }

    async fn volume(&self, owner: &str, name: &str) -> Result<Option<VolumeRecord>> {
        self.inner.volume(owner, name).await
    }

    async fn tenant_volume(&self, owner: &str, tenant: &str) -> Result<Option<VolumeRecord>> {
        self.inner.tenant_volume(owner, tenant).await
    }

    async fn volumes(&self, owner: Option<&str>) -> Result<Vec<VolumeRecord>> {
        self.inner.volumes(owner).await
    }

    async fn set_volume_limit(&self, id: VolumeId, disk_bytes: u64) -> Result<()> {
        self.inner.set_volume_limit(id, disk_bytes).await
    }

    async fn attached_to(&self, id: VolumeId) -> Result<Vec<SandboxId>> {
        self.inner.attached_to(id).await
    }

    async fn begin_delete_volume(&self, id: VolumeId) -> Result<Vec<SandboxId>> {
        let attached = self.inner.begin_delete_volume(id).await?;
        Ok(if self.is(Fault::DeletesTheAttached) { Vec::new() } else { attached })
    }

    async fn end_delete_volume(&self, id: VolumeId) -> Result<()> {
        self.inner.end_delete_volume(id).await
    }
}
