//! The `btrfs` driver: a tree is a subvolume with a quota, on the data folder's own file system or on a
//! loop-backed pool. It holds the root open, so a mounted pool cannot be taken away from under it.

mod guard;
mod image;
mod ioctl;
mod ledger;
mod quota;
mod search;
mod snapshot;

use crate::disk::{Disk, folders, is_being_made, names, open_dir, open_dir_at, private_dir};
use crate::driver::{Driver, Room, RoomAccuracy, low};
use crate::error::{failed, no_tree};
use crate::pool::Pool;
use crate::report::{DriverKind, QuotaKind, Usage};
use crate::tree::{ROOT_FOLDERS, STAGING, TRASH, Tree, TreeKind};
use atoll_types::{Error, ErrorCode, Result};
use ledger::Ledger;
use quota::Quota;
use rustix::fs::{Mode, fchmod, fstatvfs, renameat};
use rustix::io::Errno;
use std::collections::HashSet;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;
use uuid::Uuid;

/// How the name of a subvolume in one of these ends that a rollback replaced: it stays in its volume's group until it is
/// freed.
const REPLACED: &str = ".replaced";
/// What a pool without any space left is given, so that trees can be made in it and removed from it.
const RESCUE: u64 = 64 << 20;

pub(crate) struct Btrfs {
    root: PathBuf,
    fd: OwnedFd,
    quota: Quota,
    pool: Option<Pool>,
    disk: Disk,
}

impl Btrfs {
    pub(crate) fn open(root: PathBuf, pool: Option<Pool>, disk: Disk) -> Result<Self> {
        private_dir(&root)?;
        let fd = open_dir(&root).map_err(failed("open the storage folder"))?;
        folders(&fd, &ROOT_FOLDERS)?;
        let quota = Quota::enable(&fd)?;
        Ok(Self { root, fd, quota, pool, disk })
    }

    fn folder(&self, name: &str) -> Result<OwnedFd> {
        open_dir_at(&self.fd, name).map_err(failed("open a folder of volumes"))
    }

    /// The subvolume behind a path below the root, `None` where there is nothing.
    fn subvolume(&self, path: &str) -> Result<Option<u64>> {
        match open_dir_at(&self.fd, path) {
            Ok(dir) => ioctl::subvolume_id(dir).map(Some).map_err(failed("find the volume")),
            Err(Errno::NOENT) => Ok(None),
            Err(cause) => Err(failed("open the volume")(cause)),
        }
    }

    fn ledger(&self) -> Result<Ledger> {
        let groups = search::groups(&self.fd).map_err(failed("read the disk quotas"))?;
        let listed = match self.quota.kind {
            QuotaKind::Simple => None,
            _ => Some(self.listed()?),
        };
        Ok(Ledger::new(&groups, listed.as_ref()))
    }

    fn listed(&self) -> Result<HashSet<u64>> {
        let mut ids = HashSet::new();
        for kind in TreeKind::ALL {
            for tree in self.list(kind)? {
                ids.extend(self.subvolume(&tree.relative())?);
            }
        }
        Ok(ids)
    }

    /// Frees one entry of the trash, and whatever subvolumes a sandbox made inside it.
    fn destroy(&self, trash: &OwnedFd, name: &str) -> Result<()> {
        let Some(id) = self.subvolume(&format!("{TRASH}/{name}"))? else { return Ok(()) };
        if !name.ends_with(REPLACED) {
            self.quota.take_down(&self.fd, id).map_err(failed("give back the volume's quota"))?;
        }
        self.destroy_nested(id)?;
        match ioctl::destroy(trash, name) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(cause) => Err(failed("remove the volume")(cause)),
        }
    }

    /// Children before parents, without recursion: the nesting is the sandbox's choice.
    fn destroy_nested(&self, id: u64) -> Result<()> {
        let (mut todo, mut found) = (vec![id], Vec::new());
        while let Some(parent) = todo.pop() {
            let nested = search::nested(&self.fd, parent).map_err(failed("look into the volume"))?;
            todo.extend(&nested);
            found.extend(nested);
        }
        for id in found.into_iter().rev() {
            match ioctl::destroy_id(&self.fd, id) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(cause) => return Err(failed("remove a nested volume")(cause)),
            }
        }
        Ok(())
    }

    fn discard(&self, path: &str) -> Result<()> {
        self.rescued(|| self.try_discard(path))
    }

    fn resize(&self, pool: &Pool, size: u64) -> Result<()> {
        pool.extend(size)?;
        ioctl::resize(&self.fd, size).map_err(failed("change the pool's size"))
    }

    fn empty_trash(&self) -> Result<()> {
        let trash = self.folder(TRASH)?;
        names(&trash)?.iter().try_for_each(|name| self.destroy(&trash, name))
    }

    /// Moves a subvolume into the trash and frees it there.
    fn try_discard(&self, path: &str) -> Result<()> {
        let mut name = Uuid::new_v4().simple().to_string();
        if path.ends_with(REPLACED) {
            name.push_str(REPLACED);
        }
        let trash = self.folder(TRASH)?;
        match renameat(&self.fd, path, &trash, &name) {
            Ok(()) => self.destroy(&trash, &name),
            Err(Errno::NOENT) => Ok(()),
            Err(cause) => Err(failed("remove the volume")(cause)),
        }
    }

    fn size(&self) -> Result<u64> {
        let stat = fstatvfs(&self.fd).map_err(failed("read the size of the pool"))?;
        Ok(stat.f_blocks.saturating_mul(stat.f_frsize))
    }

    /// The size that the disk below can give the pool, blocks it has already included. The free space is read before and
    /// after them: blocks that the pool takes or frees meanwhile would otherwise count twice.
    fn backed(&self, pool: &Pool) -> Result<u64> {
        let (before, allocated, after) = (self.disk.free()?, pool.allocated()?, self.disk.free()?);
        Ok(before.min(after).saturating_add(allocated) >> 20 << 20)
    }

    /// Makes a tree: a start needs a spool and a /tmp however full the pool is.
    fn make(&self, tree: Tree, mode: u32, count: impl Fn(u64) -> rustix::io::Result<()>) -> Result<()> {
        self.quota.ready(&self.fd)?;
        self.rescued(|| self.try_make(tree, mode, &count))
    }

    /// Does something that writes btrfs's own records; once more with a little space of the disk's reserve when btrfs has
    /// none left for them. Trees can be made in a full pool and removed from it only so.
    fn rescued(&self, action: impl Fn() -> Result<()>) -> Result<()> {
        match (action(), &self.pool) {
            (Err(error), Some(pool)) if error.code == ErrorCode::DiskFull => {
                tracing::warn!(%error, "the pool is full; it grows a little so that its records have room");
                self.resize(pool, self.size()?.saturating_add(RESCUE))?;
                action()?;
                // What earlier removals could not free can be freed now; the next sweep tries again.
                if let Err(error) = self.empty_trash() {
                    tracing::warn!(%error, "removed volumes are not freed yet");
                }
                Ok(())
            }
            (done, _) => done,
        }
    }

    /// Makes a tree outside its final place, sets its quota, and renames it into place.
    fn try_make(&self, tree: Tree, mode: u32, count: impl Fn(u64) -> rustix::io::Result<()>) -> Result<()> {
        let staged = Uuid::new_v4().simple().to_string();
        let path = format!("{STAGING}/{staged}");
        let made = self
            .stage(&staged, mode)
            .and_then(count)
            .and_then(|()| renameat(&self.fd, &path, &self.fd, tree.relative()))
            .map_err(failed("make the volume"));
        if made.is_err() {
            // The first failure is the one to report; the next open sweeps what is left.
            let _ = self.discard(&path);
        }
        made
    }

    fn stage(&self, name: &str, mode: u32) -> rustix::io::Result<u64> {
        let new = open_dir_at(&self.fd, STAGING)?;
        ioctl::create(&new, name)?;
        let dir = open_dir_at(&new, name)?;
        fchmod(&dir, Mode::from(mode))?;
        ioctl::subvolume_id(&dir)
    }

    /// How a tree is counted, `None` where there is no such tree.
    fn count(&self, tree: Tree) -> Result<Option<Counted>> {
        let dir = match open_dir_at(&self.fd, &tree.relative()) {
            Err(Errno::NOENT) => return Ok(None),
            opened => opened.map_err(failed("open the volume"))?,
        };
        let counted = ioctl::subvolume_id(&dir).and_then(|id| {
            let group = self.quota.find(&self.fd, tree.kind(), id)?;
            Ok(Counted { id, group, shared: snapshot::shared(&dir) })
        });
        counted.map(Some).map_err(failed("find the volume"))
    }

    /// The group of a tree that is there.
    fn group(&self, tree: Tree) -> Result<u64> {
        Ok(self.count(tree)?.ok_or_else(no_tree)?.group)
    }
}

/// How a tree is counted.
struct Counted {
    /// Its subvolume.
    id: u64,
    /// The group with its limit.
    group: u64,
    /// What of the caller's limit is not in the group's.
    shared: u64,
}

impl Driver for Btrfs {
    fn kind(&self) -> DriverKind {
        if self.pool.is_some() { DriverKind::BtrfsLoop } else { DriverKind::BtrfsNative }
    }

    fn quota(&self) -> QuotaKind {
        self.quota.kind
    }

    fn root(&self) -> &Path {
        &self.root
    }

    fn reflink(&self) -> bool {
        true
    }

    fn notes(&self) -> Vec<String> {
        let classic = "classic disk quotas are in use: they are slower, may need recounting, and do not cover \
                       subvolumes that a sandbox makes inside its volume; kernel 6.7 has simple quotas";
        let native = "simple quotas are on for the data folder's file system, which kernels before 6.7 cannot \
                      mount any more";
        match (self.quota.kind, &self.pool) {
            (QuotaKind::Classic, _) => vec![classic.into()],
            (_, None) => vec![native.into()],
            _ => Vec::new(),
        }
    }

    fn path(&self, tree: Tree) -> PathBuf {
        self.root.join(tree.relative())
    }

    fn list(&self, kind: TreeKind) -> Result<Vec<Tree>> {
        Ok(names(self.folder(kind.folder())?)?.iter().filter_map(|name| kind.tree(name)).collect())
    }

    fn limit(&self, tree: Tree) -> Result<Option<u64>> {
        let Some(Counted { group, shared, .. }) = self.count(tree)? else { return Ok(None) };
        let group = search::group(&self.fd, group).map_err(failed("read the disk quota"))?;
        // A tree without a limit counts as one with the limit 0: the next `create` sets it right.
        Ok(Some(group.and_then(|group| group.limit).map_or(0, |limit| limit.saturating_add(shared))))
    }

    fn usage(&self, tree: Tree) -> Result<Usage> {
        let limit_bytes = self.limit(tree)?.ok_or_else(no_tree)?;
        let Counted { id, group, shared } = self.count(tree)?.ok_or_else(no_tree)?;
        let Some(used) = self.quota.used_by(group) else {
            // Another process removed it between the two lookups.
            let gone = self.subvolume(&tree.relative())? != Some(id);
            return Err(if gone { no_tree() } else { Error::internal("the disk use cannot be read") });
        };
        Ok(Usage { used_bytes: used.saturating_add(shared), limit_bytes })
    }

    fn counted(&self, tree: Tree) -> Option<u64> {
        let Counted { group, shared, .. } = self.count(tree).ok()??;
        Some(self.quota.used_by(group)?.saturating_add(shared))
    }

    fn live_figures(&self, tree: Tree) -> Option<(PathBuf, u64)> {
        let Counted { group, shared, .. } = self.count(tree).ok()??;
        Some((self.quota.folder(group), shared)).filter(|(folder, _)| folder.exists())
    }

    fn create(&self, tree: Tree, limit: u64) -> Result<()> {
        self.make(tree, 0o755, |id| self.quota.set_up(&self.fd, tree.kind(), id, limit))
    }

    fn create_beside(&self, tree: Tree, other: Tree) -> Result<()> {
        let group = self.group(other)?;
        self.make(tree, 0o1777, |id| self.quota.join(&self.fd, id, group))
    }

    fn set_limit(&self, tree: Tree, limit: u64) -> Result<()> {
        let Counted { group, shared, .. } = self.count(tree)?.ok_or_else(no_tree)?;
        // Zero would mean no limit to older kernels.
        let own = limit.saturating_sub(shared).max(1);
        ioctl::limit(&self.fd, group, own).map_err(failed("set the disk limit"))
    }

    fn lift_all(&self, bytes: u64) -> Result<()> {
        self.lift_volumes(bytes)
    }

    fn remove(&self, tree: Tree) -> Result<()> {
        let group = self.count(tree)?.map(|counted| counted.group);
        self.discard(&tree.relative())?;
        match group {
            Some(group) if tree.kind() != TreeKind::Temporary => {
                self.quota.dissolve(&self.fd, group).map_err(failed("give back the volume's quota"))
            }
            _ => Ok(()),
        }
    }

    fn sweep(&self) -> Result<()> {
        // Trees are made under the lock that is held now, or by a process that holds them, so any other that is
        // half-made is left by a dead process.
        for name in names(self.folder(STAGING)?)? {
            if !is_being_made(&self.folder(STAGING)?, &name) {
                self.discard(&format!("{STAGING}/{name}"))?;
            }
        }
        self.empty_trash()?;
        quota::sweep(&self.fd, self.pool.is_some()).map_err(failed("tidy the disk quotas"))
    }

    fn room(&self, accuracy: RoomAccuracy) -> Result<Room> {
        if self.quota.kind == QuotaKind::Simple {
            let promised = if accuracy == RoomAccuracy::Exact { self.ledger()?.outstanding() } else { 0 };
            let (capacity, used) = (self.capacity()?, self.quota.used_by(quota::ALL).unwrap_or(u64::MAX));
            let low = Some(low(capacity));
            return Ok(Room { capacity, free: capacity.saturating_sub(used), promised, low });
        }
        // The kernel does not bound the sum, so all promises have to fit.
        let ledger = self.ledger()?;
        let capacity = match &self.pool {
            Some(pool) => ledger::usable(self.backed(pool)?.min(self.size()?)),
            None => {
                ledger.used.saturating_add(self.disk.free()?.saturating_sub(ledger::chunks(self.size()?)))
            }
        };
        let free = capacity.saturating_sub(ledger.needed());
        Ok(Room { capacity, free, promised: ledger.outstanding(), low: None })
    }

    fn guard(&self) -> Result<()> {
        self.close_difference()
    }

    fn measure(&self) -> u64 {
        let allocated = self.pool.as_ref().map_or(0, |pool| pool.allocated().unwrap_or(0));
        // In steps of 64 MiB.
        (self.disk.free().unwrap_or(0) >> 26) << 32 | (allocated >> 26)
    }

    fn settle(&self) {
        // Failures do not matter here: whether it fits is decided under the lock.
        for _ in 0..20 {
            let _ = ioctl::sync(&self.fd);
            if !search::freeing(&self.fd).unwrap_or(false) {
                break;
            }
            std::thread::sleep(Duration::from_millis(25));
        }
        let _ = ioctl::sync(&self.fd);
    }

    fn close(self: Box<Self>) -> Result<()> {
        let Self { fd, pool, .. } = *self;
        drop(fd);
        pool.map_or(Ok(()), |pool| pool.unmount())
    }
}
