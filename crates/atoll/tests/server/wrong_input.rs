//! Whatever is sent: a clear error that names the field, and nothing half-made.

use super::{
    fixture::{KEY, Server},
    http,
};

#[test]
fn wrong_fields_are_named_and_nothing_is_made() {
    let server = Server::start();
    let cases = [
        (r#"{"memory_mb":1}"#, "memory_mb"),
        (r#"{"memory_mb":-5}"#, "memory_mb"),
        (r#"{"memory_mb":18446744073709551615}"#, "memory_mb"),
        (r#"{"memory_mb":99999999999999999999999}"#, "memory_mb"),
        (r#"{"memory_mb":"512"}"#, "memory_mb"),
        (r#"{"cpu_cores":0}"#, "cpu_cores"),
        (r#"{"cpu_cores":1e308}"#, "cpu_cores"),
        (r#"{"disk_mb":0}"#, "disk_mb"),
        (r#"{"idle_timeout_seconds":0}"#, "idle_timeout_seconds"),
        (r#"{"image":"no/such:image"}"#, "image"),
        (r#"{"image":"../../etc"}"#, "image"),
        (r#"{"image":""}"#, "image"),
        (r#"{"session_key":"a\u0000b"}"#, "session_key"),
        (r#"{"session_key":""}"#, "session_key"),
        (r#"{"labels":{"a":"\u001b[2J"}}"#, "labels"),
        (r#"{"env_vars":{"A=B":"c"}}"#, "env_vars"),
        (r#"{"env_vars":{"A":"\u0000"}}"#, "env_vars"),
        (r#"{"env_vars":{"A":1}}"#, "env_vars.A"),
        (r#"{"network_enabled":1}"#, "network_enabled"),
        (r#"{"nosuch":1}"#, "nosuch"),
        (r#"{"image":"#, "image"),
        (r#"[]"#, "body"),
        (r#"{} trailing"#, "body"),
        ("\u{1}", "body"),
    ];
    for (body, field) in cases {
        let answer = server.ask("POST", "/api/v1/sandboxes", body);
        assert_eq!(answer.status, 422, "{body}: {}", String::from_utf8_lossy(&answer.body));
        let detail = &answer.json()["detail"][0];
        assert_eq!(detail["loc"][1], field, "{body}: {detail}");
        assert!(detail["msg"].as_str().is_some_and(|m| !m.is_empty()));
    }
    assert_eq!(server.ask("GET", "/api/v1/sandboxes", "").json()["total"], 0);
}

#[test]
fn unknown_things_do_not_exist() {
    let server = Server::start();
    for path in [
        "/api/v1/sandboxes/00000000-0000-0000-0000-000000000000",
        "/api/v1/sandboxes/not-an-id",
        "/api/v1/sandboxes/%00",
        "/api/v1/sandboxes/00000000-0000-0000-0000-000000000000/exec",
        "/api/v1/nothing",
        "/",
    ] {
        let method = if path.ends_with("exec") { "POST" } else { "GET" };
        let answer = server.ask(method, path, r#"{"command":"true"}"#);
        assert_eq!(
            (answer.status, answer.json()["error"]["code"].as_str()),
            (404, Some("not_found")),
            "{path}"
        );
    }
    assert_eq!(server.ask("PUT", "/api/v1/sandboxes", "").status, 405);
}

#[test]
fn exec_is_as_strict() {
    let server = Server::start();
    let path = server.create("{}");
    for (body, field) in [
        (r#"{}"#, "command"),
        (r#"{"command":"  "}"#, "command"),
        (r#"{"command":"a\u0000b"}"#, "command"),
        (r#"{"command":"a","arguments":["b"]}"#, "command"),
        (r#"{"arguments":[]}"#, "command"),
        (r#"{"command":"a","timeout_seconds":0}"#, "timeout_seconds"),
        (r#"{"command":"a","timeout_seconds":100000}"#, "timeout_seconds"),
        (r#"{"command":"a","timeout_seconds":1.5}"#, "timeout_seconds"),
    ] {
        let answer = server.ask("POST", &format!("{path}/exec"), body);
        assert_eq!(
            (answer.status, answer.json()["detail"][0]["loc"][1].as_str()),
            (422, Some(field)),
            "{body}"
        );
    }
    let user = server.ask("POST", &format!("{path}/exec"), r#"{"command":"id","user":"root"}"#);
    assert_eq!(user.status, 403, "{user:?}");
}

#[test]
fn bodies_and_heads_have_an_end() {
    let server = Server::start();
    let huge = format!(r#"{{"image":"{}"}}"#, "x".repeat(5 << 20));
    assert_eq!(server.ask("POST", "/api/v1/sandboxes", &huge).status, 413);
    let long = "x".repeat(1 << 20);
    let headed = http::request(server.address, "GET", "/health", &[("X-Long", &long)], b"");
    assert!(headed.is_err() || headed.is_ok_and(|a| matches!(a.status, 400 | 431)));
    for bytes in [&b"\x00\x01\x02\r\n\r\n"[..], b"GET / HTTP/9.9\r\n\r\n", b"GET\r\n\r\n"] {
        let answer = http::send(server.address, bytes);
        assert!(answer.is_err() || answer.is_ok_and(|a| a.status == 400));
    }
    let key = http::request(
        server.address,
        "POST",
        "/api/v1/sandboxes",
        &[("X-API-Key", KEY), ("Idempotency-Key", "a b")],
        b"{}",
    );
    assert_eq!(key.unwrap().json()["detail"][0]["loc"][1], "Idempotency-Key");
    assert_eq!(
        http::request(server.address, "GET", "/health", &[], b"").unwrap().status,
        200,
        "and the server lives"
    );
}

#[test]
fn a_refused_upload_hears_why() {
    let server = Server::start();
    let path = "/api/v1/sandboxes/00000000-0000-4000-8000-000000000000/files/x";
    let headers = [("Authorization", "Bearer bootstrap-key-of-a-test")];
    let answer = http::request(server.address, "PUT", path, &headers, &vec![0; 32 << 20]).unwrap();
    assert_eq!(answer.status, 404, "{answer:?}");
}
