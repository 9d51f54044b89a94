//! What is known of a snapshot.

use crate::{SnapshotId, VolumeId};
use serde::{Deserialize, Serialize};

/// A volume as it was. It lives no longer than its volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Which.
    pub id: SnapshotId,
    /// Whose.
    pub volume: VolumeId,
    /// When it was made.
    pub created_unix_ms: u64,
    /// What counted against the volume's limit at that time, earlier snapshots included.
    pub size_bytes: u64,
}
