//! Containers outlive the server, and a record never lies for long.

use super::fixture::Server;
use crate::engine::fixture::{eventually, options, spec};
use atoll_launch_proto::Layout;
use atoll_provider::Provider;
use atoll_provider_native::{NativeProvider, ensure_launcher};
use std::{
    io::{BufRead, BufReader, Write},
    process::{Command, Stdio},
    thread,
    time::Duration,
};

fn kill(pid: &str) {
    assert!(Command::new("kill").args(["-KILL", pid]).status().unwrap().success());
}

#[test]
fn a_killed_server_loses_nothing() {
    let mut server = Server::start();
    let path = server.create(r#"{"env_vars":{"A":"kept"}}"#);
    server.says(&path, "echo x > /workspace/x; (setsid sleep 7654 >/dev/null 2>&1 &)");
    let before = server.ask("GET", &path, "").json();
    let stopped = server.create("{}");
    server.ask("POST", &format!("{stopped}/stop"), "");
    server.kill();
    server.restart();
    let after = server.ask("GET", &path, "").json();
    for field in ["status", "container_id", "volume_name", "created_at"] {
        assert_eq!(before[field], after[field], "{field}");
    }
    assert_eq!(server.says(&path, "cat /workspace/x; pgrep -fc '[s]leep 7654'; echo $A"), "x\n1\nkept");
    assert_eq!(server.ask("GET", &stopped, "").json()["status"], "stopped");
}

#[test]
fn killed_at_random_moments_it_stays_right() {
    let mut server = Server::start();
    for round in 0..6u64 {
        let address = server.address;
        let busy = thread::spawn(move || {
            for n in 0..20 {
                let headers = [("Authorization", "Bearer bootstrap-key-of-a-test")];
                let body = format!(r#"{{"session_key":"{}"}}"#, n % 3);
                let _ = super::http::request(address, "POST", "/api/v1/sandboxes", &headers, body.as_bytes());
            }
        });
        thread::sleep(Duration::from_millis(15 + round * 23));
        server.kill();
        busy.join().unwrap();
        server.restart();
        let all = server.ask("GET", "/api/v1/sandboxes?page_size=100", "").json();
        for sandbox in all["items"].as_array().unwrap() {
            let path = format!("/api/v1/sandboxes/{}", sandbox["id"].as_str().unwrap());
            // Whatever it says it is, it is: running ones run, and the others can be resumed.
            match sandbox["status"].as_str().unwrap() {
                "running" => assert_eq!(server.says(&path, "echo yes"), "yes"),
                "stopped" | "dead" => {
                    assert_eq!(server.ask("POST", &format!("{path}/resume"), "").status, 200);
                    assert_eq!(server.says(&path, "echo yes"), "yes");
                }
                other => panic!("{other}"),
            }
        }
    }
}

#[test]
fn a_dead_pid_1_is_told_and_resumed() {
    let server = Server::start();
    let path = server.create("{}");
    server.says(&path, "echo kept > /workspace/x; sync");
    kill(&server.pid_1(&path));
    eventually("the news", || server.ask("GET", &path, "").json()["status"] == "dead");
    let dead = server.ask("GET", &path, "").json();
    assert!(dead["status_reason"].as_str().unwrap().contains("SIGKILL"), "{dead}");
    let refused = server.ask("POST", &format!("{path}/exec"), r#"{"command":"true"}"#);
    assert_eq!((refused.status, refused.json()["error"]["code"].as_str()), (409, Some("not_running")));
    assert_eq!(server.ask("POST", &format!("{path}/resume"), "").status, 200);
    assert_eq!(server.says(&path, "cat /workspace/x"), "kept");
}

#[test]
fn a_dead_launcher_comes_back() {
    let server = Server::start();
    let path = server.create("{}");
    let found =
        Command::new("pgrep").args(["-f", &format!("atoll-launch.*{}", server.data().display())]).output();
    for pid in String::from_utf8(found.unwrap().stdout).unwrap().lines().skip(1) {
        let _ = Command::new("kill").args(["-KILL", pid]).status();
    }
    assert_eq!(server.says(&path, "echo still here"), "still here", "PID 1 needs no launcher");
    eventually("a launcher", || server.ask("POST", "/api/v1/sandboxes", "{}").status == 201);
}

#[test]
fn a_dead_launcher_forgets_no_change() {
    let server = Server::start();
    let path = server.create("{}");
    server.exec(&path, "true");
    server.exec(
        &path,
        "touch /tmp/go; (while [ -e /tmp/go ]; do sleep 0.05; done; echo x >late) >/dev/null 2>&1 &",
    );
    let asked = format!("atoll-launch.*{}", server.data().display());
    let find = |more: &[&str]| {
        let found = Command::new("pgrep").args(more).args(["-f", &asked]).output().unwrap();
        String::from_utf8(found.stdout).unwrap().lines().next().unwrap_or_default().to_owned()
    };
    let monitor = find(&["-o"]);
    let launcher = find(&["-P", &monitor]);
    kill(&launcher);
    eventually("a launcher", || server.ask("POST", "/api/v1/sandboxes", "{}").status == 201);
    let answer = server.exec(&path, "rm /tmp/go; while ! [ -e late ]; do sleep 0.02; done");
    assert_eq!(answer["files_changed_truncated"], false, "{answer}");
    assert_eq!(answer["files_changed"][0]["path"], "late", "{answer}");
}

#[test]
fn unowned_containers_are_reaped_at_start() {
    let mut server = Server::start();
    let kept = server.create("{}");
    server.kill();
    let data = server.data().to_path_buf();
    let orphan = tokio::runtime::Runtime::new().unwrap().block_on(async {
        let provider = NativeProvider::new(ensure_launcher(&options(&data, &[])).await.unwrap().client);
        provider.create(spec("default")).await.unwrap().id()
    });
    server.restart();
    let layout = Layout::new(&data.canonicalize().unwrap());
    assert!(!layout.run().join("c").join(orphan.to_string()).exists());
    assert_eq!(server.says(&kept, "echo here"), "here");
}

#[test]
fn a_start_spares_what_a_living_atoll_run_holds() {
    let mut server = Server::start();
    server.kill();
    let mut run = Command::new(env!("CARGO_BIN_EXE_atoll"))
        .args(["run", "--data-dir"])
        .arg(server.data())
        .args(["--", "sh", "-c", "echo up; read line; echo $line"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(run.stdout.take().unwrap()).lines();
    assert_eq!(said.next().unwrap().unwrap(), "up");
    server.restart();
    let layout = Layout::new(&server.data().canonicalize().unwrap());
    let containers = || std::fs::read_dir(layout.run().join("c")).unwrap().count();
    assert_eq!(containers(), 1);
    run.stdin.take().unwrap().write_all(b"still here\n").unwrap();
    assert_eq!(said.next().unwrap().unwrap(), "still here");
    assert!(run.wait().unwrap().success());
    eventually("the end of its container", || containers() == 0);
}

#[test]
fn a_container_that_was_given_up_is_no_obstacle() {
    let server = Server::start();
    let (path, doomed) = (server.create(r#"{"disk_mb":16}"#), server.create(r#"{"disk_mb":16}"#));
    server.says(&path, "echo kept > x");
    let layout = Layout::new(&server.data().canonicalize().unwrap());
    let provider =
        NativeProvider::new(std::sync::Arc::new(atoll_provider_native::LauncherClient::new(&layout)));
    let runtime = tokio::runtime::Runtime::new().unwrap();
    for path in [&path, &doomed] {
        let volume = server.ask("GET", path, "").json()["volume_name"].as_str().unwrap().parse().unwrap();
        assert_eq!(server.ask("POST", &format!("{path}/stop"), "").status, 200);
        // As a launcher does that was asked by a server that is dead.
        let mut late = atoll_provider::ContainerSpec { volume: Some(volume), ..spec("default") };
        late.limits.disk_bytes = 16 << 20;
        runtime.block_on(provider.create(late)).unwrap();
    }
    let resumed = server.ask("POST", &format!("{path}/resume"), "");
    assert_eq!(resumed.status, 200, "{resumed:?}");
    assert_eq!(server.says(&path, "cat x"), "kept");
    let deleted = server.ask("DELETE", &doomed, "");
    assert_eq!(deleted.status, 204, "{deleted:?}");
    assert_eq!(runtime.block_on(provider.list()).unwrap().len(), 1);
}
