//! What storage knows of an image. Its name, its tags and where it came from are the control plane's to record.

use crate::ImageId;
use serde::{Deserialize, Serialize};

/// An image that was sealed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageUsage {
    /// Which.
    pub id: ImageId,
    /// What its files hold, whatever of that it shares with volumes and other images.
    pub bytes: u64,
}
