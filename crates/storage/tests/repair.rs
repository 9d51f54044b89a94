//! What a crash leaves, and what else opening must cope with.

use crate::fixture::{Fixture, MIB, run, volume};
use atoll_storage::{DriverChoice, DriverKind, Storage, StorageConfig, TreeKind};
use atoll_types::ErrorCode;
use std::fs;

#[test]
fn trees_survive_closing() {
    let fixture = Fixture::new();
    let storage = fixture.open();
    let tree = volume();
    fs::write(storage.create(tree, 10 * MIB).unwrap().join("a"), "a").unwrap();
    storage.close().unwrap();
    assert!(fixture.mounts().is_empty());
    let storage = fixture.open();
    assert_eq!(fs::read_to_string(storage.path(tree).join("a")).unwrap(), "a");
    assert_eq!(storage.usage(tree).unwrap().limit_bytes, 10 * MIB);
    storage.close().unwrap();
}

#[test]
fn a_pool_that_is_mounted_is_used_as_it_is() {
    let fixture = Fixture::new();
    drop(fixture.open());
    assert_eq!(fixture.mounts().len(), 1);
    let (one, two) = (fixture.open(), fixture.open());
    assert_eq!((fixture.mounts().len(), fixture.loops().len()), (1, 1));
    // The other one still uses it.
    assert_eq!(one.close().unwrap_err().code, ErrorCode::Conflict);
    two.close().unwrap();
}

#[test]
fn a_stale_loop_device_is_taken_over() {
    let fixture = Fixture::new();
    fixture.open().close().unwrap();
    run("losetup", &["-f", fixture.pool_file().to_str().unwrap()]);
    let storage = fixture.open();
    assert_eq!(fixture.loops().len(), 1);
    storage.create(volume(), MIB).unwrap();
    storage.close().unwrap();
}

#[test]
fn a_pool_in_use_elsewhere_is_not_attached_twice() {
    let fixture = Fixture::new();
    let storage = fixture.open();
    let tree = volume();
    let path = storage.create(tree, 10 * MIB).unwrap();
    // A container keeps a tree mounted after the launcher went.
    let kept = fixture.path().join("kept");
    fs::create_dir(&kept).unwrap();
    run("mount", &["--bind", path.to_str().unwrap(), kept.to_str().unwrap()]);
    storage.close().unwrap();
    let storage = fixture.open();
    assert_eq!(fixture.loops().len(), 1);
    fs::write(kept.join("a"), "a").unwrap();
    assert!(storage.path(tree).join("a").exists());
    run("umount", &[kept.to_str().unwrap()]);
    storage.close().unwrap();
}

#[test]
fn a_half_made_pool_is_made_anew() {
    let fixture = Fixture::new();
    fs::create_dir_all(fixture.config().dir).unwrap();
    fs::write(fixture.config().dir.join("pool.img.new"), "half").unwrap();
    let storage = fixture.open();
    assert!(!fixture.config().dir.join("pool.img.new").exists());
    storage.create(volume(), MIB).unwrap();
    storage.close().unwrap();
}

#[test]
fn half_made_and_half_removed_trees_are_swept() {
    let fixture = Fixture::new();
    let storage = fixture.open();
    let (one, two, gone) = (volume(), volume(), volume());
    let root = fixture.config().mount_at;
    for (tree, folder) in [(one, "new"), (two, "trash")] {
        let path = storage.create(tree, 100 * MIB).unwrap();
        fs::write(path.join("a"), "a").unwrap();
        fs::rename(path, root.join(folder).join("left")).unwrap();
    }
    // Removed behind our back: its promise must not stay for ever.
    let path = storage.create(gone, 100 * MIB).unwrap();
    run("btrfs", &["subvolume", "delete", "-c", path.to_str().unwrap()]);
    run("btrfs", &["subvolume", "sync", root.to_str().unwrap()]);
    drop(storage);
    let storage = fixture.open();
    for folder in ["new", "trash", "volumes"] {
        assert_eq!(fs::read_dir(root.join(folder)).unwrap().count(), 0, "{folder}");
    }
    assert_eq!(storage.report().unwrap().promised_bytes, 0);
    storage.close().unwrap();
}

#[test]
fn growing_that_was_cut_off_is_finished() {
    let fixture = Fixture::new();
    let storage = fixture.open();
    let capacity = storage.report().unwrap().capacity_bytes;
    let file = fs::OpenOptions::new().write(true).open(fixture.pool_file()).unwrap();
    let length = file.metadata().unwrap().len();
    // The file is longer than its file system, while it is in use and while it is not.
    file.set_len(length + 100 * MIB).unwrap();
    storage.create(volume(), 40 * MIB).unwrap();
    storage.close().unwrap();
    file.set_len(length + 800 * MIB).unwrap();
    let storage = fixture.open();
    storage.create(volume(), 60 * MIB).unwrap();
    assert!(storage.report().unwrap().capacity_bytes > capacity / 2);
    storage.close().unwrap();
}

#[test]
fn without_mkfs_auto_falls_back_and_says_so() {
    let fixture = Fixture::new();
    let config = StorageConfig { mkfs: Some("/nonexistent/mkfs.btrfs".into()), ..fixture.config() };
    let refused = Storage::open(&StorageConfig { driver: DriverChoice::Btrfs, ..config.clone() });
    let refused = refused.err().unwrap();
    assert_eq!(refused.code, ErrorCode::Unsupported);
    assert!(refused.message.contains("install btrfs-progs"), "{refused}");

    let storage = Storage::open(&config).unwrap();
    let report = storage.report().unwrap();
    assert_eq!(report.driver, DriverKind::Dir);
    assert!(report.notes[0].contains("mkfs.btrfs"), "{:?}", report.notes);
    storage.create(volume(), MIB).unwrap();
    storage.close().unwrap();

    // Now that volumes are there, a new package does not hide them.
    let storage = fixture.open();
    assert_eq!(storage.report().unwrap().driver, DriverKind::Dir);
    assert_eq!(storage.list(TreeKind::Volume).unwrap().len(), 1);
    storage.close().unwrap();
}

#[test]
fn a_new_pool_that_cannot_be_mounted_does_not_stay() {
    let fixture = Fixture::new();
    let config = StorageConfig { mkfs: Some("/bin/true".into()), ..fixture.config() };
    let storage = Storage::open(&config).unwrap();
    let report = storage.report().unwrap();
    assert_eq!(report.driver, DriverKind::Dir);
    assert!(report.notes[0].contains("mount the pool"), "{:?}", report.notes);
    storage.close().unwrap();
    assert!(!fixture.pool_file().exists());
    // Nothing was stored yet, so the next open may choose better.
    let storage = fixture.open();
    assert_eq!(storage.report().unwrap().driver, DriverKind::BtrfsLoop);
    storage.close().unwrap();
}

#[test]
fn a_foreign_mount_in_the_pools_place_is_an_error() {
    let fixture = Fixture::new();
    let at = fixture.config().mount_at;
    fs::create_dir_all(&at).unwrap();
    run("mount", &["-t", "tmpfs", "none", at.to_str().unwrap()]);
    let config = StorageConfig { driver: DriverChoice::Btrfs, ..fixture.config() };
    assert_eq!(Storage::open(&config).err().unwrap().code, ErrorCode::Conflict);
    run("umount", &[at.to_str().unwrap()]);
}

#[test]
fn a_busy_pool_is_not_unmounted() {
    let fixture = Fixture::new();
    let storage = fixture.open();
    let open = fs::File::create(storage.create(volume(), MIB).unwrap().join("a")).unwrap();
    let busy = storage.close().unwrap_err();
    assert_eq!(busy.code, ErrorCode::Conflict);
    assert!(!busy.message.contains('/'), "{busy}");
    drop(open);
    fixture.open().close().unwrap();
}
