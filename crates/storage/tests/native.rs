//! Subvolumes on a file system that is btrfs already, with simple and with classic quotas.

use crate::fixture::{Fixture, MIB, comes_about, fill, run, volume};
use crate::snapshots;
use atoll_storage::{DriverKind, QuotaKind, Tree, TreeKind};
use atoll_types::ErrorCode;
use std::fs;

const EDQUOT: i32 = 122;

#[test]
fn trees_live_on_the_disk_itself() {
    let fixture = Fixture::on("btrfs", 1024 * MIB);
    let storage = fixture.open();
    let report = storage.report().unwrap();
    assert_eq!((report.driver, report.quota), (DriverKind::BtrfsNative, QuotaKind::Simple));
    let tree = volume();
    let path = storage.create(tree, 10 * MIB).unwrap();
    assert_eq!(fill(&path.join("a"), 20 * MIB).1, Some(EDQUOT));
    storage.remove(tree).unwrap();
    assert!(storage.list(TreeKind::Volume).unwrap().is_empty());
    storage.close().unwrap();
    assert!(!fixture.pool_file().exists());
}

#[test]
fn classic_quotas_are_used_where_they_are_on() {
    let fixture = Fixture::on("btrfs", 1024 * MIB);
    run("btrfs", &["quota", "enable", fixture.disk()]);
    run("btrfs", &["quota", "rescan", "-w", fixture.disk()]);
    let storage = fixture.open();
    assert_eq!(storage.report().unwrap().quota, QuotaKind::Classic);
    let tree = volume();
    let path = storage.create(tree, 10 * MIB).unwrap();
    assert_eq!(storage.usage(tree).unwrap().limit_bytes, 10 * MIB);
    assert_eq!(fill(&path.join("a"), 20 * MIB).1, Some(EDQUOT));
    assert!(storage.usage(tree).unwrap().used_bytes > 8 * MIB);
    // Others' limits on the same file system are no promises of ours.
    let other = format!("{}/other", fixture.disk());
    run("btrfs", &["subvolume", "create", &other]);
    run("btrfs", &["qgroup", "limit", "100G", &other]);
    assert!(storage.report().unwrap().promised_bytes < 10 * MIB);
    storage.remove(tree).unwrap();
    assert_eq!(storage.report().unwrap().promised_bytes, 0);
    storage.close().unwrap();
}

#[test]
fn dirty_data_is_counted_with_classic_quotas_too() {
    let fixture = Fixture::on("btrfs", 1024 * MIB);
    run("btrfs", &["quota", "enable", fixture.disk()]);
    run("btrfs", &["quota", "rescan", "-w", fixture.disk()]);
    let storage = fixture.open();
    let paths = [volume(), volume()].map(|tree| storage.create(tree, 100 * MIB).unwrap());
    for path in paths {
        fs::write(path.join("a"), vec![5; 12 * MIB as usize]).unwrap();
    }
    assert!(storage.dirty() >= 16 * MIB, "{}", storage.dirty());
    storage.write_back().unwrap();
    assert!(storage.dirty() < MIB, "{}", storage.dirty());
    storage.close().unwrap();
}

#[test]
fn nothing_is_created_while_classic_quotas_are_wrong() {
    let fixture = Fixture::on("btrfs", 1024 * MIB);
    run("btrfs", &["quota", "enable", fixture.disk()]);
    run("btrfs", &["quota", "rescan", "-w", fixture.disk()]);
    let storage = fixture.open();
    let path = storage.create(volume(), 100 * MIB).unwrap();
    fill(&path.join("a"), 20 * MIB);
    // A snapshot in a group of its own cannot be counted without looking at everything.
    let (group, copy) = ("1/77", format!("{}/copy", fixture.disk()));
    run("btrfs", &["qgroup", "create", group, fixture.disk()]);
    run("btrfs", &["subvolume", "snapshot", "-i", group, path.to_str().unwrap(), &copy]);
    run("sync", &["-f", fixture.disk()]);
    let flag = fs::read_dir("/sys/fs/btrfs")
        .unwrap()
        .flatten()
        .map(|entry| entry.path().join("qgroups/inconsistent"));
    let wrong = |path: &std::path::PathBuf| fs::read_to_string(path).is_ok_and(|text| text.trim() == "1");
    assert!(flag.into_iter().any(|path| wrong(&path)), "the kernel could count after all");

    let error = storage.create(volume(), 10 * MIB).unwrap_err();
    assert_eq!(error.code, ErrorCode::Unavailable, "{error}");
    // The recount was started by the refusal; it ends by itself.
    assert!(comes_about(|| storage.create(volume(), 10 * MIB).is_ok()));
    storage.close().unwrap();
}

/// With classic quotas alone: `btrfs check` of distributions refuses a disk with simple ones.
#[test]
fn a_disk_is_sound_after_snapshots_forks_rollbacks_and_removals() {
    let fixture = Fixture::on("btrfs", 1024 * MIB);
    run("btrfs", &["quota", "enable", fixture.disk()]);
    run("btrfs", &["quota", "rescan", "-w", fixture.disk()]);
    let storage = fixture.open();
    let write = |path: &std::path::Path, byte: u8| fs::write(path, vec![byte; 8 * MIB as usize]).unwrap();
    let (id, path) = snapshots::volume(&storage, 100 * MIB);
    write(&path.join("a"), 1);
    let first = snapshots::snapshot(&storage, id);
    write(&path.join("a"), 2);
    let (forked, copy) = snapshots::fork(&storage, id, Some(first.id), 100 * MIB);
    write(&copy.join("b"), 3);
    snapshots::rollback(&storage, &first);
    assert_eq!(fs::read(storage.path(Tree::Volume(id)).join("a")).unwrap()[0], 1);
    let second = snapshots::snapshot(&storage, id);
    snapshots::delete(&storage, &first);
    let (of_second, _) = snapshots::fork(&storage, id, Some(second.id), 100 * MIB);
    storage.remove(Tree::Volume(of_second)).unwrap();
    storage.remove(Tree::Volume(id)).unwrap();
    assert_eq!(storage.list(TreeKind::Volume).unwrap(), [Tree::Volume(forked)]);
    storage.close().unwrap();
    run("btrfs", &["check", "--readonly", fixture.unmounted_disk().to_str().unwrap()]);
}
