//! What sandboxes reach and what they do not, through the whole of it: server, launcher, container, proxy.

mod hostile;
mod images;
mod live;
mod network;
mod policy;
mod record;
mod world;

use super::fixture::Server;
use serde_json::Value;

/// What the sandbox's gate says of itself.
fn egress(server: &Server, sandbox: &str) -> Value {
    server.ask("GET", &format!("{sandbox}/egress"), "").json()
}

/// Asks for a page with curl, quietly, and returns its output and the status.
fn curl(server: &Server, sandbox: &str, arguments: &str) -> (String, String) {
    let ran =
        server.exec(sandbox, &format!("curl -s -m 20 -w '%{{http_code}}' {arguments}; echo \" $?\" >&2"));
    let text = |name: &str| ran[name].as_str().unwrap().trim().to_owned();
    (text("stdout"), text("stderr"))
}

/// The decisions of a sandbox that fit a query, the latest first.
fn log(server: &Server, sandbox: &str, query: &str) -> Vec<Value> {
    let answer = server.ask("GET", &format!("{sandbox}/egress/log{query}"), "");
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()["entries"].as_array().unwrap().clone()
}
