//! What keys, owners and the machine allow: tiers, plans, admission, and the settings behind them.

mod admission;
mod plans;
mod settings;
mod tiers;

use super::{
    fixture::{KEY, Server},
    http::{self, Answer},
};
use serde_json::Value;
use std::thread;

const ROOT: &str = "/api/v1/sandboxes";
const SETTINGS: &str = "/api/v1/settings/sandbox";

/// A key of an owner.
fn key(server: &Server, owner: &str, tier: &str) -> String {
    let body = format!(r#"{{"name":"k","owner":"{owner}","tier":"{tier}"}}"#);
    let made = server.ask("POST", "/api/v1/keys", &body);
    assert_eq!(made.status, 201, "{made:?}");
    made.json()["key"].as_str().unwrap().to_owned()
}

/// The path of a sandbox that a key creates.
fn created(server: &Server, key: &str, body: &str) -> String {
    let made = server.ask_as(key, "POST", ROOT, body);
    assert_eq!(made.status, 201, "{made:?}");
    path_of(&made)
}

fn path_of(made: &Answer) -> String {
    format!("{ROOT}/{}", made.json()["id"].as_str().unwrap())
}

/// The details of a refusal, which must have this status and code.
fn refused(answer: &Answer, status: u16, code: &str) -> Value {
    let error = answer.json()["error"].clone();
    assert_eq!((answer.status, error["code"].as_str()), (status, Some(code)), "{answer:?}");
    if status == 429 {
        let seconds: u64 = answer.header("retry-after").unwrap().parse().unwrap();
        assert_eq!(error["details"]["retry_after_seconds"], seconds);
    } else {
        assert_eq!(answer.header("retry-after"), None);
    }
    error["details"].clone()
}

/// What many get who ask the same at once.
fn at_once(server: &Server, count: usize, key: &str, path: &str, body: &str) -> Vec<Answer> {
    thread::scope(|scope| {
        let asking: Vec<_> =
            (0..count).map(|_| scope.spawn(|| server.ask_as(key, "POST", path, body))).collect();
        asking.into_iter().map(|asked| asked.join().unwrap()).collect()
    })
}

fn with_status(answers: &[Answer], status: u16) -> Vec<&Answer> {
    answers.iter().filter(|answer| answer.status == status).collect()
}

/// How many operations of a kind are under way.
fn under_way(server: &Server, kind: &str) -> usize {
    let page = server.ask("GET", &format!("/api/v1/audit?kind={kind}&open=true&limit=500"), "").json();
    page["entries"].as_array().unwrap().len()
}
