//! The `dir` driver: plain directories. Nothing enforces a limit here; limits are stored so that promises can
//! still be counted. Project quotas are not used: no kernel we test on has them. To reserve whole disks would
//! guard nothing that the kernel does not bound, so they are thin: new trees are refused below a watermark of
//! free space.
//!
//! One entry is `<kind>/<id>/` with `limit` and `tree` inside, so that one rename makes or removes both. A snapshot is
//! such an entry too: a copy. Snapshots and forks are copied outside their place, in a folder that their process holds,
//! written back and renamed into it; a rollback exchanges two entries. An image is such a copy too, with what it holds for its limit.

mod walk;

use crate::copy;
use crate::disk::{Disk, folders, hold_new, is_being_made, names, open_dir, open_dir_at, private_dir};
use crate::driver::{Driver, ImageDriver, Room, RoomAccuracy, SnapshotDriver, low};
use crate::error::{copy_failed, failed, no_tree, unsupported};
use crate::remove;
use crate::report::{DriverKind, QuotaKind, Usage};
use crate::tree::{
    DATA, IMAGES, Origin, ROOT_FOLDERS, SNAPSHOTS, STAGING, TRASH, Tree, TreeKind, image_place,
    snapshot_place, snapshots_named,
};
use atoll_types::{Error, ErrorCode, ImageId, ImageUsage, Result, Snapshot, VolumeId};
use rustix::fs::{CWD, Mode, RenameFlags, chmod, fsync, renameat_with, syncfs};
use rustix::io::Errno;
use std::fs;
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use uuid::Uuid;

pub(crate) struct Dir {
    root: PathBuf,
    fd: OwnedFd,
    disk: Disk,
    reflink: bool,
}

impl Dir {
    pub(crate) fn open(root: PathBuf, disk: Disk) -> Result<Self> {
        private_dir(&root)?;
        let fd = open_dir(&root).map_err(failed("open the storage folder"))?;
        folders(&fd, &ROOT_FOLDERS)?;
        let reflink = can_reflink(&root.join(STAGING));
        Ok(Self { root, fd, disk, reflink })
    }

    fn entry(&self, tree: Tree) -> PathBuf {
        self.root.join(tree.relative())
    }

    fn discard(&self, entry: &Path) -> Result<()> {
        let away = self.root.join(TRASH).join(Uuid::new_v4().simple().to_string());
        match fs::rename(entry, &away) {
            Ok(()) => self.empty_trash(),
            Err(cause) if cause.kind() == ErrorKind::NotFound => Ok(()),
            Err(cause) => Err(failed("remove the volume")(cause)),
        }
    }

    fn empty_trash(&self) -> Result<()> {
        let trash = open_dir_at(&self.fd, TRASH).map_err(failed("open the trash"))?;
        remove::empty(&trash).map_err(failed("empty the trash"))
    }

    fn make(&self, tree: Tree, limit: u64, mode: u32) -> Result<()> {
        let staged = self.root.join(STAGING).join(Uuid::new_v4().simple().to_string());
        let inside = staged.join("tree");
        fs::create_dir_all(&inside).map_err(failed("make the volume"))?;
        chmod(&inside, Mode::from(mode)).map_err(failed("make the volume"))?;
        fs::write(staged.join("limit"), limit.to_string()).map_err(failed("write down the limit"))?;
        fs::rename(&staged, self.entry(tree)).map_err(failed("make the volume"))
    }

    /// Makes a copy of a tree outside its final place, with a limit, and renames it into place once it is on the disk: a name
    /// must not outlive a power cut that its content did not. On a failure nothing of it is left.
    fn make_copy(
        &self,
        from: &Path,
        limit: u64,
        to: &Path,
        how: RenameFlags,
        copied: &mut dyn FnMut(),
    ) -> Result<()> {
        self.make_copy_with(from, limit, to, how, |_| {
            copied();
            Ok(())
        })
    }

    /// The same, with something to do before it is written back.
    fn make_copy_with(
        &self,
        from: &Path,
        limit: u64,
        to: &Path,
        how: RenameFlags,
        last: impl FnOnce(&Path) -> Result<()>,
    ) -> Result<()> {
        let new = open_dir_at(&self.fd, STAGING).map_err(failed("open a folder"))?;
        let (name, _held) = loop {
            let name = Uuid::new_v4().simple().to_string();
            fs::create_dir(self.root.join(STAGING).join(&name)).map_err(failed("copy the volume"))?;
            // A sweep may have been faster; then there is nothing left of it.
            if let Some(held) = hold_new(&new, &name).map_err(failed("copy the volume"))? {
                break (name, held);
            }
        };
        let staged = self.root.join(STAGING).join(name);
        let filled = fill(&staged, from, limit)
            .and_then(|()| last(&staged.join("tree")))
            .and_then(|()| open_dir(&staged).and_then(syncfs).map_err(failed("write the copy back")));
        let made = filled.and_then(|()| {
            renameat_with(CWD, &staged, CWD, to, how).map_err(|cause| match cause {
                Errno::EXIST => Error::new(ErrorCode::AlreadyExists, "there is such a volume").at("into"),
                Errno::INVAL => unsupported("the file system of the data folder cannot exchange two folders"),
                cause => failed("put the copy in its place")(cause),
            })
        });
        // What did not become the copy, or what it was exchanged for. The next open sweeps what is left.
        if let Err(error) = self.discard(&staged) {
            tracing::warn!(%error, "what a copy replaced is not freed yet");
        }
        made
    }

    /// What the trees hold, and what they may still write.
    fn count(&self) -> Result<(u64, u64)> {
        let (mut held, mut promised) = (0_u64, 0_u64);
        for kind in TreeKind::ALL {
            for tree in self.list(kind)? {
                let Some(limit) = self.limit(tree)? else { continue };
                let used = walk::used(&self.path(tree));
                held = held.saturating_add(used);
                promised = promised.saturating_add(limit.saturating_sub(used));
            }
        }
        let snapshots = self.snapshots(None)?;
        held = snapshots.iter().fold(held, |held, s| held.saturating_add(walk::used(&self.snapshot_path(s))));
        held = self.images()?.iter().fold(held, |held, image| held.saturating_add(image.bytes));
        Ok((held, promised))
    }
}

impl Driver for Dir {
    fn kind(&self) -> DriverKind {
        DriverKind::Dir
    }

    fn quota(&self) -> QuotaKind {
        QuotaKind::None
    }

    fn reflink(&self) -> bool {
        self.reflink
    }

    fn root(&self) -> &Path {
        &self.root
    }

    fn notes(&self) -> Vec<String> {
        let limits = "disk limits are not enforced by the dir driver, and usage is counted by walking the \
                      volume: about 1 ms for 1,000 files";
        vec![limits.into()]
    }

    fn path(&self, tree: Tree) -> PathBuf {
        self.entry(tree).join("tree")
    }

    fn list(&self, kind: TreeKind) -> Result<Vec<Tree>> {
        let folder = open_dir_at(&self.fd, kind.folder()).map_err(failed("list the volumes"))?;
        Ok(names(folder)?.iter().filter_map(|name| kind.tree(name)).collect())
    }

    fn limit(&self, tree: Tree) -> Result<Option<u64>> {
        match fs::read_to_string(self.entry(tree).join("limit")) {
            Ok(text) => {
                let limit = text.trim().parse();
                limit.map(Some).map_err(|_| Error::internal("the limit of the volume cannot be read"))
            }
            Err(cause) if cause.kind() == ErrorKind::NotFound => Ok(None),
            Err(cause) => Err(failed("read the limit of the volume")(cause)),
        }
    }

    fn usage(&self, tree: Tree) -> Result<Usage> {
        let limit_bytes = self.limit(tree)?.ok_or_else(no_tree)?;
        let mut used_bytes = walk::used(&self.path(tree));
        if let Tree::Volume(volume) = tree {
            let own = self.snapshots(Some(volume))?;
            let add = |sum: u64, s| sum.saturating_add(walk::used(&self.snapshot_path(s)));
            used_bytes = own.iter().fold(used_bytes, add);
        }
        Ok(Usage { used_bytes, limit_bytes })
    }

    fn counted(&self, _tree: Tree) -> Option<u64> {
        None
    }

    fn live_figures(&self, _tree: Tree) -> Option<(PathBuf, u64)> {
        None
    }

    fn create(&self, tree: Tree, limit: u64) -> Result<()> {
        self.make(tree, limit, 0o755)
    }

    // The kernel counts nothing here, so it counts against no limit.
    fn create_beside(&self, tree: Tree, _other: Tree) -> Result<()> {
        self.make(tree, 0, 0o1777)
    }

    fn set_limit(&self, tree: Tree, limit: u64) -> Result<()> {
        let (file, next) = (self.entry(tree).join("limit"), self.entry(tree).join("limit.new"));
        fs::write(&next, limit.to_string()).map_err(failed("write down the limit"))?;
        fs::rename(next, file).map_err(failed("write down the limit"))
    }

    fn remove(&self, tree: Tree) -> Result<()> {
        self.discard(&self.entry(tree))
    }

    fn sweep(&self) -> Result<()> {
        // Trees are made under the lock that is held now, and copies by a process that holds them, so any other that
        // is half-made is left by a dead process.
        let new = open_dir_at(&self.fd, STAGING).map_err(failed("open a folder"))?;
        for name in names(&new)? {
            if !is_being_made(&new, &name) {
                self.discard(&self.root.join(STAGING).join(name))?;
            }
        }
        self.empty_trash()
    }

    fn room(&self, accuracy: RoomAccuracy) -> Result<Room> {
        let (used, promised) = if accuracy == RoomAccuracy::Exact { self.count()? } else { (0, 0) };
        let free = self.disk.free()?;
        let low = Some(low(self.disk.size()?));
        Ok(Room { capacity: free.saturating_add(used), free, promised, low })
    }

    fn guard(&self) -> Result<()> {
        Ok(())
    }

    fn measure(&self) -> u64 {
        0
    }

    fn settle(&self) {}

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

impl SnapshotDriver for Dir {
    fn content(&self, volume: VolumeId) -> Result<u64> {
        Ok(walk::used(&self.path(Tree::Volume(volume))))
    }

    fn snapshots(&self, of: Option<VolumeId>) -> Result<Vec<Snapshot>> {
        let folder = open_dir_at(&self.fd, SNAPSHOTS).map_err(failed("list the snapshots"))?;
        Ok(snapshots_named(&names(folder)?, of))
    }

    fn snapshot_path(&self, snapshot: &Snapshot) -> PathBuf {
        self.root.join(snapshot_place(snapshot)).join("tree")
    }

    fn snapshot(&self, snapshot: &Snapshot, copied: &mut dyn FnMut()) -> Result<()> {
        let (from, to) = (self.path(Tree::Volume(snapshot.volume)), self.root.join(snapshot_place(snapshot)));
        self.make_copy(&from, 0, &to, RenameFlags::NOREPLACE, copied)
    }

    fn delete_snapshot(&self, snapshot: &Snapshot) -> Result<()> {
        self.discard(&self.root.join(snapshot_place(snapshot)))
    }

    fn rollback(&self, snapshot: &Snapshot) -> Result<()> {
        let volume = Tree::Volume(snapshot.volume);
        let limit = self.limit(volume)?.ok_or_else(no_tree)?;
        let (from, to) = (self.snapshot_path(snapshot), self.entry(volume));
        self.make_copy_with(&from, limit, &to, RenameFlags::EXCHANGE, |_| Ok(()))
    }

    fn fork(
        &self,
        from: &Origin,
        to: VolumeId,
        limit: u64,
        _shared: u64,
        copied: &mut dyn FnMut(),
    ) -> Result<()> {
        let from = match from {
            Origin::Volume(volume) => self.path(Tree::Volume(*volume)),
            Origin::Snapshot(snapshot) => self.snapshot_path(snapshot),
            Origin::Image(image) => self.image_path(*image),
        };
        self.make_copy(&from, limit, &self.entry(Tree::Volume(to)), RenameFlags::NOREPLACE, copied)
    }

    // A copy reads what is dirty as it is.
    fn flush(&self, _volume: VolumeId) -> Result<bool> {
        Ok(true)
    }

    fn dirty(&self) -> u64 {
        0
    }

    fn write_back(&self) -> Result<()> {
        syncfs(&self.fd).map_err(failed("write back what is dirty"))
    }
}

impl ImageDriver for Dir {
    fn images(&self) -> Result<Vec<ImageUsage>> {
        let folder = open_dir_at(&self.fd, IMAGES).map_err(failed("list the images"))?;
        let names = names(folder)?;
        let read = |name: &String| {
            let text = fs::read_to_string(self.root.join(IMAGES).join(name).join("limit")).ok()?;
            Some(ImageUsage { id: name.parse().ok()?, bytes: text.trim().parse().ok()? })
        };
        Ok(names.iter().filter_map(read).collect())
    }

    fn image_path(&self, id: ImageId) -> PathBuf {
        self.root.join(image_place(id)).join("tree")
    }

    fn seal(&self, volume: VolumeId, image: &ImageUsage) -> Result<()> {
        let (from, to) = (self.path(Tree::Volume(volume)), self.root.join(image_place(image.id)));
        self.make_copy_with(&from, image.bytes, &to, RenameFlags::NOREPLACE, |copy| {
            let data = copy.join(DATA);
            chown(&data, Some(0), Some(0)).map_err(failed("seal the image"))?;
            chmod(&data, Mode::from_raw_mode(0o755)).map_err(failed("seal the image"))
        })?;
        self.finish_image(image.id)
    }

    fn finish_image(&self, _id: ImageId) -> Result<()> {
        open_dir_at(&self.fd, IMAGES).and_then(fsync).map_err(failed("seal the image"))
    }

    fn remove_image(&self, id: ImageId) -> Result<()> {
        self.discard(&self.root.join(image_place(id)))
    }
}

/// Fills a new entry with a copy and a limit.
fn fill(entry: &Path, from: &Path, limit: u64) -> Result<()> {
    let inside = entry.join("tree");
    fs::create_dir(&inside).map_err(failed("copy the volume"))?;
    fs::write(entry.join("limit"), limit.to_string()).map_err(failed("write down the limit"))?;
    let copied = open_dir(from).and_then(|from| copy::copy(from, &open_dir(&inside)?));
    copied.map_err(copy_failed)
}

fn can_reflink(folder: &Path) -> bool {
    let (from, to) = (folder.join(".clone-from"), folder.join(".clone-to"));
    let cloned = fs::write(&from, [0_u8; 4096]).is_ok()
        && fs::File::open(&from).is_ok_and(|source| {
            fs::File::create(&to).is_ok_and(|target| rustix::fs::ioctl_ficlone(target, source).is_ok())
        });
    for probe in [from, to] {
        // Anything left in this folder is swept when storage is opened.
        let _ = fs::remove_file(probe);
    }
    cloned
}
