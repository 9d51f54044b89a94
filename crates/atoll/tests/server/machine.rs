//! What concerns the machine and not one sandbox: whose server it is, who may start it, and ending all
//! of it. Whatever looks at the whole machine does so in a mount namespace of its own, where it sees no
//! instance but the test's.

use super::{
    fixture::{KEY, Server},
    http,
};
use crate::engine::fixture::{
    all_processes, data_folder, eventually, launchers_of, left_at_last, leftovers_of,
};
use atoll_launch_proto::Layout;
use std::{
    fs,
    io::{BufRead, BufReader, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    os::{
        fd::AsRawFd,
        unix::fs::{MetadataExt, PermissionsExt},
    },
    path::Path,
    process::{Child, ChildStdin, Command, Stdio},
    thread,
};

/// A shell in a mount namespace where /run/atoll and /var/lib are empty.
pub(super) struct Apart {
    shell: Child,
    say: Option<ChildStdin>,
    /// The mount namespace, which outlives the shell here.
    namespace: fs::File,
    folder: tempfile::TempDir,
}

impl Apart {
    pub(super) fn new() -> Self {
        let folder = tempfile::Builder::new().prefix("atoll-test-").tempdir().unwrap();
        let out = fs::File::create(folder.path().join("said")).unwrap();
        let mut shell = Command::new("unshare")
            .args(["--mount", "--propagation", "private", "sh", "-e"])
            .current_dir(folder.path())
            .env_remove("ATOLL_DATA_DIR")
            .env("ATOLL", env!("CARGO_BIN_EXE_atoll"))
            .env("ATOLL_BOOTSTRAP_KEY", KEY)
            .env("ATOLL_LOG", "warn")
            .env("ATOLL_SETTINGS_WARM_POOL_ENABLED", "false")
            .env("ATOLL_EGRESS_ASK_INDEXES", "false")
            .stdin(Stdio::piped())
            .stdout(out.try_clone().unwrap())
            .stderr(out)
            .spawn()
            .unwrap();
        let mut say = shell.stdin.take().unwrap();
        let empty =
            "mkdir -p /run/atoll; mount -t tmpfs none /run/atoll; mount -t tmpfs none /var/lib; touch ready";
        writeln!(say, "{empty}").unwrap();
        let ready = folder.path().join("ready");
        eventually("a namespace of its own", || ready.exists());
        let namespace = fs::File::open(format!("/proc/{}/ns/mnt", shell.id())).unwrap();
        Self { shell, say: Some(say), namespace, folder }
    }

    pub(super) fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    /// The processes in its mount namespace that run this program, the oldest first.
    pub(super) fn running(&self, program: &str) -> Vec<i32> {
        let here = |pid: &i32| {
            let found = fs::metadata(format!("/proc/{pid}/ns/mnt"));
            let exe = fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
            // One that was replaced since it started has a note behind its name.
            found.is_ok_and(|found| found.ino() == self.namespace.metadata().unwrap().ino())
                && exe.to_string_lossy().trim_end_matches(" (deleted)").ends_with(program)
        };
        let mut all: Vec<i32> = all_processes().into_iter().filter(here).collect();
        all.sort_unstable();
        all
    }

    pub(super) fn say(&mut self, line: &str) {
        writeln!(self.say.as_mut().unwrap(), "{line}").unwrap();
    }

    /// Starts a server whose words go to a file; returns where it listens.
    pub(super) fn serve(&mut self, name: &str, how: &str) -> SocketAddr {
        let data = self.path(name);
        self.serve_with(&format!("{how} serve --listen 127.0.0.1:0 --data-dir {}", data.display()), name)
    }

    /// Starts a server by a whole line; what it says goes to a file of this name.
    pub(super) fn serve_with(&mut self, line: &str, name: &str) -> SocketAddr {
        let file = self.path(&format!("{name}.out"));
        self.say(&format!("{line} >{} 2>&1 &", file.display()));
        let address = || {
            let text = fs::read_to_string(&file).unwrap_or_default();
            text.split("http://").nth(1)?.split([' ', '\n']).next()?.parse().ok()
        };
        eventually("the server's first word", || address().is_some());
        address().unwrap()
    }

    /// Lets the shell come to its end and returns what it said.
    pub(super) fn end(&mut self) -> String {
        self.say = None;
        self.shell.wait().unwrap();
        fs::read_to_string(self.path("said")).unwrap()
    }
}

impl Drop for Apart {
    /// A test that failed leaves nothing either, whether or not its shell had ended before.
    fn drop(&mut self) {
        if self.say.is_none() && !thread::panicking() {
            return;
        }
        eprintln!("{}", self.end());
        let namespace = format!("--mount=/proc/{}/fd/{}", std::process::id(), self.namespace.as_raw_fd());
        let ended = Command::new("nsenter")
            .args([&namespace, env!("CARGO_BIN_EXE_atoll"), "down", "--purge", "--all"])
            .env_remove("ATOLL_DATA_DIR")
            .status();
        assert!(ended.is_ok_and(|status| status.success()) || thread::panicking());
    }
}

fn create(address: SocketAddr) -> String {
    let headers = [("Authorization", "Bearer bootstrap-key-of-a-test")];
    let made = http::request(address, "POST", "/api/v1/sandboxes", &headers, b"{}").unwrap();
    assert_eq!(made.status, 201, "{made:?}");
    made.json()["id"].as_str().unwrap().to_owned()
}

#[test]
fn down_ends_everything_that_was_started_on_the_machine() {
    let mut apart = Apart::new();
    let folders = ["one", "two"].map(|name| apart.path(name));
    let addresses = ["one", "two"].map(|name| apart.serve(name, "$ATOLL"));
    addresses.iter().for_each(|address| drop(create(*address)));
    // One that stands without its server is ended too.
    apart.say("kill -9 $! && wait $! || true");
    // Without a name it is about the default folder alone, in which there is nothing.
    apart.say("$ATOLL down --purge; echo default said $?");
    apart.say("$ATOLL down --data-dir one; echo one said $?; test -d one/storage && echo one is kept");
    apart.say("$ATOLL down --purge --all; echo down said $?");
    // The first is down already, and is no longer known as one that runs.
    apart.say("$ATOLL down --purge --data-dir one");
    let said = apart.end();
    let (before, after) = said.split_once("one said 0").unwrap_or_else(|| panic!("{said}"));
    assert!(before.contains("/var/lib/atoll: nothing to end") && before.contains("default said 0"), "{said}");
    for folder in &folders {
        assert!(before.contains(&format!("{}: left as it is", folder.display())), "{said}");
    }
    assert!(after.contains("one is kept") && after.contains("down said 0"), "{said}");
    for (folder, address) in folders.iter().zip(addresses) {
        assert!(said.contains(&format!("{}: down, and nothing is left", folder.display())), "{said}");
        assert!(!folder.exists() && TcpStream::connect(address).is_err());
        eventually("the end of everything", || leftovers_of(folder).is_empty());
    }
}

#[test]
fn down_ends_what_has_lost_its_data_folder() {
    // Both with a launcher that still runs and with one that was killed.
    for killed in [false, true] {
        let mut apart = Apart::new();
        let (folder, above) = (apart.path("lost/folder"), apart.path("lost"));
        let line = format!("$ATOLL serve --listen 127.0.0.1:0 --data-dir {}", folder.display());
        create(apart.serve_with(&line, "server"));
        apart.say("kill -9 $! && wait $! || true");
        if killed {
            apart.say("pkill -9 -f \"atoll-launch.*$PWD/lost\" || true");
        }
        // Its parents are gone too, and are not left behind anew.
        apart.say("rm -rf lost; $ATOLL down --purge --data-dir $PWD/lost/folder; echo down said $?");
        let said = apart.end();
        assert!(said.contains("down said 0"), "{said}");
        assert!(!above.exists(), "{said}");
        eventually("the end of everything", || leftovers_of(&folder).is_empty());
    }
}

#[test]
fn a_data_folder_has_one_server() {
    let server = Server::start();
    let second = Command::new(env!("CARGO_BIN_EXE_atoll"))
        .args(["serve", "--listen", "127.0.0.1:0", "--data-dir"])
        .arg(server.data())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&second.stderr);
    let down = format!("`atoll down --data-dir {}`", server.data().display());
    assert!(!second.status.success() && said.contains("another server runs on this data folder"), "{said}");
    assert!(said.contains(&down), "{said}");
    assert_eq!(server.ask("GET", "/health", "").status, 200);
    // Nor did it end the other's launcher.
    server.create("{}");
}

#[test]
fn a_start_that_fails_ends_its_launcher() {
    let folder = tempfile::Builder::new().prefix("atoll-test-").tempdir().unwrap();
    let data = folder.path().canonicalize().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    for (listen, key, word) in [
        ("127.0.0.1:0", "short", "at least 16"),
        (&taken, KEY, "cannot listen"),
        ("127.0.0.1:0", "short", "at least 16"),
    ] {
        let refused = Command::new(env!("CARGO_BIN_EXE_atoll"))
            .args(["serve", "--listen", listen, "--data-dir"])
            .arg(&data)
            .env("ATOLL_BOOTSTRAP_KEY", key)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(!refused.status.success() && said.contains(word), "{said}");
        eventually("the end of the launcher", || leftovers_of(&data).is_empty());
    }
    // Also where it made one stay that a run had started.
    let atoll = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_atoll"));
        command.args(arguments).arg("--data-dir").arg(&data).env("ATOLL_BOOTSTRAP_KEY", KEY);
        command
    };
    assert!(atoll(&["run"]).args(["--", "true"]).status().unwrap().success());
    let refused = atoll(&["serve", "--listen", &taken]).output().unwrap();
    assert!(String::from_utf8_lossy(&refused.stderr).contains("cannot listen"), "{refused:?}");
    eventually("the end of the launcher", || leftovers_of(&data).is_empty());
}

#[test]
fn a_data_folder_that_is_a_file_is_said_to_be_one() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().display();
    for words in [&["serve", "--listen", "127.0.0.1:0"][..], &["run"]] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_atoll"));
        command.args(words).arg("--data-dir").arg(file.path());
        let ran = if words == ["run"] { command.args(["--", "true"]).output() } else { command.output() };
        let said = String::from_utf8(ran.unwrap().stderr).unwrap();
        assert!(said.contains(&format!("--data-dir {path} is not a folder")), "{said}");
    }
}

#[test]
fn a_server_whose_launcher_was_killed_says_what_to_do() {
    let server = Server::start();
    let layout = Layout::new(&server.data().canonicalize().unwrap());
    let killed = || {
        launchers_of(&layout).iter().for_each(|pid| {
            let _ = Command::new("kill").args(["-9", &pid.to_string()]).status();
        });
        launchers_of(&layout).is_empty()
    };
    eventually("the end of monitor and launcher", killed);
    let refused = server.ask("POST", "/api/v1/sandboxes", "{}");
    let said = String::from_utf8_lossy(&refused.body).into_owned();
    assert!(refused.status == 503 && said.contains("the launcher ended"), "{said}");
    assert!(said.contains("restart `atoll serve`"), "{said}");
}

#[test]
fn a_first_key_that_was_given_is_not_printed() {
    let mut apart = Apart::new();
    apart.serve("given", "$ATOLL");
    apart.say("unset ATOLL_BOOTSTRAP_KEY");
    apart.serve("made", "$ATOLL");
    let said = |name: &str| fs::read_to_string(apart.path(&format!("{name}.out"))).unwrap();
    eventually("the greetings", || ["given", "made"].iter().all(|name| said(name).contains("curl")));
    assert!(!said("given").contains(KEY) && !said("given").contains("first key"), "{}", said("given"));
    assert!(said("made").contains("first key (admin; shown this once): "), "{}", said("made"));
    assert!(said("given").contains(r#"-H "Authorization: Bearer $ATOLL_API_KEY""#), "{}", said("given"));
    apart.say("$ATOLL down --purge --all");
    apart.end();
}

/// The programs where everybody can reach them, as an installation has them.
pub(super) fn install(into: &Path) {
    let built = Path::new(env!("CARGO_BIN_EXE_atoll")).parent().unwrap();
    fs::create_dir(into).unwrap();
    for name in ["atoll", "atoll-launch"] {
        fs::copy(built.join(name), into.join(name)).unwrap();
    }
    fs::set_permissions(into.parent().unwrap(), fs::Permissions::from_mode(0o755)).unwrap();
}

/// As with a checkout in root's home.
#[test]
fn a_server_starts_from_a_folder_that_only_root_may_enter() {
    let mut apart = Apart::new();
    let closed = apart.path("closed");
    install(&closed);
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).unwrap();
    let address = apart.serve("data", &closed.join("atoll").display().to_string());
    let [server] = apart.running("/closed/atoll")[..] else { panic!("{:?}", apart.running("/closed/atoll")) };
    let status = fs::read_to_string(format!("/proc/{server}/status")).unwrap();
    for line in [
        "Uid:\t65530\t65530\t65530\t65530",
        "Gid:\t65530\t65530\t65530\t65530",
        "Groups:\t \n",
        "CapEff:\t0000000000000000",
    ] {
        assert!(status.contains(line), "{status}");
    }
    create(address);
    apart.say("$ATOLL down --purge --data-dir data");
    let said = apart.end();
    assert!(said.contains("down, and nothing is left"), "{said}");
    eventually("the end of everything", || TcpStream::connect(address).is_err());
}

/// The containers of a data folder, by their cgroups.
fn containers(data: &Path) -> usize {
    let name = Layout::new(data).instance().to_owned();
    let own = ["/sys/fs/cgroup/pids/atoll", "/sys/fs/cgroup/atoll"].map(|top| Path::new(top).join(&name));
    let folders = own.iter().filter_map(|folder| fs::read_dir(folder).ok()).flatten().flatten();
    folders.filter(|entry| entry.path().is_dir()).count()
}

#[test]
fn a_full_disk_refuses_what_is_new_and_loses_nothing() {
    let mut apart = Apart::new();
    apart.say("mkdir -p disk/server; mount -t tmpfs -o size=24m none disk/server");
    let address = apart.serve("disk", "$ATOLL");
    let data = apart.path("disk").canonicalize().unwrap();
    let ask = |method: &str, path: &str, body: &str| {
        let headers = [("Authorization", "Bearer bootstrap-key-of-a-test")];
        http::request(address, method, path, &headers, body.as_bytes()).unwrap()
    };
    let says = |id: &str, line: &str| {
        let body = serde_json::json!({ "command": line }).to_string();
        let answer = ask("POST", &format!("/api/v1/sandboxes/{id}/exec"), &body);
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()["stdout"].as_str().unwrap().to_owned()
    };
    let first = create(address);
    says(&first, "echo kept >/workspace/x");
    apart.say("cat /dev/zero >disk/server/fill 2>/dev/null || true; touch filled");
    let filled = apart.path("filled");
    eventually("a full disk", || filled.exists());
    // What the database has in reserve may still do for some.
    let mut made = vec![first];
    let refused = (0..200).find_map(|_| {
        let answer = ask("POST", "/api/v1/sandboxes", r#"{"disk_mb":64}"#);
        match answer.status {
            201 => made.push(answer.json()["id"].as_str().unwrap().to_owned()),
            _ => return Some(answer),
        }
        None
    });
    let refused = refused.expect("a refusal");
    assert_eq!(refused.status, 503, "{refused:?}");
    let why = refused.json()["error"]["message"].as_str().unwrap().to_owned();
    assert!(why.contains("the control plane's disk is full"), "{why}");
    let count = || ask("GET", "/api/v1/sandboxes?page_size=1", "").json()["total"].as_u64().unwrap() as usize;
    assert_eq!((count(), containers(&data)), (made.len(), made.len()), "nothing half-made");
    // What cannot be recorded is not done; what there is stays, and can be looked at.
    let path = format!("/api/v1/sandboxes/{}", made[0]);
    let ran = ask("POST", &format!("{path}/exec"), r#"{"command":"rm /workspace/x"}"#);
    assert_eq!(ran.status, 503, "{ran:?}");
    assert_eq!(ask("GET", &format!("{path}/files"), "").json()[0]["name"], "x");
    apart.say("rm disk/server/fill; touch emptied");
    let emptied = apart.path("emptied");
    eventually("room", || emptied.exists());
    made.push(create(address));
    assert_eq!(says(&made[0], "cat /workspace/x"), "kept\n");
    assert_eq!((count(), containers(&data)), (made.len(), made.len()));
    assert_eq!(says(made.last().unwrap(), "echo new"), "new\n");
    apart.say("$ATOLL down --data-dir disk; umount disk/server; $ATOLL down --purge --data-dir disk; echo down said $?");
    let said = apart.end();
    assert!(said.contains("down said 0") && !data.exists(), "{said}");
}

#[test]
fn what_a_killed_test_left_is_ended_by_the_next() {
    let parent = tempfile::tempdir().unwrap();
    let mut gone = Command::new("true").spawn().unwrap();
    gone.wait().unwrap();
    let left = parent.path().join(format!("atoll-test-of-{}-x", gone.id()));
    fs::create_dir(&left).unwrap();
    let mut server = Command::new(env!("CARGO_BIN_EXE_atoll"))
        .args(["serve", "--listen", "127.0.0.1:0", "--data-dir"])
        .arg(&left)
        .env("ATOLL_BOOTSTRAP_KEY", KEY)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut first = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut first).unwrap();
    assert!(first.contains("http://"), "{first}");
    drop(data_folder(parent.path()));
    server.wait().unwrap();
    assert!(!left.exists());
    assert_eq!(left_at_last(|| leftovers_of(&left)), Vec::<String>::new());
}
