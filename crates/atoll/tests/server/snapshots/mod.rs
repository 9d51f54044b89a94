//! Snapshots, rollbacks and forks by the API, on both storage drivers.

mod automatic;
mod database;
mod exported;
mod forks;
mod full;
mod kernels;
mod killed;
mod rollbacks;

use super::{
    fixture::{KEY, Server},
    http,
};
use serde_json::{Value, json};

/// A server whose volumes are on btrfs, and one whose volumes are plain folders.
pub(super) fn both(arguments: &[&str]) -> [Server; 2] {
    [Server::start_with(arguments), Server::start_on_folders(arguments)]
}

/// Makes a snapshot and returns its path.
fn keep(server: &Server, sandbox: &str, label: &str) -> String {
    let made = server.ask("POST", &format!("{sandbox}/snapshots"), &json!({ "label": label }).to_string());
    assert_eq!(made.status, 201, "{}", String::from_utf8_lossy(&made.body));
    format!("{sandbox}/snapshots/{}", made.json()["id"].as_str().unwrap())
}

fn roll_back(server: &Server, snapshot: &str) -> Value {
    let answer = server.ask("POST", &format!("{snapshot}/rollback"), "");
    assert_eq!(answer.status, 200, "{}", String::from_utf8_lossy(&answer.body));
    answer.json()
}

fn listed(server: &Server, sandbox: &str) -> Vec<Value> {
    let page = server.ask("GET", &format!("{sandbox}/snapshots?page_size=200"), "");
    assert_eq!(page.status, 200, "{page:?}");
    page.json()["items"].as_array().unwrap().clone()
}

/// The code of a refusal, which must have this status.
fn refused(server: &Server, method: &str, path: &str, body: &str, status: u16) -> String {
    let answer = server.ask(method, path, body);
    assert_eq!(answer.status, status, "{method} {path}: {}", String::from_utf8_lossy(&answer.body));
    answer.json()["error"]["code"].as_str().unwrap_or("validation").to_owned()
}

#[test]
fn what_is_kept_is_listed_labelled_compared_and_deleted() {
    for server in both(&[]) {
        let sandbox = server.create("{}");
        server.exec(&sandbox, "echo one > kept; echo gone > gone; echo x > ~/x");
        let first = keep(&server, &sandbox, "first");
        server.exec(&sandbox, "echo two! > kept; rm gone; mkdir d; echo new > d/new; echo y! > ~/x");
        let second = keep(&server, &sandbox, "second");
        server.exec(&sandbox, "echo later > later");
        let all = listed(&server, &sandbox);
        let labels: Vec<&str> = all.iter().map(|one| one["label"].as_str().unwrap()).collect();
        assert_eq!(labels, ["second", "first"], "the newest first");
        assert_eq!(all[0]["kind"], "manual");
        assert_eq!(server.ask("GET", &first, "").json(), all[1]);
        let page = server.ask("GET", &format!("{sandbox}/snapshots?page=2&page_size=1"), "").json();
        assert_eq!((&page["items"][0], &page["total"]), (&all[1], &json!(2)));
        let changes = |query: &str| {
            let answer = server.ask("GET", &format!("{first}/diff{query}"), "");
            assert_eq!(answer.status, 200, "{answer:?}");
            let answer = answer.json();
            assert_eq!(answer["truncated"], false);
            let line = |file: &Value| {
                format!("{} {}", file["action"].as_str().unwrap(), file["path"].as_str().unwrap())
            };
            answer["files"].as_array().unwrap().iter().map(line).collect::<Vec<_>>()
        };
        let id = |path: &str| path.rsplit('/').next().unwrap().to_owned();
        let between = [
            "modified /home/user/x",
            "created /workspace/d/new",
            "deleted /workspace/gone",
            "modified /workspace/kept",
        ];
        assert_eq!(changes(&format!("?to={}", id(&second))), between);
        let mut now = between.to_vec();
        now.push("created /workspace/later");
        assert_eq!(changes("?to=now"), now);
        assert_eq!(changes(""), now);
        let labelled = server.ask("PATCH", &first, r#"{"label":"renamed"}"#);
        assert_eq!((labelled.status, &labelled.json()["label"]), (200, &json!("renamed")));
        assert_eq!(server.ask("PATCH", &first, r#"{"label":null}"#).json()["label"], Value::Null);
        assert_eq!(refused(&server, "PATCH", &first, "{}", 422), "validation");
        assert_eq!(
            refused(&server, "PATCH", &first, &json!({ "label": "x".repeat(201) }).to_string(), 422),
            "validation"
        );
        assert_eq!(server.ask("DELETE", &first, "").status, 204);
        assert_eq!(refused(&server, "GET", &first, "", 404), "not_found");
        assert_eq!(refused(&server, "DELETE", &first, "", 404), "not_found");
        assert_eq!(refused(&server, "POST", &format!("{first}/rollback"), "", 404), "not_found");
        assert_eq!(
            refused(&server, "GET", &format!("{second}/diff?to={}", id(&first)), "", 404),
            "not_found"
        );
        let told = server.ask("GET", "/api/v1/events?limit=200", "").json();
        let kinds: Vec<&str> =
            told["events"].as_array().unwrap().iter().filter_map(|e| e["kind"].as_str()).collect();
        for kind in ["snapshot.created", "snapshot.labelled", "snapshot.deleted"] {
            assert!(kinds.contains(&kind), "{kind}: {told}");
        }
        for kind in ["snapshot.create", "snapshot.label", "snapshot.delete", "snapshot.diff"] {
            let rows = server.ask("GET", &format!("/api/v1/audit?kind={kind}"), "").json();
            assert_eq!(
                rows["entries"].as_array().unwrap().iter().find(|row| row["ended"].is_null()),
                None,
                "{rows}"
            );
            assert!(!rows["entries"].as_array().unwrap().is_empty(), "{kind}");
        }
        // They go with their sandbox.
        assert_eq!(server.ask("DELETE", &sandbox, "").status, 204);
        assert_eq!(listed(&server, &sandbox), Vec::<Value>::new());
    }
}

#[test]
fn a_repeated_request_makes_one_snapshot() {
    let server = Server::start();
    let sandbox = server.create("{}");
    let authorization = format!("Bearer {KEY}");
    let headers = [("Authorization", authorization.as_str()), ("Idempotency-Key", "k")];
    let ask = || {
        http::request(server.address, "POST", &format!("{sandbox}/snapshots"), &headers, b"{}")
            .unwrap()
            .json()["id"]
            .clone()
    };
    assert_eq!(ask(), ask());
    assert_eq!(listed(&server, &sandbox).len(), 1);
}

#[test]
fn a_sandbox_has_its_share_of_snapshots_and_no_more() {
    let server = Server::start_with(&["--set", "snapshots.max=3", "--set", "snapshots.automatic_max=2"]);
    let sandbox = server.create("{}");
    let first = keep(&server, &sandbox, "a");
    roll_back(&server, &first);
    roll_back(&server, &first);
    roll_back(&server, &first);
    let kinds =
        |all: Vec<Value>| all.iter().map(|one| one["kind"].as_str().unwrap().to_owned()).collect::<Vec<_>>();
    assert_eq!(kinds(listed(&server, &sandbox)), ["before_rollback", "before_rollback", "manual"]);
    // What undoes a rollback gives way to no snapshot that a request makes.
    assert_eq!(refused(&server, "POST", &format!("{sandbox}/snapshots"), "{}", 429), "limit_exceeded");
    for one in listed(&server, &sandbox).iter().filter(|one| one["kind"] == "before_rollback") {
        let path = format!("{sandbox}/snapshots/{}", one["id"].as_str().unwrap());
        assert_eq!(server.ask("DELETE", &path, "").status, 204);
    }
    keep(&server, &sandbox, "b");
    let last = keep(&server, &sandbox, "c");
    assert_eq!(kinds(listed(&server, &sandbox)), ["manual", "manual", "manual"]);
    assert_eq!(refused(&server, "POST", &format!("{first}/rollback"), "", 429), "limit_exceeded");
    assert_eq!(server.ask("PATCH", &sandbox, r#"{"auto_snapshot":"before_exec"}"#).status, 200);
    let refused = server.ask("POST", &format!("{sandbox}/exec"), r#"{"command":"true"}"#);
    let text = String::from_utf8_lossy(&refused.body).into_owned();
    assert!(refused.status == 429 && text.contains("delete one first, or turn auto_snapshot off"), "{text}");
    assert_eq!(server.ask("DELETE", &last, "").status, 204);
    keep(&server, &sandbox, "d");
}

#[test]
fn another_owner_sees_and_changes_nothing() {
    let server = Server::start();
    let sandbox = server.create("{}");
    let first = keep(&server, &sandbox, "mine");
    let made = server.ask("POST", "/api/v1/keys", r#"{"name":"b","owner":"bob","scope":"user"}"#).json();
    let bob = made["key"].as_str().unwrap();
    let own = server.ask_as(bob, "POST", "/api/v1/sandboxes", "{}").json();
    let own = format!("/api/v1/sandboxes/{}", own["id"].as_str().unwrap());
    let id = first.rsplit('/').next().unwrap();
    for (method, path, body) in [
        ("GET", format!("{sandbox}/snapshots"), ""),
        ("POST", format!("{sandbox}/snapshots"), "{}"),
        ("GET", first.clone(), ""),
        ("PATCH", first.clone(), r#"{"label":"his"}"#),
        ("GET", format!("{first}/diff"), ""),
        ("POST", format!("{first}/rollback"), ""),
        ("POST", format!("{sandbox}/fork"), "{}"),
        ("DELETE", first.clone(), ""),
        // Of his own sandbox, but not his snapshot.
        ("GET", format!("{own}/snapshots/{id}"), ""),
        ("POST", format!("{own}/snapshots/{id}/rollback"), ""),
        ("DELETE", format!("{own}/snapshots/{id}"), ""),
    ] {
        assert_eq!(server.ask_as(bob, method, &path, body).status, 404, "{method} {path}");
    }
    let fork = json!({ "snapshot": id }).to_string();
    assert_eq!(server.ask_as(bob, "POST", &format!("{own}/fork"), &fork).status, 404);
    assert_eq!(server.ask("GET", &first, "").json()["label"], "mine");
}

#[test]
fn files_in_memory_have_no_snapshots() {
    let server = Server::start();
    let sandbox = server.create(r#"{"profile":"tools"}"#);
    for path in ["snapshots", "fork"] {
        let answer = server.ask("POST", &format!("{sandbox}/{path}"), "{}");
        let text = String::from_utf8_lossy(&answer.body);
        assert!(answer.status == 501 && text.contains("in memory"), "{path}: {text}");
    }
    let body = r#"{"profile":"tools","auto_snapshot":"before_exec"}"#;
    let answer = server.ask("POST", "/api/v1/sandboxes", body);
    let text = String::from_utf8_lossy(&answer.body);
    assert!(answer.status == 422 && text.contains("auto_snapshot") && text.contains("in memory"), "{text}");
}

#[test]
fn a_file_of_the_image_that_is_removed_is_deleted_in_a_diff() {
    for server in both(&[]) {
        let sandbox = server.create(r#"{"profile":"root"}"#);
        let first = keep(&server, &sandbox, "first");
        assert_eq!(server.exec(&sandbox, "rm /etc/passwd")["exit_code"], 0);
        let changed = server.ask("GET", &format!("{first}/diff"), "").json();
        let wanted = json!([{ "path": "/etc/passwd", "action": "deleted", "size_bytes": 0 }]);
        assert_eq!(changed["files"], wanted, "{changed}");
    }
}

#[test]
fn a_diff_names_paths_as_the_sandbox_has_them() {
    for server in both(&[]) {
        for (body, change, expected) in [
            (r#"{"filesystem":{"read_write":["/srv/out"]}}"#, "echo 1 > /srv/out/f", "/srv/out/f"),
            (r#"{"profile":"root"}"#, "echo 1 > /etc/made", "/etc/made"),
            (r#"{"profile":"root"}"#, "echo 1 > /usr/made", "/usr/made"),
        ] {
            let sandbox = server.create(body);
            let first = keep(&server, &sandbox, "first");
            assert_eq!(server.exec(&sandbox, change)["exit_code"], 0);
            let changed = server.ask("GET", &format!("{first}/diff"), "").json();
            let paths: Vec<&str> = changed["files"]
                .as_array()
                .unwrap()
                .iter()
                .map(|file| file["path"].as_str().unwrap())
                .collect();
            assert_eq!((paths, &changed["truncated"]), (vec![expected], &json!(false)));
            assert_eq!(server.ask("DELETE", &sandbox, "").status / 100, 2);
        }
    }
}
