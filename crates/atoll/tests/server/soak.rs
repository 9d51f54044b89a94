//! Many short lives one after the other: what they cost while they last is given back. `make test` has a
//! short form; `make soak` the whole, as many as `ATOLL_SOAK_CYCLES` says.
//!
//! What is compared is taken after a warm-up, when allocators, caches and pools of threads have what they keep,
//! and after the last life, both with nothing but two sandboxes that are kept ready. What may differ then
//! is said beside each figure, with the reason. The database is not among them: it keeps what was done.

use super::fixture::Server;
use crate::engine::fixture::{all_processes, eventually};
use atoll_launch_proto::Layout;
use serde_json::json;
use std::{
    fs,
    path::Path,
    process::Command,
    thread,
    time::{Duration, Instant},
};

const ROOT: &str = "/api/v1/sandboxes";
/// Lives at a time.
const CLIENTS: usize = 2;

/// One figure: its name, its value, and how much more it may be later.
type Figure = (&'static str, u64, u64);

fn cycles() -> usize {
    std::env::var("ATOLL_SOAK_CYCLES").map_or(60, |text| text.parse().expect("a number"))
}

fn count(folder: impl AsRef<Path>) -> u64 {
    fs::read_dir(folder).into_iter().flatten().count() as u64
}

/// A field of a process's status, as it is there.
fn status(pid: i32, name: &str) -> u64 {
    let all = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = all.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// Every process of the launcher, workers too.
fn launchers(layout: &Layout) -> Vec<i32> {
    let data = layout.data().to_string_lossy().into_owned();
    let ours = |pid: &i32| {
        let line = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.contains("atoll-launch") && line.contains(&data)
    };
    all_processes().into_iter().filter(ours).collect()
}

fn folders(path: &Path) -> u64 {
    let below = fs::read_dir(path).into_iter().flatten().flatten().filter(|entry| entry.path().is_dir());
    below.map(|entry| 1 + folders(&entry.path())).sum()
}

fn cgroups(layout: &Layout) -> u64 {
    let top = Path::new("/sys/fs/cgroup");
    let tops = fs::read_dir(top).unwrap().flatten().map(|entry| entry.path()).chain([top.to_owned()]);
    tops.map(|top| folders(&top.join("atoll").join(layout.instance()))).sum()
}

/// What a command prints, as a number.
fn figure(program: &str, arguments: &[&str]) -> u64 {
    let ran = Command::new(program).args(arguments).output().unwrap();
    let said = String::from_utf8(ran.stdout).unwrap();
    let number = said.lines().last().and_then(|line| line.split_whitespace().next()?.parse().ok());
    number.unwrap_or_else(|| panic!("{program} {arguments:?}: {said}"))
}

/// Everything that must be flat.
/// What SQLite may cache: 32 MiB for the connection that writes, 16 for one that reads.
const CACHES_KIB: u64 = 48 << 10;

fn figures(server: &Server) -> Vec<Figure> {
    let layout = Layout::new(&server.data().canonicalize().unwrap());
    let (run, pid) = (layout.run(), i32::try_from(server.child.id()).unwrap());
    let pool = run.join("pool");
    let launchers = launchers(&layout);
    let sum = |of: &dyn Fn(i32) -> u64| launchers.iter().map(|pid| of(*pid)).sum::<u64>();
    let fds = |pid: i32| count(format!("/proc/{pid}/fd"));
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let ours = mounts.lines().filter(|line| line.contains(layout.instance())).count() as u64;
    vec![
        // The allocator keeps what bursts needed, and a sandbox's task stays for a while after it. What SQLite
        // caches comes on top.
        ("server memory, KiB", status(pid, "RssAnon"), 24 << 10),
        // Connections that are just being closed.
        ("server descriptors", fds(pid), 8),
        // Threads for files that are there for ten seconds after the last one.
        ("server threads", status(pid, "Threads"), 8),
        // Each process shares what it can; what it has of its own is a page here and there.
        ("launcher memory, KiB", sum(&|pid| status(pid, "RssAnon")), 4 << 10),
        ("launcher descriptors", sum(&fds), 4),
        ("launcher processes", launchers.len() as u64, 0),
        ("cgroups", cgroups(&layout), 0),
        ("mounts", ours, 0),
        ("containers", count(run.join("c")), 0),
        ("volumes", count(pool.join("volumes")), 0),
        ("spools", count(pool.join("spools")), 0),
        ("trash", count(pool.join("trash")), 0),
        ("run folder", folders(&run.join("lc")) + count(run.join("pids")) + count(run.join("oci")), 0),
        // What the file system needs for itself; a volume of a sandbox would be more.
        ("storage, KiB", figure("df", &["--output=used", "-k", pool.to_str().unwrap()]), 8 << 10),
    ]
}

fn database(server: &Server) -> u64 {
    figure("du", &["-sb", server.data().join("server").to_str().unwrap()])
}

/// Takes the figures when all is quiet.
fn quiet(server: &Server) -> Vec<Figure> {
    let ready = || {
        let pool = server.ask("GET", "/api/v1/pool", "").json()["keys"][0].clone();
        pool["ready"] == 2 && server.ask("GET", ROOT, "").json()["total"] == 0
    };
    eventually("two that are ready", ready);
    // What is on its way out is not there for long.
    let mut last = figures(server);
    eventually("a quiet server", || {
        let now = figures(server);
        let still = now.iter().zip(&last).all(|(now, last)| now.0.contains("KiB") || now.1 == last.1);
        last = now;
        thread::sleep(Duration::from_millis(300));
        still && ready()
    });
    last
}

/// What is more than it was by more than it may be.
fn above<'f>(before: &'f [Figure], after: &'f [Figure]) -> Vec<(&'f Figure, &'f Figure)> {
    before.iter().zip(after).filter(|(then, now)| now.1 > then.1 + now.2).collect()
}

/// The figures of a quiet server. A worker that flushes a file system lives for seconds on a busy disk, so what
/// is more than before is looked at again for a minute: a leak stays.
fn shrunk(server: &Server, before: &[Figure], cached_kib: u64) -> Vec<Figure> {
    let began = Instant::now();
    loop {
        let mut after = quiet(server);
        after[0].2 += cached_kib;
        if above(before, &after).is_empty() || began.elapsed() > Duration::from_secs(60) {
            return after;
        }
    }
}

/// Makes sandboxes, uses each, and ends it.
fn live(server: &Server, cycles: usize) {
    thread::scope(|scope| {
        for client in 0..CLIENTS {
            scope.spawn(move || {
                for cycle in (client..cycles).step_by(CLIENTS) {
                    let body =
                        json!({ "disk_mb": 16, "memory_mb": 64, "labels": { "n": cycle.to_string() } });
                    let path = server.create(&body.to_string());
                    assert_eq!(server.says(&path, "echo here | tee x"), "here");
                    let gone = server.ask("DELETE", &path, "");
                    assert_eq!(gone.status, 204, "{gone:?}");
                }
            });
        }
    });
}

#[test]
fn many_lives_leave_nothing() {
    let cycles = cycles();
    let two = ["warm_pool_enabled=true", "pool.min=2", "pool.max=2", "lifecycle.interval_seconds=1"];
    let arguments: Vec<&str> = two.iter().flat_map(|setting| ["--set", setting]).collect();
    let server = Server::start_with(&arguments);
    let warm_up = (cycles / 5).clamp(20, 300);
    live(&server, warm_up);
    let before = quiet(&server);
    let kept = database(&server);
    live(&server, cycles);
    let grown = database(&server).saturating_sub(kept);
    // Pages of the database that grew, in the cache of the connection that writes and of one that reads. With
    // caches of 256 KiB a thousand lives leave 1.8 MiB.
    let cached = (2 * grown / 1024).min(CACHES_KIB);
    let after = shrunk(&server, &before, cached);
    eprintln!(
        "soak: {cycles} lives after {warm_up}; the database grew by {} bytes for each",
        grown / cycles as u64
    );
    for ((name, then, _), (_, now, more)) in before.iter().zip(&after) {
        eprintln!("soak: {name}: {then} -> {now} (+{more} allowed)");
    }
    let grown = above(&before, &after);
    assert!(grown.is_empty(), "{grown:?}");
}

/// A death comes by PID 1's pidfd, so that a sandbox at rest costs one process, its PID 1, and their number meets no limit
/// of the launcher's workers.
#[test]
fn no_process_of_the_launcher_waits_for_a_sandbox() {
    let server = Server::start();
    let layout = Layout::new(&server.data().canonicalize().unwrap());
    for _ in 0..6 {
        let body = json!({"memory_mb": 64, "cpu_cores": 0.1, "disk_mb": 64}).to_string();
        assert_eq!(server.ask("POST", ROOT, &body).status, 201);
    }
    // The monitor, the launcher, the observer, and the process that keeps the egress sockets.
    eventually("the launcher's workers end", || launchers(&layout).len() <= 4);
}
