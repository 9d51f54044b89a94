//! Snapshots, rollbacks and forks, on both drivers.

use crate::fixture::{Fixture, MIB, fill, run};
use atoll_storage::{DriverChoice, Storage, StorageConfig, Tree, TreeKind};
use atoll_types::files::FileAction::{Created, Deleted, Modified};
use atoll_types::{ErrorCode, Snapshot, SnapshotId, VolumeId};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const EDQUOT: i32 = 122;
const OPAQUE: &str = "trusted.overlay.opaque";

pub(crate) fn config(fixture: &Fixture, driver: DriverChoice) -> StorageConfig {
    StorageConfig { driver, ..fixture.config() }
}

/// Runs a test on both drivers. Afterwards the pool is sound.
pub(crate) fn on_both(test: impl Fn(&Fixture, &Storage)) {
    for driver in [DriverChoice::Btrfs, DriverChoice::Dir] {
        let fixture = Fixture::new();
        let storage = Storage::open(&config(&fixture, driver)).unwrap();
        test(&fixture, &storage);
        close(&fixture, storage);
    }
}

/// The same also where the data folder is on btrfs: subvolumes of that, and plain folders that can share blocks.
pub(crate) fn on_all(test: impl Fn(&Fixture, &Storage)) {
    on_both(&test);
    for driver in [DriverChoice::Btrfs, DriverChoice::Dir] {
        let fixture = Fixture::on("btrfs", 1024 * MIB);
        let storage = Storage::open(&config(&fixture, driver)).unwrap();
        test(&fixture, &storage);
        storage.delete_read_only().unwrap();
        fs::remove_dir_all(fixture.config().dir).unwrap();
        storage.close().unwrap();
    }
}

/// Closes it when every block of the pool was read and is what was written. No `btrfs check`: those of distributions
/// know no simple quotas yet.
pub(crate) fn close(fixture: &Fixture, storage: Storage) {
    if fixture.pool_file().exists() {
        run("btrfs", &["scrub", "start", "-B", fixture.config().mount_at.to_str().unwrap()]);
    }
    storage.close().unwrap();
}

pub(crate) fn volume(storage: &Storage, limit: u64) -> (VolumeId, PathBuf) {
    let id = VolumeId::random();
    (id, storage.create(Tree::Volume(id), limit).unwrap())
}

pub(crate) fn snapshot(storage: &Storage, volume: VolumeId) -> Snapshot {
    storage.snapshot(&storage.hold(volume).unwrap(), SnapshotId::random(), || Ok(())).unwrap()
}

pub(crate) fn rollback(storage: &Storage, snapshot: &Snapshot) {
    storage.rollback(&storage.hold(snapshot.volume).unwrap(), snapshot.id, || Ok(())).unwrap();
}

pub(crate) fn delete(storage: &Storage, snapshot: &Snapshot) {
    storage.delete_snapshot(&storage.hold(snapshot.volume).unwrap(), snapshot.id).unwrap();
}

pub(crate) fn fork(
    storage: &Storage,
    from: VolumeId,
    snapshot: Option<SnapshotId>,
    limit: u64,
) -> (VolumeId, PathBuf) {
    let into = VolumeId::random();
    storage.fork(&storage.share(from).unwrap(), snapshot, into, limit, || Ok(())).unwrap();
    (into, storage.path(Tree::Volume(into)))
}

pub(crate) fn used(storage: &Storage, volume: VolumeId) -> u64 {
    storage.usage(Tree::Volume(volume)).unwrap().used_bytes
}

/// Btrfs frees in the background.
pub(crate) fn eventually(what: &str, storage: &Storage, holds: impl Fn() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < Duration::from_secs(60), "{what}");
        storage.write_back().unwrap();
        std::thread::sleep(Duration::from_millis(50));
    }
}

pub(crate) fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap()
}

#[test]
fn a_snapshot_is_made_listed_rolled_back_to_and_deleted() {
    on_all(|_, storage| {
        let (id, path) = volume(storage, 50 * MIB);
        fs::write(path.join("a"), "one").unwrap();
        let first = snapshot(storage, id);
        fs::write(path.join("a"), "two").unwrap();
        fs::write(path.join("b"), "new").unwrap();
        let second = snapshot(storage, id);
        assert_eq!(storage.snapshots(id).unwrap(), [first, second]);
        // Repeating it changes nothing.
        assert_eq!(storage.snapshot(&storage.hold(id).unwrap(), first.id, || Ok(())).unwrap(), first);
        storage.lower(Tree::Volume(id), 60 * MIB).unwrap();
        for _ in 0..2 {
            rollback(storage, &first);
            assert_eq!((text(&path.join("a")), path.join("b").exists()), ("one".into(), false));
            fs::write(path.join("c"), "after").unwrap();
        }
        assert_eq!(storage.usage(Tree::Volume(id)).unwrap().limit_bytes, 60 * MIB, "the limit stays");
        // The other way as well: a snapshot outlives what it was made of.
        rollback(storage, &second);
        assert_eq!((text(&path.join("a")), path.join("c").exists()), ("two".into(), false));
        for _ in 0..2 {
            delete(storage, &first);
        }
        assert_eq!(storage.snapshots(id).unwrap(), [second]);
        let gone = storage.rollback(&storage.hold(id).unwrap(), first.id, || Ok(())).unwrap_err();
        assert_eq!((gone.code, gone.field.as_deref()), (ErrorCode::NotFound, Some("snapshot")));
        assert_eq!(text(&path.join("a")), "two");
        storage.remove(Tree::Volume(id)).unwrap();
        assert_eq!(storage.snapshots(id).unwrap(), [], "snapshots go with their volume");
        assert_eq!(storage.hold(id).err().map(|e| e.code), Some(ErrorCode::NotFound));
        assert_eq!(storage.report().unwrap().promised_bytes, 0);
    });
}

#[test]
fn a_copy_has_everything_of_the_original() {
    on_all(|_, storage| {
        let (id, path) = volume(storage, 50 * MIB);
        fs::create_dir_all(path.join("d/e")).unwrap();
        fs::write(path.join("d/file"), vec![7; 300_000]).unwrap();
        fs::hard_link(path.join("d/file"), path.join("d/e/link")).unwrap();
        symlink("/etc/shadow", path.join("d/sym")).unwrap();
        fs::set_permissions(path.join("d/e"), fs::Permissions::from_mode(0o2751)).unwrap();
        fs::set_permissions(path.join("d/file"), fs::Permissions::from_mode(0o4711)).unwrap();
        std::os::unix::fs::lchown(path.join("d/sym"), Some(1000), Some(1001)).unwrap();
        run("mkfifo", &[path.join("d/pipe").to_str().unwrap()]);
        run("mknod", &[path.join("d/whiteout").to_str().unwrap(), "c", "0", "0"]);
        rustix::fs::setxattr(path.join("d"), OPAQUE, b"y", rustix::fs::XattrFlags::empty()).unwrap();
        let sparse = fs::File::create(path.join("d/sparse")).unwrap();
        sparse.set_len(30 * MIB).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&sparse, b"end", 20 * MIB).unwrap();
        let made = snapshot(storage, id);
        run("rm", &["-r", path.join("d").to_str().unwrap()]);
        rollback(storage, &made);
        let (file, link) =
            (path.join("d/file").metadata().unwrap(), path.join("d/e/link").metadata().unwrap());
        assert_eq!((file.ino(), file.nlink(), file.mode() & 0o7777), (link.ino(), 2, 0o4711));
        assert_eq!(fs::read(path.join("d/e/link")).unwrap(), vec![7; 300_000]);
        assert_eq!(path.join("d/e").metadata().unwrap().mode() & 0o7777, 0o2751);
        let sym = path.join("d/sym");
        assert_eq!(fs::read_link(&sym).unwrap(), Path::new("/etc/shadow"));
        assert_eq!(
            (sym.symlink_metadata().unwrap().uid(), sym.symlink_metadata().unwrap().gid()),
            (1000, 1001)
        );
        run("test", &["-p", path.join("d/pipe").to_str().unwrap()]);
        run("test", &["-c", path.join("d/whiteout").to_str().unwrap()]);
        assert_eq!(rustix::fs::getxattr(path.join("d"), OPAQUE, &mut [0; 8]).unwrap(), 1);
        let sparse = path.join("d/sparse").metadata().unwrap();
        assert_eq!(sparse.len(), 30 * MIB);
        assert!(sparse.blocks() * 512 < MIB, "{}", sparse.blocks());
        assert_eq!(&fs::read(path.join("d/sparse")).unwrap()[20 * MIB as usize..][..3], b"end");
    });
}

#[test]
fn a_fork_is_a_volume_of_its_own() {
    on_all(|_, storage| {
        let (id, path) = volume(storage, 50 * MIB);
        assert_eq!(fill(&path.join("a"), 10 * MIB), (10 * MIB, None));
        let made = snapshot(storage, id);
        fs::write(path.join("b"), "later").unwrap();
        let (one, at_one) = fork(storage, id, Some(made.id), 40 * MIB);
        let (two, at_two) = fork(storage, id, None, 40 * MIB);
        assert_eq!((at_one.join("b").exists(), text(&at_two.join("b"))), (false, "later".into()));
        fs::write(at_one.join("a"), "mine").unwrap();
        assert_eq!(fs::metadata(path.join("a")).unwrap().len(), 10 * MIB);
        assert_eq!(storage.usage(Tree::Volume(one)).unwrap().limit_bytes, 40 * MIB);
        assert!(used(storage, two) >= 10 * MIB, "what it shares counts as used");
        let share = || storage.share(id).unwrap();
        let taken = storage.fork(&share(), None, two, 40 * MIB, || Ok(())).unwrap_err();
        assert_eq!(taken.code, ErrorCode::AlreadyExists);
        assert_eq!(text(&at_two.join("b")), "later");
        let small = storage.fork(&share(), None, VolumeId::random(), 5 * MIB, || Ok(())).unwrap_err();
        assert_eq!((small.code, small.field.as_deref()), (ErrorCode::Conflict, Some("disk_bytes")));
        // It outlives its origin.
        storage.remove(Tree::Volume(id)).unwrap();
        assert_eq!(fs::metadata(at_two.join("a")).unwrap().len(), 10 * MIB);
        snapshot(storage, two);
        assert_eq!(storage.list(TreeKind::Volume).unwrap().len(), 2);
    });
}

#[test]
fn a_volume_pays_for_what_its_snapshots_keep_also_after_a_rollback() {
    let fixture = Fixture::new();
    let storage = fixture.open();
    let (id, path) = volume(&storage, 50 * MIB);
    assert_eq!(fill(&path.join("a"), 20 * MIB), (20 * MIB, None));
    let made = snapshot(&storage, id);
    for round in 0..3 {
        fs::remove_file(path.join("a")).unwrap();
        eventually("what is replaced is freed", &storage, || used(&storage, id) < 25 * MIB);
        assert_eq!(fill(&path.join("b"), 40 * MIB).1, Some(EDQUOT), "20 are kept, round {round}");
        // A full volume can be snapshotted and rolled back, and that is the way out of it.
        let full = snapshot(&storage, id);
        rollback(&storage, &made);
        delete(&storage, &full);
    }
    // A restart changes nothing about that.
    storage.close().unwrap();
    let storage = fixture.open();
    eventually("the rest is freed", &storage, || used(&storage, id) < 25 * MIB);
    assert!(used(&storage, id) > 19 * MIB);
    assert_eq!(fill(&path.join("b"), 40 * MIB).1, Some(EDQUOT));
    delete(&storage, &made);
    for name in ["a", "b"] {
        fs::remove_file(path.join(name)).unwrap();
    }
    eventually("nothing is kept any more", &storage, || used(&storage, id) < MIB);
    assert_eq!(fill(&path.join("b"), 40 * MIB), (40 * MIB, None));
    close(&fixture, storage);
}

#[test]
fn two_hundred_forks_come_and_go_and_quotas_are_true() {
    let fixture = Fixture::new();
    let storage = fixture.open();
    let (id, path) = volume(&storage, 50 * MIB);
    assert_eq!(fill(&path.join("a"), 10 * MIB), (10 * MIB, None));
    let made = snapshot(&storage, id);
    let forks: Vec<_> = (0..200).map(|_| fork(&storage, id, Some(made.id), 30 * MIB)).collect();
    for (_, path) in &forks {
        fs::write(path.join("own"), vec![1; 64 << 10]).unwrap();
    }
    storage.remove(Tree::Volume(id)).unwrap();
    let (last, path) = &forks[199];
    for (fork, _) in &forks[..199] {
        storage.remove(Tree::Volume(*fork)).unwrap();
    }
    // What the origin wrote is still there, counts for all, and the fork may write what its limit leaves.
    let all = |storage: &Storage| {
        let report = storage.report().unwrap();
        report.capacity_bytes - report.free_bytes
    };
    eventually("the others are freed", &storage, || all(&storage) < 12 * MIB);
    assert!(all(&storage) > 10 * MIB, "{}", all(&storage));
    let (written, end) = fill(&path.join("more"), 30 * MIB);
    assert!(end == Some(EDQUOT) && (17 * MIB..21 * MIB).contains(&written), "{written} {end:?}");
    // A fork of a fork has no more.
    fs::remove_file(path.join("more")).unwrap();
    eventually("what was removed is freed", &storage, || used(&storage, *last) < 12 * MIB);
    let (_, path) = fork(&storage, *last, None, 30 * MIB);
    storage.remove(Tree::Volume(*last)).unwrap();
    let (written, end) = fill(&path.join("more"), 30 * MIB);
    assert!(end == Some(EDQUOT) && (15 * MIB..21 * MIB).contains(&written), "{written} {end:?}");
    for tree in storage.list(TreeKind::Volume).unwrap() {
        storage.remove(tree).unwrap();
    }
    eventually("all is freed", &storage, || all(&storage) < MIB);
    assert_eq!(storage.report().unwrap().promised_bytes, 0);
    // And no group is left of them.
    storage.close().unwrap();
    let storage = fixture.open();
    let pool = fixture.config().mount_at;
    let groups = Command::new("btrfs").args(["qgroup", "show", pool.to_str().unwrap()]).output().unwrap();
    let groups = String::from_utf8(groups.stdout).unwrap();
    assert!(groups.lines().count() <= 5, "{groups}");
    close(&fixture, storage);
}

const WRITER: &str = r#"
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("pragma journal_mode=wal")
db.execute("create table if not exists t (n integer primary key, a blob)")
n = 0
while True:
    db.execute("begin")
    for _ in range(20):
        db.execute("insert into t (a) values (randomblob(900))")
    db.execute("delete from t where n % 7 = ?", (n % 7,))
    db.execute("commit")
    n += 1
"#;

struct Writer(Child);

impl Writer {
    fn start(database: &Path) -> Self {
        let child = Command::new("python3").args(["-c", WRITER, database.to_str().unwrap()]).spawn().unwrap();
        Self(child)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn every_snapshot_under_a_writer_that_never_stops_is_of_one_moment() {
    let fixture = Fixture::new();
    let storage = fixture.open();
    let (id, path) = volume(&storage, 500 * MIB);
    let writer = Writer::start(&path.join("db"));
    eventually("it writes", &storage, || path.join("db").metadata().is_ok_and(|meta| meta.len() > 50_000));
    for _ in 0..15 {
        let made = snapshot(&storage, id);
        let (into, at) = fork(&storage, id, Some(made.id), 500 * MIB);
        let script = "import sqlite3, sys; db = sqlite3.connect(sys.argv[1]); \
                      print(db.execute('pragma integrity_check').fetchone()[0], \
                      db.execute('select count(*) > 0 from t').fetchone()[0])";
        let checked =
            Command::new("python3").args(["-c", script, at.join("db").to_str().unwrap()]).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&checked.stdout), "ok 1\n", "{checked:?}");
        storage.remove(Tree::Volume(into)).unwrap();
        delete(&storage, &made);
    }
    drop(writer);
    close(&fixture, storage);
}

#[test]
fn a_diff_names_what_was_created_modified_and_deleted() {
    on_all(|_, storage| {
        let (id, path) = volume(storage, 50 * MIB);
        for name in ["same", "touched", "grown", "secret", "gone", "turned"] {
            fs::write(path.join(name), "0123456789").unwrap();
        }
        fs::create_dir_all(path.join("old/deep")).unwrap();
        fs::write(path.join("old/deep/x"), "x").unwrap();
        symlink("same", path.join("sym")).unwrap();
        let first = snapshot(storage, id);
        // The same size and, as a program may set it, the same mtime.
        let before = path.join("secret").metadata().unwrap().modified().unwrap();
        fs::write(path.join("secret"), "9876543210").unwrap();
        fs::File::options().write(true).open(path.join("secret")).unwrap().set_modified(before).unwrap();
        fs::File::options().write(true).open(path.join("touched")).unwrap().set_modified(before).unwrap();
        fs::write(path.join("grown"), "0123456789+").unwrap();
        fs::remove_file(path.join("gone")).unwrap();
        run("rm", &["-r", path.join("old").to_str().unwrap()]);
        fs::remove_file(path.join("turned")).unwrap();
        fs::create_dir_all(path.join("turned/new")).unwrap();
        fs::write(path.join("turned/new/y"), "yy").unwrap();
        fs::remove_file(path.join("sym")).unwrap();
        symlink("/etc/shadow", path.join("sym")).unwrap();
        let diff = |from, to| {
            let changed = storage.diff(&storage.share(id).unwrap(), from, to).unwrap();
            assert!(!changed.truncated);
            changed.files.into_iter().map(|c| (c.path, c.action, c.size_bytes)).collect::<Vec<_>>()
        };
        let wanted = [
            ("gone", Deleted, 0),
            ("grown", Modified, 11),
            ("old/deep/x", Deleted, 0),
            ("secret", Modified, 10),
            ("sym", Modified, 11),
            ("turned", Deleted, 0),
            ("turned/new/y", Created, 2),
        ]
        .map(|(path, action, size)| (path.to_owned(), action, size))
        .to_vec();
        assert_eq!(diff(first.id, None), wanted);
        let second = snapshot(storage, id);
        assert_eq!(diff(first.id, Some(second.id)), wanted);
        assert_eq!(diff(second.id, None), vec![]);
        let back = diff(second.id, Some(first.id));
        assert!(
            back.contains(&("gone".into(), Created, 10)) && back.contains(&("secret".into(), Modified, 10))
        );
        rollback(storage, &first);
        assert_eq!(diff(first.id, None), vec![]);
        let unknown = storage.diff(&storage.share(id).unwrap(), SnapshotId::random(), None).unwrap_err();
        assert_eq!(unknown.code, ErrorCode::NotFound);
    });
}

/// A file that changes again and again within one tick of the clock, with the snapshot in between.
#[test]
fn a_change_right_after_a_snapshot_is_seen() {
    let fixture = Fixture::new();
    let storage = fixture.open();
    let (id, path) = volume(&storage, 50 * MIB);
    for round in 0..20 {
        fs::write(path.join("a"), format!("{round:04}")).unwrap();
        let made = snapshot(&storage, id);
        fs::write(path.join("a"), format!("{:04}", round + 1)).unwrap();
        let changed = storage.diff(&storage.share(id).unwrap(), made.id, None).unwrap();
        assert_eq!(changed.files.len(), 1, "round {round}");
    }
    storage.close().unwrap();
}

#[test]
fn a_diff_of_a_hostile_tree_has_an_end() {
    on_both(|_, storage| {
        let (id, path) = volume(storage, 400 * MIB);
        fs::write(path.join("first"), "x").unwrap();
        let made = snapshot(storage, id);
        // Links out, and a folder deeper than is walked.
        symlink("/", path.join("root")).unwrap();
        let mut deep = path.join("deep");
        for _ in 0..210 {
            deep.push("d");
        }
        fs::create_dir_all(&deep).unwrap();
        fs::write(deep.join("bottom"), "x").unwrap();
        for n in 0..10_500 {
            fs::write(path.join(format!("file-{n}")), "").unwrap();
        }
        let changed = storage.diff(&storage.share(id).unwrap(), made.id, None).unwrap();
        assert!(changed.truncated && changed.files.len() <= 10_000, "{}", changed.files.len());
        assert!(changed.files.iter().all(|c| !c.path.starts_with("root/") && !c.path.starts_with('/')));
        // What cannot be copied is an error that leaves nothing; btrfs copies nothing.
        let again = storage.snapshot(&storage.hold(id).unwrap(), SnapshotId::random(), || Ok(()));
        match storage.kind() {
            atoll_storage::DriverKind::Dir => {
                assert_eq!(again.unwrap_err().code, ErrorCode::Unsupported);
                assert_eq!(storage.snapshots(id).unwrap(), [made]);
            }
            _ => assert_eq!(again.unwrap().volume, id),
        }
    });
}

#[test]
fn a_full_disk_refuses_snapshots_and_forks_and_nothing_is_left() {
    for driver in [DriverChoice::Btrfs, DriverChoice::Dir] {
        let fixture = Fixture::on_tmpfs(700 * MIB);
        let storage = Storage::open(&config(&fixture, driver)).unwrap();
        let (id, path) = volume(&storage, 800 * MIB);
        fs::write(path.join("kept"), "kept").unwrap();
        let made = snapshot(&storage, id);
        if driver == DriverChoice::Dir {
            // A copy of this would not fit.
            assert_eq!(fill(&path.join("a"), 400 * MIB), (400 * MIB, None));
        } else {
            assert!(fill(&path.join("a"), 800 * MIB).1.is_some());
        }
        // Room is looked for, with all the waiting that takes, before a writer is stopped.
        let stop = || -> atoll_types::Result<()> { panic!("a writer was stopped without room") };
        let refused = storage.snapshot(&storage.hold(id).unwrap(), SnapshotId::random(), stop).unwrap_err();
        assert_eq!(refused.code, ErrorCode::DiskFull, "{refused}");
        let refused =
            storage.fork(&storage.share(id).unwrap(), None, VolumeId::random(), 800 * MIB, stop).unwrap_err();
        assert_eq!(refused.code, ErrorCode::DiskFull, "{refused}");
        assert_eq!(storage.snapshots(id).unwrap(), [made]);
        assert_eq!(storage.list(TreeKind::Volume).unwrap().len(), 1);
        // The way back is open.
        rollback(&storage, &made);
        assert!(!path.join("a").exists());
        assert_eq!(text(&path.join("kept")), "kept");
        let root = if driver == DriverChoice::Dir {
            fixture.config().dir.join("dir")
        } else {
            fixture.config().mount_at
        };
        for folder in ["new", "trash"] {
            assert_eq!(fs::read_dir(root.join(folder)).unwrap().count(), 0, "{folder}");
        }
        storage.close().unwrap();
    }
}

const FOLDER: &str = "ATOLL_STORAGE_SNAPSHOT_FOLDER";

/// Works without end on one volume: each generation of it has the same number in two files.
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
    let id: VolumeId = text(&folder.join("volume")).parse().unwrap();
    let path = storage.path(Tree::Volume(id));
    let base = storage.snapshots(id).unwrap()[0];
    for n in 0_u64.. {
        for name in ["a", "b"] {
            fs::write(path.join(name), n.to_string()).unwrap();
        }
        let made = snapshot(&storage, id);
        let (into, _) = fork(&storage, id, Some(made.id), 100 * MIB);
        rollback(&storage, &base);
        delete(&storage, &made);
        storage.remove(Tree::Volume(into)).unwrap();
    }
}

/// The volume is what it was before or after a rollback, and nothing that is in place is there by half.
#[test]
fn killed_at_any_moment_it_leaves_the_old_or_the_new() {
    for driver in [DriverChoice::Btrfs, DriverChoice::Dir] {
        let fixture = Fixture::new();
        if driver == DriverChoice::Dir {
            fs::write(fixture.path().join("is-dir"), "").unwrap();
        }
        let storage = Storage::open(&config(&fixture, driver)).unwrap();
        let (id, path) = volume(&storage, 100 * MIB);
        fs::write(fixture.path().join("volume"), id.to_string()).unwrap();
        for n in 0..200 {
            fs::write(path.join(format!("file-{n}")), vec![1; 5000]).unwrap();
        }
        for name in ["a", "b"] {
            fs::write(path.join(name), "base").unwrap();
        }
        let base = snapshot(&storage, id);
        drop(storage);
        for round in 0..15 {
            let mut child = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "snapshots::worker", "--ignored", "--quiet"])
                .env(FOLDER, fixture.path())
                .stdout(Stdio::null())
                .spawn()
                .unwrap();
            std::thread::sleep(Duration::from_millis(150 + 37 * round));
            assert!(child.try_wait().unwrap().is_none(), "it works without end");
            child.kill().unwrap();
            child.wait().unwrap();
            let storage = Storage::open(&config(&fixture, driver)).unwrap();
            let root = path.ancestors().find(|at| at.join("trash").exists()).unwrap();
            for folder in ["new", "trash"] {
                assert_eq!(fs::read_dir(root.join(folder)).unwrap().count(), 0, "{folder}");
            }
            for snapshot in storage.snapshots(id).unwrap() {
                let changed = storage.diff(&storage.share(id).unwrap(), base.id, Some(snapshot.id)).unwrap();
                assert!(changed.files.iter().all(|c| c.action == Modified), "{changed:?}");
                if snapshot != base {
                    delete(&storage, &snapshot);
                }
            }
            let changed = storage.diff(&storage.share(id).unwrap(), base.id, None).unwrap();
            assert!(changed.files.iter().all(|c| ["a", "b"].contains(&c.path.as_str())), "{changed:?}");
            for tree in storage.list(TreeKind::Volume).unwrap() {
                assert_eq!(fs::read_dir(storage.path(tree)).unwrap().count(), 202, "whole or not there");
                if tree != Tree::Volume(id) {
                    storage.remove(tree).unwrap();
                }
            }
            assert_eq!(storage.usage(Tree::Volume(id)).unwrap().limit_bytes, 100 * MIB);
        }
        let storage = Storage::open(&config(&fixture, driver)).unwrap();
        eventually("only the base is counted", &storage, || used(&storage, id) < 5 * MIB);
        close(&fixture, storage);
    }
}

#[test]
fn what_a_crash_left_is_swept_and_what_lives_is_not() {
    on_both(|fixture, storage| {
        let (id, path) = volume(storage, 50 * MIB);
        fs::write(path.join("a"), "a").unwrap();
        let made = snapshot(storage, id);
        let (gone, at) = fork(storage, id, None, 50 * MIB);
        snapshot(storage, gone);
        // A remove that was cut off after its first step.
        let root = path.ancestors().find(|at| at.join("trash").exists()).unwrap().to_owned();
        let entry = at.ancestors().find(|at| at.parent().unwrap().ends_with("volumes")).unwrap().to_owned();
        fs::rename(entry, root.join("trash/left")).unwrap();
        let driver =
            if root.starts_with(fixture.config().dir) { DriverChoice::Dir } else { DriverChoice::Btrfs };
        drop(Storage::open(&config(fixture, driver)).unwrap());
        assert_eq!(storage.snapshots(gone).unwrap(), [], "its snapshots go too");
        assert_eq!(storage.snapshots(id).unwrap(), [made]);
        assert_eq!(fs::read_dir(root.join("trash")).unwrap().count(), 0);
        fs::write(path.join("b"), "b").unwrap();
        rollback(storage, &made);
        assert!(!path.join("b").exists());
    });
}

#[test]
fn what_is_dirty_is_counted_and_written_back() {
    let fixture = Fixture::new();
    let storage = fixture.open();
    let (id, path) = volume(&storage, 100 * MIB);
    fs::write(path.join("a"), vec![5; 20 * MIB as usize]).unwrap();
    assert!(storage.dirty() >= 10 * MIB, "{}", storage.dirty());
    storage.write_back().unwrap();
    assert!(storage.dirty() < MIB, "{}", storage.dirty());
    fs::write(path.join("b"), vec![5; 20 * MIB as usize]).unwrap();
    assert!(storage.flush(&storage.hold(id).unwrap()).unwrap(), "without a writer little is left");
    assert!(storage.dirty() < MIB, "{}", storage.dirty());
    assert_eq!(fs::read_dir(fixture.config().mount_at.join("trash")).unwrap().count(), 0);
    assert_eq!(snapshot(&storage, id).size_bytes / MIB, 40);
    storage.close().unwrap();
}

/// A power cut may leave the file of a limit empty.
#[test]
fn a_limit_that_cannot_be_read_keeps_neither_storage_nor_snapshots_away() {
    let fixture = Fixture::new();
    let storage = Storage::open(&config(&fixture, DriverChoice::Dir)).unwrap();
    let ((spoiled, path), (other, _)) = (volume(&storage, 10 * MIB), volume(&storage, 10 * MIB));
    fs::write(path.join("a"), "one").unwrap();
    let made = snapshot(&storage, spoiled);
    let kept = snapshot(&storage, other);
    storage.close().unwrap();
    fs::write(path.parent().unwrap().join("limit"), "").unwrap();
    let storage = Storage::open(&config(&fixture, DriverChoice::Dir)).unwrap();
    assert_eq!(storage.snapshots(spoiled).unwrap(), [made]);
    assert_eq!(storage.snapshots(other).unwrap(), [kept]);
    storage.close().unwrap();
}
