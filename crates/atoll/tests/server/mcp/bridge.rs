//! `atoll mcp --server`: the same tools, of a server elsewhere.

use super::{
    super::fixture::{KEY, Server},
    Wire,
    stdio::{Place, Stdio},
};
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
    crate::engine::fixture::eventually("the note", || heard(&mut stdio));
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
