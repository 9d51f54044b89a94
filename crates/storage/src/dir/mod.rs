//! The `dir` driver: plain directories. Nothing enforces a limit here; limits are stored so that promises can
//! still be counted. Project quotas are not used: no kernel we test on has them. To reserve whole disks would
//! guard nothing that the kernel does not bound, so they are thin: new trees are refused below a watermark of
//! free space.
//!
//! One entry is `<kind>/<id>/` with `limit` and `tree` inside, so that one rename makes or removes both.

mod remove;
mod walk;

use crate::disk::{Disk, folders, names, open_dir, private_dir};
use crate::driver::{Driver, Room, RoomAccuracy, low};
use crate::error::{failed, no_tree};
use crate::report::{DriverKind, QuotaKind, Usage};
use crate::tree::{Tree, TreeKind};
use atoll_types::{Error, Result};
use rustix::fs::{Mode, chmod};
use std::fs;
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use uuid::Uuid;

const NEW: &str = "new";
const TRASH: &str = "trash";
const FOLDERS: [&str; 6] = ["volumes", "scratch", "spools", "temporary", NEW, TRASH];

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
        folders(&fd, &FOLDERS)?;
        let reflink = can_reflink(&root.join(NEW));
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
        let trash = crate::disk::open_dir_at(&self.fd, TRASH).map_err(failed("open the trash"))?;
        remove::empty(&trash).map_err(failed("empty the trash"))
    }

    fn make(&self, tree: Tree, limit: u64, mode: u32) -> Result<()> {
        let staged = self.root.join(NEW).join(Uuid::new_v4().simple().to_string());
        let inside = staged.join("tree");
        fs::create_dir_all(&inside).map_err(failed("make the volume"))?;
        chmod(&inside, Mode::from(mode)).map_err(failed("make the volume"))?;
        fs::write(staged.join("limit"), limit.to_string()).map_err(failed("write down the limit"))?;
        fs::rename(&staged, self.entry(tree)).map_err(failed("make the volume"))
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

    fn notes(&self) -> Vec<String> {
        let limits = "disk limits are not enforced by the dir driver, and usage is counted by walking the \
                      volume: about 1 ms for 1,000 files";
        vec![limits.into()]
    }

    fn path(&self, tree: Tree) -> PathBuf {
        self.entry(tree).join("tree")
    }

    fn list(&self, kind: TreeKind) -> Result<Vec<Tree>> {
        let folder = crate::disk::open_dir_at(&self.fd, kind.folder()).map_err(failed("list the volumes"))?;
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
        Ok(Usage { used_bytes: walk::used(&self.path(tree)), limit_bytes })
    }

    fn counted(&self, _tree: Tree) -> Option<u64> {
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
        // Trees are made under the lock that is held now, so a half-made one is left by a dead process.
        for name in names(crate::disk::open_dir_at(&self.fd, NEW).map_err(failed("open a folder"))?)? {
            self.discard(&self.root.join(NEW).join(name))?;
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
