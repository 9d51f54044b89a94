//! Rolling back: what runs ends and is told why, and the files are what they were.

use super::{super::socket::Socket, both, keep, listed, roll_back};
use crate::{
    engine::fixture::eventually,
    server::{
        fixture::{KEY, Server},
        http,
    },
};
use serde_json::{Value, json};
use std::thread;

/// A request that waits for its answer, in a thread of its own.
pub(super) fn asked(server: &Server, path: String, body: Value) -> thread::JoinHandle<(u16, Value)> {
    let address = server.address;
    thread::spawn(move || {
        let authorization = format!("Bearer {KEY}");
        let headers = [("Authorization", authorization.as_str())];
        let answer = http::request(address, "POST", &path, &headers, body.to_string().as_bytes()).unwrap();
        (answer.status, answer.json())
    })
}

#[test]
fn a_rollback_ends_what_runs_and_returns_the_files() {
    for server in both(&[]) {
        let sandbox = server.create(r#"{"env_vars":{"A":"kept"}}"#);
        let other = server.create("{}");
        server.exec(&sandbox, "echo one > file; echo x > only-then");
        let first = keep(&server, &sandbox, "first");
        server.exec(&sandbox, "echo two > file; rm only-then; echo new > new; echo t > /tmp/t");
        let mut terminal = Socket::open(&server, &sandbox, "");
        let command =
            asked(&server, format!("{sandbox}/exec"), json!({ "command": "echo begun > begun; sleep 1000" }));
        let cell = asked(
            &server,
            format!("{sandbox}/run"),
            json!({ "code": "open('/workspace/cell', 'w').write('x')\nimport time\ntime.sleep(1000)" }),
        );
        eventually("both run", || server.says(&sandbox, "ls").contains("begun\ncell"));
        let before = server.ask("GET", &sandbox, "").json();
        let rolled = roll_back(&server, &first);
        assert_eq!(rolled["sandbox"]["status"], "running");
        assert_ne!(rolled["sandbox"]["container_id"], before["container_id"]);
        assert_eq!(rolled["before"]["kind"], "before_rollback");
        for (what, (status, answer)) in [("command", command.join().unwrap()), ("cell", cell.join().unwrap())]
        {
            assert_eq!(
                (status, answer["error"]["code"].as_str()),
                (409, Some("rolled_back")),
                "{what}: {answer}"
            );
        }
        let (code, last) = terminal.end();
        assert_eq!((code, &last["code"]), (1011, &json!("rolled_back")), "{last}");
        assert_eq!(server.says(&sandbox, "cat file; ls; ls /tmp; echo $A"), "one\nfile\nonly-then\nkept");
        // What was before is kept too, with what ran.
        let undone = format!("{sandbox}/snapshots/{}", rolled["before"]["id"].as_str().unwrap());
        roll_back(&server, &undone);
        assert_eq!(server.says(&sandbox, "cat file; ls"), "two\nbegun\ncell\nfile\nnew");
        assert_eq!(server.says(&other, "echo here"), "here");
        // The audit trail and the events say why.
        let rows = server.ask("GET", "/api/v1/audit?kind=exec&outcome=lost", "").json();
        assert_eq!(rows["entries"][0]["ended"]["error"]["code"], "rolled_back", "{rows}");
        let rows = server.ask("GET", "/api/v1/audit?kind=kernel.execute", "").json();
        assert_eq!(rows["entries"][0]["ended"]["error"]["code"], "rolled_back", "{rows}");
        let told = server.ask("GET", "/api/v1/events?limit=200", "").json();
        let reason = |kind: &str, reason: &str| {
            let mut all = told["events"].as_array().unwrap().iter();
            all.any(|event| event["kind"] == kind && event["reason"] == reason)
        };
        assert!(reason("exec.ended", "rolled_back") && reason("cell.ended", "rolled_back"), "{told}");
        assert!(reason("starting", "rolled_back"), "{told}");
        assert!(told["events"].as_array().unwrap().iter().any(|e| e["kind"] == "rolled_back"), "{told}");
    }
}

#[test]
fn a_stopped_or_paused_sandbox_is_rolled_back_too() {
    for server in both(&[]) {
        let sandbox = server.create("{}");
        server.exec(&sandbox, "echo one > file");
        let first = keep(&server, &sandbox, "first");
        server.exec(&sandbox, "echo two > file");
        assert_eq!(server.ask("POST", &format!("{sandbox}/stop"), "").status, 200);
        // A container for files alone is there, and in the way.
        assert_eq!(server.ask("GET", &format!("{sandbox}/files/file"), "").body, b"two\n");
        let stopped = keep(&server, &sandbox, "stopped");
        let rolled = roll_back(&server, &first);
        assert_eq!(
            (&rolled["sandbox"]["status"], &rolled["sandbox"]["container_id"]),
            (&json!("stopped"), &Value::Null)
        );
        assert_eq!(server.ask("GET", &format!("{sandbox}/files/file"), "").body, b"one\n");
        assert_eq!(server.ask("POST", &format!("{sandbox}/resume"), "").status, 200);
        assert_eq!(server.says(&sandbox, "cat file"), "one");
        assert_eq!(server.ask("POST", &format!("{sandbox}/pause"), "").status, 200);
        assert_eq!(roll_back(&server, &stopped)["sandbox"]["status"], "running");
        assert_eq!(server.says(&sandbox, "cat file"), "two");
        assert_eq!(listed(&server, &sandbox).len(), 4);
    }
}

#[test]
fn changes_of_files_are_reported_after_a_rollback_as_before() {
    let server = Server::start();
    let sandbox = server.create("{}");
    server.exec(&sandbox, "echo one > file");
    let first = keep(&server, &sandbox, "first");
    server.exec(&sandbox, "echo two > file");
    roll_back(&server, &first);
    let answer = server.exec(&sandbox, "echo three > other");
    assert_eq!(
        answer["files_changed"],
        json!([{ "path": "other", "action": "created", "size_bytes": 6 }]),
        "{answer}"
    );
}

#[test]
fn a_reader_of_a_commands_output_is_told_of_the_rollback() {
    let server = Server::start();
    let sandbox = server.create("{}");
    server.exec(&sandbox, "echo one > file");
    let first = keep(&server, &sandbox, "first");
    server.exec(&sandbox, "echo two > file");
    let body = json!({ "command": "echo begun; sleep 1000", "background": true }).to_string();
    let exec = server.ask("POST", &format!("{sandbox}/exec"), &body).json()["exec_id"].clone();
    let path = format!("{sandbox}/execs/{}/output?follow=true", exec.as_str().unwrap());
    let address = server.address;
    let reader = thread::spawn(move || {
        let authorization = format!("Bearer {KEY}");
        let headers = [("Authorization", authorization.as_str())];
        http::request(address, "GET", &path, &headers, b"").unwrap()
    });
    roll_back(&server, &first);
    let read = reader.join().unwrap();
    let text = String::from_utf8_lossy(&read.body);
    assert!(text.contains("rolled_back"), "{text}");
    // The history of a file does not hide that it is another one now.
    let history = server.ask("GET", &format!("{sandbox}/fs/history?path=file"), "").json();
    assert_eq!(history["entries"][0]["action"], "unknown", "{history}");
    assert_eq!(history["truncated"], true, "{history}");
}
