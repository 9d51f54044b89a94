//! Many at once: threads with a storage of their own each, and processes.

use crate::fixture::{Fixture, MIB, volume};
use atoll_storage::{Storage, StorageConfig, Tree, TreeKind};
use std::process::Command;

const FOLDER: &str = "ATOLL_STORAGE_TEST_FOLDER";

#[test]
fn one_tree_asked_for_by_many_is_made_once() {
    let fixture = Fixture::new();
    let storage = fixture.open();
    let tree = volume();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| storage.create(tree, 10 * MIB).unwrap());
        }
    });
    assert_eq!(storage.list(TreeKind::Volume).unwrap(), [tree]);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| storage.remove(tree).unwrap());
        }
    });
    assert_eq!(storage.report().unwrap().promised_bytes, 0);
    storage.close().unwrap();
}

#[test]
fn processes_open_create_and_remove_at_once() {
    let fixture = Fixture::new();
    let start = || {
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "parallel::worker", "--ignored", "--quiet"])
            .env(FOLDER, fixture.path())
            .spawn()
            .unwrap()
    };
    let workers: Vec<_> = (0..4).map(|_| start()).collect();
    for mut worker in workers {
        assert!(worker.wait().unwrap().success());
    }
    let storage = fixture.open();
    assert_eq!(storage.list(TreeKind::Volume).unwrap().len(), 4 * 10);
    assert_eq!((fixture.mounts().len(), fixture.loops().len()), (1, 1));
    storage.close().unwrap();
}

#[test]
#[ignore = "runs in the processes of the test above"]
fn worker() {
    let Some(folder) = std::env::var_os(FOLDER).map(std::path::PathBuf::from) else { return };
    let config = StorageConfig {
        reserve_bytes: Some(32 * MIB),
        pool_bytes: 256 * MIB,
        ..StorageConfig::new(folder.join("storage"), folder.join("pool"))
    };
    let storage = Storage::open(&config).unwrap();
    let trees: Vec<Tree> = (0..20).map(|_| volume()).collect();
    for tree in &trees {
        storage.create(*tree, 20 * MIB).unwrap();
    }
    for tree in &trees[..10] {
        storage.remove(*tree).unwrap();
    }
}
