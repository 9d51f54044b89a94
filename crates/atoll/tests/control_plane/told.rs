//! What the server tells of what was done: the audit trail, events, and activity.

use super::{KEY, Server, eventually};
use serde_json::{Value, json};

fn entries(server: &Server, query: &str) -> Vec<Value> {
    server.get(&format!("/api/v1/audit?{query}"))["entries"].as_array().unwrap().clone()
}

#[test]
fn a_command_has_its_rows_with_how_it_went() {
    let server = Server::start();
    let path = server.create("{}");
    let body = json!({ "command": "echo out; exit 3", "env_vars": { "VISIBLE": "value-of-a-variable" } });
    server.exec(&path, &body);
    let rows = entries(&server, "kind=exec");
    assert_eq!(rows.len(), 1, "{rows:?}");
    let text = rows[0].to_string();
    assert!(text.contains("echo out; exit 3") && text.contains("VISIBLE"), "{text}");
    assert!(!text.contains("value-of-a-variable"), "names and never values: {text}");
    assert_eq!(
        (&rows[0]["ended"]["exit_code"], &rows[0]["ended"]["outcome"]),
        (&json!(3), &json!("failed")),
        "{text}"
    );
}

#[test]
fn a_command_in_the_background_is_open_until_its_end() {
    let server = Server::start();
    let path = server.create("{}");
    let exec = server.background(&path, "read x; exit 5");
    assert_eq!(entries(&server, "kind=exec&open=true").len(), 1);
    server.ask("POST", &format!("{exec}/stdin?close=true"), "\n");
    eventually("its row", || entries(&server, "kind=exec&open=true").is_empty());
    assert_eq!(entries(&server, "kind=exec")[0]["ended"]["exit_code"], 5);
}

#[test]
fn every_change_is_in_the_trail_and_so_is_a_refused_one() {
    let server = Server::start();
    let reader = server.key(r#"{"name":"r","owner":"admin","scope":"read_only"}"#);
    let path = server.create("{}");
    server.ask("PUT", &format!("{path}/files/x"), "x");
    server.ask_as(&reader, "POST", &format!("{path}/stop"), "");
    server.ask("POST", &format!("{path}/stop"), "");
    server.ask("POST", &format!("{path}/resume"), "");
    server.ask("DELETE", &path, "");
    let rows = entries(&server, "limit=100");
    let told: Vec<(&str, &str)> = rows
        .iter()
        .rev()
        .map(|row| (row["kind"].as_str().unwrap(), row["ended"]["outcome"].as_str().unwrap()))
        .collect();
    let wanted = [
        ("key.create", "ok"),
        ("sandbox.create", "ok"),
        ("file.write", "ok"),
        ("sandbox.stop", "refused"),
        ("sandbox.stop", "ok"),
        ("sandbox.resume", "ok"),
        ("sandbox.destroy", "ok"),
    ];
    assert_eq!(told[told.len().saturating_sub(wanted.len())..], wanted, "{told:?}");
}

#[test]
fn a_life_is_a_row_of_events_with_reasons() {
    let server = Server::start();
    let path = server.create("{}");
    server.ask("POST", &format!("{path}/stop"), "");
    server.ask("POST", &format!("{path}/resume"), "");
    server.kill_inside(&path);
    server.ask("DELETE", &path, "");
    let id = path.rsplit('/').next().unwrap();
    let page = server.get(&format!("/api/v1/events?sandbox_id={id}"));
    let events = page["events"].as_array().unwrap();
    let kinds: Vec<&str> = events.iter().map(|event| event["kind"].as_str().unwrap()).collect();
    let main: Vec<&str> = kinds.iter().filter(|kind| **kind != "starting").copied().collect();
    assert_eq!(main, ["created", "ready", "stopped", "ready", "dead", "destroyed"]);
    let dead = events.iter().find(|event| event["kind"] == "dead").unwrap();
    assert!(dead["reason"].as_str().unwrap().contains("SIGKILL"), "{dead}");
    let after = server.get(&format!("/api/v1/events?sandbox_id={id}&after={}&limit=1", events[0]["id"]));
    assert_eq!(after["events"][0], events[1], "from where a listener was");
}

#[test]
fn an_owner_hears_of_its_own_alone() {
    let server = Server::start();
    let (ann, bob) =
        (server.key(r#"{"name":"a","owner":"ann"}"#), server.key(r#"{"name":"b","owner":"bob"}"#));
    server.create_as(&ann, "{}");
    let heard = |key: &str| {
        server.ask_as(key, "GET", "/api/v1/events", "").json()["events"].as_array().unwrap().len()
    };
    assert!(heard(&ann) >= 2 && heard(KEY) >= 2);
    assert_eq!(heard(&bob), 0);
}

#[test]
fn the_activity_of_a_sandbox_names_what_was_done() {
    let server = Server::start();
    let path = server.create("{}");
    server.says(&path, "echo hello");
    server.ask("PUT", &format!("{path}/files/x"), "x");
    server.ask("POST", &format!("{path}/stop"), "");
    let all = server.get(&format!("{path}/activity"));
    let all = all.as_array().unwrap();
    let kinds: Vec<&str> = all.iter().map(|entry| entry["kind"].as_str().unwrap()).collect();
    for kind in ["start", "exec", "upload", "stop"] {
        assert!(kinds.contains(&kind), "{kind}: {kinds:?}");
    }
    let exec = all.iter().find(|entry| entry["kind"] == "exec").unwrap();
    assert_eq!((&exec["detail"], &exec["exit_code"]), (&json!("echo hello"), &json!(0)));
}
