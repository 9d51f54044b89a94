//! Sandboxes in which nothing is done are paused, then stopped, then destroyed; whatever is work keeps them awake.
//! Nothing here measures time: that something stays awake is seen beside others that do not.

use super::{
    execs::{AUTH, shell, start},
    fixture::Server,
    preview::sandbox_with_app,
    socket::Socket,
};
use crate::engine::fixture::eventually;
use serde_json::Value;
use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    os::unix::fs::PermissionsExt,
    thread,
};

/// The shortest idle time that there is.
pub(super) const SOON: &str = r#"{"idle_timeout_seconds":10}"#;

/// A server that looks every second, with more settings.
pub(super) fn looking(more: &[&str]) -> (Server, tempfile::NamedTempFile) {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), "[metrics]\ninterval_seconds = 1\n").unwrap();
    // The server reads it as an ordinary user.
    fs::set_permissions(file.path(), PermissionsExt::from_mode(0o644)).unwrap();
    let mut arguments = vec!["--config", file.path().to_str().unwrap()];
    for setting in ["lifecycle.interval_seconds=1", "lifecycle.settle_seconds=0"].iter().chain(more) {
        arguments.extend(["--set", setting]);
    }
    (Server::start_with(&arguments), file)
}

pub(super) fn status(server: &Server, path: &str) -> String {
    server.ask("GET", path, "").json()["status"].as_str().unwrap_or("none").to_owned()
}

/// The kinds of a sandbox's events, with their reasons.
pub(super) fn events(server: &Server, path: &str) -> Vec<(String, String)> {
    let id = path.rsplit('/').next().unwrap();
    let page = server.ask("GET", &format!("/api/v1/events?sandbox_id={id}&limit=200"), "").json();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    page["events"].as_array().unwrap().iter().map(|e| (text(&e["kind"]), text(&e["reason"]))).collect()
}

/// What the lifecycle did, by the audit trail: kind and reason, the first first.
pub(super) fn audited(server: &Server, path: &str) -> Vec<(String, String)> {
    let id = path.rsplit('/').next().unwrap().replace('-', "");
    let page = server.ask("GET", "/api/v1/audit?limit=500", "").json();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let ours = |e: &&Value| {
        e["front"] == "lifecycle"
            && e["ended"]["outcome"] == "ok"
            && e.to_string().replace('-', "").contains(&id)
    };
    let mut all: Vec<_> = page["entries"].as_array().unwrap().iter().filter(ours).collect();
    all.reverse();
    all.into_iter().map(|e| (text(&e["kind"]), text(&e["extra"]["reason"]))).collect()
}

fn pair(kind: &str, reason: &str) -> (String, String) {
    (kind.to_owned(), reason.to_owned())
}

#[test]
fn an_idle_sandbox_is_paused_then_stopped_then_destroyed() {
    let (server, _file) = looking(&["lifecycle.pause_seconds=2", "stopped_retention_seconds=2"]);
    let path = server.create(SOON);
    server.exec(&path, "echo kept > /workspace/x; (setsid sleep 7651 >/dev/null 2>&1 &)");
    eventually("its end", || status(&server, &path) == "destroyed");
    let reasons = [
        ("paused", "idle for 10 seconds"),
        ("stopped", "idle for 12 seconds"),
        ("destroyed", "stopped for 2 seconds"),
    ];
    let told = events(&server, &path);
    for (kind, reason) in reasons {
        assert_eq!(told.iter().filter(|e| **e == pair(kind, reason)).count(), 1, "{kind}: {told:?}");
    }
    let done = audited(&server, &path);
    assert_eq!(
        done,
        [
            pair("sandbox.pause", "idle for 10 seconds"),
            pair("sandbox.stop", "idle for 12 seconds"),
            pair("sandbox.destroy", "stopped for 2 seconds"),
        ]
    );
}

#[test]
fn whatever_is_work_keeps_it_awake() {
    let (server, _file) = looking(&["lifecycle.pause_seconds=-1"]);
    let [waited, behind, seen, busy] = [(); 4].map(|()| server.create(SOON));
    let app = sandbox_with_app(&server);
    server.ask("PATCH", &app, SOON);
    let background = start(&server, &behind, shell("sleep 7652"));
    server.exec(&busy, "(setsid sh -c 'while :; do :; done' >/dev/null 2>&1 &)");
    let mut terminal = Socket::open(&server, &seen, "");
    let mut port = TcpStream::connect(server.address).unwrap();
    let (name, key) = AUTH;
    write!(port, "GET {app}/ports/8081/upgrade HTTP/1.1\r\nHost: {}\r\n{name}: {key}\r\n", server.address)
        .unwrap();
    port.write_all(b"Connection: Upgrade\r\nUpgrade: x\r\n\r\n").unwrap();
    let mut head = [0; 12];
    port.read_exact(&mut head).unwrap();
    assert_eq!(&head, b"HTTP/1.1 101");
    thread::scope(|scope| {
        let waiting = scope
            .spawn(|| server.says(&waited, "while ! [ -e /workspace/end ]; do sleep 0.2; done; echo over"));
        let awake = [&waited, &behind, &seen, &busy, &app];
        // Twice: whatever would have been idle with the first of these is not awake after the second.
        for _ in 0..2 {
            let still = server.create(SOON);
            server.exec(&still, "(setsid sleep 7653 >/dev/null 2>&1 &)");
            eventually("standing still", || status(&server, &still) == "paused");
        }
        assert_eq!(awake.map(|path| status(&server, path)), ["running"; 5]);
        assert!(!waiting.is_finished());
        // What ends the work is a request itself, and lets it go on being awake for a while.
        assert_eq!(server.ask("PUT", &format!("{waited}/files/end"), "").status, 204);
        assert_eq!(waiting.join().unwrap(), "over");
        server.ask("POST", &format!("{background}/kill"), "");
        server.exec(&busy, "pkill -f 'while :'; true");
        drop(port);
        terminal.types("echo he''re\n");
        terminal.until("here");
        terminal.leave();
        for path in awake {
            eventually("standing still in the end", || status(&server, path) == "paused");
        }
    });
}

#[test]
fn a_command_wakes_it_and_it_is_idle_anew() {
    let (server, _file) = looking(&["lifecycle.pause_seconds=300"]);
    let path = server.create(SOON);
    let idle = pair("paused", "idle for 10 seconds");
    let paused = || events(&server, &path).into_iter().filter(|e| *e == idle).count();
    eventually("standing still", || paused() == 1);
    assert_eq!(server.says(&path, "echo on"), "on");
    assert_eq!(status(&server, &path), "running");
    eventually("standing still again", || paused() == 2);
}

#[test]
fn without_a_pause_it_is_stopped_at_once() {
    let (server, _file) = looking(&["lifecycle.pause_seconds=0"]);
    let path = server.create(SOON);
    server.exec(&path, "echo kept > /workspace/x");
    eventually("its stop", || status(&server, &path) == "stopped");
    let told = events(&server, &path);
    assert!(told.contains(&pair("stopped", "idle for 10 seconds")), "{told:?}");
    assert!(!told.iter().any(|(kind, _)| kind == "paused"), "{told:?}");
    assert_eq!(server.ask("POST", &format!("{path}/resume"), "").status, 200);
    assert_eq!(server.says(&path, "cat /workspace/x"), "kept");
}

#[test]
fn a_killed_server_goes_on_where_it_was() {
    let (mut server, _file) = looking(&["lifecycle.pause_seconds=3", "stopped_retention_seconds=3"]);
    let paths = [(); 2].map(|()| server.create(SOON));
    // One has a command that nobody waits for, and stays awake through all of it.
    let working = server.create(SOON);
    let exec = start(&server, &working, shell("sleep 7654"));
    for stage in ["paused", "stopped"] {
        eventually(stage, || paths.iter().any(|path| status(&server, path) == stage));
        server.kill();
        server.restart();
    }
    for path in &paths {
        eventually("its end", || status(&server, path) == "destroyed");
        let told = events(&server, path);
        // Killed between the end of a container and its record, a server finds it dead, which is as good.
        for kinds in [&["paused"][..], &["stopped", "dead"], &["destroyed"]] {
            let count = told.iter().filter(|(kind, _)| kinds.contains(&kind.as_str())).count();
            assert_eq!(count, 1, "{kinds:?}: {told:?}");
        }
    }
    assert_eq!(status(&server, &working), "running");
    server.ask("POST", &format!("{exec}/kill"), "");
    let verdict = server.ask("GET", "/api/v1/audit/verify", "");
    assert_eq!((verdict.status, verdict.json()["sound"].as_bool()), (200, Some(true)), "{verdict:?}");
}
