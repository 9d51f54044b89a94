//! `atoll mcp` with sandboxes of its own: however it ends, nothing stays; and it meets nobody.

use super::{Wire, stdio::Place};
use crate::engine::fixture::{eventually, left_at_last, leftovers_of};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::{fs, os::unix::process::CommandExt, path::Path, process::Command};

fn signal(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(i32::try_from(pid).unwrap()).unwrap(), signal).unwrap();
}

fn gone(run: &Path) {
    let left = left_at_last(|| leftovers_of(run));
    assert!(left.is_empty(), "left behind: {left:#?}");
}

#[test]
fn it_ends_with_its_client_and_remembers_the_thread() {
    let place = Place::new();
    let mut first = place.start(&[]);
    first.session("python");
    let run = place.runs().remove(0);
    assert_eq!(first.close(), Some(0));
    assert!(place.runs().is_empty(), "{:?}", place.runs());
    gone(&run);
    let file = place.state().join("atoll/mcp-thread.json");
    let thread = fs::read_to_string(&file).unwrap();
    let mut second = place.start(&[]);
    assert_eq!(fs::read_to_string(&file).unwrap(), thread);
    assert_eq!(second.close(), Some(0));
}

#[test]
fn it_ends_when_it_is_told_to_in_the_middle_of_a_cell() {
    for told in [Some(Signal::TERM), Some(Signal::INT), None] {
        let place = Place::new();
        let mut stdio = place.start(&[]);
        let session = stdio.session("python");
        let arguments = json!({ "session_id": session, "code": "while True: pass", "timeout": 300 });
        stdio.start_request("tools/call", json!({ "name": "execute_code", "arguments": arguments }));
        let run = place.runs().remove(0);
        let code = match told {
            Some(told) => {
                signal(stdio.processes().0, told);
                stdio.child.wait().unwrap().code()
            }
            None => stdio.close(),
        };
        assert_eq!(code, Some(0), "{told:?}");
        assert!(place.runs().is_empty(), "{told:?}: {:?}", place.runs());
        gone(&run);
    }
}

#[test]
fn what_a_killed_one_left_is_swept_by_the_next() {
    let place = Place::new();
    let mut stdio = place.start(&[]);
    stdio.session("python");
    let run = place.runs().remove(0);
    let (keeper, serves) = stdio.processes();
    // Both at once, so that neither tidies up.
    signal(serves.unwrap(), Signal::KILL);
    signal(keeper, Signal::KILL);
    stdio.child.wait().unwrap();
    assert!(run.exists(), "there is something to sweep");
    let mut next = place.start(&[]);
    eventually("the sweep", || !run.exists());
    gone(&run);
    assert_eq!(next.close(), Some(0));
}

#[test]
fn the_mcp_server_ends_with_its_supervisor_and_holds_no_privilege() {
    let place = Place::new();
    let mut stdio = place.start(&[]);
    stdio.session("python");
    let run = place.runs().remove(0);
    let (keeper, serves) = stdio.processes();
    let status = fs::read_to_string(format!("/proc/{}/status", serves.unwrap())).unwrap();
    let field =
        |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned();
    assert!(field("Uid:").split_whitespace().all(|uid| uid != "0"), "{status}");
    assert_eq!(field("CapEff:"), "0000000000000000");
    signal(keeper, Signal::KILL);
    stdio.child.wait().unwrap();
    gone(&run);
    assert_eq!(place.start(&[]).close(), Some(0));
}

#[test]
fn two_at_once_do_not_meet() {
    let place = Place::new();
    let (mut one, mut two) = (place.start(&[]), place.start(&[]));
    let session = one.session("python");
    assert_eq!(place.runs().len(), 2);
    let missing = two.call("execute_terminal", json!({ "session_id": session, "command": "true" }));
    assert_eq!(missing["isError"], true, "{missing}");
    assert_eq!(one.close(), Some(0));
    assert_eq!(two.ask("ping", json!({}))["result"], json!({}));
    assert_eq!(two.close(), Some(0));
}

#[test]
fn without_root_it_says_what_would_help() {
    let folder = tempfile::tempdir().unwrap();
    std::os::unix::fs::chown(folder.path(), Some(65_530), Some(65_530)).unwrap();
    let ran = Command::new(env!("CARGO_BIN_EXE_atoll"))
        .arg("mcp")
        .env_remove("ATOLL_URL")
        .env("ATOLL_DATA_DIR", folder.path().join("runs"))
        .env("XDG_STATE_HOME", folder.path())
        .stdin(std::process::Stdio::null())
        .uid(65_530)
        .gid(65_530)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(!ran.status.success() && ran.stdout.is_empty(), "{ran:?}");
    assert!(said.contains("needs root") && said.contains("--server"), "{said}");
}

#[test]
fn a_client_is_told_how_to_start_it() {
    for client in ["claude-desktop", "cursor", "vscode"] {
        let ran = Command::new(env!("CARGO_BIN_EXE_atoll"))
            .args(["mcp", "--print-config", client, "--server", "https://atoll.example.com"])
            .output()
            .unwrap();
        assert!(ran.status.success(), "{ran:?}");
        let block: Value = serde_json::from_slice(&ran.stdout).unwrap();
        let servers = if client == "vscode" { &block["servers"] } else { &block["mcpServers"] };
        assert_eq!(servers["atoll"]["command"], env!("CARGO_BIN_EXE_atoll"));
        assert_eq!(servers["atoll"]["args"], json!(["mcp", "--server", "https://atoll.example.com"]));
    }
}
