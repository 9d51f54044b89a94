//! What the machine does to a server: process tables that are full, a launcher that hangs, a clock that
//! jumps, storage that is full. Each is an error of the request that meets it, harms no other sandbox, and ends with its cause.

use super::{
    execs::{AUTH, info, start},
    fixture::Server,
    http::{self, Answer},
};
use crate::engine::{
    fixture::{Stopped, eventually, launchers_of},
    usage::Gate,
};
use atoll_launch_proto::Layout;
use serde_json::json;
use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
    thread,
};

const ROOT: &str = "/api/v1/sandboxes";

fn code(answer: &Answer) -> String {
    answer.json()["error"]["code"].as_str().unwrap_or_default().to_owned()
}

fn layout(server: &Server) -> Layout {
    Layout::new(&server.data().canonicalize().unwrap())
}

/// Forks until no more is to be had, and stays.
const FILL: &str = "import os, time\nwhile True:\n  try:\n    if os.fork() == 0: time.sleep(5000)\n  \
                    except OSError: time.sleep(0.05); open('/workspace/full', 'w')";

#[test]
fn a_full_process_table_of_a_sandbox_is_said_and_gets_over_it() {
    let server = Server::start();
    let (path, other) = (server.create(r#"{"processes":8}"#), server.create("{}"));
    let body = json!({ "arguments": ["/usr/bin/python3", "-c", FILL] });
    let filling = start(&server, &path, body);
    let mut last = None;
    eventually("a refusal", || {
        // A few more are kept for what is asked for from outside; these use them up.
        let body = r#"{"command":"exec sleep 5000","background":true}"#;
        let answer = server.ask("POST", &format!("{path}/exec"), body);
        let refused = answer.status != 202;
        last = Some(answer);
        refused
    });
    let refused = last.unwrap();
    assert_eq!((refused.status, code(&refused).as_str()), (409, "conflict"), "{refused:?}");
    assert!(refused.json()["error"]["message"].as_str().unwrap().contains("process"), "{refused:?}");
    // Nobody else notices, and what is known without a process inside is still told.
    assert_eq!(server.says(&other, "echo well"), "well");
    assert_eq!(server.ask("GET", &format!("{path}/metrics"), "").status, 200);
    let killed = server.ask("POST", &format!("{filling}/kill"), "");
    assert_eq!(killed.status, 200, "{killed:?}");
    // A kill does not wait until the kernel has taken every process of the tree off its count.
    eventually("room for a process", || {
        let answer = server.ask("POST", &format!("{path}/exec"), r#"{"command":"echo well"}"#);
        assert!(matches!(answer.status, 200 | 409), "{answer:?}");
        answer.status == 200 && answer.json()["stdout"] == "well\n"
    });
}

/// A cgroup of its own in which no process can be started any more; the processes in it move back when this is dropped.
struct Full {
    cgroup: PathBuf,
    before: PathBuf,
    pid: String,
}

impl Full {
    fn around(pid: i32, layout: &Layout) -> Self {
        let pid = pid.to_string();
        let old = Path::new("/sys/fs/cgroup/pids");
        let root = if old.is_dir() { old } else { Path::new("/sys/fs/cgroup") };
        let all = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
        let of = |line: &str| {
            let mut parts = line.splitn(3, ':').skip(1);
            let (names, path) = (parts.next()?, parts.next()?);
            let ours = if old.is_dir() { names.split(',').any(|n| n == "pids") } else { names.is_empty() };
            ours.then(|| path.trim_start_matches('/').to_owned())
        };
        let before = root.join(all.lines().find_map(of).unwrap());
        let cgroup = root.join("atoll").join(format!("full-{}", layout.instance()));
        fs::create_dir_all(&cgroup).unwrap();
        let full = Self { cgroup, before, pid };
        fs::write(full.cgroup.join("cgroup.procs"), &full.pid).unwrap();
        fs::write(full.cgroup.join("pids.max"), "1").unwrap();
        full
    }
}

impl Drop for Full {
    fn drop(&mut self) {
        let _ = fs::write(self.cgroup.join("pids.max"), "max");
        let all = fs::read_to_string(self.cgroup.join("cgroup.procs")).unwrap_or_default();
        for pid in all.lines().chain([self.pid.as_str()]) {
            let _ = fs::write(self.before.join("cgroup.procs"), pid);
        }
        let _ = fs::remove_dir(&self.cgroup);
    }
}

#[test]
fn a_launcher_that_cannot_fork_says_so_and_gets_over_it() {
    let server = Server::start();
    let path = server.create("{}");
    server.says(&path, "echo kept > x");
    let layout = layout(&server);
    {
        let _full = Full::around(launchers_of(&layout)[1], &layout);
        let refused = server.ask("POST", ROOT, "{}");
        assert_eq!((refused.status, code(&refused).as_str()), (503, "unavailable"), "{refused:?}");
        // PID 1 is asked without it.
        assert_eq!(server.says(&path, "cat x"), "kept");
        assert_eq!(server.ask("GET", &path, "").json()["status"], "running");
    }
    eventually("another sandbox", || server.ask("POST", ROOT, "{}").status == 201);
    assert_eq!(server.ask("POST", &format!("{path}/stop"), "").status, 200);
    assert_eq!(server.ask("POST", &format!("{path}/resume"), "").status, 200);
    assert_eq!(server.says(&path, "cat x"), "kept");
}

/// Shorter than usual, so that a test need not wait for long; and long enough for a launcher that works on a machine
/// that does other things too.
const SHORT_PATIENCE: (&str, &str) = ("ATOLL_LAUNCHER_PATIENCE_SECONDS", "10");

#[test]
fn a_launcher_that_hangs_holds_up_only_who_needs_it() {
    let more = ["lifecycle.interval_seconds=1", "lifecycle.orphan_seconds=1"];
    let more: Vec<&str> = more.iter().flat_map(|setting| ["--set", setting]).collect();
    let server = Server::start_in("warn", &more, &[SHORT_PATIENCE]);
    let [path, stopped, doomed] = [(); 3].map(|()| server.create("{}"));
    for path in [&path, &stopped, &doomed] {
        server.says(path, "echo kept > x");
    }
    for path in [&stopped, &doomed] {
        assert_eq!(server.ask("POST", &format!("{path}/stop"), "").status, 200);
    }
    let layout = layout(&server);
    let hung = Stopped::new(launchers_of(&layout)[1]);
    thread::scope(|scope| {
        let asked =
            [("POST", ROOT.to_owned()), ("POST", format!("{stopped}/resume")), ("DELETE", doomed.clone())];
        let waiting: Vec<_> = asked
            .map(|(method, path)| {
                scope.spawn({
                    let server = &server;
                    move || server.ask(method, &path, "{}")
                })
            })
            .into();
        // Others go on meanwhile.
        assert_eq!(server.says(&path, "cat x"), "kept");
        assert_eq!(server.ask("PUT", &format!("{path}/files/y"), "new").status, 204);
        for answer in waiting.into_iter().map(|asked| asked.join().unwrap()) {
            assert_eq!((answer.status, code(&answer).as_str()), (503, "unavailable"), "{answer:?}");
            let why = answer.json()["error"]["message"].as_str().unwrap().to_owned();
            assert!(why.contains("the launcher did not answer in time"), "{why}");
        }
    });
    drop(hung);
    assert_eq!(server.says(&server.create("{}"), "echo new"), "new");
    assert_eq!(server.says(&path, "cat x y"), "kept\nnew");
    // An end that was begun comes, and nothing is left of what was asked for in vain.
    eventually("its end", || server.ask("GET", &doomed, "").json()["status"] == "destroyed");
    assert_eq!(server.ask("POST", &format!("{stopped}/resume"), "").status, 200);
    assert_eq!(server.says(&stopped, "cat x"), "kept");
    eventually("order", || {
        let listed = server.ask("GET", ROOT, "").json()["total"].as_u64().unwrap();
        let there = |folder: &str| fs::read_dir(layout.run().join(folder)).unwrap().count() as u64;
        (listed, there("c"), there("pool/volumes")) == (3, 3, 3)
    });
}

#[test]
fn a_launcher_that_hangs_costs_no_ready_sandbox_its_processes() {
    let server = Server::start_in("warn", &[], &[SHORT_PATIENCE]);
    let path = server.create("{}");
    let exec = start(&server, &path, json!({ "command": "exec sleep 5000" }));
    let hung = Stopped::new(launchers_of(&layout(&server))[1]);
    // The server does not know any more how the container is after the first, and cannot find out for the second.
    for asked in ["pause", "resume"] {
        let answer = server.ask("POST", &format!("{path}/{asked}"), "");
        assert_eq!((answer.status, code(&answer).as_str()), (503, "unavailable"), "{asked}: {answer:?}");
    }
    assert_eq!(server.ask("GET", &path, "").json()["status"], "running");
    drop(hung);
    assert_eq!(server.ask("POST", &format!("{path}/resume"), "").status, 200);
    assert_eq!(info(&server, &exec)["status"], "running");
}

#[test]
fn an_end_that_was_begun_is_finished_by_the_next_server() {
    let mut server = Server::start();
    let (path, kept) = (server.create("{}"), server.create("{}"));
    server.says(&kept, "echo kept > x");
    server.ask("POST", &format!("{path}/stop"), "");
    let layout = layout(&server);
    let hung = Stopped::new(launchers_of(&layout)[1]);
    let gate = Gate::before(&layout);
    let (address, doomed) = (server.address, path.clone());
    let asked = thread::spawn(move || {
        let _ = http::request(address, "DELETE", &doomed, &[AUTH], b"");
    });
    // What the launcher is asked for by now it does when it goes on.
    eventually("its beginning", || gate.asked().iter().any(|request| request.contains("remove_volume")));
    server.kill();
    asked.join().unwrap();
    drop((gate, hung));
    let volumes = || fs::read_dir(layout.run().join("pool/volumes")).unwrap().count();
    eventually("the volume's end", || volumes() == 1);
    server.restart();
    assert_eq!(server.ask("GET", &path, "").json()["status"], "destroyed");
    assert_eq!(server.says(&kept, "cat x"), "kept");
}

/// A wall clock that can be moved.
struct Clock {
    folder: tempfile::TempDir,
}

impl Clock {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
        let clock = Self { folder };
        fs::write(clock.path("clock.c"), include_str!("clock.c")).unwrap();
        let built = Command::new("gcc")
            .args(["-shared", "-fPIC", "-O2", "-o"])
            .args([clock.path("clock.so"), clock.path("clock.c")])
            .output()
            .unwrap();
        assert!(built.status.success(), "{built:?}");
        clock.set(0);
        clock
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Whole or not at all: it is read all the time.
    fn set(&self, seconds: i64) {
        fs::write(self.path("new"), seconds.to_string()).unwrap();
        fs::rename(self.path("new"), self.path("now")).unwrap();
    }
}

#[test]
fn a_clock_that_jumps_ends_nothing_and_stops_nothing() {
    const YEAR: i64 = 365 * 24 * 3600;
    let clock = Clock::new();
    let settings = [
        "lifecycle.interval_seconds=1",
        "lifecycle.settle_seconds=0",
        "lifecycle.max_lifetime_seconds=86400",
        "lifecycle.expiring_seconds=0",
        "stopped_retention_seconds=86400",
        "idle_timeout_seconds=3600",
    ];
    let settings: Vec<&str> = settings.iter().flat_map(|setting| ["--set", setting]).collect();
    let (library, now) = (clock.path("clock.so"), clock.path("now"));
    let variables = [("LD_PRELOAD", library.to_str().unwrap()), ("TEST_CLOCK", now.to_str().unwrap())];
    let server = Server::start_in("warn", &settings, &variables);
    let (running, stopped) = (server.create("{}"), server.create("{}"));
    server.ask("POST", &format!("{stopped}/stop"), "");
    let statuses = || [&running, &stopped].map(|path| server.ask("GET", path, "").json()["status"].clone());
    for (jump, told) in [(YEAR, 1), (0, 2), (-YEAR, 3), (0, 4)] {
        clock.set(jump);
        eventually("the news of it", || {
            server.logged().matches("the machine's clock jumped").count() == told
        });
        // What is made to end ends; by then a few more looks were taken at the others.
        let short = server.create(r#"{"max_lifetime_seconds":1}"#);
        eventually("its end", || server.ask("GET", &short, "").json()["status"] == "destroyed");
        assert_eq!(statuses(), ["running", "stopped"], "{jump}");
        assert_eq!(server.says(&running, "echo on"), "on");
    }
    let made = server.ask("GET", &running, "").json()["created_at"].as_str().unwrap().to_owned();
    assert!(made.starts_with("20"), "{made}");
    assert_eq!(server.ask("GET", "/api/v1/audit/verify", "").json()["sound"], true);
}

#[test]
fn a_clock_that_was_moved_is_seen_by_the_server() {
    let clock = Clock::new();
    let (library, now) = (clock.path("clock.so"), clock.path("now"));
    let variables = [("LD_PRELOAD", library.to_str().unwrap()), ("TEST_CLOCK", now.to_str().unwrap())];
    let server = Server::start_in("warn", &[], &variables);
    let year = || {
        let path = server.create(r#"{"disk_mb":16}"#);
        let made = server.ask("GET", &path, "").json()["created_at"].as_str().unwrap().to_owned();
        made[..4].parse::<i64>().unwrap()
    };
    let before = year();
    clock.set(10 * 366 * 24 * 3600);
    assert!(year() - before >= 10, "the test's clock is not the server's");
}

#[test]
fn storage_that_is_full_refuses_what_is_new_and_loses_nothing() {
    let server = Server::start();
    let path = server.create(r#"{"disk_mb":64}"#);
    server.says(&path, "echo kept > x");
    // More than the machine has: refused by its field, and nothing is left of it.
    let refused = server.ask("POST", ROOT, r#"{"disk_mb":1073741824}"#);
    assert_eq!(refused.json()["error"]["details"]["field"], "disk_mb", "{refused:?}");
    assert!(matches!(refused.status, 403 | 429), "{refused:?}");
    assert_eq!(server.ask("GET", ROOT, "").json()["total"], 1);
    let layout = layout(&server);
    assert_eq!(fs::read_dir(layout.run().join("pool/volumes")).unwrap().count(), 1);
    // One that fills its own is told so; it and the others still work, and it gets over it.
    let filled = server.exec(&path, "head -c 100M /dev/zero > big");
    assert!(filled["exit_code"] != 0, "{filled}");
    let more = server.ask("PUT", &format!("{path}/files/more"), &"x".repeat(8 << 20));
    assert_eq!((more.status, code(&more).as_str()), (507, "disk_full"), "{more:?}");
    assert_eq!(server.says(&path, "cat x"), "kept");
    assert_eq!(server.says(&server.create(r#"{"disk_mb":16}"#), "echo new > x; cat x"), "new");
    server.says(&path, "rm big; sync");
    eventually("room", || server.ask("PUT", &format!("{path}/files/more"), "x").status == 204);
}
