//! The public interface. Disks are thin: a limit is a bound and no reservation, and a new tree needs only that
//! the free space is above a watermark. With classic quotas, where the kernel bounds each tree and not their sum,
//! the sum of all limits has to fit. `Storage` decides both under the lock; drivers do the rest.
//!
//! A start depends on nothing that the volume holds: /tmp is a tree of its own, made and removed with the
//! container and counted against the volume's limit, which is raised by 8 MiB while a start writes to the volume.

use crate::config::StorageConfig;
use crate::driver::{Driver, Room, RoomAccuracy};
use crate::error::{below_use, disk_full, no_tree};
use crate::lock::Lock;
use crate::report::{DriverKind, QuotaKind, StorageReport, Usage};
use crate::tree::{Tree, TreeKind};
use atoll_types::{Error, Result};
use std::path::{Path, PathBuf};

pub(crate) const SMALLEST: u64 = 1 << 20;
const LARGEST: u64 = 1 << 50;
/// What a start may write to a tree whose limit is reached: folders, and those of an overlay.
pub(crate) const START_BYTES: u64 = 8 << 20;

/// Trees on this machine.
pub struct Storage {
    pub(crate) driver: Box<dyn Driver>,
    pub(crate) lock: PathBuf,
    notes: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Missing {
    Make,
    Refuse,
}

impl Storage {
    /// Finds or makes the place for trees, and repairs what a crash left.
    pub fn open(config: &StorageConfig) -> Result<Self> {
        crate::disk::private_dir(&config.dir)?;
        let lock = lock_path(&config.dir);
        let _held = Lock::take(&lock)?;
        let (driver, notes) = crate::open::driver(config)?;
        let storage = Self { driver, lock, notes };
        storage.delete_orphans()?;
        storage.driver.sweep()?;
        storage.driver.guard()?;
        Ok(storage)
    }

    /// Makes a tree, owned by root with mode 0755, or finds the one that is there; sets its limit.
    pub fn create(&self, tree: Tree, limit_bytes: u64) -> Result<PathBuf> {
        self.fit(tree, limit_bytes, Missing::Make)?;
        Ok(self.driver.path(tree))
    }

    /// Makes a /tmp that counts against the limit of another tree. Nothing of it depends on what that tree
    /// holds or has free.
    pub fn create_beside(&self, tree: Tree, other: Tree) -> Result<PathBuf> {
        let _held = Lock::take(&self.lock)?;
        self.driver.create_beside(tree, other)?;
        Ok(self.driver.path(tree))
    }

    /// Makes sure that trees can use what the disk below has, and never more.
    pub fn guard(&self) -> Result<()> {
        let _held = Lock::take(&self.lock)?;
        self.driver.guard()
    }

    /// A figure that changes when `guard` has something to do. Cheap, and never waits.
    #[must_use]
    pub fn measure(&self) -> u64 {
        self.driver.measure()
    }

    /// Raises the limit of a tree by what a start writes to it, and that of all volumes where they are full. `lower`
    /// sets the tree's back.
    pub fn lift(&self, tree: Tree, limit_bytes: u64) -> Result<()> {
        self.driver.set_limit(tree, limit_bytes.saturating_add(START_BYTES))?;
        self.driver.lift_all(START_BYTES)
    }

    /// Sets a limit whatever the tree holds: data above it stays, and no more can be written.
    pub fn lower(&self, tree: Tree, limit_bytes: u64) -> Result<()> {
        self.driver.set_limit(tree, limit_bytes)
    }

    /// What the trees are made of.
    #[must_use]
    pub fn kind(&self) -> DriverKind {
        self.driver.kind()
    }

    /// Where a tree is or would be.
    #[must_use]
    pub fn path(&self, tree: Tree) -> PathBuf {
        self.driver.path(tree)
    }

    /// Removes a tree whole, and with a volume its snapshots. Not an error where there is none.
    pub fn remove(&self, tree: Tree) -> Result<()> {
        self.driver.remove(tree)?;
        // After the volume, so that none is lost while the volume stays; the next open deletes what is left.
        let Tree::Volume(volume) = tree else { return Ok(()) };
        self.snapshots(volume)?.iter().try_for_each(|snapshot| self.driver.delete_snapshot(snapshot))?;
        self.end_rollback(volume)
    }

    /// Changes the limit of a tree; never below what it holds.
    pub fn set_limit(&self, tree: Tree, limit_bytes: u64) -> Result<()> {
        self.fit(tree, limit_bytes, Missing::Refuse)
    }

    /// What a tree may hold.
    pub fn limit(&self, tree: Tree) -> Result<u64> {
        self.driver.limit(tree)?.ok_or_else(no_tree)
    }

    /// What a tree holds and may hold. With the `dir` driver this walks the tree.
    pub fn usage(&self, tree: Tree) -> Result<Usage> {
        self.driver.usage(tree)
    }

    /// What a tree holds, where the kernel counts that. Nothing is walked: a sandbox chooses how much
    /// there would be to walk.
    #[must_use]
    pub fn counted(&self, tree: Tree) -> Option<u64> {
        self.driver.counted(tree)
    }

    /// The folder in which the kernel shows the figures that bound a tree, such as `max_referenced` and `referenced`, where
    /// it has one, and how much of the tree's limit they leave out because the tree shared it when it was made.
    #[must_use]
    pub fn live_figures(&self, tree: Tree) -> Option<(PathBuf, u64)> {
        self.driver.live_figures(tree)
    }

    /// What enforces the disk limit.
    #[must_use]
    pub fn quota(&self) -> QuotaKind {
        self.driver.quota()
    }

    /// The trees of a sort, in no order.
    pub fn list(&self, kind: TreeKind) -> Result<Vec<Tree>> {
        self.driver.list(kind)
    }

    /// Frees what earlier removals could not. Opening does this too.
    pub fn sweep(&self) -> Result<()> {
        let _held = Lock::take(&self.lock)?;
        self.delete_orphans()?;
        self.driver.sweep()
    }

    /// The state of storage, for the operator.
    pub fn report(&self) -> Result<StorageReport> {
        let room = self.driver.room(RoomAccuracy::Exact)?;
        let mut notes = self.notes.clone();
        notes.extend(self.driver.notes());
        Ok(StorageReport {
            driver: self.driver.kind(),
            quota: self.driver.quota(),
            reflink: self.driver.reflink(),
            capacity_bytes: room.capacity,
            free_bytes: room.free,
            low: room.low.is_some() && !room.fits(0),
            promised_bytes: room.promised,
            notes,
        })
    }

    /// Unmounts a loop-backed pool. Containers that still have trees mounted in their own namespaces keep
    /// them; a process with a file open at the mount point makes it an error.
    pub fn close(self) -> Result<()> {
        // The folder may have been deleted; then no other process can work in it either.
        let gone = self.lock.parent().is_some_and(|folder| !folder.exists());
        let _held = if gone { None } else { Some(Lock::take(&self.lock)?) };
        self.driver.close()
    }

    /// Sets the limit of a tree, and makes the tree if requested, once its limit can be promised.
    fn fit(&self, tree: Tree, limit: u64, missing: Missing) -> Result<()> {
        check_limit(limit)?;
        let (mut asked, mut room) = (0, Room::default());
        for accuracy in [RoomAccuracy::Quick, RoomAccuracy::Exact] {
            if accuracy == RoomAccuracy::Exact {
                self.driver.settle();
            }
            let _held = Lock::take(&self.lock)?;
            if accuracy == RoomAccuracy::Exact {
                self.driver.guard()?;
            }
            let old = self.driver.limit(tree)?;
            if old == Some(limit) {
                return Ok(());
            }
            if old.is_none() && missing == Missing::Refuse {
                return Err(no_tree());
            }
            if old.is_some() && missing == Missing::Make {
                // The start of an existing sandbox depends on nothing.
                return self.driver.set_limit(tree, limit);
            }
            asked = limit.saturating_sub(old.unwrap_or(0));
            if asked > 0 {
                room = self.driver.room(accuracy)?;
                // Output counts by its use: an existing sandbox may always start.
                let exempt = room.low.is_some() && tree.kind() == TreeKind::Spool;
                if !exempt && !room.fits(asked) {
                    continue;
                }
            }
            return if old.is_none() { self.driver.create(tree, limit) } else { self.change(tree, limit) };
        }
        Err(disk_full(asked, room.for_new()))
    }

    fn change(&self, tree: Tree, limit: u64) -> Result<()> {
        let Usage { used_bytes, limit_bytes } = self.driver.usage(tree)?;
        if limit < limit_bytes && limit < used_bytes {
            return Err(below_use(limit, used_bytes));
        }
        self.driver.set_limit(tree, limit)
    }
}

pub(crate) fn check_limit(bytes: u64) -> Result<()> {
    if (SMALLEST..=LARGEST).contains(&bytes) {
        return Ok(());
    }
    Err(Error::invalid("disk_bytes", "a disk limit must be between 1 MiB and 1 PiB"))
}

fn lock_path(dir: &Path) -> PathBuf {
    dir.join("lock")
}
