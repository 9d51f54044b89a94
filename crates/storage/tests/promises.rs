//! Disks are thin: limits may add up to more than there is, and what all trees hold never does.

use crate::fixture::{Fixture, MIB, fill, run, shrinks, volume};
use atoll_storage::{DriverChoice, Storage, StorageConfig, Tree, TreeKind};
use atoll_types::{ContainerId, ErrorCode};
use std::time::Duration;
use std::{fs, path::Path};

const NO_SPACE: [Option<i32>; 2] = [Some(28), Some(122)];

fn refused(storage: &Storage, bytes: u64) {
    let error = storage.create(volume(), bytes).unwrap_err();
    assert_eq!(error.code, ErrorCode::DiskFull, "{error}");
    assert!(error.message.contains(&bytes.to_string()), "{error}");
}

/// Whether the file system still takes changes.
fn writable(storage: &Storage, tree: Tree) {
    let root = storage.path(tree);
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let pool = mounts.lines().filter(|line| line.contains(" btrfs ")).collect::<Vec<_>>();
    let ours = pool.iter().rfind(|line| line.split(' ').nth(1).is_some_and(|at| root.starts_with(at)));
    assert!(ours.is_some_and(|line| line.split(' ').nth(3).unwrap().starts_with("rw")), "{pool:?}");
}

/// Waits until a file of so many bytes can be written. The guard sets the bounds again meanwhile, as the launcher has it do:
/// they follow what the disk below has, which is seen later than what the kernel counts.
fn has_room(storage: &Storage, file: &Path, bytes: u64) {
    let mut filled = fill(file, bytes);
    for _ in 0..300 {
        if filled.1.is_none() {
            break;
        }
        std::thread::sleep(Duration::from_millis(100));
        storage.guard().unwrap();
        filled = fill(file, bytes);
    }
    assert_eq!(filled, (bytes, None));
}

/// Promises many times what there is, and has every tree filled at once until it gets no more.
fn the_sum_has_an_end(fixture: &Fixture) {
    let storage = fixture.open();
    let trees: Vec<Tree> = (0..10).map(|_| volume()).collect();
    for tree in &trees {
        fs::write(storage.create(*tree, 500 * MIB).unwrap().join("kept"), vec![3; 100_000]).unwrap();
    }
    let ends: Vec<_> = std::thread::scope(|scope| {
        let writers = trees.iter().map(|tree| {
            let file = storage.path(*tree).join("a");
            scope.spawn(move || fill(&file, 500 * MIB).1)
        });
        writers.collect::<Vec<_>>().into_iter().map(|writer| writer.join().unwrap()).collect()
    });
    assert!(ends.iter().all(|end| NO_SPACE.contains(end)), "{ends:?}");
    let report = storage.report().unwrap();
    assert!(report.low && report.free_bytes < report.capacity_bytes / 20, "{report:?}");
    refused(&storage, 50 * MIB);
    // What runs still has room for its output, and a start needs nothing of the rest.
    let container = ContainerId::random();
    let spool = storage.create(Tree::Spool(container), 32 * MIB).unwrap();
    has_room(&storage, &spool.join("out"), MIB);
    let temporary = storage.create_beside(Tree::Temporary(container), trees[0]).unwrap();
    assert!(NO_SPACE.contains(&fill(&temporary.join("a"), 50 * MIB).1));
    for tree in &trees {
        let root = storage.path(*tree);
        assert_eq!(fs::read(root.join("kept")).unwrap(), vec![3; 100_000]);
        writable(&storage, *tree);
    }
    // What is given back can be promised again, though btrfs frees it in the background.
    let (used, file) = (storage.usage(trees[0]).unwrap().used_bytes, storage.path(trees[0]).join("a"));
    let freed = fs::metadata(&file).unwrap().len();
    fs::remove_file(file).unwrap();
    for tree in &trees[1..4] {
        storage.remove(*tree).unwrap();
    }
    storage.create(volume(), 500 * MIB).unwrap();
    shrinks(&storage, trees[0], used.saturating_sub(freed) + MIB);
    // One volume alone may have freed less than that: then until btrfs has freed those that were removed.
    has_room(&storage, &storage.path(trees[0]).join("b"), 20 * MIB);
    storage.remove(Tree::Temporary(container)).unwrap();
    storage.close().unwrap();
}

#[test]
fn on_a_small_tmpfs() {
    the_sum_has_an_end(&Fixture::on_tmpfs(700 * MIB));
}

#[test]
fn on_a_small_ext4() {
    the_sum_has_an_end(&Fixture::on("ext4", 700 * MIB));
}

#[test]
fn on_a_small_native_btrfs() {
    the_sum_has_an_end(&Fixture::on("btrfs", 700 * MIB));
}

#[test]
fn a_disk_that_others_filled_stops_writers_and_loses_nothing() {
    let fixture = Fixture::on("ext4", 1500 * MIB);
    let storage = fixture.open();
    let tree = volume();
    let path = storage.create(tree, 1000 * MIB).unwrap();
    assert_eq!(fill(&path.join("kept"), 50 * MIB), (50 * MIB, None));
    // More than the pool was told of, and then everything that is left.
    let others = fixture.path().join("others");
    assert_eq!(fill(&others, 900 * MIB), (900 * MIB, None));
    storage.guard().unwrap();
    assert_eq!(fill(&others, 2000 * MIB).1, Some(28));
    storage.guard().unwrap();
    refused(&storage, 50 * MIB);
    assert!(NO_SPACE.contains(&fill(&path.join("more"), 200 * MIB).1));
    // Its own records find their place: thousands of changes, and a commit after each hundred.
    for n in 0..2000 {
        let name = path.join(format!("small-{}", n % 50));
        let _ = fs::write(&name, [7; 2000]);
        let _ = fs::remove_file(&name);
        if n % 100 == 0 {
            run("sync", &["-f", path.to_str().unwrap()]);
        }
    }
    writable(&storage, tree);
    assert_eq!(fs::read(path.join("kept")).unwrap(), vec![7; 50 * MIB as usize]);
    fs::remove_file(others).unwrap();
    storage.guard().unwrap();
    let _ = fs::remove_file(path.join("more"));
    storage.create(volume(), 200 * MIB).unwrap();
    assert_eq!(fill(&path.join("more"), 200 * MIB), (200 * MIB, None));
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
    for tree in trees {
        storage.remove(tree).unwrap();
    }
    storage.close().unwrap();
}

#[test]
fn a_temporary_tree_counts_against_its_volume_and_goes_at_once() {
    let fixture = Fixture::new();
    let storage = fixture.open();
    let (tree, container) = (volume(), ContainerId::random());
    let path = storage.create(tree, 20 * MIB).unwrap();
    let temporary = storage.create_beside(Tree::Temporary(container), tree).unwrap();
    assert!(NO_SPACE.contains(&fill(&temporary.join("a"), 40 * MIB).1));
    assert!(NO_SPACE.contains(&fill(&path.join("a"), 10 * MIB).1), "one limit for both");
    assert!(storage.usage(tree).unwrap().used_bytes > 15 * MIB);
    storage.remove(Tree::Temporary(container)).unwrap();
    assert!(storage.usage(tree).unwrap().used_bytes < 8 * MIB, "{:?}", storage.usage(tree));
    // The next one is made although the volume is full.
    assert!(NO_SPACE.contains(&fill(&path.join("b"), 40 * MIB).1));
    let next = ContainerId::random();
    let temporary = storage.create_beside(Tree::Temporary(next), tree).unwrap();
    assert_eq!(fs::read_dir(temporary).unwrap().count(), 0);
    assert_eq!(storage.list(TreeKind::Temporary).unwrap(), [Tree::Temporary(next)]);
    storage.close().unwrap();
}

#[test]
fn plain_folders_are_thin_and_new_ones_stop_at_a_watermark() {
    let fixture = Fixture::on_tmpfs(300 * MIB);
    let config = StorageConfig { driver: DriverChoice::Dir, ..fixture.config() };
    let storage = Storage::open(&config).unwrap();
    let trees: Vec<Tree> = (0..50).map(|_| volume()).collect();
    for tree in &trees {
        storage.create(*tree, 200 * MIB).unwrap();
    }
    assert!(!storage.report().unwrap().low);
    let file = storage.path(trees[0]).join("a");
    // The reserve is 32 MiB, and the watermark a twentieth of the disk above it.
    assert_eq!(fill(&file, 260 * MIB), (260 * MIB, None));
    let report = storage.report().unwrap();
    assert!(report.low && report.free_bytes < 15 * MIB, "{report:?}");
    assert!(report.capacity_bytes > 260 * MIB, "what is used counts: {report:?}");
    refused(&storage, 50 * MIB);
    assert_eq!(storage.set_limit(trees[1], 300 * MIB).unwrap_err().code, ErrorCode::DiskFull);
    // What is there starts all the same.
    storage.create(trees[1], 200 * MIB).unwrap();
    storage.create(Tree::Spool(ContainerId::random()), 32 * MIB).unwrap();
    fs::remove_file(file).unwrap();
    storage.create(volume(), 200 * MIB).unwrap();
    storage.close().unwrap();
}

#[test]
fn a_disk_too_small_for_a_pool_is_an_error_that_says_so() {
    let fixture = Fixture::on_tmpfs(100 * MIB);
    let config = StorageConfig { driver: DriverChoice::Btrfs, ..fixture.config() };
    assert_eq!(Storage::open(&config).err().unwrap().code, ErrorCode::DiskFull);
}
