//! `atoll mcp --server`: the same tools, of a server elsewhere.

use super::{
    super::fixture::{KEY, Server},
    Wire,
    stdio::{Place, Stdio},
};
use crate::engine::fixture::eventually;
use serde_json::json;

fn bridge(place: &Place, server: &Server) -> Stdio {
    place.start(&["--server", &format!("http://{}", server.address), "--key", KEY])
}

#[test]
fn it_carries_calls_progress_and_notes_and_ends_its_session() {
    let server = Server::start();
    let place = Place::new();
    let mut stdio = bridge(&place, &server);
    let session = stdio.session("python");
    let value = stdio.value("execute_code", json!({ "session_id": session, "code": "kept = 1; 6*7" }));
    assert_eq!(value["result"]["text/plain"], "42", "{value}");
    let endless = json!({ "session_id": session, "code": "while True: pass", "timeout": 120 });
    let params = json!({ "name": "execute_code", "arguments": endless, "_meta": { "progressToken": 1 } });
    let id = stdio.start_request("tools/call", params);
    loop {
        let note = stdio.next().unwrap();
        if note["method"] == "notifications/progress" {
            break;
        }
    }
    stdio.tell("notifications/cancelled", json!({ "requestId": id }));
    let value = stdio.value("execute_code", json!({ "session_id": session, "code": "kept" }));
    assert_eq!(value["result"]["text/plain"], "1");
    stdio.value("execute_terminal", json!({ "session_id": session, "command": "echo hi > a" }));
    stdio.value("export_files", json!({ "session_id": session, "files": [{ "source": "a" }] }));
    let heard = |stdio: &mut Stdio| {
        stdio.notes().iter().any(|n| n["method"] == "notifications/resources/list_changed")
    };
    eventually("the note", || heard(&mut stdio));
    assert_eq!(stdio.close(), Some(0));
    // The thread is remembered, so the next run finds the session.
    let mut again = bridge(&place, &server);
    let value = again.value("execute_code", json!({ "session_id": session, "code": "kept" }));
    assert_eq!(value["result"]["text/plain"], "1", "{value}");
    assert_eq!(again.close(), Some(0));
}

#[test]
fn a_server_that_started_again_is_no_end() {
    let mut server = Server::start();
    let place = Place::new();
    let mut stdio = bridge(&place, &server);
    let session = stdio.session("python");
    let address = server.address;
    server.kill();
    let lost = stdio.ask("tools/list", json!({}));
    assert!(lost["error"]["message"].as_str().unwrap().contains(&address.to_string()), "{lost}");
    server.restart_at(address);
    let listed = stdio.ask("tools/list", json!({}));
    assert_eq!(listed["result"]["tools"].as_array().unwrap().len(), 6, "{listed}");
    let ran = stdio.value("execute_terminal", json!({ "session_id": session, "command": "echo alive" }));
    assert_eq!(ran["stdout"], "alive\n");
    assert_eq!(stdio.close(), Some(0));
}

#[test]
fn what_the_server_says_by_itself_comes_after_it_started_again() {
    let mut server = Server::start();
    let place = Place::new();
    let mut stdio = bridge(&place, &server);
    let session = stdio.session("python");
    let address = server.address;
    server.kill();
    server.restart_at(address);
    // Of the same thread. The first one asks for nothing any more.
    let mut other = bridge(&place, &server);
    let export = json!({ "session_id": session, "files": [{ "source": "a" }] });
    other.value("execute_terminal", json!({ "session_id": session, "command": "echo hi > a" }));
    eventually("the note", || {
        other.value("export_files", export.clone());
        stdio.notes().iter().any(|note| note["method"] == "notifications/resources/list_changed")
    });
    assert_eq!((other.close(), stdio.close()), (Some(0), Some(0)));
}

#[test]
fn the_end_of_its_input_ends_it_and_the_code_that_runs() {
    let server = Server::start();
    let place = Place::new();
    let mut stdio = bridge(&place, &server);
    let session = stdio.session("python");
    let endless = json!({ "session_id": session, "code": "while True: pass", "timeout": 120 });
    let params = json!({ "name": "execute_code", "arguments": endless, "_meta": { "progressToken": 1 } });
    stdio.start_request("tools/call", params);
    let sandbox = server.ask("GET", "/api/v1/sandboxes", "").json()["items"][0]["id"].clone();
    let kernels = format!("/api/v1/sandboxes/{}/kernels", sandbox.as_str().unwrap());
    let busy = || server.ask("GET", &kernels, "").json()[0]["status"] == "busy";
    eventually("the code to run", busy);
    assert_eq!(stdio.close(), Some(0));
    eventually("the code to end", || !busy());
}

#[test]
fn a_wrong_key_is_said_to_the_client() {
    use std::io::{BufRead, BufReader, Write};
    let server = Server::start();
    let place = Place::new();
    let url = format!("http://{}", server.address);
    let mut command = place.command(&["--server", &url, "--key", "no-such-key"]);
    let mut child =
        command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped()).spawn().unwrap();
    let begin = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": super::initialize() });
    let mut stdin = child.stdin.take().unwrap();
    writeln!(stdin, "{begin}").unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let answer: serde_json::Value = serde_json::from_str(&line).unwrap();
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(answer["id"] == 1 && message.contains("401") && message.contains("ATOLL_API_KEY"), "{answer}");
    drop(stdin);
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_bridge_that_is_killed_ends_its_command_and_gives_its_seat_back() {
    let server =
        Server::start_in("warn", &["--set", "tool_sessions.max=1"], &[("ATOLL_MCP_VANISHED_SECONDS", "1")]);
    let (killed, next) = (Place::new(), Place::new());
    let mut stdio = bridge(&killed, &server);
    let session = stdio.session("python");
    let sandbox = server.ask("GET", "/api/v1/sandboxes", "").json()["items"][0]["id"].clone();
    let sandbox = format!("/api/v1/sandboxes/{}", sandbox.as_str().unwrap());
    let runs = || server.says(&sandbox, "pgrep -xc sleep || true");
    let command = json!({ "session_id": session, "command": "sleep 250", "timeout": 300 });
    stdio.start_request("tools/call", json!({ "name": "execute_terminal", "arguments": command }));
    eventually("the command runs", || runs() == "1");
    stdio.child.kill().unwrap();
    stdio.child.wait().unwrap();
    eventually("it ends with the bridge", || runs() == "0");
    // Another conversation of the same owner needs the only seat.
    let mut other = bridge(&next, &server);
    let mut made = json!(null);
    eventually("the seat", || {
        made = other.value("create_session", json!({ "language": "python" }));
        made["success"] == true
    });
    assert_eq!(other.close(), Some(0), "{made}");
}

#[test]
fn what_changed_is_told_before_the_answer_on_which_a_client_may_close() {
    let server = Server::start();
    let place = Place::new();
    let mut stdio = bridge(&place, &server);
    let session = stdio.session("python");
    stdio.value("execute_terminal", json!({ "session_id": session, "command": "echo hi > a" }));
    let export = json!({ "session_id": session, "files": [{ "source": "a" }] });
    let mut told = || {
        stdio.value("export_files", export.clone());
        stdio.notes_before().iter().any(|note| note["method"] == "notifications/resources/list_changed")
    };
    // By then it listens, which it begins to do by itself.
    eventually("the first note", &mut told);
    for _ in 0..50 {
        assert!(told(), "the answer came first");
    }
    assert_eq!(stdio.close(), Some(0));
}
