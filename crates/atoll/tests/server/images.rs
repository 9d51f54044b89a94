//! Images: the catalogue, and what keys may do with it.

use super::fixture::Server;
use crate::engine::fixture::eventually;
use serde_json::{Value, json};

const ROOT: &str = "/api/v1/sandbox-images";
const ID: &str = "3f2a11bc-0000-4000-8000-000000000001";

/// A server whose catalogue has an image `team/app:1`, whose files are not there.
pub(crate) fn with_record(arguments: &[&str]) -> Server {
    let mut server = Server::start_with(arguments);
    server.kill();
    add_record(&server, false);
    server.restart();
    server
}

fn add_record(server: &Server, deleting: bool) {
    let details = json!({"display_name": null, "description": null, "size_bytes": 7, "origin": "import",
        "source": "oci_layout", "config": {"user": "app", "working_directory": "/app", "ids": [1001, 1001]},
        "defaults": {"memory_mb": 300}});
    let id = ID.replace('-', "");
    let digest = format!("sha256:{}", "a".repeat(64));
    server.tamper(&format!(
        "INSERT INTO images VALUES (x'{id}', 'team/app', '{digest}', 'native', 0, '{details}', 1, NULL, {})",
        u8::from(deleting)
    ));
    server.tamper(&format!("INSERT INTO image_tags VALUES ('team/app', '1', x'{id}', 0)"));
}

fn key(server: &Server) -> String {
    server.key_of("ann", "user")
}

fn image(server: &Server, name: &str) -> (u16, Value) {
    let answer = server.ask("GET", &format!("{ROOT}/{}", name.replace('/', "%2F")), "");
    (answer.status, answer.json())
}

fn patched(server: &Server, body: &Value) -> Value {
    let answer = server.ask("PATCH", &format!("{ROOT}/{ID}"), &body.to_string());
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()
}

fn events(server: &Server, kind: &str) -> Vec<Value> {
    let all = server.ask("GET", &format!("/api/v1/events?after=0&kind={kind}"), "").json();
    all["events"].as_array().unwrap().clone()
}

#[test]
fn host_is_always_there_and_stays_as_it_is() {
    let server = Server::start();
    let ann = key(&server);
    let all = server.ask_as(&ann, "GET", ROOT, "").json();
    let host = &all["items"][0];
    assert_eq!((&all["total"], &host["id"], &host["status"]), (&json!(1), &json!("host"), &json!("ready")));
    assert_eq!(
        (&host["approved"], &host["active"], &host["is_builtin"]),
        (&json!(true), &json!(true), &json!(true))
    );
    let aliases = host["aliases"].as_array().unwrap();
    assert!(aliases.contains(&json!("mcpgateway/sandbox-runtime:latest")), "{aliases:?}");
    assert_eq!(image(&server, "mcpgateway/sandbox-runtime:latest").1["id"], "host");
    assert_eq!(image(&server, "nosuch").0, 404);
    for (method, body) in [("PATCH", r#"{"approved":false}"#), ("DELETE", "")] {
        assert_eq!(server.ask(method, &format!("{ROOT}/host"), body).status, 409, "{method}");
        assert_eq!(server.ask_as(&ann, method, &format!("{ROOT}/host"), body).status, 403, "{method}");
    }
}

#[test]
fn an_image_is_found_changed_approved_and_removed() {
    // Of other images nothing is kept ready.
    let pool = ["--set", "warm_pool_enabled=true", "--set", "pool.min=0", "--set", "pool.max=0"];
    let server = with_record(&pool);
    let digest = format!("sha256:{}", "a".repeat(64));
    for name in ["team/app:1", ID, &ID.replace('-', ""), &digest, &format!("team/app@{digest}")] {
        let (status, found) = image(&server, name);
        assert_eq!(
            (status, &found["id"], &found["tags"]),
            (200, &json!(ID), &json!(["1"])),
            "{name}: {found}"
        );
    }
    assert_eq!((image(&server, "team/app").0, image(&server, "app:1").0), (404, 404));
    let (_, found) = image(&server, ID);
    assert_eq!(
        (&found["memory_mb"], &found["user"], &found["used_by"]),
        (&json!(300), &json!("app"), &json!([]))
    );
    let body = json!({"name": "app", "tags": ["latest", "2"], "display_name": "An app", "description": "For tests",
        "cpu_cores": 0.5, "memory_mb": null, "approved": true, "warm_pool_min": 1, "warm_pool_max": 2});
    let changed = patched(&server, &body);
    for (field, value) in body.as_object().unwrap() {
        assert_eq!(changed[field], *value, "{field}");
    }
    assert_eq!((image(&server, "app").1, image(&server, "team/app:1").0), (changed, 404));
    let same = patched(&server, &json!({"display_name": null, "approved": true}));
    assert_eq!((&same["display_name"], &same["description"]), (&json!("app:latest"), &json!("For tests")));
    let approved = events(&server, "image.approved");
    assert_eq!((approved.len(), &approved[0]["data"]["name"]), (1, &json!("app")), "{approved:?}");
    // The pool knows it by the names that people know.
    let pool = server.ask("GET", "/api/v1/settings/sandbox/pool-summary", "").json();
    let entry = pool["per_image"].as_array().unwrap().iter().find(|entry| entry["image_id"] == ID).cloned();
    let entry = entry.unwrap_or_else(|| panic!("{pool}"));
    assert_eq!((&entry["image_name"], &entry["display_name"]), (&json!("app:latest"), &json!("app:latest")));
    for (body, field) in [
        (json!({"name": "host"}), "name"),
        (json!({"name": "No Such"}), "name"),
        (json!({"tags": ["a b"]}), "tags"),
        (json!({"tags": ["a", "a"]}), "tags"),
        (json!({"memory_mb": 1}), "memory_mb"),
        (json!({"cpu_cores": 0}), "cpu_cores"),
        (json!({"warm_pool_min": 9}), "warm_pool_max"),
        (json!({"force": true}), "force"),
    ] {
        let answer = server.ask("PATCH", &format!("{ROOT}/app"), &body.to_string());
        let loc = answer.json()["detail"][0]["loc"].clone();
        assert_eq!((answer.status, &loc[1]), (422, &json!(field)), "{body} {answer:?}");
    }
    assert_eq!(server.ask("DELETE", &format!("{ROOT}/app"), "").status, 204);
    assert_eq!((image(&server, ID).0, events(&server, "image.removed").len()), (404, 1));
    let settings = server.ask("GET", "/api/v1/settings/sandbox", "").json();
    assert_eq!(settings["atoll"]["pool"]["images"], json!({}));
    for kind in ["image.patch", "image.delete"] {
        let rows = server.ask("GET", &format!("/api/v1/audit?kind={kind}"), "").json();
        assert!(rows["entries"][0]["ended"]["outcome"].is_string(), "{rows}");
    }
}

#[test]
fn ordinary_keys_use_what_an_admin_lets_them() {
    let server = with_record(&[]);
    let ann = key(&server);
    let set = |body: Value| {
        let answer = server.ask("PATCH", "/api/v1/settings/sandbox", &body.to_string());
        assert_eq!(answer.status, 200, "{answer:?}");
    };
    let create = |image: &str| {
        let body = json!({"image": image, "disk_mb": 64}).to_string();
        let answer = server.ask_as(&ann, "POST", "/api/v1/sandboxes", &body);
        (answer.status, String::from_utf8_lossy(&answer.body).into_owned())
    };
    let image = || server.ask_as(&ann, "GET", &format!("{ROOT}/{ID}"), "").json();
    let active = || image()["active"].clone();
    set(json!({"atoll": {"images": {"require_approved": true}}}));
    let (status, text) = create("team/app:1");
    assert!(status == 403 && text.contains("not approved"), "{status} {text}");
    assert_eq!((create("host").0, active()), (201, json!(false)));
    let refusal = image()["refusal"].to_string();
    let named = text.contains(refusal.trim_matches('"'));
    assert!(named && refusal.contains("is not approved"), "{refusal} {text}");
    let own = server.ask_as(&ann, "GET", "/api/v1/sandboxes", "").json()["items"][0]["id"].clone();
    let fork = || {
        let path = format!("/api/v1/sandboxes/{}/fork", own.as_str().unwrap());
        server.ask_as(&ann, "POST", &path, "{}")
    };
    assert_eq!(fork().status, 201);
    patched(&server, &json!({"approved": true}));
    assert_eq!((active(), image()["refusal"].clone()), (json!(true), json!(null)));
    set(json!({"db_active_images": ["team/app:1"]}));
    let (status, text) = create("host");
    assert!(status == 403 && text.contains("db_active_images"), "{status} {text}");
    let forked = fork();
    assert_eq!(forked.status, 403, "a fork is bound as a create is: {forked:?}");
    assert_eq!(active(), true);
    // An admin is bound by neither, and an image that no key knows is named.
    assert_eq!(server.ask("POST", "/api/v1/sandboxes", r#"{"disk_mb":64}"#).status, 201);
    let (status, text) = create("team/app:2");
    assert!(status == 422 && text.contains("team/app:1"), "{status} {text}");
}

#[test]
fn what_no_sandbox_uses_is_removed_in_time_and_what_was_begun_is_finished() {
    let quick = ["--set", "lifecycle.interval_seconds=1", "--set", "lifecycle.settle_seconds=0"];
    let mut server = with_record(&quick);
    assert_eq!(image(&server, ID).0, 200);
    server.ask("PATCH", "/api/v1/settings/sandbox", r#"{"atoll":{"images":{"unused_retention_seconds":1}}}"#);
    eventually("its end", || image(&server, ID).0 == 404);
    let rows = server.ask("GET", "/api/v1/audit?kind=image.delete", "").json();
    assert_eq!(rows["entries"][0]["extra"]["reason"], "unused for 1 seconds", "{rows}");
    server.kill();
    add_record(&server, true);
    server.restart();
    eventually("the end of what was begun", || image(&server, ID).0 == 404);
}

#[test]
fn the_default_image_stays_and_an_id_may_be_cut() {
    let server = with_record(&["--set", "db_default_image=team/app:1"]);
    let (status, found) = image(&server, &ID[..8]);
    assert_eq!((status, &found["id"]), (200, &json!(ID)));
    let answer = server.ask("DELETE", &format!("{ROOT}/{ID}"), "");
    assert_eq!(answer.status, 409, "{answer:?}");
    assert!(answer.json()["error"]["message"].as_str().unwrap().contains("db_default_image"), "{answer:?}");
    assert_eq!(image(&server, "team/app:1").0, 200);
}
