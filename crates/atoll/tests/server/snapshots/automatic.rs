//! Snapshots that the server makes by itself, so that any command can be undone.

use super::{both, keep, listed, refused, roll_back};
use crate::{
    engine::fixture::eventually,
    server::{fixture::Server, socket::Socket},
};
use serde_json::json;

#[test]
fn any_command_can_be_undone() {
    for server in both(&["--set", "snapshots.automatic_max=3"]) {
        is_undone(&server);
    }
}

/// Commands, terminals and cells are undone by the snapshots that the server made before them.
fn is_undone(server: &Server) {
    let sandbox = server.create(r#"{"auto_snapshot":"before_exec"}"#);
    assert_eq!(server.ask("GET", &sandbox, "").json()["auto_snapshot"], "before_exec");
    server.exec(&sandbox, "echo one > file");
    let mistake = server.exec(&sandbox, "rm file; echo oops > oops");
    let all = listed(server, &sandbox);
    let before =
        all.iter().find(|one| one["made_before"] == mistake["exec_id"]).unwrap_or_else(|| panic!("{all:?}"));
    assert_eq!(before["kind"], "automatic");
    let undone = format!("{sandbox}/snapshots/{}", before["id"].as_str().unwrap());
    roll_back(server, &undone);
    assert_eq!(server.ask("GET", &format!("{sandbox}/files/file"), "").body, b"one\n");
    assert_eq!(server.ask("PATCH", &undone, r#"{"label":"good"}"#).status, 200);
    // A terminal is a command too.
    let mut terminal = Socket::open(server, &sandbox, "?command=rm%20file");
    terminal.end();
    let opened = &listed(server, &sandbox)[0];
    assert_eq!(opened["made_before"].as_str(), Some(terminal.exec_id.as_str()), "{opened}");
    roll_back(server, &format!("{sandbox}/snapshots/{}", opened["id"].as_str().unwrap()));
    assert_eq!(server.ask("GET", &format!("{sandbox}/files/file"), "").body, b"one\n");
    // Others give way, but for one with a label.
    for _ in 0..5 {
        server.exec(&sandbox, "true");
    }
    let all = listed(server, &sandbox);
    assert_eq!(all.len(), 4, "{all:?}");
    assert!(all.iter().any(|one| one["label"] == "good"), "{all:?}");
    // Cells are another matter, and nothing is.
    let count = |server: &Server| {
        listed(server, &sandbox).iter().map(|one| one["id"].to_string()).collect::<Vec<_>>()
    };
    let before = count(server);
    let run = json!({ "code": "open('cell', 'w').write('x')" }).to_string();
    assert_eq!(server.ask("POST", &format!("{sandbox}/run"), &run).status, 200);
    assert_eq!(count(server), before);
    let patched = server.ask("PATCH", &sandbox, r#"{"auto_snapshot":"before_run"}"#);
    assert_eq!((patched.status, &patched.json()["auto_snapshot"]), (200, &json!("before_run")));
    let cell = server.ask("POST", &format!("{sandbox}/run"), &run).json();
    let made = listed(server, &sandbox);
    assert_eq!(made[0]["made_before"], cell["cell_id"], "{made:?} {cell}");
    server.ask("PATCH", &sandbox, r#"{"auto_snapshot":"off"}"#);
    let before = count(server);
    server.ask("POST", &format!("{sandbox}/run"), &run);
    server.exec(&sandbox, "true");
    assert_eq!(count(server), before);
    assert_eq!(refused(server, "PATCH", &sandbox, r#"{"auto_snapshot":"sometimes"}"#, 422), "validation");
}

#[test]
fn old_ones_go_and_those_that_were_asked_for_stay() {
    let server = Server::start_with(&[
        "--set",
        "snapshots.automatic_retention_seconds=1",
        "--set",
        "lifecycle.interval_seconds=1",
        "--set",
        "lifecycle.settle_seconds=0",
    ]);
    let sandbox = server.create(r#"{"auto_snapshot":"before_exec"}"#);
    keep(&server, &sandbox, "asked for");
    server.exec(&sandbox, "true");
    eventually("the old one goes", || listed(&server, &sandbox).len() == 1);
    assert_eq!(listed(&server, &sandbox)[0]["label"], "asked for");
    let rows = server.ask("GET", "/api/v1/audit?kind=snapshot.delete", "").json();
    assert!(rows["entries"][0]["extra"]["reason"].as_str().unwrap().contains("retention"), "{rows}");
}
