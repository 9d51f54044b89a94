//! Commands that are streamed, run in the background, outlive the server, and print more than anybody
//! wants to keep.

mod background;
mod cli;
mod events;
mod many;
mod restarts;
mod streamed;

use super::{
    fixture::{KEY, Server},
    http,
};
use serde_json::{Value, json};

pub(super) const AUTH: (&str, &str) = ("Authorization", "Bearer bootstrap-key-of-a-test");

/// Starts a command in the background and returns its path.
pub(super) fn start(server: &Server, sandbox: &str, mut body: Value) -> String {
    body["background"] = true.into();
    let answer = server.ask("POST", &format!("{sandbox}/exec"), &body.to_string());
    assert_eq!(answer.status, 202, "{}", String::from_utf8_lossy(&answer.body));
    let id = answer.json()["exec_id"].as_str().unwrap().to_owned();
    assert!(id.len() == 32 && id.bytes().all(|b| b.is_ascii_hexdigit()), "{id}");
    format!("{sandbox}/execs/{id}")
}

pub(super) fn info(server: &Server, exec: &str) -> Value {
    let answer = server.ask("GET", exec, "");
    assert_eq!(answer.status, 200, "{}", String::from_utf8_lossy(&answer.body));
    answer.json()
}

/// Waits for a command's end and returns how it went.
pub(super) fn ended(server: &Server, exec: &str) -> Value {
    crate::engine::fixture::eventually("its end", || info(server, exec)["status"] == "ended");
    info(server, exec)
}

/// What is noted of the commands of a sandbox: text and exit code, the latest first.
pub(super) fn noted(server: &Server, sandbox: &str) -> Vec<(String, Value)> {
    let all = server.ask("GET", &format!("{sandbox}/activity?limit=200"), "").json();
    let execs = all.as_array().unwrap().iter().filter(|a| a["kind"] == "exec");
    execs.map(|a| (a["detail"].as_str().unwrap().to_owned(), a["exit_code"].clone())).collect()
}

pub(super) fn shell(line: &str) -> Value {
    json!({ "command": line })
}
