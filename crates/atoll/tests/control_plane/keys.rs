//! Keys: who may see and do what.

use super::{KEY, ROOT, SETTINGS, Server, eventually, http, refused};
use serde_json::json;

#[test]
fn without_a_key_there_is_health_and_the_description_alone() {
    let server = Server::start();
    for path in ["/health", "/docs", "/openapi.json"] {
        assert_eq!(http::request(server.address, "GET", path, &[], b"").unwrap().status, 200, "{path}");
    }
    let paths = [ROOT, "/api/v1/keys", "/api/v1/audit", "/api/v1/events", SETTINGS, "/mcp"];
    for path in paths {
        let answer = server.ask_as("wrong", "GET", path, "");
        assert_eq!((answer.status, answer.header("www-authenticate")), (401, Some("Bearer")), "{path}");
    }
    let other = http::request(server.address, "GET", ROOT, &[("X-API-Key", KEY)], b"").unwrap();
    assert_eq!(other.status, 200);
}

#[test]
fn routes_ask_for_the_scope_and_hide_what_is_anothers() {
    let server = Server::start();
    let ann = server.key(r#"{"name":"a","owner":"ann","scope":"user"}"#);
    let bob = server.key(r#"{"name":"b","owner":"bob"}"#);
    let reader = server.key(r#"{"name":"r","owner":"ann","scope":"read_only"}"#);
    let path = server.create_as(&ann, "{}");
    let body = r#"{"command":"sleep 1000","background":true}"#;
    let exec = server.ask_as(&ann, "POST", &format!("{path}/exec"), body).json();
    let exec = format!("/execs/{}", exec["exec_id"].as_str().unwrap());
    let below = |tail: &str| format!("{exec}{tail}");
    for (method, tail, body, reads) in [
        ("GET", String::new(), "", true),
        ("GET", "/files".into(), "", true),
        ("GET", "/activity".into(), "", true),
        ("GET", "/execs".into(), "", true),
        ("GET", below(""), "", true),
        ("POST", "/exec".into(), r#"{"command":"true"}"#, false),
        ("PUT", "/files/x".into(), "x", false),
        ("POST", "/fs/mkdir".into(), r#"{"path":"x"}"#, false),
        ("PATCH", String::new(), r#"{"labels":{}}"#, false),
        ("POST", below("/stdin"), "x", false),
        ("POST", below("/signal"), r#"{"signal":"TERM"}"#, false),
        ("POST", below("/kill"), "", false),
        ("POST", "/stop".into(), "", false),
        ("POST", "/resume".into(), "", false),
        ("DELETE", String::new(), "", false),
    ] {
        let target = format!("{path}{tail}");
        assert_eq!(server.ask_as(&bob, method, &target, body).status, 404, "bob: {method} {tail}");
        let wanted = if reads { 200 } else { 403 };
        assert_eq!(server.ask_as(&reader, method, &target, body).status, wanted, "reader: {method} {tail}");
    }
    assert_eq!(server.get(&path)["status"], "running", "and an admin sees it");
    assert_eq!(server.ask_as(&bob, "GET", ROOT, "").json()["total"], 0);
    assert_eq!(server.ask_as(&ann, "DELETE", &path, "").status, 204);
}

#[test]
fn the_machines_routes_are_the_admins() {
    let server = Server::start();
    let ann = server.key(r#"{"name":"a","owner":"ann","tier":"unrestricted"}"#);
    for (method, path, body) in [
        ("GET", SETTINGS, ""),
        ("PATCH", SETTINGS, r#"{"default_max_per_user":9}"#),
        ("POST", "/api/v1/keys", r#"{"name":"x","scope":"admin"}"#),
        ("POST", "/api/v1/keys", r#"{"name":"x","owner":"bob"}"#),
    ] {
        assert_eq!(
            refused(&server.ask_as(&ann, method, path, body), 403).0,
            "permission_denied",
            "{method} {path}"
        );
    }
    assert_eq!(server.get(SETTINGS)["default_max_per_user"], 3);
}

#[test]
fn a_key_is_shown_once_and_ends_when_it_is_revoked_or_expires() {
    let server = Server::start();
    let made = server.ask("POST", "/api/v1/keys", r#"{"name":"ci","owner":"ann"}"#).json();
    let (secret, id) = (made["key"].as_str().unwrap(), made["id"].as_str().unwrap());
    let listed = server.get("/api/v1/keys");
    assert_eq!(listed["items"].as_array().unwrap().len(), 2);
    assert!(!listed.to_string().contains(secret));
    assert_eq!(server.ask_as(secret, "GET", ROOT, "").status, 200);
    assert_eq!(server.ask("DELETE", &format!("/api/v1/keys/{id}"), "").status, 200);
    assert_eq!(server.ask_as(secret, "GET", ROOT, "").status, 401);
    let short = server.key(r#"{"name":"s","expires_in_seconds":1}"#);
    eventually("its end", || server.ask_as(&short, "GET", ROOT, "").status == 401);
}

#[test]
fn an_owner_has_a_thousand_keys_and_lists_them_page_by_page() {
    let server = Server::start();
    let ann = server.key(r#"{"name":"0","owner":"ann"}"#);
    for n in 1..1000 {
        assert_eq!(server.ask_as(&ann, "POST", "/api/v1/keys", &format!(r#"{{"name":"{n}"}}"#)).status, 201);
    }
    let full = server.ask_as(&ann, "POST", "/api/v1/keys", r#"{"name":"more"}"#);
    let (code, details) = refused(&full, 429);
    assert_eq!(code, "limit_exceeded");
    assert_eq!((&details["limit"], &details["allowed"]), (&json!("keys"), &json!(1000)));
    // Another owner has room, an admin makes none for one that has not, and a revoked key makes room.
    assert_eq!(
        refused(&server.ask("POST", "/api/v1/keys", r#"{"name":"x","owner":"ann"}"#), 429).0,
        "limit_exceeded"
    );
    server.key(r#"{"name":"b","owner":"bob"}"#);
    let page = |query: &str| server.ask_as(&ann, "GET", &format!("/api/v1/keys{query}"), "").json();
    let names = |page: &serde_json::Value| -> Vec<String> {
        let items = page["items"].as_array().unwrap();
        items.iter().map(|key| key["name"].as_str().unwrap().to_owned()).collect()
    };
    let first = page("");
    assert_eq!((&first["total"], &first["page"], &first["page_size"]), (&json!(1000), &json!(1), &json!(20)));
    assert_eq!(names(&first).len(), 20);
    let mut all: Vec<u32> = (1..=5)
        .flat_map(|n| names(&page(&format!("?page={n}&page_size=200"))))
        .map(|n| n.parse().unwrap())
        .collect();
    all.sort_unstable();
    assert_eq!(all, (0..1000).collect::<Vec<u32>>());
    assert!(names(&page("?page=6&page_size=200")).is_empty());
    for wrong in ["?page=0", "?page_size=0", "?page_size=1001", "?after=x"] {
        assert_eq!(server.ask_as(&ann, "GET", &format!("/api/v1/keys{wrong}"), "").status, 422, "{wrong}");
    }
    let one = first["items"][0]["id"].as_str().unwrap();
    assert_eq!(server.ask_as(&ann, "DELETE", &format!("/api/v1/keys/{one}"), "").status, 200);
    assert_eq!(server.ask_as(&ann, "POST", "/api/v1/keys", r#"{"name":"again"}"#).status, 201);
}

#[test]
fn an_environment_is_returned_by_nothing() {
    let server = Server::start();
    let secret = "hunter2-in-the-environment";
    let path = server.create(&json!({ "env_vars": { "TOKEN": secret } }).to_string());
    assert_eq!(server.says(&path, "echo $TOKEN | rev"), secret.chars().rev().collect::<String>());
    for path in [path.as_str(), ROOT, "/api/v1/audit", "/api/v1/events"] {
        assert!(!server.get(path).to_string().contains(secret), "{path}");
    }
}
