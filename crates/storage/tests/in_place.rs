//! Rollbacks in place, on every driver.

use crate::fixture::MIB;
use crate::snapshots::{on_all, snapshot, text, volume};
use atoll_storage::{Storage, Tree};
use atoll_types::{ErrorCode, Snapshot, SnapshotId, VolumeId};
use std::fs::{self, File, Permissions};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;

fn roll_back(storage: &Storage, to: &Snapshot) {
    storage.rollback_in_place(&storage.hold(to.volume).unwrap(), to.id).unwrap();
}

/// Nothing differs from the snapshot, and nothing is left of the work.
fn assert_as_it_was(storage: &Storage, to: &Snapshot) {
    let changed = storage.diff(&storage.hold(to.volume).unwrap(), to.id, None).unwrap();
    assert_eq!((changed.files, changed.truncated), (Vec::new(), false));
    assert_eq!(storage.unfinished_rollback(to.volume).unwrap(), None);
    assert!(!storage.path(Tree::Volume(to.volume)).join("replaced").exists());
}

fn fill(path: &Path) {
    fs::create_dir_all(path.join("w/deep/deeper")).unwrap();
    for name in ["kept", "grown", "cut", "swapped", "gone", "moded", "turned", "deep/deeper/file"] {
        fs::write(path.join("w").join(name), format!("first {name}")).unwrap();
    }
    fs::create_dir(path.join("w/folder")).unwrap();
    fs::write(path.join("w/folder/inside"), "inside").unwrap();
    symlink("kept", path.join("w/link")).unwrap();
    fs::write(path.join("w/one"), "linked").unwrap();
    fs::hard_link(path.join("w/one"), path.join("w/two")).unwrap();
    chown(path.join("w/moded"), Some(1000), Some(1001)).unwrap();
    fs::set_permissions(path.join("w/moded"), Permissions::from_mode(0o640)).unwrap();
}

fn change(path: &Path, outside: &Path) {
    let at = |name: &str| path.join("w").join(name);
    fs::write(at("grown"), "second, and longer than it was").unwrap();
    fs::write(at("cut"), "").unwrap();
    // The same size, and another inode.
    fs::write(at("new"), "FIRST swapped").unwrap();
    fs::rename(at("new"), at("swapped")).unwrap();
    fs::remove_file(at("gone")).unwrap();
    chown(at("moded"), Some(0), Some(0)).unwrap();
    fs::set_permissions(at("moded"), Permissions::from_mode(0o777)).unwrap();
    fs::remove_file(at("turned")).unwrap();
    fs::create_dir_all(at("turned/into/a/folder")).unwrap();
    fs::remove_dir_all(at("folder")).unwrap();
    symlink(outside, at("folder")).unwrap();
    fs::write(at("deep/deeper/file"), "second").unwrap();
    fs::create_dir_all(at("added/below")).unwrap();
    fs::write(at("added/below/file"), "added").unwrap();
    fs::remove_file(at("link")).unwrap();
    symlink("grown", at("link")).unwrap();
    // What was one file becomes two, and two become one.
    fs::remove_file(at("two")).unwrap();
    fs::write(at("two"), "linked").unwrap();
    fs::write(at("kept"), "first kept").unwrap();
    fs::hard_link(at("kept"), at("kept too")).unwrap();
}

#[test]
fn a_volume_is_made_what_it_was_and_what_is_open_stays() {
    on_all(|fixture, storage| {
        let (id, path) = volume(storage, 50 * MIB);
        fill(&path);
        let outside = fixture.path().join("outside");
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("inside"), "not the sandbox's").unwrap();
        let first = snapshot(storage, id);
        let inode = |name: &str| fs::symlink_metadata(path.join("w").join(name)).unwrap().ino();
        let before = ["deep/deeper", "grown", "deep/deeper/file"].map(inode);
        let mut open = File::open(path.join("w/grown")).unwrap();
        change(&path, &outside);
        roll_back(storage, &first);
        assert_as_it_was(storage, &first);
        assert_eq!(text(&outside.join("inside")), "not the sandbox's", "no link is followed");
        assert_eq!(["deep/deeper", "grown", "deep/deeper/file"].map(inode), before);
        let mut seen = String::new();
        open.read_to_string(&mut seen).unwrap();
        assert_eq!(seen, "first grown", "an open file is the one that it was");
        assert_eq!(inode("one"), inode("two"), "a hard link is one again");
        assert_eq!(fs::metadata(path.join("w/kept")).unwrap().nlink(), 1);
        let moded = fs::metadata(path.join("w/moded")).unwrap();
        assert_eq!((moded.uid(), moded.gid(), moded.mode() & 0o777), (1000, 1001, 0o640));
        // Also where nothing is to be done, and with folders that have become empty.
        roll_back(storage, &first);
        fs::remove_dir_all(path.join("w")).unwrap();
        roll_back(storage, &first);
        assert_as_it_was(storage, &first);
        storage.remove(Tree::Volume(id)).unwrap();
    });
}

/// What a process leaves that is killed half-way: the file that says so, files of both states, and a raised limit.
fn interrupt(storage: &Storage, path: &Path, to: &Snapshot) {
    let limit = storage.limit(Tree::Volume(to.volume)).unwrap();
    plant(storage, &format!("{}.{}.{limit}", to.volume, to.id));
    storage.set_limit(Tree::Volume(to.volume), limit + 8 * MIB).unwrap();
    fs::remove_dir_all(path.join("w/folder")).unwrap();
    fs::create_dir(path.join("replaced")).unwrap();
    fs::write(path.join("replaced/half"), "x").unwrap();
}

/// As a release wrote it that did not write the limit down.
fn plant_marker(storage: &Storage, to: &Snapshot) {
    plant(storage, &format!("{}.{}", to.volume, to.id));
}

fn plant(storage: &Storage, name: &str) {
    let root = storage.path(Tree::Volume(VolumeId::random()));
    let root = root.ancestors().find(|folder| folder.join("rollbacks").is_dir()).unwrap().to_owned();
    fs::write(root.join("rollbacks").join(name), "").unwrap();
}

#[test]
fn an_interrupted_one_is_completed_by_the_next_that_holds_the_volume() {
    on_all(|_, storage| {
        let (id, path) = volume(storage, 50 * MIB);
        fill(&path);
        let first = snapshot(storage, id);
        for complete in [
            |storage: &Storage, id| storage.hold(id).map(drop).unwrap(),
            |storage: &Storage, id| storage.wait_for(id).unwrap(),
        ] {
            fs::write(path.join("w/cut"), "second").unwrap();
            interrupt(storage, &path, &first);
            assert_eq!(storage.unfinished_rollback(id).unwrap(), Some(first.id));
            complete(storage, id);
            assert_as_it_was(storage, &first);
            assert_eq!(storage.limit(Tree::Volume(id)).unwrap(), 50 * MIB, "the limit is what it was");
        }
        // The ordinary rollback replaces what is half-way.
        let second = snapshot(storage, id);
        interrupt(storage, &path, &first);
        storage.rollback(&storage.hold_unfinished(id).unwrap(), second.id, || Ok(())).unwrap();
        assert_as_it_was(storage, &second);
        assert_eq!(storage.limit(Tree::Volume(id)).unwrap(), 50 * MIB);
        // Where the snapshot is gone, that is not taken for a volume that is not there.
        plant_marker(storage, &Snapshot { id: SnapshotId::random(), ..second });
        for refused in [storage.hold(id).map(drop), storage.wait_for(id)] {
            assert_eq!(refused.unwrap_err().code, ErrorCode::Conflict);
        }
        storage.rollback(&storage.hold_unfinished(id).unwrap(), second.id, || Ok(())).unwrap();
        assert_as_it_was(storage, &second);
        // It is forgotten with its volume.
        plant_marker(storage, &first);
        storage.remove(Tree::Volume(id)).unwrap();
        assert_eq!(storage.unfinished_rollback(id).unwrap(), None);
        plant_marker(storage, &first);
        storage.sweep().unwrap();
        assert_eq!(storage.unfinished_rollback(id).unwrap(), None);
    });
}
