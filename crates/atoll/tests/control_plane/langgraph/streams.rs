//! Clients that read slowly, that go away, and that ask for what there is not.

use super::{super::http, KEY, end_wait, model, server, waiting_sandbox};
use crate::control_plane::eventually;
use serde_json::json;
use std::io::{BufRead, BufReader};

const AUTH: (&str, &str) = ("X-Api-Key", KEY);

fn body(said: &str, more: serde_json::Value) -> Vec<u8> {
    let mut body =
        json!({ "assistant_id": "agent", "input": { "messages": [{ "role": "user", "content": said }] } });
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body.to_string().into_bytes()
}

fn thread(server: &crate::control_plane::Server) -> String {
    let made = server.ask("POST", "/threads", "{}").json();
    made["thread_id"].as_str().unwrap().to_owned()
}

#[test]
fn a_client_that_vanishes_ends_the_run_if_it_said_so_and_not_otherwise() {
    let model = model();
    let server = server(&model);
    for (on_disconnect, status) in [("cancel", "interrupted"), ("continue", "success")] {
        let thread = thread(&server);
        let path = format!("/threads/{thread}/runs/stream");
        let more = json!({ "stream_mode": "custom", "on_disconnect": on_disconnect });
        let coming = http::open(server.address, "POST", &path, &[AUTH], &body("wait here", more)).unwrap();
        assert_eq!(coming.status, 200);
        let mut lines = BufReader::new(coming).lines().map_while(Result::ok);
        assert!(lines.any(|line| line.contains("begun")), "the tool's output comes while it runs");
        drop(lines);
        let first = || server.get(&format!("/threads/{thread}/runs"))[0].clone();
        if on_disconnect == "continue" {
            // Only a command that still runs can see this, and only a run that goes on answers after it.
            end_wait(&server, &waiting_sandbox(&server));
        }
        eventually("the run's end", || {
            !["pending", "running"].contains(&first()["status"].as_str().unwrap())
        });
        assert_eq!(first()["status"], status, "{on_disconnect}");
        assert_eq!(server.ask("DELETE", &format!("/threads/{thread}"), "").status, 204);
    }
}

#[test]
fn a_client_that_reads_slowly_holds_nothing_up() {
    let model = model();
    let server = server(&model);
    let slow = thread(&server);
    let path = format!("/threads/{slow}/runs/stream");
    let more = json!({ "stream_mode": ["values", "messages", "messages-tuple"] });
    let unread = http::open(server.address, "POST", &path, &[AUTH], &body("the answer?", more)).unwrap();
    // Nothing of it is read while the run ends and others are served.
    eventually("the run's end", || server.get(&format!("/threads/{slow}"))["status"] == "idle");
    let other = thread(&server);
    let quick = http::request(
        server.address,
        "POST",
        &format!("/threads/{other}/runs/wait"),
        &[AUTH],
        &body("hello", json!({})),
    );
    assert_eq!(quick.unwrap().status, 200);
    let all: Vec<_> = BufReader::new(unread).lines().map_while(Result::ok).collect();
    assert!(all.iter().any(|line| line == "event: end"), "{all:?}");
}

#[test]
fn a_client_that_reads_nothing_misses_the_oldest_and_has_the_state() {
    let model = model();
    let server = server(&model);
    let slow = thread(&server);
    let path = format!("/threads/{slow}/runs/stream");
    let more = json!({ "stream_mode": ["values", "custom"] });
    // The tool prints more than the connection and the log of the thread hold together.
    let unread = http::open(server.address, "POST", &path, &[AUTH], &body("a flood", more)).unwrap();
    eventually("the run's end", || server.get(&format!("/threads/{slow}"))["status"] == "idle");
    let mut events: Vec<(String, String)> = Vec::new();
    let mut name = String::new();
    for line in BufReader::new(unread).lines().map_while(Result::ok) {
        match line.split_once(": ") {
            Some(("event", event)) => name = event.to_owned(),
            Some(("data", data)) => events.push((name.clone(), data.to_owned())),
            _ => {}
        }
    }
    assert_eq!(events.last().unwrap().0, "end");
    let printed: usize = events.iter().filter(|(name, _)| name == "custom").map(|(_, data)| data.len()).sum();
    assert!(printed < 24_000_000, "{printed} bytes were kept for a client that reads nothing");
    let state = &events.iter().rfind(|(name, _)| name == "values").unwrap().1;
    assert!(state.contains("That was much."), "{state}");
}

#[test]
fn what_is_wrong_with_a_request_is_named() {
    let model = model();
    let server = server(&model);
    let thread = thread(&server);
    let mut golden = String::new();
    for (method, path, body) in [
        ("POST", "/threads", r#"{"thread_id":"a b"}"#),
        ("POST", "/threads", r#"{"if_exists":"maybe"}"#),
        ("POST", "/threads", r#"{"metadata":3}"#),
        ("POST", "/threads", r#"{"ttl":{"ttl":5}}"#),
        ("POST", "/threads", r#"{"supersteps":[{}]}"#),
        ("PATCH", "/threads/{t}", r#"{"ttl":5}"#),
        ("POST", "/threads/search", r#"{"limit":0}"#),
        ("POST", "/threads/search", r#"{"values":{"a":1}}"#),
        ("POST", "/threads/count", r#"{"values":{"a":1}}"#),
        ("POST", "/threads/prune", r#"{"thread_ids":["{t}"],"strategy":"keep_latest"}"#),
        ("POST", "/threads/search", r#"{"status":"asleep"}"#),
        ("POST", "/threads/{t}/runs/stream", "{}"),
        ("POST", "/threads/{t}/runs/stream", r#"{"assistant_id":"agent","stream_mode":["everything"]}"#),
        ("POST", "/threads/{t}/runs/wait", r#"{"assistant_id":"agent","input":7}"#),
        (
            "POST",
            "/threads/{t}/runs/wait",
            r#"{"assistant_id":"agent","input":{"messages":[{"role":"robot"}]}}"#,
        ),
        ("POST", "/threads/{t}/runs", r#"{"assistant_id":"agent","multitask_strategy":"hope"}"#),
        ("POST", "/threads/{t}/runs", r#"{"assistant_id":"agent","webhook":"http://x.example"}"#),
        ("POST", "/threads/{t}/runs", r#"{"assistant_id":"agent","checkpoint_id":"x"}"#),
        ("POST", "/threads/{t}/runs", r#"{"assistant_id":"agent","command":{"goto":"tools"}}"#),
        ("POST", "/threads/{t}/runs/stream", r#"{"assistant_id":"agent","stream_mode":["tools"]}"#),
        ("POST", "/threads/{t}/runs", r#"{"assistant_id":"agent","interrupt_before":["somewhere"]}"#),
        ("POST", "/threads/{t}/runs", r#"{"assistant_id":"agent","after_seconds":-1}"#),
        ("GET", "/threads/{t}/runs/x", ""),
        ("GET", "/threads/{t}/state/x", ""),
        ("POST", "/threads/{t}/stream/events", r#"{"channels":["gossip"]}"#),
        ("POST", "/threads/{t}/commands", r#"{"method":"run.start"}"#),
        ("POST", "/runs/wait", r#"{"assistant_id":"agent","command":{"resume":true}}"#),
        ("PUT", "/settings", r#"{"supports_vision":"perhaps"}"#),
        ("PUT", "/settings", ""),
        ("PUT", "/store/items", r#"{"key":"k"}"#),
        ("PUT", "/store/items", r#"{"key":"k","value":{},"ttl":5}"#),
    ] {
        let answer = server.ask(method, &path.replace("{t}", &thread), &body.replace("{t}", &thread));
        let told = answer.json();
        golden +=
            &format!("{method} {path} {body}\n  {} {}\n", answer.status, told["message"].as_str().unwrap());
        assert_eq!(answer.status, 422, "{method} {path} {body}: {told}");
    }
    insta::assert_snapshot!(golden);
    let told = server.ask("POST", &format!("/threads/{thread}/commands"), r#"{"id":7,"method":"no.such"}"#);
    assert_eq!(
        (told.status, &told.json()["error"], &told.json()["id"]),
        (200, &json!("unknown_command"), &json!(7))
    );
    for method in ["input.inject", "subscription.subscribe"] {
        let command = json!({ "id": 8, "method": method }).to_string();
        let told = server.ask("POST", &format!("/threads/{thread}/commands"), &command);
        assert_eq!((told.status, &told.json()["error"]), (200, &json!("not_supported")), "{method}");
        assert!(told.json()["message"].as_str().unwrap().contains(method), "{method}");
    }
    let late = [AUTH, ("Last-Event-ID", "yesterday")];
    let run = "00000000-0000-0000-0000-000000000000";
    let path = format!("/threads/{thread}/runs/{run}/stream");
    assert_eq!(http::request(server.address, "GET", &path, &late, b"").unwrap().status, 422);
}
