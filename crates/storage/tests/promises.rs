//! Never more is promised than the disk below has.

use crate::fixture::{Fixture, MIB, fill, volume};
use atoll_storage::{DriverChoice, Storage, StorageConfig, Tree, TreeKind};
use atoll_types::ErrorCode;
use std::fs;

fn refused(storage: &Storage, bytes: u64) {
    let error = storage.create(volume(), bytes).unwrap_err();
    assert_eq!(error.code, ErrorCode::DiskFull, "{error}");
    assert!(error.message.contains(&bytes.to_string()), "{error}");
}

/// Promises everything, then takes everybody at their word.
fn all_promises_can_be_kept(fixture: &Fixture) {
    let storage = fixture.open();
    let mut trees: Vec<Tree> = Vec::new();
    loop {
        let free = storage.report().unwrap().free_bytes;
        if free < MIB {
            break;
        }
        let tree = volume();
        storage.create(tree, free.min(200 * MIB)).unwrap();
        trees.push(tree);
    }
    refused(&storage, 50 * MIB);
    let limit = |tree| storage.usage(tree).unwrap().limit_bytes;
    for tree in &trees {
        let (written, _) = fill(&storage.path(*tree).join("a"), limit(*tree));
        // A little of each limit goes to the tree's own metadata.
        assert!(written + 3 * MIB >= limit(*tree), "{written} of {}", limit(*tree));
    }
    assert_eq!(storage.list(TreeKind::Volume).unwrap().len(), trees.len());
    refused(&storage, 50 * MIB);

    // What is given back can be promised again, though btrfs frees it in the background.
    let largest = trees[0];
    let bytes = limit(largest);
    storage.remove(largest).unwrap();
    storage.create(volume(), bytes - 8 * MIB).unwrap();
    storage.close().unwrap();
}

#[test]
fn on_a_small_tmpfs() {
    all_promises_can_be_kept(&Fixture::on_tmpfs(700 * MIB));
}

#[test]
fn on_a_small_ext4() {
    all_promises_can_be_kept(&Fixture::on("ext4", 700 * MIB));
}

#[test]
fn on_a_small_native_btrfs() {
    all_promises_can_be_kept(&Fixture::on("btrfs", 700 * MIB));
}

#[test]
fn a_disk_that_others_filled_is_promised_to_nobody() {
    let fixture = Fixture::on_tmpfs(600 * MIB);
    let storage = fixture.open();
    storage.create(volume(), 50 * MIB).unwrap();
    assert_eq!(fill(&fixture.path().join("others"), 400 * MIB), (400 * MIB, None));
    refused(&storage, 200 * MIB);
    fs::remove_file(fixture.path().join("others")).unwrap();
    storage.create(volume(), 200 * MIB).unwrap();
    storage.close().unwrap();
}

#[test]
fn a_full_pool_can_still_be_emptied() {
    let fixture = Fixture::on_tmpfs(600 * MIB);
    let storage = fixture.open();
    let trees = [volume(), volume()];
    for tree in trees {
        storage.create(tree, 50 * MIB).unwrap();
    }
    // Behind our back, without any limit: the worst that can happen to a pool.
    let pool = fixture.config().mount_at;
    while fill(&pool.join("volumes/large"), 64 * MIB).1.is_none() {}
    let small = (0..200_000).find_map(|n| fs::write(pool.join(format!("volumes/{n}")), [0; 1500]).err());
    assert_eq!(small.and_then(|cause| cause.raw_os_error()), Some(28));
    refused(&storage, 50 * MIB);
    for tree in trees {
        storage.remove(tree).unwrap();
    }
    storage.close().unwrap();
}

#[test]
fn raising_a_limit_is_a_promise_too() {
    let fixture = Fixture::on_tmpfs(800 * MIB);
    let storage = fixture.open();
    let tree = volume();
    storage.create(tree, 100 * MIB).unwrap();
    storage.set_limit(tree, 300 * MIB).unwrap();
    let error = storage.set_limit(tree, 900 * MIB).unwrap_err();
    assert_eq!(error.code, ErrorCode::DiskFull);
    assert_eq!(storage.usage(tree).unwrap().limit_bytes, 300 * MIB);
    storage.close().unwrap();
}

#[test]
fn the_dir_driver_counts_the_same_way() {
    let fixture = Fixture::on_tmpfs(300 * MIB);
    let config = StorageConfig { driver: DriverChoice::Dir, ..fixture.config() };
    let storage = Storage::open(&config).unwrap();
    let path = storage.create(volume(), 200 * MIB).unwrap();
    refused(&storage, 100 * MIB);
    // What is used is not promised twice.
    assert_eq!(fill(&path.join("a"), 150 * MIB), (150 * MIB, None));
    refused(&storage, 100 * MIB);
    storage.create(volume(), 60 * MIB).unwrap();
    storage.close().unwrap();
}

#[test]
fn a_disk_too_small_for_a_pool_is_an_error_that_says_so() {
    let fixture = Fixture::on_tmpfs(100 * MIB);
    let config = StorageConfig { driver: DriverChoice::Btrfs, ..fixture.config() };
    assert_eq!(Storage::open(&config).err().unwrap().code, ErrorCode::DiskFull);
}
