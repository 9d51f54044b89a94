//! Whatever is sent: a clear error that names the field, and nothing half-made.

use super::{
    fixture::{KEY, Server},
    http,
};
use serde_json::json;

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
        (r#"{"env_vars":{"A":1}}"#, "A"),
        (r#"{"dependencies":{"python":{},"cobol":{}}}"#, "cobol"),
        (r#"{"network_enabled":1}"#, "network_enabled"),
        (r#"{"nosuch":1}"#, "nosuch"),
        (r#"{"image":"#, "body"),
        (r#"[]"#, "body"),
        (r#"{} trailing"#, "body"),
        ("\u{1}", "body"),
    ];
    for (body, field) in cases {
        let answer = server.ask("POST", "/api/v1/sandboxes", body);
        assert_eq!(answer.status, 422, "{body}: {}", String::from_utf8_lossy(&answer.body));
        let detail = &answer.json()["detail"][0];
        assert_eq!(detail["loc"].as_array().unwrap().last().unwrap(), field, "{body}: {detail}");
        assert!(detail["msg"].as_str().is_some_and(|m| !m.is_empty()));
    }
    assert_eq!(server.ask("GET", "/api/v1/sandboxes", "").json()["total"], 0);
    for (body, loc, msg) in [
        (r#"{"memory_mb":"x"}"#, json!(["body", "memory_mb"]), "memory_mb must be a whole number, 0 or more"),
        (r#"{"labels":{"a":1}}"#, json!(["body", "labels", "a"]), "labels.a must be a string"),
        (
            r#"{"network_enabled":1}"#,
            json!(["body", "network_enabled"]),
            "network_enabled must be true or false",
        ),
        (r#"{"labels":[]}"#, json!(["body", "labels"]), "labels must be an object"),
        (r#"{"egress":[]}"#, json!(["body", "egress"]), "egress must be an object"),
        (
            r#"{"egress":{"limits":[1]}}"#,
            json!(["body", "egress", "limits"]),
            "egress.limits must be an object",
        ),
        (
            r#"{"egress":{"allow":[["example.com"]]}}"#,
            json!(["body", "egress", "allow", 0]),
            "an entry must be a string, or an object with `to`",
        ),
        (r#""x""#, json!(["body"]), "the body must be an object"),
        ("{nonsense", json!(["body"]), "the body is not JSON (line 1 column 2)"),
    ] {
        let detail = server.ask("POST", "/api/v1/sandboxes", body).json()["detail"][0].clone();
        assert_eq!((&detail["loc"], &detail["msg"]), (&loc, &msg.into()), "{body}");
    }
    // What admins set.
    for (path, body, field) in [
        ("/api/v1/pool", r#"{"images":{"host":[1,2]}}"#, "host"),
        ("/api/v1/settings/sandbox", r#"{"atoll":{"pool":{"images":{"host":[1,2]}}}}"#, "images"),
        ("/api/v1/settings/sandbox", r#"{"atoll":{"plans":{"pro":[1]}}}"#, "plans"),
    ] {
        let answer = server.ask("PATCH", path, body);
        assert_eq!(answer.status, 422, "{path} {body}: {}", String::from_utf8_lossy(&answer.body));
        let loc = answer.json()["detail"][0]["loc"].clone();
        assert_eq!(loc.as_array().unwrap().last().unwrap(), field, "{path} {body}: {loc}");
    }
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
    ] {
        let method = if path.ends_with("exec") { "POST" } else { "GET" };
        let answer = server.ask(method, path, r#"{"command":"true"}"#);
        assert_eq!(
            (answer.status, answer.json()["error"]["code"].as_str()),
            (404, Some("not_found")),
            "{path}"
        );
    }
    let wrong = server.ask("PUT", "/api/v1/sandboxes", "");
    assert_eq!((wrong.status, wrong.json()["error"]["code"].as_str()), (405, Some("unsupported")));
    assert!(wrong.header("allow").is_some_and(|all| all.contains("POST")), "{wrong:?}");
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
        (r#"{"command":"a","timeout_seconds":-1.5}"#, "timeout_seconds"),
        (r#"{"command":"a","timeout_seconds":"1"}"#, "timeout_seconds"),
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
fn an_error_says_where_it_is() {
    let server = Server::start();
    let sandbox = server.create("{}");
    let at = |method: &str, path: &str, headers: &[(&str, &str)], body: &str| {
        let key = ("X-API-Key", KEY);
        let headers: Vec<(&str, &str)> = headers.iter().copied().chain([key]).collect();
        let answer = http::request(server.address, method, path, &headers, body.as_bytes()).unwrap();
        assert_eq!(answer.status, 422, "{method} {path}: {answer:?}");
        let loc = answer.json()["detail"][0]["loc"].clone();
        loc.as_array()
            .unwrap()
            .iter()
            .map(|part| part.as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
            .join("/")
    };
    let exec = format!("{sandbox}/exec");
    let run = r#"{"command":"true"}"#;
    assert_eq!(at("POST", &exec, &[("Idempotency-Key", "a b")], run), "header/Idempotency-Key");
    let file = format!("{sandbox}/files/a");
    assert_eq!(at("GET", &file, &[("Range", "bytes=x")], ""), "header/Range");
    assert_eq!(at("GET", "/api/v1/events", &[("Last-Event-ID", "x")], ""), "header/Last-Event-ID");
    assert_eq!(at("GET", &format!("{sandbox}/files/%ff"), &[], ""), "path");
    assert_eq!(at("PUT", &format!("{sandbox}/files/a%00b"), &[], "x"), "path/path");
    assert_eq!(at("GET", "/threads/%20/sessions", &[], "").split('/').next(), Some("path"));
    assert_eq!(at("GET", "/api/v1/sandboxes?page=0", &[], ""), "query/page");
    assert_eq!(at("POST", &exec, &[], "[]"), "body");
}

#[test]
fn a_policy_is_not_replaced_by_nothing() {
    let server = Server::start();
    let sandbox = server.create(r#"{"egress":{"mode":"allowlist","allow":["a.example"]}}"#);
    let egress = format!("{sandbox}/egress");
    let before = server.ask("GET", &egress, "").json()["policy"].clone();
    for body in ["", " \n"] {
        let answer = server.ask("PUT", &egress, body);
        assert_eq!((answer.status, &answer.json()["detail"][0]["loc"]), (422, &serde_json::json!(["body"])));
    }
    assert_eq!(server.ask("GET", &egress, "").json()["policy"], before);
}

#[test]
fn seconds_may_have_fractions() {
    let server = Server::start();
    let sandbox = server.create(
        r#"{"idle_timeout_seconds":30.5,"max_lifetime_seconds":3600.0,"memory_mb":256.0,"disk_mb":64}"#,
    );
    let shown = server.ask("GET", &sandbox, "").json();
    assert_eq!((&shown["idle_timeout_seconds"], &shown["max_lifetime_seconds"]), (&31.into(), &3600.into()));
    let ran =
        server.ask("POST", &format!("{sandbox}/exec"), r#"{"command":"sleep 100","timeout_seconds":0.25}"#);
    assert_eq!((ran.status, &ran.json()["timed_out"]), (200, &true.into()), "{ran:?}");
    let ran = server.ask(
        "POST",
        &format!("{sandbox}/run"),
        r#"{"code":"sleep 100","language":"bash","timeout":0.25}"#,
    );
    assert_eq!((ran.status, ran.json()["error"]["type"].as_str()), (200, Some("TIMEOUT")), "{ran:?}");
    let settings = r#"{"idle_timeout_seconds":60.5,"stopped_retention_seconds":3600.25}"#;
    let set = server.ask("PATCH", "/api/v1/settings/sandbox", settings);
    let shown = set.json();
    assert_eq!(
        (set.status, &shown["idle_timeout_seconds"], &shown["stopped_retention_seconds"]),
        (200, &61.into(), &3601.into()),
        "{set:?}"
    );
    for wrong in [r#"{"idle_timeout_seconds":9.5}"#, r#"{"stopped_retention_seconds":-0.5}"#] {
        assert_eq!(server.ask("PATCH", "/api/v1/settings/sandbox", wrong).status, 422, "{wrong}");
    }
    // Of a template too; what is wrong beside them, or that they are too many, is what is refused.
    for (seconds, interval, field) in
        [(1.5, 1, "ready_interval_ms"), (599.5, 1, "ready_interval_ms"), (600.5, 50, "ready_timeout_seconds")]
    {
        let body = json!({ "spec": {
            "id": "x", "start_command": "true", "ready_check": "true",
            "ready_timeout_seconds": seconds, "ready_interval_ms": interval,
        } });
        let answer = server.ask("POST", "/api/v1/sandbox-images", &body.to_string());
        let loc = || answer.json()["detail"][0]["loc"].as_array().unwrap().last().unwrap().clone();
        assert_eq!((answer.status, loc()), (422, json!(field)), "{seconds}: {answer:?}");
        let said = answer.json()["detail"][0]["msg"].to_string();
        assert!(said.contains("must be between"), "{seconds}: {said}");
    }
    let policy = r#"{"mode":"allowlist","allow":["a.example"],"limits":{"connection_seconds":1.5}}"#;
    let set = server.ask("PUT", &format!("{sandbox}/egress"), policy);
    assert_eq!(set.status, 200, "{set:?}");
    let limits = server.ask("GET", &format!("{sandbox}/egress"), "").json()["policy"]["limits"].clone();
    assert_eq!(limits["connection_seconds"], 2, "{limits}");
    let changed = server.ask("PATCH", &sandbox, r#"{"idle_timeout_seconds":60}"#);
    assert_eq!((changed.status, &changed.json()["idle_timeout_seconds"]), (200, &60.into()));
}

#[test]
fn the_first_page_says_where_to_go_on() {
    let server = Server::start();
    let program = http::request(server.address, "GET", "/", &[], b"").unwrap();
    let said = program.json();
    assert_eq!((program.status, said["name"].as_str()), (200, Some("atoll")));
    for (name, path) in said["links"].as_object().unwrap() {
        let path = path.as_str().unwrap();
        let answer = http::request(server.address, "GET", path, &[("X-API-Key", KEY)], b"").unwrap();
        assert!(answer.status != 404, "{name} {path}: {answer:?}");
    }
    let browser = http::request(server.address, "GET", "/", &[("Accept", "text/html,*/*")], b"").unwrap();
    assert_eq!((browser.status, browser.header("location")), (303, Some("/ui/")), "{browser:?}");
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
