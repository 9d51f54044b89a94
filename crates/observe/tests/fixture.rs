//! A pool with one tree for one test. Dropping it takes away every mount and loop device of it.

use atoll_observe::{Action, Changes, Limits, Observer, Scanner};
use atoll_storage::{DriverChoice, Storage, StorageConfig, Tree};
use atoll_types::VolumeId;
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};
use tempfile::TempDir;

const GIB: u64 = 1 << 30;

/// A mounted pool.
pub(crate) struct Pool {
    pub(crate) base: TempDir,
    pub(crate) storage: Option<Storage>,
}

impl Pool {
    pub(crate) fn new() -> Self {
        let base = tempfile::tempdir().unwrap();
        let config = StorageConfig {
            reserve_bytes: Some(32 << 20),
            pool_bytes: 4 * GIB,
            driver: DriverChoice::Btrfs,
            ..StorageConfig::new(base.path().join("storage"), base.path().join("pool"))
        };
        let storage = Some(Storage::open(&config).unwrap());
        Self { base, storage }
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.base.path().join("pool")
    }

    pub(crate) fn tree(&self) -> PathBuf {
        self.tree_of(GIB / 2)
    }

    pub(crate) fn tree_of(&self, bytes: u64) -> PathBuf {
        let tree = Tree::Volume(VolumeId::random());
        let path = self.storage.as_ref().unwrap().create(tree, bytes).unwrap();
        ["workspace", "home"].iter().for_each(|name| fs::create_dir(path.join(name)).unwrap());
        path
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        drop(self.storage.take());
        let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let points = table.lines().filter_map(|line| line.split(' ').nth(4));
        let ours: Vec<&str> = points.filter(|point| Path::new(point).starts_with(self.base.path())).collect();
        for point in ours.iter().rev() {
            let _ = Command::new("umount").args(["-l", point]).status();
        }
    }
}

/// A watched tree.
pub(crate) struct Sandbox {
    pub(crate) observer: Observer,
    pub(crate) tree: PathBuf,
    pub(crate) processes: Vec<i32>,
    // Last, so that it is unmounted when nothing is open.
    pub(crate) pool: Pool,
}

impl Sandbox {
    pub(crate) fn new() -> Self {
        Self::with_limits(Limits::default())
    }

    pub(crate) fn with_limits(limits: Limits) -> Self {
        let pool = Pool::new();
        let tree = pool.tree();
        let mut observer = Observer::with_limits(&pool.root(), limits).unwrap();
        observer.watch(&tree).unwrap();
        Self { observer, tree, processes: Vec::new(), pool }
    }

    /// A path in the workspace.
    pub(crate) fn at(&self, path: &str) -> PathBuf {
        self.tree.join("workspace").join(path)
    }

    pub(crate) fn write(&self, path: &str, text: &str) {
        fs::write(self.at(path), text).unwrap();
    }

    pub(crate) fn take(&mut self) -> Changes {
        self.observer.take(&self.tree, "workspace", &self.processes).unwrap()
    }

    /// What changed: `+` created, `~` modified, `-` deleted, then path and size.
    pub(crate) fn changes(&mut self) -> Vec<String> {
        let changes = self.take();
        assert!(!changes.truncated, "{changes:?}");
        lines(&changes)
    }
}

/// Scans a tree to the end, in small slices; no other scan is in progress.
pub(crate) fn scanned(scanner: &mut Scanner, tree: &Path) -> Changes {
    scanner.begin(tree, &[]).unwrap();
    while !scanner.is_idle() {
        if let Some((done, changes)) = scanner.advance(7) {
            assert_eq!(done, tree);
            return changes;
        }
    }
    panic!("the scan is gone");
}

pub(crate) fn lines(changes: &Changes) -> Vec<String> {
    let line = |change: &atoll_observe::Change| {
        let path = change.path.to_string_lossy();
        match change.action {
            Action::Created => format!("+{path} {}", change.size_bytes),
            Action::Modified => format!("~{path} {}", change.size_bytes),
            Action::Deleted => format!("-{path}"),
        }
    };
    changes.entries.iter().map(line).collect()
}

pub(crate) fn run(program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// None of anything.
pub(crate) const NOTHING: [&str; 0] = [];
