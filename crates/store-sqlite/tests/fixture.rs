//! A folder for databases, and this program run again as another process.

use atoll_store_sqlite::{Options, SqliteStore};
use std::{
    path::PathBuf,
    process::Command,
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};
use tempfile::TempDir;

pub(crate) struct Folder {
    dir: TempDir,
    made: AtomicU32,
}

impl Folder {
    pub(crate) fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap(), made: AtomicU32::new(0) }
    }

    /// The file that a test opens more than once.
    pub(crate) fn file(&self) -> PathBuf {
        self.dir.path().join("atoll.db")
    }

    pub(crate) async fn open(&self) -> SqliteStore {
        SqliteStore::open(&self.file()).await.unwrap()
    }

    /// An empty database.
    pub(crate) async fn fresh(&self) -> SqliteStore {
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        SqliteStore::open(&self.dir.path().join(format!("{number}.db"))).await.unwrap()
    }
}

/// For tests that wait for a lock that nobody gives up.
pub(crate) fn impatient() -> Options {
    let soon = Duration::from_millis(100);
    Options { busy_timeout: soon, turn_timeout: soon * 5, ..Options::default() }
}

/// This program again, to run one test alone, with the path in a variable that tells it that it is the
/// other process.
pub(crate) fn again(test: &str, variable: &str, path: &std::path::Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([test, "--exact", "--nocapture"]).env(variable, path);
    command
}
