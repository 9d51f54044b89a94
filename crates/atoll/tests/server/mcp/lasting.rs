//! What outlasts a connection over HTTP, and what does not: a session outlasts the server, and a client that vanishes
//! takes along what was its own.

use super::{
    super::{
        fixture::{KEY, Server},
        http,
        sessions::Thread,
    },
    Wire,
    web::{ACCEPT, Events, JSON, PATH, Web},
};
use crate::engine::fixture::eventually;
use serde_json::json;
use std::process::Command;

fn call(tool: &str, arguments: serde_json::Value) -> serde_json::Value {
    json!({ "name": tool, "arguments": arguments })
}

#[test]
fn a_session_goes_on_after_the_server_was_killed_and_belongs_to_the_same_key() {
    let mut server = Server::start();
    let (id, session) = {
        let mut web = Web::open(&server);
        let session = web.session("python");
        web.value("execute_code", json!({ "session_id": session, "code": "kept = 1" }));
        (web.session.clone(), session)
    };
    let address = server.address;
    server.kill();
    server.restart_at(address);
    let mut web = Web::again(&server, KEY, &id);
    let value = web.value("execute_code", json!({ "session_id": session, "code": "kept" }));
    assert_eq!(value["result"]["text/plain"], "1", "the same session, thread and interpreter: {value}");
    let made = server.ask("POST", "/api/v1/keys", r#"{"name":"other","owner":"local"}"#);
    let other = made.json()["key"].as_str().unwrap().to_owned();
    let list = json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/list" });
    assert_eq!(Web::again(&server, &other, &id).post(&list).status, 404, "of another key");
    let headers = web.headers();
    let headers: Vec<(&str, &str)> = headers.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
    assert_eq!(http::request(server.address, "DELETE", PATH, &headers, b"").unwrap().status, 204);
    server.kill();
    server.restart_at(address);
    assert_eq!(Web::again(&server, KEY, &id).post(&list).status, 404, "what was ended stays so");
}

#[test]
fn an_answer_alone_is_json_however_large() {
    let server = Server::start();
    let mut web = Web::open(&server);
    let session = web.session("python");
    let shows = "import os\nclass P:\n    def _repr_png_(self): return b'\\x89PNG\\r\\n\\x1a\\n' + os.urandom(1_500_000)\ndisplay(P())";
    let params = call("execute_code", json!({ "session_id": session, "code": shows }));
    let answer = web.post(&json!({ "jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": params }));
    assert_eq!(answer.header("content-type"), Some("application/json"));
    let picture = &answer.json()["result"]["content"][1];
    assert!(picture["type"] == "image" && picture["data"].as_str().unwrap().len() > 1 << 20);
    assert!(answer.body.len() < 2_100_000, "it is there once: {} bytes", answer.body.len());
}

/// A process that is stopped by a signal.
struct Frozen(String);

impl Frozen {
    fn new(process: u32) -> Self {
        let process = process.to_string();
        assert!(Command::new("kill").args(["-STOP", &process]).status().unwrap().success());
        Self(process)
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        let _ = Command::new("kill").args(["-CONT", &self.0]).status();
    }
}

#[test]
fn what_changed_is_told_before_the_answer() {
    let server = Server::start();
    let mut web = Web::open_as(&server, KEY, Some("shared"));
    let session = web.session("python");
    web.value("execute_terminal", json!({ "session_id": session, "command": "echo hi >a" }));
    // Many, so that a server which answers first still has some to tell.
    let others: Vec<Web<'_>> = (0..16).map(|_| Web::open_as(&server, KEY, Some("shared"))).collect();
    let mut heard: Vec<Events> = others.iter().map(|other| other.listen(&[])).collect();
    web.value("export_files", json!({ "session_id": session, "files": { "source": "a" } }));
    // What was not sent when the answer came is not sent now either.
    let _frozen = Frozen::new(server.child.id());
    for events in &mut heard {
        let note = events.next().expect("the note");
        assert_eq!(note["method"], "notifications/resources/list_changed");
    }
}

#[test]
fn a_picture_is_json_also_where_progress_is_wanted() {
    let server = Server::start();
    let mut web = Web::open(&server);
    let session = web.session("python");
    let shows = "import os, time\ntime.sleep(1.5)\nclass P:\n    def _repr_png_(self): return b'\\x89PNG\\r\\n\\x1a\\n' + os.urandom(1_500_000)\ndisplay(P())";
    let mut params = call("execute_code", json!({ "session_id": session, "code": shows }));
    params["_meta"] = json!({ "progressToken": 1 });
    let answer = web.post(&json!({ "jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": params }));
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert_eq!(answer.json()["result"]["content"][1]["type"], "image");
}

#[test]
fn a_client_that_vanishes_frees_its_session_and_ends_its_command() {
    let server = Server::start_in("warn", &[], &[("ATOLL_MCP_VANISHED_SECONDS", "1")]);
    let (id, session) = {
        let mut web = Web::open(&server);
        let session = web.session("python");
        let listening = web.listen(&[]);
        let command = call(
            "execute_terminal",
            json!({ "session_id": session, "command": "touch here; sleep 250", "timeout": 300 }),
        );
        let message =
            json!({ "jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": command }).to_string();
        let headers = web.headers();
        let own = headers.iter().map(|(a, b)| (a.as_str(), b.as_str()));
        let all: Vec<(&str, &str)> = [ACCEPT, JSON].into_iter().chain(own).collect();
        let asking = http::open(server.address, "POST", PATH, &all, message.as_bytes()).unwrap();
        let thread = Thread::new(&server, &web.session);
        let runs = || thread.says(&session, "pgrep -xc sleep || true");
        eventually("the command runs", || runs() == "1");
        drop(asking);
        eventually("it ends with who waited for it", || runs() == "0");
        assert_eq!(web.ask("ping", json!({}))["result"], json!({}), "the client still listens");
        drop(listening);
        (web.session.clone(), session)
    };
    eventually("its sandbox is gone", || server.ask("GET", "/api/v1/sandboxes", "").json()["total"] == 0);
    let list = json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/list" });
    assert_eq!(Web::again(&server, KEY, &id).post(&list).status, 404, "{session}");
}
