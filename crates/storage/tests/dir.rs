//! Plain directories.

use crate::fixture::{Fixture, MIB, volume};
use atoll_storage::{DriverChoice, DriverKind, QuotaKind, Storage, StorageConfig, TreeKind};
use atoll_types::ErrorCode;
use std::ffi::CString;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

fn open(fixture: &Fixture) -> Storage {
    Storage::open(&StorageConfig { driver: DriverChoice::Dir, ..fixture.config() }).unwrap()
}

#[test]
fn a_tree_is_made_measured_and_removed() {
    let fixture = Fixture::new();
    let storage = open(&fixture);
    let report = storage.report().unwrap();
    assert_eq!((report.driver, report.quota), (DriverKind::Dir, QuotaKind::None));
    assert!(report.notes.iter().any(|note| note.contains("not enforced")));

    let tree = volume();
    let path = storage.create(tree, 10 * MIB).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o755);
    fs::write(path.join("a"), vec![1; 4 * MIB as usize]).unwrap();
    fs::hard_link(path.join("a"), path.join("b")).unwrap();
    symlink("/usr", path.join("link")).unwrap();
    let used = storage.usage(tree).unwrap().used_bytes;
    assert!((4 * MIB..5 * MIB).contains(&used), "{used}");
    assert_eq!(storage.set_limit(tree, 2 * MIB).unwrap_err().code, ErrorCode::Conflict);
    storage.set_limit(tree, 5 * MIB).unwrap();
    assert_eq!(storage.create(tree, 6 * MIB).unwrap(), path);
    assert_eq!(storage.usage(tree).unwrap().limit_bytes, 6 * MIB);
    assert_eq!(storage.counted(tree), None, "nothing is walked for this");
    assert_eq!(storage.list(TreeKind::Volume).unwrap(), [tree]);

    storage.remove(tree).unwrap();
    storage.remove(tree).unwrap();
    assert!(storage.list(TreeKind::Volume).unwrap().is_empty());
    assert!(fs::exists("/usr").unwrap());
    assert_eq!(storage.report().unwrap().promised_bytes, 0);
}

#[test]
fn leftovers_are_swept() {
    let fixture = Fixture::new();
    let storage = open(&fixture);
    let root = fixture.config().dir.join("dir");
    for folder in ["new", "trash"] {
        fs::create_dir_all(root.join(folder).join("left/tree/a/b")).unwrap();
        fs::write(root.join(folder).join("left/tree/a/file"), "x").unwrap();
    }
    drop(storage);
    drop(open(&fixture));
    for folder in ["new", "trash"] {
        assert_eq!(fs::read_dir(root.join(folder)).unwrap().count(), 0, "{folder}");
    }
}

#[test]
fn a_tree_deeper_than_any_path_is_removed() {
    let fixture = Fixture::new();
    let storage = open(&fixture);
    let tree = volume();
    let path = storage.create(tree, 10 * MIB).unwrap();
    let mut here = rustix_dir(&path);
    for _ in 0..3000 {
        let name = CString::new("d").unwrap();
        rustix::fs::mkdirat(&here, &name, 0o755.into()).unwrap();
        let flags = rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::CLOEXEC;
        here = rustix::fs::openat(&here, &name, flags, rustix::fs::Mode::empty()).unwrap();
    }
    assert!(storage.usage(tree).is_ok());
    storage.remove(tree).unwrap();
    assert_eq!(fs::read_dir(fixture.config().dir.join("dir/trash")).unwrap().count(), 0);
}

fn rustix_dir(path: &std::path::Path) -> std::os::fd::OwnedFd {
    fs::File::open(path).unwrap().into()
}
