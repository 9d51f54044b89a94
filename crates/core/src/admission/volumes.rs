//! Volumes that belong to an owner: they count towards its plan and towards the disks that the machine promises, as the
//! disks of its sandboxes do.

use super::Admission;
use crate::runtime_settings::Quota;
use atoll_types::{Result, VolumeId};

/// The reservation of a new volume. Dropped, it is freed.
pub(crate) struct VolumeReservation {
    admission: Admission,
    id: VolumeId,
    kept: bool,
}

impl VolumeReservation {
    /// The volume is there.
    pub(crate) fn keep(mut self) {
        self.kept = true;
    }
}

impl Drop for VolumeReservation {
    fn drop(&mut self) {
        if !self.kept {
            self.admission.volume_gone(self.id);
        }
    }
}

impl Admission {
    /// A reservation for a new volume, if its owner's plan and the machine's disk allow it.
    pub(crate) fn place_volume(
        &self,
        id: VolumeId,
        owner: &str,
        disk_bytes: u64,
        quota: Option<&Quota>,
    ) -> Result<VolumeReservation> {
        let mut ledger = self.0.ledger();
        self.0.may_promise(&ledger, disk_bytes)?;
        ledger.place_volume(id, owner, disk_bytes, quota)?;
        drop(ledger);
        Ok(VolumeReservation { admission: self.clone(), id, kept: false })
    }

    /// Enters a recorded volume.
    pub(crate) fn adopt_volume(&self, id: VolumeId, owner: &str, disk_bytes: u64) {
        let mut ledger = self.0.ledger();
        // Without a plan nothing is refused.
        let _ = ledger.place_volume(id, owner, disk_bytes, None);
    }

    /// Counts a volume with another limit, if its owner's plan and the machine's disk allow it.
    pub(crate) fn resize_volume(&self, id: VolumeId, disk_bytes: u64, quota: Option<&Quota>) -> Result<()> {
        let mut ledger = self.0.ledger();
        let more = disk_bytes.saturating_sub(ledger.volume_disk(id));
        if more > 0 {
            self.0.may_promise(&ledger, more)?;
        }
        ledger.resize_volume(id, disk_bytes, quota)
    }

    /// The volume is removed.
    pub(crate) fn volume_gone(&self, id: VolumeId) {
        self.0.ledger().volume_gone(id);
    }
}
