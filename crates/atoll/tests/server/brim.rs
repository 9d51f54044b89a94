//! A real pool that is filled to the brim while its server and launcher are killed. Its disk is a small file system
//! made for it, and the sandboxes' limits add up to many times what is there.
//!
//! `make test` has two rounds; `make brim` twenty, set by `ATOLL_BRIM_ROUNDS`.

use super::fixture::{KEY, Server};
use super::http;
use crate::engine::fixture::{eventually, launchers_of};
use atoll_launch_proto::Layout;
use std::{
    collections::BTreeMap,
    fs,
    io::Write,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

const WRITERS: usize = 4;
const DISK: u64 = 1 << 30;
const PIECE: usize = 12_000_000;

/// An ext4 file system in a file, mounted while this lives.
pub(super) struct SmallDisk(tempfile::TempDir);

fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{program} {arguments:?}: {said}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    said
}

impl SmallDisk {
    pub(super) fn new() -> Self {
        let disk = Self(tempfile::Builder::new().prefix("atoll-brim-").tempdir().unwrap());
        let file = disk.0.path().join("disk.img");
        fs::File::create(&file).unwrap().set_len(DISK).unwrap();
        fs::create_dir(disk.path()).unwrap();
        run("mkfs.ext4", &["-q", file.to_str().unwrap()]);
        run("mount", &["-o", "loop", file.to_str().unwrap(), disk.path().to_str().unwrap()]);
        disk
    }

    pub(super) fn path(&self) -> PathBuf {
        self.0.path().join("disk")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.path()).status();
    }
}

/// Where the server listens, and what was acknowledged: by sandbox and name, the hash of the content.
struct Work {
    address: Mutex<SocketAddr>,
    kept: Mutex<BTreeMap<(String, String), String>>,
    full: Mutex<usize>,
    over: AtomicBool,
}

impl Work {
    /// One line in a sandbox: its exit code and what it printed; nothing where no server answered.
    fn line(&self, sandbox: &str, line: &str) -> Option<(i64, String)> {
        let body = serde_json::json!({ "command": line, "timeout_seconds": 60 }).to_string();
        let headers = [("Authorization", format!("Bearer {KEY}"))];
        let headers = [(headers[0].0, headers[0].1.as_str())];
        let address = *self.address.lock().unwrap();
        let answer =
            http::request(address, "POST", &format!("{sandbox}/exec"), &headers, body.as_bytes()).ok()?;
        let answer = (answer.status == 200).then(|| answer.json())?;
        Some((answer["exit_code"].as_i64()?, answer["stdout"].as_str()?.trim().to_owned()))
    }

    /// Writes one file after the other until there is no room for many of them in a row.
    fn fill(&self, sandbox: &str) {
        let mut refused = 0;
        for number in 0.. {
            if refused >= 5 || self.over.load(Ordering::SeqCst) {
                return;
            }
            let name = format!("f-{number}");
            let line = format!(
                "head -c {PIECE} /dev/urandom > t && sync t && mv t {name} && sync -f . && sha256sum < {name}"
            );
            match self.line(sandbox, &line) {
                Some((0, hash)) => {
                    self.kept.lock().unwrap().insert((sandbox.to_owned(), name), hash);
                }
                Some(_) => {
                    refused += 1;
                    *self.full.lock().unwrap() += 1;
                }
                // It is being started again.
                None => thread::sleep(Duration::from_millis(50)),
            }
        }
    }
}

/// Kills the server, or its launcher with all its workers, and starts the server again.
fn kill_one(server: &mut Server, work: &Work, number: usize) {
    let layout = Layout::new(&server.data().canonicalize().unwrap());
    server.kill();
    if number % 2 == 1 {
        for pid in launchers_of(&layout) {
            let _ = Command::new("kill").args(["-KILL", &pid.to_string()]).output();
        }
    }
    server.restart();
    *work.address.lock().unwrap() = server.address;
}

/// Nothing is lost, and the file system below is as it should be.
fn look(server: &Server, work: &Work, data: &Path) {
    for ((sandbox, name), hash) in work.kept.lock().unwrap().iter() {
        let path = format!("{sandbox}/files/{name}");
        let content = server.ask("GET", &path, "");
        assert_eq!((content.status, content.body.len()), (200, PIECE), "{path}");
        let (code, now) = work.line(sandbox, &format!("sha256sum < {name}")).unwrap();
        assert_eq!((code, &now), (0, hash), "{path}");
    }
    let pool = Layout::new(&data.canonicalize().unwrap()).run().join("pool");
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let mounted = mounts.lines().find(|line| line.contains(pool.to_str().unwrap())).unwrap();
    assert!(mounted.contains(" rw,"), "{mounted}");
    let scrubbed = run("btrfs", &["scrub", "start", "-B", pool.to_str().unwrap()]);
    assert!(scrubbed.contains("no errors found"), "{scrubbed}");
    let verdict = server.ask("GET", "/api/v1/audit/verify", "").json();
    assert_eq!(verdict["sound"], true, "{verdict}");
}

fn round(number: usize) {
    let disk = SmallDisk::new();
    let mut server = Server::start_below(&disk.path(), &["--set", "lifecycle.interval_seconds=1"]);
    let sandboxes: Vec<String> = (0..WRITERS).map(|_| server.create(r#"{"disk_mb":900}"#)).collect();
    let with_root = server.create(r#"{"disk_mb":64,"profile":"root"}"#);
    server.exec(&with_root, "echo kept > /etc/kept");
    let work = Work {
        address: Mutex::new(server.address),
        kept: Mutex::default(),
        full: Mutex::default(),
        over: AtomicBool::new(false),
    };
    thread::scope(|scope| {
        let writers: Vec<_> = sandboxes.iter().map(|sandbox| scope.spawn(|| work.fill(sandbox))).collect();
        for kill in 0..3 {
            thread::sleep(Duration::from_millis(700 + 150 * ((number as u64 * 7 + kill) % 11)));
            kill_one(&mut server, &work, number + kill as usize);
        }
        writers.into_iter().for_each(|writer| writer.join().unwrap());
    });
    let (kept, full) = (work.kept.lock().unwrap().len(), *work.full.lock().unwrap());
    println!("round {number}: {kept} files of {PIECE} bytes acknowledged, {full} writes refused");
    assert!(full >= WRITERS && kept > 4, "{kept} {full}");
    let data = server.data().to_path_buf();
    look(&server, &work, &data);
    // What is there starts again, as it was.
    for (sandbox, look) in [
        (&sandboxes[0], "echo kept"),
        (&with_root, "cat /etc/kept && grep ' / overlay rw' /proc/mounts > /dev/null"),
    ] {
        for change in ["stop", "resume"] {
            let answer = server.ask("POST", &format!("{sandbox}/{change}"), "");
            assert_eq!(answer.status, 200, "{change}: {answer:?}");
        }
        assert_eq!(work.line(sandbox, look), Some((0, "kept".into())));
    }
    // What is new is refused, and it is told; what is there goes on as soon as something is deleted.
    let refused = server.ask("POST", "/api/v1/sandboxes", r#"{"disk_mb":64}"#);
    assert_eq!(refused.status, 429, "{refused:?}");
    let (first, _) = work.kept.lock().unwrap().pop_first().unwrap();
    assert_eq!(
        server.ask("POST", &format!("{}/fs/remove", first.0), &format!(r#"{{"path":"{}"}}"#, first.1)).status,
        204
    );
    let wrote = work.line(&first.0, "sync -f .; head -c 5000000 /dev/urandom > again && wc -c < again");
    assert_eq!(wrote, Some((0, "5000000".into())));
    let told = server.ask("GET", "/api/v1/audit?kind=storage.low", "");
    assert!(String::from_utf8_lossy(&told.body).contains("storage.low"), "{told:?}");
    drop(server);
}

#[test]
fn a_disk_that_another_program_fills_is_told_once_a_start_and_a_search_names_it() {
    let disk = SmallDisk::new();
    let mut server = Server::start_below(&disk.path(), &["--set", "lifecycle.interval_seconds=1"]);
    let sandbox = server.create(r#"{"disk_mb":64}"#);
    let free = || rustix::fs::statvfs(disk.path()).map(|it| it.f_bavail * it.f_frsize).unwrap();
    let filler = disk.path().join("filler");
    run("fallocate", &["-l", &(free() - 100_000_000).to_string(), filler.to_str().unwrap()]);
    let told = |server: &Server| {
        let page = server.ask("GET", "/api/v1/audit?kind=storage.low", "").json();
        page["entries"].as_array().unwrap().len()
    };
    let low = |server: &Server| {
        let page = server.ask("GET", "/metrics", "").body;
        String::from_utf8(page).unwrap().lines().any(|line| line == "atoll_storage_low 1")
    };
    assert!(!low(&server));
    eventually("the warning", || told(&server) == 1);
    let heard = |server: &Server, key: &str| {
        server.ask_as(key, "GET", "/api/v1/events?kind=storage.low", "").json()["events"].clone()
    };
    eventually("its event", || heard(&server, KEY)[0]["data"]["free_bytes"].is_u64());
    eventually("its figure", || low(&server));
    let user = server.ask("POST", "/api/v1/keys", r#"{"name":"u","owner":"ann","scope":"user"}"#).json();
    assert_eq!(heard(&server, user["key"].as_str().unwrap()), serde_json::json!([]), "it is the admins'");
    server.kill();
    server.restart();
    eventually("the next server's warning", || told(&server) > 1);
    thread::sleep(Duration::from_secs(3));
    assert_eq!(told(&server), 2, "each server warns once");
    // Not a byte is left for what a tool prints.
    let mut rest = fs::File::create(disk.path().join("rest")).unwrap();
    while rest.write_all(&[0; 1 << 16]).is_ok() {}
    let search = || server.ask("POST", &format!("{sandbox}/fs/find"), r#"{"path":"/usr","limit":10000}"#);
    eventually("no room", || search().status != 200);
    let refused = search();
    fs::remove_file(&filler).unwrap();
    assert_eq!(
        (refused.status, refused.json()["error"]["code"].as_str()),
        (507, Some("disk_full")),
        "{refused:?}"
    );
    eventually("room again", || search().status == 200);
}

#[test]
fn a_pool_filled_to_the_brim_loses_nothing() {
    let rounds = std::env::var("ATOLL_BRIM_ROUNDS").map_or(2, |text| text.parse().unwrap());
    (0..rounds).for_each(round);
}
