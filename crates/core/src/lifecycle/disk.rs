//! The capacity of the disk for volumes, for admission, and the warning when little of it is left. Refusals
//! are the provider's, which knows the free space at the moment; this reconciler only warns: in the audit trail, by an event
//! that admins get, and with figures of `/metrics`.

use super::retention::system;
use crate::{Lifecycle, events::new_event, operation::OperationSpec};
use atoll_provider::DiskRoom;
use atoll_types::{EventKind, Operation, Result};
use serde_json::json;
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
        self.admission.set_disk(room);
        Ok(Some(room))
    }

    /// The state of that disk when it was last read; none where there are no volumes.
    #[must_use]
    pub fn disk_room(&self) -> Option<DiskRoom> {
        self.admission.disk()
    }

    /// Reads the state of the disk, and warns where it is `low` and was not in the last pass.
    pub(super) async fn look_at_disk(&self, low: &mut bool) -> Result<()> {
        let Some(room) = self.read_disk().await? else { return Ok(()) };
        if room.low == std::mem::replace(low, room.low) {
            return Ok(());
        }
        let (kind, event) = match room.low {
            true => (Operation::StorageLow, EventKind::StorageLow),
            false => (Operation::StorageRecovered, EventKind::StorageRecovered),
        };
        tracing::warn!(free_bytes = room.free_bytes, capacity_bytes = room.capacity_bytes, "{}", kind.name());
        let what = OperationSpec::new(kind)
            .and("free_bytes", room.free_bytes)
            .and("capacity_bytes", room.capacity_bytes);
        let (system, data) =
            (system(), json!({ "free_bytes": room.free_bytes, "capacity_bytes": room.capacity_bytes }));
        let mut audited = self.operations.audited(&system, what).await?;
        audited.add_event(new_event(&system.owner, None, event, None, &data));
        audited.done(Ok(())).await
    }
}
