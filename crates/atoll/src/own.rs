//! A data folder, and so a launcher, that one process has for itself. The process holds a lock while it
//! lives; the next run ends what a killed one left.

use crate::down;
use atoll_types::{Error, ErrorCode, Result};
use rustix::fs::{FlockOperation, flock};
use std::{
    fs, io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

/// A process that holds it shared is alive.
pub(crate) const LOCK: &str = "alive.lock";

/// Below the data folder: where each `atoll run --mount` has a data folder of its own.
pub(crate) const RUNS: &str = "run";

/// A data folder of one run.
pub(crate) struct Own {
    pub(crate) folder: PathBuf,
    _alive: fs::File,
}

fn fault(path: &Path, e: &io::Error) -> Error {
    let message = format!("{} cannot be made: {e}; choose another folder with --data-dir", path.display());
    Error::new(ErrorCode::PermissionDenied, message)
}

/// Takes a folder's lock.
fn lock(folder: &Path, how: FlockOperation) -> io::Result<fs::File> {
    let file = fs::OpenOptions::new().create(true).truncate(false).write(true).open(folder.join(LOCK))?;
    flock(&file, how)?;
    Ok(file)
}

impl Own {
    /// Makes one below a folder that all such runs share.
    pub(crate) fn make(base: &Path) -> Result<Self> {
        // An ordinary user must be able to traverse to its own folder.
        fs::DirBuilder::new().recursive(true).mode(0o755).create(base).map_err(|e| fault(base, &e))?;
        // Under this lock no other run sweeps a folder that has no lock yet.
        let _turn = lock(base, FlockOperation::LockExclusive).map_err(|e| fault(base, &e))?;
        let (number, ..) = uuid::Uuid::new_v4().as_fields();
        let folder = base.join(format!("{number:08x}"));
        fs::DirBuilder::new().mode(0o755).create(&folder).map_err(|e| fault(&folder, &e))?;
        let alive = lock(&folder, FlockOperation::NonBlockingLockShared).map_err(|e| fault(&folder, &e))?;
        Ok(Self { folder, _alive: alive })
    }

    /// Ends all that was started for it and removes it. Where that fails it stays, and the next run finds it.
    pub(crate) async fn end(&self) -> Result<()> {
        let data = self.folder.canonicalize().unwrap_or_else(|_| self.folder.clone());
        down::end(&data, true).await?;
        remove(&self.folder);
        Ok(())
    }
}

/// Removes the empty folder of a run, or of all runs.
pub(crate) fn remove(folder: &Path) {
    let _ = fs::remove_file(folder.join(LOCK));
    let _ = fs::remove_dir(folder);
}

/// Whether a folder has the name of a run.
fn is_run(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name.len() == 8 && name.bytes().all(|b| b.is_ascii_hexdigit()) && path.is_dir()
}

/// Ends what runs that are gone left behind.
pub(crate) async fn sweep(base: PathBuf) {
    for (folder, _lock) in left(&base) {
        if let Err(error) = down::end(&folder, true).await {
            eprintln!("atoll: what an earlier run left in {} stays: {}", folder.display(), error.message);
            continue;
        }
        remove(&folder);
    }
}

/// Folders of runs whose lock was free, each with its lock: while this process holds it no other sweeps it.
fn left(base: &Path) -> Vec<(PathBuf, fs::File)> {
    let Ok(_turn) = lock(base, FlockOperation::LockExclusive) else { return Vec::new() };
    let folders = fs::read_dir(base).into_iter().flatten().flatten().map(|entry| entry.path());
    let runs = folders.filter(|path| is_run(path));
    runs.filter_map(|path| Some((lock(&path, FlockOperation::NonBlockingLockExclusive).ok()?, path)))
        .map(|(lock, path)| (path, lock))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_nobody_holds_is_left() {
        let base = tempfile::tempdir().unwrap();
        let (alive, dead) = (Own::make(base.path()).unwrap(), Own::make(base.path()).unwrap());
        assert!(left(base.path()).is_empty());
        let folder = dead.folder.clone();
        drop(dead);
        fs::create_dir(base.path().join("no run of ours")).unwrap();
        let folders = || left(base.path()).into_iter().map(|(folder, _)| folder).collect::<Vec<_>>();
        assert_eq!(folders(), std::slice::from_ref(&folder));
        fs::remove_file(folder.join(LOCK)).unwrap();
        assert_eq!(folders(), std::slice::from_ref(&folder), "with or without its lock");
        remove(&folder);
        remove(&alive.folder);
        assert!(!folder.exists() && !alive.folder.exists());
    }
}
