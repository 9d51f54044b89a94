//! Who may ask over HTTP: keys, pages, names, sessions, sizes.

use super::{
    super::{
        fixture::{KEY, Server},
        http,
    },
    Wire, initialize,
    web::{PATH, Web, messages, post},
};
use serde_json::{Value, json};
use std::fs;

fn begin() -> Value {
    json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": initialize() })
}

fn bearer() -> String {
    format!("Bearer {KEY}")
}

#[test]
fn a_key_is_wanted_as_everywhere() {
    let server = Server::start();
    let refused = |headers: &[(&str, &str)]| {
        let answer = post(&server, headers, &begin());
        assert_eq!(answer.status, 401, "{answer:?}");
        assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
    };
    refused(&[]);
    refused(&[("Authorization", "Bearer no-such-key")]);
    refused(&[("X-API-Key", "no-such-key")]);
    for headers in [[("Authorization", bearer().as_str())], [("X-API-Key", KEY)]] {
        assert_eq!(post(&server, &headers, &begin()).status, 200);
    }
}

#[test]
fn foreign_pages_and_names_are_refused() {
    let server = Server::start();
    let bearer = bearer();
    let from = |origin: &str| post(&server, &[("Authorization", &bearer), ("Origin", origin)], &begin());
    for origin in ["https://evil.example", "null", "http://localhost.evil.example", "file://"] {
        let answer = from(origin);
        assert_eq!(answer.status, 403, "{origin}");
        assert!(answer.json()["error"]["message"].as_str().unwrap().contains("mcp.allowed_origins"));
        assert_eq!(answer.header("access-control-allow-origin"), None);
    }
    let local = from("http://localhost:6274");
    assert_eq!(local.status, 200);
    assert_eq!(local.header("access-control-allow-origin"), Some("http://localhost:6274"));
    let body = begin().to_string();
    let head = |host: &str| {
        format!(
            "POST {PATH} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nAuthorization: {bearer}\r\nAccept: application/json, \
             text/event-stream\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
    };
    for (host, status) in [("evil.example", 403), ("127.0.0.1.evil.example:80", 403), ("localhost:1", 200)] {
        assert_eq!(http::send(server.address, head(host).as_bytes()).unwrap().status, status, "{host}");
    }
    let ask = [("Origin", "http://localhost:6274"), ("Access-Control-Request-Method", "POST")];
    let preflight = http::request(server.address, "OPTIONS", PATH, &ask, b"").unwrap();
    assert_eq!(preflight.status, 204, "{preflight:?}");
    assert!(preflight.header("access-control-allow-headers").unwrap().contains("authorization"));
    let foreign = [("Origin", "https://evil.example"), ("Access-Control-Request-Method", "POST")];
    assert_eq!(http::request(server.address, "OPTIONS", PATH, &foreign, b"").unwrap().status, 403);
}

#[test]
fn the_operator_lets_other_pages_and_names_in_and_bounds_sessions() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("atoll.toml");
    let text = "[mcp]\nallowed_origins = [\"https://app.example.com\"]\nallowed_hosts = [\"atoll.example.com\"]\nsessions_per_key = 2\n";
    fs::write(&file, text).unwrap();
    std::os::unix::fs::chown(folder.path(), Some(65_530), None).unwrap();
    let server = Server::start_with(&["--config", file.to_str().unwrap()]);
    let bearer = bearer();
    let page = [("Authorization", bearer.as_str()), ("Origin", "https://app.example.com")];
    let first = post(&server, &page, &begin());
    assert_eq!(first.status, 200, "{first:?}");
    let second = post(&server, &page[..1], &begin());
    assert_eq!(second.status, 200);
    let third = post(&server, &page[..1], &begin());
    assert_eq!(third.status, 429, "{third:?}");
    assert!(third.header("retry-after").is_some());
    let session = first.header("mcp-session-id").unwrap();
    let end = [("Authorization", bearer.as_str()), ("Mcp-Session-Id", session)];
    let ended = http::request(server.address, "DELETE", PATH, &end, b"").unwrap();
    assert_eq!((ended.status, ended.body.len()), (204, 0), "{ended:?}");
    crate::engine::fixture::eventually("a place is free", || {
        post(&server, &page[..1], &begin()).status == 200
    });
}

#[test]
fn a_session_is_its_keys_alone_until_it_is_ended() {
    let server = Server::start();
    let bearer = bearer();
    let mut web = Web::open(&server);
    let list = json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/list" });
    let unknown = post(&server, &[("Authorization", &bearer), ("Mcp-Session-Id", "no-such-session")], &list);
    assert_eq!(unknown.status, 404, "{unknown:?}");
    let none = post(&server, &[("Authorization", &bearer)], &list);
    assert_eq!(none.status, 400, "a request in no session: {none:?}");
    let made = server.ask("POST", "/api/v1/keys", r#"{"name":"other","owner":"local"}"#);
    let other = format!("Bearer {}", made.json()["key"].as_str().unwrap_or_default());
    let stolen = [("Authorization", other.as_str()), ("Mcp-Session-Id", web.session.as_str())];
    assert_eq!(post(&server, &stolen, &list).status, 404, "of another key");
    let end = |headers: &[(&str, &str)]| {
        http::request(server.address, "DELETE", PATH, headers, b"").unwrap().status
    };
    assert_eq!(end(&stolen), 404, "nor can it be ended by one");
    assert_eq!(web.ask("ping", json!({}))["result"], json!({}));
    let session = web.session.clone();
    let own = [("Authorization", bearer.as_str()), ("Mcp-Session-Id", session.as_str())];
    assert!((200..300).contains(&end(&own)));
    assert_eq!(post(&server, &own, &list).status, 404);
}

#[test]
fn bodies_and_headers_have_limits() {
    let server = Server::start();
    let bearer = bearer();
    let key = [("Authorization", bearer.as_str())];
    // As large as the call of a tool by REST.
    for (padding, status) in [(15 << 20, 200), (16 << 20, 413)] {
        let mut large = begin();
        large["params"]["padding"] = "x".repeat(padding).into();
        assert_eq!(post(&server, &key, &large).status, status, "{padding}");
    }
    for thread in ["../x", "a b", &"x".repeat(129)] {
        let answer = post(&server, &[key[0], ("X-Thread-Id", thread)], &begin());
        assert_eq!(answer.status, 400, "{thread}");
    }
    let json = [("Content-Type", "application/json"), key[0]];
    let narrow = http::request(
        server.address,
        "POST",
        PATH,
        &[&json[..], &[("Accept", "application/json")]].concat(),
        b"{}",
    );
    assert_eq!(narrow.unwrap().status, 406);
    let nonsense =
        http::request(server.address, "POST", PATH, &[&json[..], &[super::web::ACCEPT]].concat(), b"{")
            .unwrap();
    assert!((400..500).contains(&nonsense.status), "{nonsense:?}");
    assert_eq!(http::request(server.address, "PUT", PATH, &key, b"").unwrap().status, 405);
}

#[test]
fn versions_are_agreed_on() {
    let server = Server::start();
    let bearer = bearer();
    for (asked, agreed) in [
        ("2024-11-05", "2024-11-05"),
        ("2025-06-18", "2025-06-18"),
        ("2025-11-25", "2025-11-25"),
        ("1999-01-01", "2025-11-25"),
    ] {
        let mut begin = begin();
        begin["params"]["protocolVersion"] = asked.into();
        let answer = post(&server, &[("Authorization", &bearer)], &begin);
        assert_eq!(messages(&answer)[0]["result"]["protocolVersion"], agreed, "{asked}");
    }
}

#[test]
fn what_is_done_here_is_in_the_audit_trail_as_such() {
    let server = Server::start();
    let mut web = Web::open_as(&server, KEY, Some("a-thread"));
    web.session("python");
    let trail = server.ask("GET", "/api/v1/audit?limit=50", "").json();
    let text = trail.to_string();
    assert!(text.contains("\"mcp\""), "{text}");
    web.ask("ping", json!({}));
}
