//! Whatever is sent about kernels: a clear error that names the field.

use super::{Server, start};
use serde_json::{Value, json};

#[test]
fn wrong_fields_are_named() {
    let server = Server::start();
    let sandbox = server.create("{}");
    let kernel = start(&server, &sandbox, &json!({ "language": "bash" }));
    let long = "x".repeat(101);
    for (below, body, field) in [
        ("kernels", json!({ "language": "cobol" }), "language"),
        ("kernels", json!({ "language": 1 }), "language"),
        ("kernels", json!({ "env_vars": { "A=B": "c" } }), "env_vars"),
        ("kernels", json!({ "working_directory": "a\u{0}b" }), "working_directory"),
        ("kernels", json!({ "nosuch": 1 }), "nosuch"),
        ("run", json!({}), "code"),
        ("run", json!({ "code": "" }), "code"),
        ("run", json!({ "code": "a\u{0}b" }), "code"),
        ("run", json!({ "code": ["1"] }), "code"),
        ("run", json!({ "code": "1", "timeout": 0 }), "timeout"),
        ("run", json!({ "code": "1", "timeout": 100_000 }), "timeout"),
        ("run", json!({ "code": "1", "timeout": -1.5 }), "timeout"),
        ("run", json!({ "code": "1", "language": "basic" }), "language"),
        ("dependencies", json!({}), "packages"),
        ("dependencies", json!({ "packages": { "-r": "" } }), "packages"),
        ("dependencies", json!({ "packages": { "a;id": "" } }), "packages"),
        ("dependencies", json!({ "packages": { "a": "1; id" } }), "packages"),
        ("dependencies", json!({ "packages": ["a"] }), "packages"),
        ("dependencies", json!({ "language": "bash", "packages": { "a": "" } }), "language"),
        ("dependencies", json!({ "packages": { "six": "" }, "timeout": 0 }), "timeout"),
    ] {
        let answer = server.ask("POST", &format!("{sandbox}/{below}"), &body.to_string());
        let told = (answer.status, answer.json()["detail"][0]["loc"][1].clone());
        assert_eq!(
            told,
            (422, Value::from(field)),
            "{below} {body}: {}",
            String::from_utf8_lossy(&answer.body)
        );
    }
    let name = server.ask("POST", &format!("{kernel}/checkpoints"), &json!({ "name": long }).to_string());
    assert_eq!((name.status, name.json()["detail"][0]["loc"][1].as_str()), (422, Some("name")));
    for body in [r#"{"dependencies":{"python":{"a b":""}}}"#, r#"{"dependencies":{"bash":{"a":""}}}"#] {
        let answer = server.ask("POST", "/api/v1/sandboxes", body);
        assert_eq!(
            (answer.status, answer.json()["detail"][0]["loc"][1].as_str()),
            (422, Some("dependencies"))
        );
    }
    let large = json!({ "code": "x".repeat((1 << 20) + 1) }).to_string();
    assert_eq!(server.ask("POST", &format!("{sandbox}/run"), &large).status, 413);
    assert_eq!(server.ask("GET", "/api/v1/sandboxes", "").json()["total"], 1);
}

#[test]
fn unknown_kernels_and_checkpoints_do_not_exist() {
    let server = Server::start();
    let sandbox = server.create("{}");
    let nobody = "0".repeat(32);
    for before in [true, false] {
        for id in [nobody.as_str(), "not-an-id", "%00"] {
            for (method, below) in [
                ("GET", format!("/kernels/{id}")),
                ("DELETE", format!("/kernels/{id}")),
                ("POST", format!("/kernels/{id}/execute")),
                ("POST", format!("/kernels/{id}/interrupt")),
                ("POST", format!("/kernels/{id}/restart")),
                ("POST", format!("/kernels/{id}/fork")),
                ("GET", format!("/kernels/{id}/checkpoints")),
                ("POST", format!("/kernels/{id}/checkpoints")),
                ("POST", format!("/kernels/{id}/checkpoints/{nobody}/rollback")),
            ] {
                let body = if below.ends_with("execute") { r#"{"code":"1"}"# } else { "" };
                let answer = server.ask(method, &format!("{sandbox}{below}"), body);
                assert_eq!(answer.status, 404, "{before} {method} {below}: {answer:?}");
            }
        }
        // Once without a kernel manager, once with one.
        start(&server, &sandbox, &json!({ "language": "bash" }));
    }
}

#[test]
fn a_tier_bounds_how_long_a_cell_may_run_and_a_key_that_looks_may_not_run_it() {
    let server = Server::start();
    let key = |body: Value| {
        let made = server.ask("POST", "/api/v1/keys", &body.to_string());
        made.json()["key"].as_str().unwrap_or_else(|| panic!("{made:?}")).to_owned()
    };
    let small = key(json!({ "name": "a", "owner": "ann", "tier": "restricted" }));
    let looks = key(json!({ "name": "b", "owner": "ann", "scope": "read_only" }));
    let made = server.ask_as(&small, "POST", "/api/v1/sandboxes", "{}").json();
    let path = format!("/api/v1/sandboxes/{}", made["id"].as_str().unwrap());
    let run = |key: &str, body: &str| server.ask_as(key, "POST", &format!("{path}/run"), body);
    let over = run(&small, r#"{"code":"1","language":"bash","timeout":121}"#);
    assert_eq!(over.status, 403, "{over:?}");
    assert_eq!(run(&small, r#"{"code":"echo 1","language":"bash","timeout":120}"#).status, 200);
    assert_eq!(run(&looks, r#"{"code":"1"}"#).status, 403);
    assert_eq!(server.ask_as(&looks, "GET", &format!("{path}/kernels"), "").status, 200);
}

#[test]
fn a_missing_interpreter_says_which_and_how_to_get_it() {
    let server = Server::start();
    // Without a path nothing is found.
    let sandbox = server.create(r#"{"env_vars":{"PATH":"/nowhere"}}"#);
    for (language, package) in [("python", "python3"), ("node", "nodejs"), ("r", "r-base-core")] {
        let body = json!({ "code": "1", "language": language }).to_string();
        let answer = server.ask("POST", &format!("{sandbox}/run"), &body);
        assert_eq!(answer.status, 422, "{}", String::from_utf8_lossy(&answer.body));
        let detail = &answer.json()["detail"][0];
        assert_eq!(detail["loc"][1], "language");
        assert!(detail["msg"].as_str().unwrap().contains(package), "{detail}");
    }
}
