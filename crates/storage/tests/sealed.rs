//! Images that were sealed, on both drivers.

use crate::fixture::{Fixture, MIB, fill};
use crate::snapshots::{close, config, eventually, on_all, on_both, used};
use atoll_storage::{DATA, DriverChoice, DriverKind, Storage, StorageConfig, Tree, TreeKind};
use atoll_types::{ErrorCode, ImageId, VolumeId};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// A volume that containers attach, and the folder of its files.
fn volume(storage: &Storage, limit: u64) -> (VolumeId, PathBuf) {
    let id = VolumeId::random();
    let data = storage.create(Tree::Volume(id), limit).unwrap().join(DATA);
    fs::create_dir(&data).unwrap();
    chown(&data, Some(1000), Some(1000)).unwrap();
    fs::set_permissions(&data, fs::Permissions::from_mode(0o777)).unwrap();
    (id, data)
}

fn seal(storage: &Storage, volume: VolumeId) -> ImageId {
    let id = ImageId::random();
    storage.seal(&storage.hold(volume).unwrap(), id, || Ok(())).unwrap();
    id
}

fn begin_with(storage: &Storage, image: ImageId, limit: u64) -> (VolumeId, PathBuf) {
    let id = VolumeId::random();
    storage.volume_from_image(&storage.share_image(image).unwrap(), id, limit).unwrap();
    (id, storage.path(Tree::Volume(id)).join(DATA))
}

fn root(storage: &Storage, image: ImageId) -> PathBuf {
    storage.sealed_image(image).unwrap().trees.remove(0).source
}

fn ids(storage: &Storage) -> Vec<ImageId> {
    storage.images().unwrap().into_iter().map(|image| image.id).collect()
}

/// What a killed or failed operation must not leave.
fn nothing_half_made(storage: &Storage) {
    let any = storage.path(Tree::Volume(VolumeId::random()));
    let root = any.ancestors().find(|at| at.join("trash").exists()).unwrap();
    for folder in ["new", "trash"] {
        assert_eq!(fs::read_dir(root.join(folder)).unwrap().count(), 0, "{folder}");
    }
}

#[test]
fn a_volume_is_sealed_and_the_image_outlives_it() {
    on_all(|_, storage| {
        let (id, data) = volume(storage, 50 * MIB);
        fs::create_dir_all(data.join("usr/bin")).unwrap();
        fs::write(data.join("usr/bin/su"), vec![1; 3 * MIB as usize]).unwrap();
        fs::hard_link(data.join("usr/bin/su"), data.join("usr/bin/other")).unwrap();
        chown(data.join("usr/bin/su"), Some(5), Some(65_000)).unwrap();
        fs::set_permissions(data.join("usr/bin/su"), fs::Permissions::from_mode(0o4711)).unwrap();
        symlink("/etc/shadow", data.join("link")).unwrap();
        let image = seal(storage, id);
        fs::write(data.join("later"), "x").unwrap();
        storage.seal(&storage.hold(id).unwrap(), image, || Ok(())).unwrap();
        storage.remove(Tree::Volume(id)).unwrap();

        let top = root(storage, image);
        assert!(!top.join("later").exists(), "a repeated seal changes nothing");
        let stat = top.metadata().unwrap();
        assert_eq!((stat.uid(), stat.gid(), stat.mode() & 0o7777), (0, 0, 0o755), "the top is root's");
        let stat = top.join("usr/bin/su").metadata().unwrap();
        assert_eq!((stat.uid(), stat.gid(), stat.mode() & 0o7777, stat.nlink()), (5, 65_000, 0o4711, 2));
        assert_eq!(fs::read_link(top.join("link")).unwrap(), Path::new("/etc/shadow"));
        let listed = storage.images().unwrap();
        assert_eq!((listed.len(), listed[0].id), (1, image));
        assert!((3 * MIB..5 * MIB).contains(&listed[0].bytes), "{listed:?}");
        if storage.kind() != DriverKind::Dir {
            assert_eq!(fs::write(top.join("new"), "x").unwrap_err().raw_os_error(), Some(30), "read-only");
        }

        storage.remove_image(&storage.hold_image(image).unwrap().unwrap()).unwrap();
        assert!(storage.hold_image(image).unwrap().is_none());
        assert_eq!(storage.sealed_image(image).unwrap_err().code, ErrorCode::NotFound);
        assert_eq!(storage.images().unwrap(), []);
        nothing_half_made(storage);
    });
}

#[test]
fn a_volume_begins_with_an_image_and_leaves_it_as_it_is() {
    on_both(|_, storage| {
        let (first, data) = volume(storage, 50 * MIB);
        fs::write(data.join("a"), vec![7; 8 * MIB as usize]).unwrap();
        let image = seal(storage, first);
        storage.remove(Tree::Volume(first)).unwrap();
        let (id, data) = begin_with(storage, image, 20 * MIB);
        assert_eq!(fs::read(data.join("a")).unwrap().len() as u64, 8 * MIB);
        assert!(
            (8 * MIB..10 * MIB).contains(&used(storage, id)),
            "{}: what is shared counts",
            used(storage, id)
        );
        fs::write(data.join("a"), "changed").unwrap();
        fs::write(data.join("b"), vec![7; 4 * MIB as usize]).unwrap();
        let next = seal(storage, id);
        assert_eq!(fs::read(root(storage, image).join("a")).unwrap().len() as u64, 8 * MIB);
        assert_eq!(fs::read_to_string(root(storage, next).join("a")).unwrap(), "changed");

        let held = storage.share_image(image).unwrap();
        let refused = |into, limit| storage.volume_from_image(&held, into, limit).unwrap_err();
        assert_eq!(refused(id, 20 * MIB).code, ErrorCode::AlreadyExists);
        let small = refused(VolumeId::random(), 8 * MIB);
        assert_eq!((small.code, small.field.as_deref()), (ErrorCode::Conflict, Some("disk_bytes")));
        drop(held);
        let unknown = storage.share_image(ImageId::random()).err().unwrap();
        assert_eq!((unknown.code, unknown.field.as_deref()), (ErrorCode::NotFound, Some("image")));
        // The volume that an image is made of goes, and the images that it is made of stay what they are.
        storage.remove_image(&storage.hold_image(image).unwrap().unwrap()).unwrap();
        assert_eq!(fs::read_to_string(data.join("a")).unwrap(), "changed");
        assert_eq!(ids(storage), [next]);
        nothing_half_made(storage);
    });
}

#[test]
fn a_volume_of_a_sandbox_is_no_image() {
    on_both(|_, storage| {
        let id = VolumeId::random();
        fs::create_dir(storage.create(Tree::Volume(id), 50 * MIB).unwrap().join("workspace")).unwrap();
        let refused = storage.seal(&storage.hold(id).unwrap(), ImageId::random(), || Ok(())).unwrap_err();
        assert_eq!((refused.code, refused.field.as_deref()), (ErrorCode::Conflict, Some("volume")));
        assert_eq!(storage.images().unwrap(), []);
    });
}

#[test]
fn an_image_is_not_removed_while_it_is_read() {
    on_both(|_, storage| {
        let (id, data) = volume(storage, 50 * MIB);
        fs::write(data.join("a"), "a").unwrap();
        let image = seal(storage, id);
        let reader = storage.share_image(image).unwrap();
        let (told, waits) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let held = storage.hold_image(image).unwrap().unwrap();
                told.send(()).unwrap();
                storage.remove_image(&held).unwrap();
            });
            assert!(waits.recv_timeout(Duration::from_millis(300)).is_err(), "it waits for the reader");
            assert_eq!(ids(storage), [image]);
            drop(reader);
        });
        assert_eq!(storage.images().unwrap(), []);
    });
}

#[test]
fn the_space_of_an_image_is_counted_until_it_is_removed() {
    let fixture = Fixture::new();
    let storage = fixture.open();
    let (id, data) = volume(&storage, 200 * MIB);
    assert_eq!(fill(&data.join("a"), 100 * MIB), (100 * MIB, None));
    let image = seal(&storage, id);
    storage.remove(Tree::Volume(id)).unwrap();
    let held = || {
        let report = storage.report().unwrap();
        report.capacity_bytes - report.free_bytes
    };
    storage.write_back().unwrap();
    assert!(held() >= 100 * MIB, "{}", held());
    storage.remove_image(&storage.hold_image(image).unwrap().unwrap()).unwrap();
    eventually("it is freed", &storage, || held() < 20 * MIB);
    close(&fixture, storage);
}

#[test]
fn a_full_disk_refuses_images_and_nothing_is_left() {
    for driver in [DriverChoice::Btrfs, DriverChoice::Dir] {
        let fixture = Fixture::on_tmpfs(700 * MIB);
        let storage = Storage::open(&config(&fixture, driver)).unwrap();
        let (small, data) = volume(&storage, 10 * MIB);
        fs::write(data.join("kept"), "kept").unwrap();
        let image = seal(&storage, small);
        let (large, data) = volume(&storage, 800 * MIB);
        if driver == DriverChoice::Dir {
            // A copy of this would not fit.
            assert_eq!(fill(&data.join("a"), 400 * MIB), (400 * MIB, None));
        } else {
            assert!(fill(&data.join("a"), 800 * MIB).1.is_some());
        }
        let refused = storage.seal(&storage.hold(large).unwrap(), ImageId::random(), || Ok(())).unwrap_err();
        assert_eq!(refused.code, ErrorCode::DiskFull, "{refused}");
        if driver == DriverChoice::Btrfs {
            let held = storage.share_image(image).unwrap();
            let refused = storage.volume_from_image(&held, VolumeId::random(), 800 * MIB).unwrap_err();
            assert_eq!(refused.code, ErrorCode::DiskFull, "{refused}");
        }
        assert_eq!(ids(&storage), [image]);
        assert_eq!(storage.list(TreeKind::Volume).unwrap().len(), 2);
        nothing_half_made(&storage);
        storage.remove_image(&storage.hold_image(image).unwrap().unwrap()).unwrap();
        storage.close().unwrap();
    }
}

const FOLDER: &str = "ATOLL_STORAGE_SEALED_FOLDER";
const FILES: usize = 200;

/// Seals, copies and removes without end.
#[test]
#[ignore = "runs in the processes of the test below"]
fn worker() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else { return };
    let driver = if folder.join("is-dir").exists() { DriverChoice::Dir } else { DriverChoice::Btrfs };
    let config = StorageConfig {
        reserve_bytes: Some(32 * MIB),
        pool_bytes: 1024 * MIB,
        driver,
        ..StorageConfig::new(folder.join("storage"), folder.join("pool"))
    };
    let storage = Storage::open(&config).unwrap();
    let id: VolumeId = fs::read_to_string(folder.join("volume")).unwrap().parse().unwrap();
    loop {
        let image = seal(&storage, id);
        let (made, _) = begin_with(&storage, image, 100 * MIB);
        storage.remove_image(&storage.hold_image(image).unwrap().unwrap()).unwrap();
        storage.remove(Tree::Volume(made)).unwrap();
    }
}

#[test]
fn killed_at_any_moment_it_leaves_whole_images_or_none() {
    for driver in [DriverChoice::Btrfs, DriverChoice::Dir] {
        let fixture = Fixture::new();
        if driver == DriverChoice::Dir {
            fs::write(fixture.path().join("is-dir"), "").unwrap();
        }
        let storage = Storage::open(&config(&fixture, driver)).unwrap();
        let (id, data) = volume(&storage, 100 * MIB);
        fs::write(fixture.path().join("volume"), id.to_string()).unwrap();
        for n in 0..FILES {
            fs::write(data.join(format!("file-{n}")), vec![1; 5000]).unwrap();
        }
        drop(storage);
        for round in 0..12 {
            let mut child = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "sealed::worker", "--ignored", "--quiet"])
                .env(FOLDER, fixture.path())
                .stdout(Stdio::null())
                .spawn()
                .unwrap();
            std::thread::sleep(Duration::from_millis(150 + 41 * round));
            assert!(child.try_wait().unwrap().is_none(), "it works without end");
            child.kill().unwrap();
            child.wait().unwrap();
            let storage = Storage::open(&config(&fixture, driver)).unwrap();
            nothing_half_made(&storage);
            let whole =
                |data: PathBuf| assert_eq!(fs::read_dir(data).unwrap().count(), FILES, "whole or not there");
            for image in ids(&storage) {
                whole(root(&storage, image));
                // The caller repeats what it had no answer to.
                storage.seal(&storage.hold(id).unwrap(), image, || Ok(())).unwrap();
                storage.remove_image(&storage.hold_image(image).unwrap().unwrap()).unwrap();
            }
            for tree in storage.list(TreeKind::Volume).unwrap() {
                whole(storage.path(tree).join(DATA));
                if tree != Tree::Volume(id) {
                    storage.remove(tree).unwrap();
                }
            }
        }
        let storage = Storage::open(&config(&fixture, driver)).unwrap();
        close(&fixture, storage);
    }
}
