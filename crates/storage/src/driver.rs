//! The interface between what storage promises and how a tree is made. A driver never decides whether a tree
//! fits: `Storage` queries its room, under the lock, and then lets it act.

use crate::report::{DriverKind, QuotaKind, Usage};
use crate::tree::{Origin, Tree, TreeKind};
use atoll_types::{ImageId, ImageUsage, Result, Snapshot, VolumeId};
use std::path::{Path, PathBuf};

/// New trees are refused below a twentieth of the capacity, and never above this.
const MOST_LOW: u64 = 4 << 30;

/// Below this no new tree is made.
pub(crate) fn low(capacity: u64) -> u64 {
    (capacity / 20).min(MOST_LOW)
}

/// How much work to spend on knowing the room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RoomAccuracy {
    /// A lower bound that costs little.
    Quick,
    /// The exact figure, after waiting for space that is being freed.
    Exact,
}

/// What is left.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Room {
    /// What all trees together can hold.
    pub(crate) capacity: u64,
    /// What can still be written, or, where disks are not thin, be promised.
    pub(crate) free: u64,
    /// Promised and not used yet; counted with `RoomAccuracy::Exact` alone, and else 0.
    pub(crate) promised: u64,
    /// Where disks are thin: new trees are refused while less than this is free. `None` where the sum of
    /// all promises has to fit, because the kernel bounds each tree and no sum.
    pub(crate) low: Option<u64>,
}

impl Room {
    /// What new trees may be promised.
    pub(crate) fn for_new(&self) -> u64 {
        self.free.saturating_sub(self.low.unwrap_or(0))
    }

    /// Whether a promise of so many bytes can be made.
    pub(crate) fn fits(&self, asked: u64) -> bool {
        if self.low.is_some() { self.for_new() > 0 } else { asked <= self.free }
    }
}

/// How trees are made. `create`, `create_beside`, `set_limit`, `room` and `guard` are called under the
/// storage lock.
pub(crate) trait Driver: SnapshotDriver + ImageDriver + Send + Sync {
    fn kind(&self) -> DriverKind;
    fn quota(&self) -> QuotaKind;
    fn reflink(&self) -> bool;
    fn notes(&self) -> Vec<String>;

    /// The folder that has the trees' folders.
    fn root(&self) -> &Path;
    fn path(&self, tree: Tree) -> PathBuf;
    fn list(&self, kind: TreeKind) -> Result<Vec<Tree>>;
    /// The limit of a tree, `None` where there is no such tree.
    fn limit(&self, tree: Tree) -> Result<Option<u64>>;
    fn usage(&self, tree: Tree) -> Result<Usage>;
    /// What a tree holds, where the kernel has counted that: never by walking it.
    fn counted(&self, tree: Tree) -> Option<u64>;
    /// The folder in which the kernel shows the figures that bound a tree, where it has one, and how much of the tree's
    /// limit they leave out because the tree shared it when it was made.
    fn live_figures(&self, tree: Tree) -> Option<(PathBuf, u64)>;

    /// Makes a tree that is not there. It appears whole, with its limit, or not at all.
    fn create(&self, tree: Tree, limit: u64) -> Result<()>;
    /// Makes a tree with mode 1777 that counts against the limit of another, where the kernel can count so;
    /// otherwise it gets a limit of the same size.
    fn create_beside(&self, tree: Tree, other: Tree) -> Result<()>;
    fn set_limit(&self, tree: Tree, limit: u64) -> Result<()>;
    /// Lets a start write so much though all volumes together hold what they may; the next `guard` takes it back.
    fn lift_all(&self, bytes: u64) -> Result<()> {
        let _ = bytes;
        Ok(())
    }
    /// Renames a tree into the trash, then frees it. Not an error where there is none.
    fn remove(&self, tree: Tree) -> Result<()>;
    /// Frees what a crash left half made or half removed. Called under the lock.
    fn sweep(&self) -> Result<()>;

    fn room(&self, accuracy: RoomAccuracy) -> Result<Room>;
    /// Compares what the file system may use with what the disk below has, and adjusts the file system's size and
    /// the bound of all trees together.
    fn guard(&self) -> Result<()>;
    /// What `guard` depends on. As long as it is the same there is nothing to do.
    fn measure(&self) -> u64;
    /// Waits a moment for space that is being freed. Called without the lock.
    fn settle(&self);

    fn close(self: Box<Self>) -> Result<()>;
}

/// How snapshots, rollbacks and forks of volumes are made.
pub(crate) trait SnapshotDriver {
    /// The most that a snapshot of a volume can hold: what is in the volume, and where only sums are known, what its
    /// snapshots keep as well.
    fn content(&self, volume: VolumeId) -> Result<u64>;
    /// The snapshots of a volume, or every one, in no order.
    fn snapshots(&self, of: Option<VolumeId>) -> Result<Vec<Snapshot>>;
    fn snapshot_path(&self, snapshot: &Snapshot) -> PathBuf;
    /// Makes a snapshot of a volume that is there. It appears whole or not at all. The caller holds the volume. Where files are
    /// copied, `copied` is called once nothing more is read of them.
    fn snapshot(&self, snapshot: &Snapshot, copied: &mut dyn FnMut()) -> Result<()>;
    /// Not an error where there is none.
    fn delete_snapshot(&self, snapshot: &Snapshot) -> Result<()>;
    /// Exchanges a volume at once for what its snapshot holds; limit and snapshots stay. The caller holds the volume.
    fn rollback(&self, snapshot: &Snapshot) -> Result<()>;
    /// Makes a volume with a limit of its own, of which `shared` bytes are counted as used from the beginning where the
    /// kernel does not count what it shares. The caller holds the origin's volume. `copied` is called as for a snapshot.
    fn fork(
        &self,
        from: &Origin,
        to: VolumeId,
        limit: u64,
        shared: u64,
        copied: &mut dyn FnMut(),
    ) -> Result<()>;
    /// Writes back most of what is dirty of a volume, where a snapshot would have to; sandboxes may write meanwhile.
    /// Returns whether little is left.
    fn flush(&self, volume: VolumeId) -> Result<bool>;
    /// What waits to be written back, where that delays a snapshot. Cheap, and never waits.
    fn dirty(&self) -> u64;
    fn write_back(&self) -> Result<()>;
}

/// How images are made of volumes; volumes are made of images as forks are.
pub(crate) trait ImageDriver {
    /// Every image, in no order.
    fn images(&self) -> Result<Vec<ImageUsage>>;
    /// The folder that has the layout of a volume.
    fn image_path(&self, id: ImageId) -> PathBuf;
    /// Makes an image of a volume that is there. It appears whole and on disk, or not at all;
    /// [`atoll_types::ErrorCode::AlreadyExists`] where it is there. The caller holds the volume.
    fn seal(&self, volume: VolumeId, image: &ImageUsage) -> Result<()>;
    /// Does what a process that was killed after the image appeared may have left undone.
    fn finish_image(&self, id: ImageId) -> Result<()>;
    /// Not an error where there is none. The caller holds the image.
    fn remove_image(&self, id: ImageId) -> Result<()>;
}
