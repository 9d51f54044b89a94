//! A provider that fails as real ones do: llmock breaks its answers, and judges what this client made of it.

use super::{KEY, Served, root, server};
use crate::control_plane::{Server, eventually, http};
use serde_json::{Value, json};
use std::{
    net::TcpListener,
    process::{Command, Stdio},
};

/// llmock, and a place for its verdict.
struct Llmock(Served);

impl Llmock {
    fn start() -> Self {
        let program = root().join("target/python-llmock/bin/llmock");
        assert!(program.exists(), "`make python` installs llmock");
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut command = Command::new(program);
        command.args(["serve", "--port", &port.to_string(), "--response-style", "hello"]);
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let served = Served::of(child, format!("http://127.0.0.1:{port}"));
        let llmock = Self(served);
        eventually("llmock", || llmock.ask("GET", "/health", "").is_some());
        llmock
    }

    fn ask(&self, method: &str, path: &str, body: &str) -> Option<Value> {
        let address = self.0.url.strip_prefix("http://")?.parse().ok()?;
        let headers = [("Content-Type", "application/json")];
        let answer = http::request(address, method, path, &headers, body.as_bytes()).ok()?;
        (answer.status < 300).then(|| answer.json())
    }

    /// What it does to the next requests.
    fn will(&self, behaviors: &Value) {
        assert!(self.ask("POST", "/_llmock/reset", "{}").is_some());
        let body = json!({ "behaviors": behaviors }).to_string();
        assert!(self.ask("POST", "/_llmock/scenario", &body).is_some(), "{body}");
    }

    /// Fails where the client misbehaved.
    fn assert_resilient(&self, what: &Value) {
        let verdict = self.ask("GET", "/_llmock/verdict", "").unwrap();
        let requests = self.ask("GET", "/_llmock/requests", "").unwrap();
        let report = Command::new(root().join("target/python-llmock/bin/llmock"))
            .args(["report", "--strict", "--url", &self.0.url])
            .output()
            .unwrap();
        assert!(report.status.success(), "{what}: {verdict} {requests}");
    }
}

/// The values after a run without a thread of one's own.
fn run(server: &Server) -> Value {
    let input = json!({ "messages": [{ "role": "user", "content": "say hello" }] });
    let body = json!({ "assistant_id": "agent", "input": input }).to_string();
    let answer = server.ask_as(KEY, "POST", "/runs/wait", &body);
    assert_eq!(answer.status, 200, "{}", String::from_utf8_lossy(&answer.body));
    answer.json()
}

#[test]
fn a_provider_that_fails_for_the_moment_is_asked_again_as_it_wants() {
    let llmock = Llmock::start();
    let server = server(&llmock.0);
    for fault in [
        json!({ "type": "fail", "status": 429, "retry_after": 1, "times": 2 }),
        json!({ "type": "fail", "status": 503, "times": 1 }),
        json!({ "type": "stream_fault", "kind": "disconnect", "after_chunks": 2, "times": 1 }),
        json!({ "type": "stream_fault", "kind": "truncate", "after_chunks": 2, "times": 1 }),
    ] {
        llmock.will(&json!([fault]));
        let values = run(&server);
        assert!(values["__error__"].is_null(), "{fault}: {values}");
        let last = values["messages"].as_array().unwrap().last().unwrap();
        assert!(!last["content"].as_str().unwrap().is_empty(), "{fault}: {values}");
        llmock.assert_resilient(&fault);
    }
}

#[test]
fn a_provider_that_refuses_is_not_asked_again() {
    let llmock = Llmock::start();
    let server = server(&llmock.0);
    for (status, error) in [(401, "invalid_api_key"), (404, "unknown_model"), (402, "no_credit")] {
        let fault = json!({ "type": "fail", "status": status, "times": null });
        llmock.will(&json!([fault]));
        assert_eq!(run(&server)["__error__"]["error"], error, "{status}");
        let requests = llmock.ask("GET", "/_llmock/requests", "").unwrap().to_string();
        assert_eq!(requests.matches("/v1/chat/completions").count(), 1, "{requests}");
        llmock.assert_resilient(&fault);
    }
}

#[test]
fn calls_of_tools_that_are_broken_are_answered_and_the_run_ends() {
    let llmock = Llmock::start();
    let server = server(&llmock.0);
    for kind in ["malformed_arguments", "unknown_tool"] {
        let fault = json!({ "type": "tool_fault", "kind": kind, "times": 1 });
        llmock.will(&json!([fault]));
        let values = run(&server);
        let messages = values["messages"].as_array().unwrap_or_else(|| panic!("{kind}: {values}"));
        let results: Vec<_> = messages.iter().filter(|message| message["type"] == "tool").collect();
        assert!(results.iter().any(|result| result["status"] == "error"), "{kind}: {values}");
        assert_eq!(messages.last().unwrap()["type"], "ai", "{kind}: {values}");
        llmock.assert_resilient(&fault);
    }
}
