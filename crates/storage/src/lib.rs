//! Where volumes live and what a root filesystem is made of: the storage drivers (`btrfs` on the data
//! folder itself or on a loop-backed pool, `dir` everywhere else), the `host` image, and images that were sealed.
//!
//! Linked only into the root launcher. Everything is synchronous and safe to call from forked workers at
//! the same time; nothing here knows containers, namespaces or sockets. The invariant: what all trees
//! together may write never exceeds what the disk below has, whatever the sum of their limits. A volume has an id
//! of its own and knows no sandbox.

mod btrfs;
mod config;
mod copy;
mod diff;
mod dir;
mod disk;
mod driver;
mod error;
pub mod image;
mod lock;
mod open;
mod pool;
mod remove;
mod report;
mod rollback;
mod sealed;
mod snapshots;
mod storage;
mod tree;

pub use config::{DriverChoice, StorageConfig};
pub use image::{HostImage, Image, ImageTree, open_image};
pub use lock::{HeldImage, HeldVolume};
pub use report::{DriverKind, QuotaKind, StorageReport, Usage};
pub use storage::Storage;
pub use tree::{DATA, Tree, TreeKind};
