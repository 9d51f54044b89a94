//! The capacity of the disk for volumes, for admission, and the warning when little of it is left. Refusals
//! are the provider's, which knows the free space at the moment; this reconciler only warns.

use super::retention::system;
use crate::{Lifecycle, operation::OperationSpec};
use atoll_provider::DiskRoom;
use atoll_types::{Operation, Result};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(10);

impl Lifecycle {
    /// Reads for admission the state of the disk that new sandboxes get their volumes from; none where the
    /// provider has no volumes, or does not answer in time.
    pub(crate) async fn read_disk(&self) -> Result<Option<DiskRoom>> {
        let default = self.providers.get(self.providers.default_name())?;
        let Some(volumes) = default.volumes() else { return Ok(None) };
        let Ok(room) = tokio::time::timeout(PATIENCE, volumes.room()).await else { return Ok(None) };
        let room = room?;
        self.admission.set_disk_capacity(room.capacity_bytes);
        Ok(Some(room))
    }

    /// Reads the state of the disk, and warns where it is `low` and was not in the last pass.
    pub(super) async fn look_at_disk(&self, low: &mut bool) -> Result<()> {
        let Some(room) = self.read_disk().await? else { return Ok(()) };
        if room.low == std::mem::replace(low, room.low) {
            return Ok(());
        }
        let kind = if room.low { Operation::StorageLow } else { Operation::StorageRecovered };
        tracing::warn!(free_bytes = room.free_bytes, capacity_bytes = room.capacity_bytes, "{}", kind.name());
        let what = OperationSpec::new(kind)
            .and("free_bytes", room.free_bytes)
            .and("capacity_bytes", room.capacity_bytes);
        self.operations.audited(&system(), what).await?.done(Ok(())).await
    }
}
