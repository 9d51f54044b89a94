//! The same subvolume by other ways, other subvolumes, and where the observer cannot be.

use crate::{
    fixture::{NOTHING, Pool, Sandbox, lines, run},
    raw,
};
use atoll_observe::{Limits, Observer};
use rustix::{
    fd::AsFd,
    fs::CWD,
    mount::{MoveMountFlags, OpenTreeFlags, UnmountFlags, move_mount, open_tree, unmount},
};
use std::{
    fs,
    os::fd::AsRawFd,
    process::{Child, Command},
    time::Duration,
};

/// A process in a user namespace of its own.
struct Namespace(Child);

impl Namespace {
    fn new() -> Self {
        let child = Command::new("unshare").args(["-U", "sleep", "60"]).spawn().unwrap();
        let this = Self(child);
        let map = format!("/proc/{}/uid_map", this.0.id());
        let ours = fs::read_link("/proc/self/ns/user").unwrap();
        while fs::read_link(format!("/proc/{}/ns/user", this.0.id())).unwrap() == ours {
            std::thread::yield_now();
        }
        fs::write(&map, "0 100000 65536").unwrap();
        fs::write(map.replace("uid", "gid"), "0 100000 65536").unwrap();
        this
    }

    fn file(&self) -> fs::File {
        fs::File::open(format!("/proc/{}/ns/user", self.0.id())).unwrap()
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_bind_mount_and_an_idmapped_one_are_seen() {
    let mut sandbox = Sandbox::new();
    let namespace = Namespace::new();
    for (name, mapped) in [("bind", false), ("idmapped", true)] {
        let point = sandbox.pool.base.path().join(name);
        fs::create_dir(&point).unwrap();
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        let mount = open_tree(CWD, sandbox.at(""), flags).unwrap();
        if mapped {
            raw::map_ids(mount.as_fd(), namespace.file().as_raw_fd()).unwrap();
        }
        move_mount(&mount, "", CWD, &point, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH).unwrap();
        drop(mount);
        if mapped {
            std::os::unix::fs::chown(&point, Some(100_000), Some(100_000)).unwrap();
        }
        let (file, created) = (point.join(name), format!("+{name} 1"));
        let write = format!("printf 1 > {}", file.display());
        let user = ["--reuid=100000", "--regid=100000", "--clear-groups"];
        let command = ["sh", "-c", &write];
        run("setpriv", &[if mapped { &user[..] } else { &[] }, &command].concat());
        assert_eq!(sandbox.changes(), [created]);
        run("umount", &[point.to_str().unwrap()]);
    }
}

#[test]
fn trees_are_kept_apart() {
    let mut sandbox = Sandbox::new();
    let other = sandbox.pool.tree();
    fs::write(other.join("workspace/before"), "x").unwrap();
    sandbox.observer.watch(&other).unwrap();
    fs::write(other.join("workspace/theirs"), "x").unwrap();
    sandbox.write("ours", "x");
    assert_eq!(sandbox.changes(), ["+ours 1"]);
    let theirs = sandbox.observer.take(&other, "workspace", &[]).unwrap();
    assert_eq!((lines(&theirs), theirs.truncated), (vec!["+theirs 1".into()], false));
    sandbox.observer.forget(&other);
    fs::write(other.join("workspace/later"), "x").unwrap();
    let unknown = sandbox.observer.take(&other, "workspace", &[]).unwrap();
    assert_eq!((lines(&unknown), unknown.truncated), (vec![], true), "not watched, from now on watched");
    fs::write(other.join("workspace/last"), "x").unwrap();
    assert_eq!(lines(&sandbox.observer.take(&other, "workspace", &[]).unwrap()), ["+last 1"]);
}

#[test]
fn another_tree_at_the_same_path_is_not_guessed_about() {
    let mut sandbox = Sandbox::new();
    let (path, other) = (sandbox.tree.clone(), sandbox.pool.tree());
    sandbox.write("f", "x");
    let aside = path.with_extension("old");
    fs::rename(&path, &aside).unwrap();
    fs::rename(&other, &path).unwrap();
    assert!(sandbox.take().truncated);
    sandbox.write("g", "x");
    assert_eq!(sandbox.changes(), ["+g 1"]);
}

#[test]
fn a_subvolume_inside_hides_nothing_in_silence() {
    let mut sandbox = Sandbox::new();
    let inner = sandbox.at("inner").to_str().unwrap().to_owned();
    run("btrfs", &["subvolume", "create", &inner]);
    sandbox.write("inner/hidden", "x");
    sandbox.write("seen", "x");
    for want in [vec!["+seen 1"], vec![]] {
        let taken = sandbox.take();
        assert_eq!((lines(&taken), taken.truncated), (want.into_iter().map(String::from).collect(), true));
    }
    sandbox.observer.forget(&sandbox.tree);
    sandbox.observer.watch(&sandbox.tree).unwrap();
    assert!(sandbox.take().truncated, "one that is there already");
    run("btrfs", &["subvolume", "delete", &inner]);
    sandbox.take();
    assert_eq!(sandbox.changes(), NOTHING);
}

#[test]
fn a_subvolume_that_was_made_while_too_much_happened_is_found() {
    let mut sandbox = Sandbox::with_limits(Limits { tree_bytes: 4096, ..Limits::default() });
    (0..100).for_each(|n| sandbox.write(&format!("{n}"), "x"));
    sandbox.observer.drain().unwrap();
    run("btrfs", &["subvolume", "create", sandbox.at("inner").to_str().unwrap()]);
    assert!(sandbox.take().truncated);
    assert!(sandbox.take().truncated, "it is still there");
}

#[test]
fn a_mount_of_a_subvolume_will_do() {
    let pool = Pool::new();
    let tree = pool.tree();
    let point = pool.base.path().join("sub");
    fs::create_dir(&point).unwrap();
    // As on a machine whose root is a subvolume: the top level is mounted nowhere that we know.
    run("mount", &["--bind", tree.to_str().unwrap(), point.to_str().unwrap()]);
    let mut observer = Observer::new(&point).unwrap();
    observer.watch(&point).unwrap();
    fs::write(tree.join("workspace/f"), "x").unwrap();
    assert_eq!(lines(&observer.take(&point, "workspace", &[]).unwrap()), ["+f 1"]);
    drop(observer);
    run("umount", &[point.to_str().unwrap()]);
}

#[test]
fn an_observer_keeps_no_pool_mounted() {
    let mut sandbox = Sandbox::new();
    sandbox.write("f", "x");
    sandbox.changes();
    drop(sandbox.pool.storage.take());
    let root = sandbox.pool.root();
    // Another test's child may have our descriptors for a moment.
    let done = (0..100).any(|_| {
        std::thread::sleep(Duration::from_millis(10));
        unmount(&root, UnmountFlags::empty()).is_ok()
    });
    assert!(done);
    assert!(sandbox.observer.drain().is_ok());
    assert!(sandbox.observer.take(&sandbox.tree, "workspace", &[]).is_err());
}

#[test]
fn other_file_systems_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    assert!(Observer::new(folder.path()).is_err());
}
