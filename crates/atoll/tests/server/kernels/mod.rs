//! Live interpreters, real ones, through the API of a real server.

mod cells;
mod checkpoints;
mod cli;
mod complete;
mod deaths;
mod installs;
mod life;
mod pool;
mod restarts;
mod rich;
mod told;
mod wrong;

use super::{
    execs::AUTH,
    fixture::{KEY, Server},
    http,
};
use serde_json::{Value, json};

/// A language, code that sets `x` to 41, code whose value is x + 1, and code that never ends.
pub(super) const LANGUAGES: [(&str, &str, &str, &str); 4] = [
    ("python", "x = 41", "x + 1", "while True: pass"),
    ("node", "let x = 41", "x + 1", "while (true) {}"),
    ("r", "x <- 41", "x + 1", "while (TRUE) {}"),
    ("bash", "x=41", "echo $((x + 1))", "while :; do :; done"),
];

/// Asks for a cell; the answer must be a success of the API.
pub(super) fn cell(server: &Server, path: &str, body: &Value) -> Value {
    let answer = server.ask("POST", path, &body.to_string());
    assert_eq!(answer.status, 200, "{body}: {}", String::from_utf8_lossy(&answer.body));
    answer.json()
}

/// Runs code in the default kernel of a language.
pub(super) fn run(server: &Server, sandbox: &str, language: &str, code: &str) -> Value {
    let body = json!({ "language": language, "code": code, "timeout": 60 });
    cell(server, &format!("{sandbox}/run"), &body)
}

/// The same in Python, and it must work.
pub(super) fn python(server: &Server, sandbox: &str, code: &str) -> Value {
    let ran = run(server, sandbox, "python", code);
    assert_eq!(ran["success"], true, "{code}: {ran}");
    ran
}

/// What a cell's value is, as text.
pub(super) fn value(ran: &Value) -> &str {
    ran["result"]["text/plain"].as_str().unwrap_or_else(|| panic!("no value: {ran}"))
}

/// Starts a kernel and returns its path.
pub(super) fn start(server: &Server, sandbox: &str, body: &Value) -> String {
    let answer = server.ask("POST", &format!("{sandbox}/kernels"), &body.to_string());
    assert_eq!(answer.status, 201, "{}", String::from_utf8_lossy(&answer.body));
    format!("{sandbox}/kernels/{}", answer.json()["kernel_id"].as_str().unwrap())
}

/// Runs code in a kernel.
pub(super) fn execute(server: &Server, kernel: &str, code: &str) -> Value {
    cell(server, &format!("{kernel}/execute"), &json!({ "code": code, "timeout": 60 }))
}

pub(super) fn kernels(server: &Server, sandbox: &str) -> Vec<Value> {
    let answer = server.ask("GET", &format!("{sandbox}/kernels"), "");
    assert_eq!(answer.status, 200, "{}", String::from_utf8_lossy(&answer.body));
    answer.json().as_array().unwrap().clone()
}

/// A request whose answer is read as it comes.
pub(super) fn stream(server: &Server, path: &str, body: &Value, more: &[(&str, &str)]) -> http::Coming {
    let headers: Vec<_> = [AUTH].into_iter().chain(more.iter().copied()).collect();
    http::open(server.address, "POST", path, &headers, body.to_string().as_bytes()).unwrap()
}

/// The next event of a stream; none at its end.
pub(super) fn event(coming: &mut http::Coming) -> Option<Value> {
    use std::io::Read;
    let mut text = Vec::new();
    let mut byte = [0];
    loop {
        while !text.ends_with(b"\n\n") {
            match coming.read(&mut byte) {
                Ok(1) => text.push(byte[0]),
                _ => return None,
            }
        }
        let line = String::from_utf8(std::mem::take(&mut text)).unwrap();
        if let Some(data) = line.strip_prefix("data: ") {
            return Some(serde_json::from_str(data).unwrap());
        }
    }
}

/// All events of a stream.
pub(super) fn events(coming: &mut http::Coming) -> Vec<Value> {
    std::iter::from_fn(|| event(coming)).collect()
}
