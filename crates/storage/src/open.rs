//! Which driver serves a folder. An existing driver wins over the best one, so that no volume disappears because
//! a package was installed or a device was missing for once.

use crate::btrfs::Btrfs;
use crate::config::{DriverChoice, StorageConfig};
use crate::dir::Dir;
use crate::disk::Disk;
use crate::driver::Driver;
use crate::error::failed;
use crate::pool::{IMAGE, Pool};
use crate::tree::{IMAGES, TreeKind};
use atoll_types::Result;
use rustix::fs::statfs;
use std::path::{Path, PathBuf};

const BTRFS_MAGIC: u64 = 0x9123_683E;
const NATIVE: &str = "subvolumes";
const PLAIN: &str = "dir";

type Opened = (Box<dyn Driver>, Vec<String>);

/// Opens the driver that serves the folder, with notes for the operator.
pub(crate) fn driver(config: &StorageConfig) -> Result<Opened> {
    let hidden = |what: &str| vec![format!("volumes made with the {what} are there and out of use")];
    let (has_pool, has_plain) = (config.dir.join(IMAGE).exists(), has_trees(&config.dir.join(PLAIN)));
    match config.driver {
        DriverChoice::Dir if has_pool => Ok((plain(config)?, hidden("btrfs driver"))),
        DriverChoice::Dir => Ok((plain(config)?, Vec::new())),
        DriverChoice::Btrfs if has_plain => Ok((btrfs(config)?, hidden("dir driver"))),
        DriverChoice::Btrfs => Ok((btrfs(config)?, Vec::new())),
        // An existing pool must open: plain directories would hide its volumes.
        DriverChoice::Auto if has_pool => {
            Ok((btrfs(config)?, if has_plain { hidden("dir driver") } else { Vec::new() }))
        }
        DriverChoice::Auto if has_plain => {
            let note = "kept the dir driver because its volumes are there";
            Ok((plain(config)?, vec![note.into()]))
        }
        DriverChoice::Auto => match btrfs(config) {
            Ok(driver) => Ok((driver, Vec::new())),
            Err(why) => Ok((plain(config)?, vec![format!("btrfs is not used: {why}")])),
        },
    }
}

fn btrfs(config: &StorageConfig) -> Result<Box<dyn Driver>> {
    let disk = Disk::new(&config.dir, config.reserve_bytes);
    if !config.dir.join(IMAGE).exists() && on_btrfs(&config.dir)? {
        return Ok(Box::new(Btrfs::open(config.dir.join(NATIVE), None, disk)?));
    }
    let pool = Pool::open(config, &disk)?;
    let opened = Btrfs::open(config.mount_at.clone(), Some(pool.clone()), disk);
    if opened.is_err() {
        pool.abandon();
    }
    Ok(Box::new(opened?))
}

fn plain(config: &StorageConfig) -> Result<Box<dyn Driver>> {
    let disk = Disk::new(&config.dir, config.reserve_bytes);
    Ok(Box::new(Dir::open(config.dir.join(PLAIN), disk)?))
}

fn on_btrfs(dir: &Path) -> Result<bool> {
    let stat = statfs(dir).map_err(failed("look at the storage folder"))?;
    Ok(u64::try_from(stat.f_type).is_ok_and(|magic| magic & 0xFFFF_FFFF == BTRFS_MAGIC))
}

fn has_trees(root: &Path) -> bool {
    let any = |folder: PathBuf| std::fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_some());
    TreeKind::ALL.iter().map(|kind| kind.folder()).chain([IMAGES]).any(|folder| any(root.join(folder)))
}
