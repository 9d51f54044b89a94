//! What the operator decides about storage. No defaults depend on the machine but the reserve.

use std::path::PathBuf;

/// Which driver to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DriverChoice {
    /// The best that works here: btrfs below the folder, a loop-backed btrfs pool, plain directories.
    #[default]
    Auto,
    /// Btrfs, native or on a loop-backed pool, or an error.
    Btrfs,
    /// Plain directories; disk limits are not enforced.
    Dir,
}

/// How storage is opened.
#[derive(Debug, Clone)]
pub struct StorageConfig {
    /// The folder that storage owns. Made with mode 0700 when missing.
    pub dir: PathBuf,
    /// Where a loop-backed pool is mounted. Made when missing.
    pub mount_at: PathBuf,
    /// Which driver to use.
    pub driver: DriverChoice,
    /// What is never promised of the disk below; by default 2 %, and at least 1 GiB or a tenth.
    pub reserve_bytes: Option<u64>,
    /// The size a new loop-backed pool starts with. It is sparse and follows what the disk below has.
    pub pool_bytes: u64,
    /// The `mkfs.btrfs` to run; by default the one in the system's folders.
    pub mkfs: Option<PathBuf>,
}

impl StorageConfig {
    /// The defaults for a folder and a mount point.
    #[must_use]
    pub fn new(dir: impl Into<PathBuf>, mount_at: impl Into<PathBuf>) -> Self {
        Self {
            dir: dir.into(),
            mount_at: mount_at.into(),
            driver: DriverChoice::Auto,
            reserve_bytes: None,
            pool_bytes: 4 << 30,
            mkfs: None,
        }
    }
}
