//! Limits on a loop-backed pool.

use crate::fixture::{Fixture, MIB, fill, run, shrinks, volume};
use atoll_storage::{DriverKind, QuotaKind, Tree, TreeKind, Usage};
use atoll_types::{ContainerId, ErrorCode};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

const EDQUOT: i32 = 122;

#[test]
fn a_tree_is_made_found_and_removed() {
    let fixture = Fixture::new();
    let storage = fixture.open();
    let report = storage.report().unwrap();
    assert_eq!(
        (report.driver, report.quota, report.reflink),
        (DriverKind::BtrfsLoop, QuotaKind::Simple, true)
    );
    assert_eq!((report.promised_bytes, report.notes.len()), (0, 0));

    let container = ContainerId::random();
    for tree in [volume(), Tree::Scratch(container), Tree::Spool(container)] {
        let path = storage.create(tree, 50 * MIB).unwrap();
        assert_eq!(path, storage.path(tree));
        let meta = fs::metadata(&path).unwrap();
        assert_eq!((meta.uid(), meta.gid(), meta.permissions().mode() & 0o7777), (0, 0, 0o755));
        fs::write(path.join("kept"), "kept").unwrap();
        assert_eq!(storage.create(tree, 60 * MIB).unwrap(), path);
        assert_eq!(fs::read_to_string(path.join("kept")).unwrap(), "kept");
        assert_eq!(storage.usage(tree).unwrap().limit_bytes, 60 * MIB);
        assert_eq!(storage.list(tree.kind()).unwrap(), [tree]);
    }
    // Output counts by its use.
    let promised = storage.report().unwrap().promised_bytes;
    assert!((119 * MIB..=120 * MIB).contains(&promised), "{promised}");
    for kind in TreeKind::ALL {
        for tree in storage.list(kind).unwrap() {
            storage.remove(tree).unwrap();
            storage.remove(tree).unwrap();
            assert!(!storage.path(tree).exists());
            assert_eq!(storage.usage(tree).unwrap_err().code, ErrorCode::NotFound);
            assert_eq!(storage.set_limit(tree, MIB).unwrap_err().code, ErrorCode::NotFound);
        }
    }
    assert_eq!(storage.report().unwrap().promised_bytes, 0);
    assert_eq!(storage.create(volume(), 1).unwrap_err().field.as_deref(), Some("disk_bytes"));
    storage.close().unwrap();
}

#[test]
fn the_limit_holds_and_can_be_changed() {
    let fixture = Fixture::new();
    let storage = fixture.open();
    let tree = volume();
    let path = storage.create(tree, 20 * MIB).unwrap();
    let (written, error) = fill(&path.join("a"), 40 * MIB);
    assert_eq!(error, Some(EDQUOT));
    assert!((15 * MIB..=20 * MIB).contains(&written), "{written}");

    let Usage { used_bytes, limit_bytes } = storage.usage(tree).unwrap();
    assert!(limit_bytes == 20 * MIB && (15 * MIB..=20 * MIB).contains(&used_bytes), "{used_bytes}");
    let below = storage.set_limit(tree, 5 * MIB).unwrap_err();
    assert_eq!(below.code, ErrorCode::Conflict);
    assert!(below.message.contains(&storage.usage(tree).unwrap().used_bytes.to_string()), "{below}");

    storage.set_limit(tree, 60 * MIB).unwrap();
    assert_eq!(fill(&path.join("b"), 30 * MIB), (30 * MIB, None));
    // A full volume can be emptied, and is then as good as new.
    assert_eq!(fill(&path.join("c"), 60 * MIB).1, Some(EDQUOT));
    for name in ["a", "b", "c"] {
        fs::remove_file(path.join(name)).unwrap();
    }
    shrinks(&storage, tree, MIB);
    storage.set_limit(tree, 5 * MIB).unwrap();
    storage.close().unwrap();
}

#[test]
fn usage_counts_what_is_not_written_back_yet() {
    let fixture = Fixture::new();
    let storage = fixture.open();
    let tree = volume();
    let path = storage.create(tree, 50 * MIB).unwrap();
    fs::write(path.join("a"), vec![1; 10 * MIB as usize]).unwrap();
    assert!(storage.usage(tree).unwrap().used_bytes >= 10 * MIB);
    assert!(storage.counted(tree).unwrap() >= 10 * MIB);
    assert_eq!(storage.counted(volume()), None, "there is no such tree");
    storage.close().unwrap();
}

#[test]
fn the_limit_holds_after_a_hundred_trees_came_and_went() {
    let fixture = Fixture::new();
    let storage = fixture.open();
    for round in 0..100 {
        let tree = volume();
        let path = storage.create(tree, 50 * MIB).unwrap();
        fs::write(path.join("data"), vec![round; 64 << 10]).unwrap();
        storage.remove(tree).unwrap();
    }
    let path = storage.create(volume(), 10 * MIB).unwrap();
    assert_eq!(fill(&path.join("a"), 20 * MIB).1, Some(EDQUOT));
    storage.close().unwrap();
}

#[test]
fn small_files_count_too() {
    let fixture = Fixture::new();
    let storage = fixture.open();
    let path = storage.create(volume(), 2 * MIB).unwrap();
    let made = (0..20_000).find_map(|n| fs::write(path.join(format!("file-{n}")), "x").err());
    assert_eq!(made.and_then(|cause| cause.raw_os_error()), Some(EDQUOT));
    storage.close().unwrap();
}

#[test]
fn a_nested_subvolume_is_no_way_around_and_goes_with_its_tree() {
    let fixture = Fixture::new();
    let storage = fixture.open();
    let tree = volume();
    let path = storage.create(tree, 20 * MIB).unwrap();
    let (outer, inner) = (path.join("outer"), path.join("outer/x/inner"));
    run("btrfs", &["subvolume", "create", outer.to_str().unwrap()]);
    fs::create_dir(outer.join("x")).unwrap();
    run("btrfs", &["subvolume", "create", inner.to_str().unwrap()]);
    assert_eq!(fill(&inner.join("a"), 40 * MIB).1, Some(EDQUOT));
    assert!(storage.usage(tree).unwrap().used_bytes > 15 * MIB);
    storage.remove(tree).unwrap();
    assert!(!path.exists());
    assert_eq!(fs::read_dir(fixture.config().mount_at.join("trash")).unwrap().count(), 0);
    assert_eq!(storage.report().unwrap().promised_bytes, 0);
    storage.close().unwrap();
}

#[test]
fn a_pool_grows_with_the_disk_below() {
    let fixture = Fixture::new();
    let config = atoll_storage::StorageConfig { pool_bytes: 256 * MIB, ..fixture.config() };
    let storage = atoll_storage::Storage::open(&config).unwrap();
    let paths: Vec<_> = (0..4).map(|_| storage.create(volume(), 500 * MIB).unwrap()).collect();
    let size = fs::metadata(fixture.pool_file()).unwrap().len();
    assert!(size >= 2000 * MIB, "{size}");
    for path in &paths {
        assert_eq!(fill(&path.join("a"), 100 * MIB), (100 * MIB, None));
    }
    storage.close().unwrap();
}

/// The kernel gives freed space back after a while: half a minute or two.
#[test]
fn holes_are_punched_into_the_pools_file_where_something_was_deleted() {
    let fixture = Fixture::new();
    let storage = fixture.open();
    let allocated = || fs::metadata(fixture.pool_file()).unwrap().blocks() * 512;
    let (kept, gone) = (volume(), volume());
    let kept_path = storage.create(kept, 400 * MIB).unwrap();
    fs::write(kept_path.join("kept"), vec![7; 8 * MIB as usize]).unwrap();
    let path = storage.create(gone, 400 * MIB).unwrap();
    assert_eq!(fill(&path.join("a"), 300 * MIB), (300 * MIB, None));
    run("sync", &["-f", path.to_str().unwrap()]);
    let full = allocated();
    assert!(full >= 300 * MIB, "{full}");
    storage.remove(gone).unwrap();
    run("sync", &["-f", kept_path.to_str().unwrap()]);
    let mut tries = 0;
    while allocated() > full - 250 * MIB {
        tries += 1;
        assert!(tries < 480, "{} of {full} bytes are still allocated", allocated());
        std::thread::sleep(std::time::Duration::from_millis(500));
    }
    assert!(fs::read(kept_path.join("kept")).unwrap() == vec![7; 8 * MIB as usize]);
    storage.close().unwrap();
}
