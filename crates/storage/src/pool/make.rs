//! Makes the pool's file. A file under its final name is a complete file system.

use crate::config::StorageConfig;
use crate::disk::Disk;
use crate::error::{disk_full, failed, unsupported};
use atoll_types::{Error, Result};
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The pool's file in the storage folder.
pub(crate) const IMAGE: &str = "pool.img";
const UNFINISHED: &str = "pool.img.new";
const SMALLEST: u64 = 128 << 20;
const MKFS_FOLDERS: [&str; 5] = ["/usr/sbin", "/sbin", "/usr/bin", "/bin", "/usr/local/sbin"];

pub(super) fn make(config: &StorageConfig, disk: &Disk) -> Result<()> {
    let mkfs = find_mkfs(config)?;
    let unfinished = config.dir.join(UNFINISHED);
    match fs::remove_file(&unfinished) {
        Err(cause) if cause.kind() != std::io::ErrorKind::NotFound => {
            return Err(failed("remove a half-made pool")(cause));
        }
        _ => {}
    }
    let free = disk.free()?;
    let size = config.pool_bytes.min(free) >> 20 << 20;
    if size < SMALLEST {
        return Err(disk_full(SMALLEST, free).context("a pool needs more disk"));
    }
    let doing = "make the pool's file";
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&unfinished);
    let file = file.map_err(failed(doing))?;
    file.set_len(size).map_err(failed(doing))?;
    run_mkfs(&mkfs, &unfinished)?;
    file.sync_all().map_err(failed(doing))?;
    fs::rename(&unfinished, config.dir.join(IMAGE)).map_err(failed(doing))?;
    File::open(&config.dir).and_then(|dir| dir.sync_all()).map_err(failed(doing))
}

fn find_mkfs(config: &StorageConfig) -> Result<PathBuf> {
    // Root's PATH may name folders of other users, so it is not searched.
    let usual = || MKFS_FOLDERS.iter().map(|folder| Path::new(folder).join("mkfs.btrfs")).collect();
    let places: Vec<PathBuf> = config.mkfs.clone().map_or_else(usual, |path| vec![path]);
    let found = places.into_iter().find(|path| path.exists());
    found.ok_or_else(|| unsupported("mkfs.btrfs is missing: install btrfs-progs, or choose the driver `dir`"))
}

fn run_mkfs(mkfs: &Path, file: &Path) -> Result<()> {
    // One copy of the metadata: two on one device of one disk double the writes and save nothing.
    let output = Command::new(mkfs)
        .args(["-q", "-f", "-K", "-m", "single", "-d", "single", "-L", "atoll"])
        .arg(file)
        .env_clear()
        .stdin(Stdio::null())
        .output()
        .map_err(failed("run mkfs.btrfs"))?;
    if output.status.success() {
        return Ok(());
    }
    tracing::warn!(stderr = %String::from_utf8_lossy(&output.stderr), "mkfs.btrfs failed");
    Err(Error::internal(format!("mkfs.btrfs failed: {}", output.status)))
}
