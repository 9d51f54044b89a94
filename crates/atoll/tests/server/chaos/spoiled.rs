//! The suite itself, tried against what is broken on purpose: whatever is left or lost, it must say so.

use super::{
    believed::{Beliefs, Believed, Life, May},
    client::LOG,
    empty_server,
    verdict::{self, sandboxes},
    world::{Owned, World},
};
use crate::{
    engine::fixture::{eventually, spec},
    server::fixture::Server,
};
use atoll_launch_proto::Layout;
use atoll_provider::{ContainerSpec, Provider};
use atoll_provider_native::{LauncherClient, NativeProvider};
use atoll_types::VolumeId;
use serde_json::json;
use std::{
    fs,
    os::unix::net::UnixListener,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
};

fn strange(server: &Server, world: &World) -> Vec<String> {
    world.strange(&Owned::by(&sandboxes(server)))
}

/// Something that is left; goes with this.
struct Left(Vec<Vec<String>>);

impl Left {
    /// Made by these words, and undone by those.
    fn new(made: &[&str], undone: &[&[&str]]) -> Self {
        let ran = Command::new(made[0]).args(&made[1..]).output().unwrap();
        assert!(ran.status.success(), "{ran:?}");
        Self(undone.iter().map(|words| words.iter().map(ToString::to_string).collect()).collect())
    }
}

impl Drop for Left {
    fn drop(&mut self) {
        for words in &self.0 {
            let _ = Command::new(&words[0]).args(&words[1..]).output();
        }
    }
}

fn cgroup(layout: &Layout, name: &str) -> PathBuf {
    let tops = ["/sys/fs/cgroup/pids", "/sys/fs/cgroup"].map(Path::new);
    let top = tops.iter().find(|top| top.join("cgroup.procs").exists()).unwrap();
    top.join("atoll").join(layout.instance()).join(name)
}

#[test]
fn whatever_is_left_is_seen() {
    let (server, world) = empty_server();
    server.create(r#"{"disk_mb":16}"#);
    eventually("order", || strange(&server, &world).is_empty());
    let layout = Layout::new(&server.data().canonicalize().unwrap());
    let says = |word: &str| {
        let found = strange(&server, &world);
        assert!(found.iter().any(|one| one.contains(word)), "{word}: {found:?}");
    };
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    {
        let folder = text(&cgroup(&layout, "00000000000000000000000000000001"));
        let _left = Left::new(&["mkdir", "-p", &folder], &[&["rmdir", &folder]]);
        says("00000000000000000000000000000001 is nobody's");
    }
    {
        let folder = text(&layout.run().join("stage"));
        let _left = Left::new(&["mount", "-t", "tmpfs", "none", &folder], &[&["umount", &folder]]);
        says("stage is nobody's");
    }
    {
        let file = text(&layout.data().join("left.img"));
        let image = Left::new(&["truncate", "-s", "1M", &file], &[&["rm", &file]]);
        let device = Command::new("losetup").args(["--find", "--show", &file]).output().unwrap();
        let device = String::from_utf8(device.stdout).unwrap().trim().to_owned();
        let _left = Left::new(&["true"], &[&["losetup", "--detach", &device]]);
        says("loop device: loop");
        drop(image);
    }
    {
        let path = layout.run().join("left.sock");
        let listener = UnixListener::bind(&path).unwrap();
        says("socket: left.sock is nobody's");
        drop(listener);
        fs::remove_file(path).unwrap();
    }
    for place in ["pool/volumes", "pool/spools", "pool/trash", "c", "lc", "pids"] {
        let folder = text(&layout.run().join(place).join("left"));
        let _left = Left::new(&["mkdir", &folder], &[&["rmdir", &folder]]);
        says(if place == "pids" { "pids: 2 is nobody's" } else { "left is nobody's" });
    }
    eventually("order", || strange(&server, &world).is_empty());
}

#[test]
fn an_orphaned_container_is_seen() {
    let (server, world) = empty_server();
    let layout = Layout::new(&server.data().canonicalize().unwrap());
    let provider = NativeProvider::new(Arc::new(LauncherClient::new(&layout)));
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let mut wanted = ContainerSpec { volume: Some(VolumeId::random()), ..spec("default") };
    wanted.limits.disk_bytes = 16 << 20;
    let id = wanted.id;
    runtime.block_on(provider.create(wanted)).unwrap();
    let found = world.strange(&Owned::default());
    for what in ["container:", "volume:", "spool:", "user ids:", "socket:", "process "] {
        assert!(found.iter().any(|one| one.starts_with(what)), "{what} {found:?}");
    }
    // The server finds it by itself, and all of it goes.
    assert!(verdict::settled(|| world.strange(&Owned::default())).is_empty());
    assert!(!layout.run().join("c").join(id.to_string()).exists());
}

/// What a client believes of a sandbox in which two files were written and two commands ran.
fn believed(path: &str) -> Believed {
    let mut sandbox = Believed::new("c0-1".into(), Some(path.to_owned()));
    let content = |text: &str| May::only(Some(text.as_bytes().to_vec().into()));
    sandbox.files = [("a".into(), content("first")), ("b".into(), content("second"))].into();
    sandbox.once = ["one".to_owned(), "two".to_owned()].into();
    sandbox
}

#[test]
fn whatever_is_lost_is_seen() {
    let (server, world) = empty_server();
    let path = server.create(r#"{"disk_mb":16,"labels":{"chaos":"c0-1"}}"#);
    server.exec(&path, &format!("printf first > a; printf second > b; printf 'one\\ntwo\\n' > {LOG}"));
    let look = |change: &dyn Fn(&mut Believed)| {
        let mut sandbox = believed(&path);
        change(&mut sandbox);
        verdict::of(&server, &world, &[Beliefs { sandboxes: vec![sandbox], ..Beliefs::default() }]).0
    };
    assert_eq!(look(&|_| ()), Vec::<String>::new());
    let says = |found: Vec<String>, word: &str| {
        assert!(found.iter().any(|one| one.contains(word)), "{word}: {found:?}");
    };
    says(look(&|s| s.life = May::only(Life::Paused)), "is otherwise than");
    says(look(&|s| s.egress = May::only("a.example".into())), "may reach");
    says(
        look(&|s| s.path = Some("/api/v1/sandboxes/00000000-0000-4000-8000-000000000000".into())),
        "is lost",
    );
    says(look(&|s| _ = s.once.insert("three".into())), "three ran 0 times");
    // One byte of one file, a file that is gone, a command that ran twice.
    for (line, word) in [
        ("printf sEcond > b", "b is not what was written"),
        ("printf second > b; rm a", "a is not what was written"),
        (&*format!("printf first > a; echo two >> {LOG}"), "two ran 2 times"),
    ] {
        server.exec(&path, line);
        says(look(&|_| ()), word);
    }
    let unknown = verdict::of(&server, &world, &[]).0;
    says(unknown, "a sandbox that must not be");
    let left = json!({ "disk_mb": 16, "labels": { "chaos": "c0-1" } }).to_string();
    server.create(&left);
    assert_eq!(verdict::emptied(&server, &world).0, Vec::<String>::new());
}
