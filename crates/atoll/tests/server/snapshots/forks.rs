//! Forks: sandboxes of their own, within tier, plan and disk.

use super::{both, keep, refused};
use crate::server::fixture::Server;
use serde_json::{Value, json};

fn fork(server: &Server, sandbox: &str, body: &Value) -> String {
    let made = server.ask("POST", &format!("{sandbox}/fork"), &body.to_string());
    assert_eq!(made.status, 201, "{}", String::from_utf8_lossy(&made.body));
    format!("/api/v1/sandboxes/{}", made.json()["id"].as_str().unwrap())
}

#[test]
fn a_fork_begins_with_the_files_and_goes_its_own_way() {
    for server in both(&["--set", "default_max_per_user=10"]) {
        let body = r#"{"env_vars":{"A":"1"},"secrets":{"S":"hidden"},"labels":{"team":"a"},"memory_mb":256,"disk_mb":64}"#;
        let sandbox = server.create(body);
        server.exec(&sandbox, "echo one > file; echo h > ~/h");
        let first = keep(&server, &sandbox, "first");
        server.exec(&sandbox, "echo two > file; (setsid sleep 1000 >/dev/null 2>&1 &)");
        let id = first.rsplit('/').next().unwrap();
        let old =
            fork(&server, &sandbox, &json!({ "snapshot": id, "memory_mb": 128, "labels": { "x": "y" } }));
        let live = fork(&server, &sandbox, &json!({}));
        assert_eq!(server.says(&old, "cat file ~/h; echo $A $S"), "one\nh\n1 hidden");
        assert_eq!(server.says(&live, "cat file; echo $A $S; pgrep -c sleep"), "two\n1 hidden\n0");
        let shown = server.ask("GET", &old, "").json();
        assert_eq!(
            (&shown["memory_mb"], &shown["disk_mb"], &shown["labels"], &shown["status"]),
            (&json!(128), &json!(64), &json!({ "x": "y" }), &json!("running"))
        );
        assert_eq!(server.ask("GET", &live, "").json()["labels"], json!({ "team": "a" }));
        server.exec(&old, "echo fork > file; echo more > more");
        server.exec(&sandbox, "echo three > file");
        assert_eq!(server.says(&sandbox, "cat file; ls"), "three\nfile");
        assert_eq!(server.says(&live, "cat file"), "two");
        // It outlives what it was made of.
        assert_eq!(server.ask("DELETE", &sandbox, "").status, 204);
        assert_eq!(server.says(&old, "cat file more"), "fork\nmore");
        for one in [&old, &live] {
            assert_eq!(server.ask("POST", &format!("{one}/stop"), "").status, 200);
            assert_eq!(server.ask("POST", &format!("{one}/resume"), "").status, 200);
        }
        assert_eq!(server.says(&live, "cat file"), "two");
        assert_eq!(refused(&server, "POST", &format!("{sandbox}/fork"), "{}", 409), "not_running");
    }
}

#[test]
fn tier_plan_and_disk_hold_for_forks() {
    let server = Server::start_with(&["--set", "plan.sandboxes=2", "--set", "plan.disk_mb=200"]);
    let made = server.ask("POST", "/api/v1/keys", r#"{"name":"a","owner":"ann","scope":"user"}"#).json();
    let ann = made["key"].as_str().unwrap();
    let ask = |path: &str, body: &str| server.ask_as(ann, "POST", path, body);
    let sandbox = ask("/api/v1/sandboxes", r#"{"disk_mb":64}"#).json();
    let sandbox = format!("/api/v1/sandboxes/{}", sandbox["id"].as_str().unwrap());
    let fork = format!("{sandbox}/fork");
    let exec = json!({ "command": "head -c 30000000 /dev/urandom > big; sync" }).to_string();
    assert_eq!(ask(&format!("{sandbox}/exec"), &exec).status, 200);
    let too_much = ask(&fork, r#"{"memory_mb":1000000}"#);
    assert_eq!(too_much.status, 403, "{too_much:?}");
    let too_large = ask(&fork, r#"{"disk_mb":150}"#);
    assert_eq!(
        (too_large.status, too_large.json()["error"]["details"]["limit"].clone()),
        (403, json!("disk_mb"))
    );
    let too_small = ask(&fork, r#"{"disk_mb":20}"#);
    assert_eq!(
        (too_small.status, too_small.json()["error"]["code"].clone()),
        (409, json!("conflict")),
        "{too_small:?}"
    );
    let wrong = ask(&fork, r#"{"image":"host"}"#);
    assert_eq!(wrong.status, 422);
    assert_eq!(ask(&fork, "{}").status, 201);
    let one_more = ask(&fork, "{}");
    assert_eq!(
        (one_more.status, one_more.json()["error"]["details"]["limit"].clone()),
        (403, json!("sandboxes"))
    );
    // A fork that was refused holds nothing of the plan.
    let all = server.ask_as(ann, "GET", "/api/v1/sandboxes", "").json();
    assert_eq!(all["total"], 2);
    let fork_id = all["items"].as_array().unwrap().iter().map(|one| one["id"].as_str().unwrap());
    let made: Vec<&str> = fork_id.filter(|id| !sandbox.ends_with(id)).collect();
    assert_eq!(server.ask_as(ann, "DELETE", &format!("/api/v1/sandboxes/{}", made[0]), "").status, 204);
    assert_eq!(ask(&fork, "{}").status, 201);
}
