//! Subvolumes on a file system that is btrfs already, with simple and with classic quotas.

use crate::fixture::{Fixture, MIB, comes_about, fill, run, volume};
use atoll_storage::{DriverKind, QuotaKind, TreeKind};
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
