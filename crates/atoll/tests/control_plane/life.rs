//! A sandbox from its creation to its destruction.

use super::{ROOT, Server, refused};
use serde_json::{Value, json};
use std::thread;

#[test]
fn a_new_one_runs_with_what_was_asked_for() {
    let server = Server::start();
    let body = r#"{"memory_mb":256,"disk_mb":64,"labels":{"team":"a"},"env_vars":{"A":"1"}}"#;
    let made = server.ask("POST", ROOT, body);
    assert_eq!(made.status, 201);
    let made = made.json();
    assert_eq!(
        (&made["status"], &made["memory_mb"], &made["disk_mb"]),
        (&json!("running"), &json!(256), &json!(64))
    );
    assert_eq!((&made["labels"]["team"], &made["workspace_path"]), (&json!("a"), &json!("/workspace")));
    let path = format!("{ROOT}/{}", made["id"].as_str().unwrap());
    assert_eq!(server.get(&path)["id"], made["id"]);
    assert_eq!(server.says(&path, "echo $A; pwd; id -u"), "1\n/workspace\n1000");
}

#[test]
fn a_stopped_one_keeps_its_files_and_runs_nothing() {
    let server = Server::start();
    let path = server.create("{}");
    server.says(&path, "echo kept > /workspace/a; echo gone > /tmp/b");
    let stopped = server.ask("POST", &format!("{path}/stop"), "").json();
    assert_eq!((&stopped["status"], &stopped["container_id"]), (&json!("stopped"), &Value::Null));
    let exec = server.ask("POST", &format!("{path}/exec"), r#"{"command":"true"}"#);
    assert_eq!(refused(&exec, 409).0, "not_running");
    assert_eq!(server.ask("POST", &format!("{path}/stop"), "").status, 200, "a second stop succeeds");
    let resumed = server.ask("POST", &format!("{path}/resume"), "").json();
    assert_eq!(resumed["status"], "running");
    assert_eq!(server.says(&path, "cat /workspace/a; ls /tmp"), "kept");
}

#[test]
fn a_destroyed_one_is_shown_and_can_do_nothing() {
    let server = Server::start();
    let path = server.create("{}");
    assert_eq!(server.ask("DELETE", &path, "").status, 204);
    assert_eq!(server.get(&path)["status"], "destroyed");
    for (method, tail, body) in [
        ("DELETE", "", ""),
        ("POST", "/stop", ""),
        ("POST", "/resume", ""),
        ("POST", "/exec", r#"{"command":"true"}"#),
        ("GET", "/files", ""),
    ] {
        let answer = server.ask(method, &format!("{path}{tail}"), body);
        assert!(matches!(answer.status, 404 | 409), "{method} {tail}: {answer:?}");
    }
    let list = server.get(ROOT);
    assert_eq!(list["total"], 0, "{list}");
}

#[test]
fn lists_are_filtered_and_paged() {
    let server = Server::start();
    let all: Vec<String> = (0..3)
        .map(|n| server.create(&format!(r#"{{"labels":{{"n":"{n}"}},"session_key":"key-{n}"}}"#)))
        .collect();
    server.ask("POST", &format!("{}/stop", all[2]), "");
    let list = |query: &str| server.get(&format!("{ROOT}?{query}"));
    let page = list("page=2&page_size=1&sort_order=asc");
    assert_eq!((&page["total"], page["items"].as_array().unwrap().len()), (&json!(3), 1));
    assert!(all[1].ends_with(page["items"][0]["id"].as_str().unwrap()));
    assert_eq!(page["status_counts"], json!({ "running": 2, "stopped": 1 }));
    assert_eq!((&list("status=stopped")["total"], &list("labels=n%3D1")["total"]), (&json!(1), &json!(1)));
    assert_eq!(list("search=KEY-0")["items"][0]["labels"]["n"], "0");
    for query in ["page=0", "page_size=201", "status=odd", "nosuch=1"] {
        assert_eq!(server.ask("GET", &format!("{ROOT}?{query}"), "").status, 422, "{query}");
    }
}

#[test]
fn one_session_key_is_one_sandbox_however_many_ask() {
    let server = Server::start();
    let asked: Vec<_> = thread::scope(|scope| {
        let ask = || server.ask("POST", ROOT, r#"{"session_key":"agent"}"#);
        let asks: Vec<_> = (0..6).map(|_| scope.spawn(ask)).collect();
        asks.into_iter().map(|asked| asked.join().unwrap()).collect()
    });
    let first = asked[0].json()["id"].clone();
    assert!(asked.iter().all(|answer| answer.json()["id"] == first), "{asked:?}");
    assert_eq!(asked.iter().filter(|answer| answer.status == 201).count(), 1);
    assert_eq!(server.get(ROOT)["total"], 1);
}

#[test]
fn a_dead_one_says_why_and_comes_back_with_its_files() {
    let server = Server::start();
    let path = server.create("{}");
    server.says(&path, "echo kept > /workspace/a");
    server.kill_inside(&path);
    let exec = server.ask("POST", &format!("{path}/exec"), r#"{"command":"true"}"#);
    assert_eq!(exec.status, 409, "{exec:?}");
    assert_eq!(server.ask("POST", &format!("{path}/resume"), "").status, 200);
    assert_eq!(server.says(&path, "cat /workspace/a"), "kept");
}

#[test]
fn a_patch_changes_what_it_may() {
    let server = Server::start();
    let path = server.create(r#"{"env_vars":{"A":"1"}}"#);
    let patch = |body: &str| server.ask("PATCH", &path, body);
    assert_eq!(patch(r#"{"labels":{"x":"y"},"idle_timeout_seconds":60}"#).json()["labels"]["x"], "y");
    for body in [r#"{"memory_mb":128}"#, r#"{"env_vars":{"A":"2"}}"#] {
        assert_eq!(patch(body).status, 409, "{body}: it runs");
    }
    // A limit that the provider cannot change while it runs is refused, and stays.
    let before = server.get(&path)["disk_mb"].clone();
    assert_ne!(patch(r#"{"disk_mb":900}"#).status, 200);
    assert_eq!(server.get(&path)["disk_mb"], before);
    server.ask("POST", &format!("{path}/stop"), "");
    assert_eq!(patch(r#"{"memory_mb":128,"env_vars":{"A":"2"}}"#).json()["memory_mb"], 128);
    server.ask("POST", &format!("{path}/resume"), "");
    assert_eq!(server.says(&path, "echo $A"), "2");
}

#[test]
fn what_the_provider_lacks_is_refused_as_such() {
    let server = Server::start();
    let path = server.create("{}");
    let pause = server.ask("POST", &format!("{path}/pause"), "");
    assert_eq!(refused(&pause, 501).0, "unsupported");
    assert_eq!(server.get(&path)["status"], "running");
    let image = server.ask("POST", ROOT, r#"{"image":"no/such:image"}"#);
    assert!((400..500).contains(&image.status), "{image:?}");
    assert_eq!(server.get(ROOT)["total"], 1, "nothing is left of it");
}

/// The provider for tests has no snapshots: a request names what cannot be done, and nothing is left of it.
#[test]
fn a_provider_without_snapshots_says_so() {
    let server = Server::start();
    let path = server.create("{}");
    for (tail, body) in [("/snapshots", "{}"), ("/fork", "{}")] {
        let answer = server.ask("POST", &format!("{path}{tail}"), body);
        let (code, _) = refused(&answer, 501);
        let message = answer.json()["error"]["message"].to_string();
        assert!(code == "unsupported" && message.contains("cannot make snapshots"), "{message}");
    }
    assert_eq!(server.get(&format!("{path}/snapshots"))["total"], 0);
    let answer = server.ask("POST", ROOT, r#"{"auto_snapshot":"before_exec"}"#);
    assert_eq!((answer.status, answer.json()["detail"][0]["type"].clone()), (422, json!("unsupported")));
    assert_eq!(server.get(ROOT)["total"], 1);
}
