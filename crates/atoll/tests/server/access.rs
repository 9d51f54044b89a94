//! Keys, scopes, owners, and a server without keys.

use super::{
    fixture::{KEY, Server},
    http,
};
use std::fs;

fn make_key(server: &Server, by: &str, body: &str) -> (u16, String) {
    let made = server.ask_as(by, "POST", "/api/v1/keys", body);
    let key = made.json()["key"].as_str().unwrap_or_default().to_owned();
    (made.status, key)
}

#[test]
fn without_a_key_nothing_but_health_and_docs() {
    let server = Server::start();
    for path in ["/health", "/docs", "/openapi.json"] {
        assert_eq!(http::request(server.address, "GET", path, &[], b"").unwrap().status, 200, "{path}");
    }
    assert!(http::request(server.address, "GET", "/health", &[], b"").unwrap().json()["version"].is_string());
    for key in
        ["", "wrong", "Bearer", "atoll_0000000000000000000000000000000000000000000000000000000000000000"]
    {
        let answer = server.ask_as(key, "GET", "/api/v1/sandboxes", "");
        assert_eq!((answer.status, answer.header("www-authenticate")), (401, Some("Bearer")), "{key:?}");
    }
    // The other header that clients of the reference systems send.
    let answer =
        http::request(server.address, "GET", "/api/v1/sandboxes", &[("X-API-Key", KEY)], b"").unwrap();
    assert_eq!(answer.status, 200);
}

#[test]
fn a_repeated_request_for_a_key_makes_one() {
    let server = Server::start();
    let make = |by: &str, body: &str| {
        let by = format!("Bearer {by}");
        let headers = [("Authorization", by.as_str()), ("Idempotency-Key", "once")];
        http::request(server.address, "POST", "/api/v1/keys", &headers, body.as_bytes()).unwrap()
    };
    let body = r#"{"name":"second","scope":"admin"}"#;
    let (first, again) = (make(KEY, body), make(KEY, body));
    assert_eq!((first.status, again.status, first.json()), (201, 201, again.json()));
    assert_eq!(again.header("idempotent-replay"), Some("true"));
    assert!(first.json().get("tier").is_none(), "an admin has none: {first:?}");
    assert_eq!(make(KEY, r#"{"name":"third"}"#).status, 422, "the same key for another request");
    // Nor does the secret go to another key of the same owner, which may be a weaker one.
    let weak = make_key(&server, KEY, r#"{"name":"weak","scope":"read_only"}"#).1;
    let refused = make(&weak, body);
    assert!(
        refused.status >= 400 && !String::from_utf8_lossy(&refused.body).contains("atoll_"),
        "{refused:?}"
    );
    let names: Vec<String> = server.ask("GET", "/api/v1/keys", "").json()["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|key| key["name"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(names.iter().filter(|name| *name == "second").count(), 1, "{names:?}");
}

#[test]
fn a_key_that_a_killed_server_made_is_found_by_the_repeated_request() {
    let mut server = Server::start();
    let make = |server: &Server| {
        let headers = [("Authorization", &*format!("Bearer {KEY}")), ("Idempotency-Key", "once")];
        let body = br#"{"name":"second","scope":"user"}"#;
        let made = http::request(server.address, "POST", "/api/v1/keys", &headers, body).unwrap().json();
        (made["id"].as_str().unwrap().to_owned(), made["key"].as_str().unwrap().to_owned())
    };
    let lists = |server: &Server, key: &str| server.ask_as(key, "GET", "/api/v1/sandboxes", "").status;
    let first = make(&server);
    // The server is killed before it has kept its answer, and the request is repeated when it was given up.
    server.kill();
    server.tamper("DELETE FROM idempotent");
    server.restart();
    let again = make(&server);
    assert_eq!(first.0, again.0, "one key");
    assert_eq!((lists(&server, &first.1), lists(&server, &again.1)), (401, 200), "the secret that was sent");
    // A key whose secret is in use stays as it is.
    server.tamper("DELETE FROM idempotent");
    let other = make(&server);
    assert_ne!(other.0, again.0);
    assert_eq!((lists(&server, &again.1), lists(&server, &other.1)), (200, 200));
}

#[test]
fn a_key_sees_its_owners_sandboxes_and_does_what_its_scope_allows() {
    let server = Server::start();
    let (status, ann) = make_key(&server, KEY, r#"{"name":"a","owner":"ann","scope":"user"}"#);
    assert_eq!(status, 201);
    let (_, bob) = make_key(&server, KEY, r#"{"name":"b","owner":"bob"}"#);
    let (_, reader) = make_key(&server, KEY, r#"{"name":"r","owner":"ann","scope":"read_only"}"#);
    let made = server.ask_as(&ann, "POST", "/api/v1/sandboxes", r#"{"session_key":"s"}"#).json();
    assert_eq!(made["user_name"], "ann");
    let path = format!("/api/v1/sandboxes/{}", made["id"].as_str().unwrap());
    for (key, expected) in [(&ann, 200), (&bob, 404), (&reader, 200)] {
        assert_eq!(server.ask_as(key, "GET", &path, "").status, expected);
    }
    assert_eq!(server.ask_as(&bob, "GET", "/api/v1/sandboxes", "").json()["total"], 0);
    assert_eq!(server.ask("GET", "/api/v1/sandboxes", "").json()["total"], 1, "an admin sees all");
    let of = |key: &str, owner: &str| {
        server.ask_as(key, "GET", &format!("/api/v1/sandboxes?owner={owner}"), "").json()["total"].clone()
    };
    assert_eq!(
        (of(KEY, "ann"), of(KEY, "bob"), of(&bob, "ann"), of(&ann, "ann")),
        (1.into(), 0.into(), 0.into(), 1.into())
    );
    assert_eq!(of(KEY, made["user_id"].as_str().unwrap()), 1, "by its id as well");
    for (method, tail, body) in [
        ("POST", "/exec", r#"{"command":"true"}"#),
        ("POST", "/stop", ""),
        ("DELETE", "", ""),
        ("PUT", "/files/x", "x"),
        ("PATCH", "", r#"{"labels":{}}"#),
        // It has the values of variables.
        ("GET", "/export", ""),
    ] {
        let target = format!("{path}{tail}");
        assert_eq!(server.ask_as(&reader, method, &target, body).status, 403, "{method} {tail}");
        assert_eq!(server.ask_as(&bob, method, &target, body).status, 404, "{method} {tail}");
    }
    assert_eq!(server.ask_as(&reader, "GET", &format!("{path}/files"), "").status, 200);
    // The same session key of another owner is another sandbox.
    let bobs = server.ask_as(&bob, "POST", "/api/v1/sandboxes", r#"{"session_key":"s"}"#).json();
    assert_ne!(bobs["id"], made["id"]);
    // Nobody makes a key that allows more than its own.
    assert_eq!(make_key(&server, &ann, r#"{"name":"x","scope":"admin"}"#).0, 403);
    assert_eq!(make_key(&server, &ann, r#"{"name":"x","owner":"bob"}"#).0, 403);
    assert_eq!(make_key(&server, &reader, r#"{"name":"x"}"#).0, 403);
    let (status, own) = make_key(&server, &ann, r#"{"name":"x"}"#);
    assert_eq!((status, server.ask_as(&own, "GET", &path, "").status), (201, 200));
}

#[test]
fn keys_are_hashed_listed_and_revoked() {
    let server = Server::start();
    let made =
        server.ask("POST", "/api/v1/keys", r#"{"name":"ci","owner":"ann","expires_in_seconds":3600}"#).json();
    let (secret, id) = (made["key"].as_str().unwrap(), made["id"].as_str().unwrap());
    let listed = server.ask("GET", "/api/v1/keys", "").json();
    assert_eq!(listed["items"].as_array().unwrap().len(), 2);
    assert!(!listed.to_string().contains(secret) && listed.to_string().contains(&secret[..12]));
    // Neither key lies in the database.
    for file in fs::read_dir(server.data().join("server")).unwrap().flatten() {
        let content = fs::read(file.path()).unwrap();
        for secret in [secret, KEY] {
            assert!(!content.windows(secret.len()).any(|w| w == secret.as_bytes()), "{:?}", file.path());
        }
    }
    assert_eq!(server.ask_as(secret, "GET", "/api/v1/sandboxes", "").status, 200);
    assert_eq!(server.ask("DELETE", &format!("/api/v1/keys/{id}"), "").status, 200);
    assert_eq!(server.ask_as(secret, "GET", "/api/v1/sandboxes", "").status, 401);
    assert_eq!(server.ask("DELETE", "/api/v1/keys/nosuch", "").status, 404);
    let short = server.ask("POST", "/api/v1/keys", r#"{"name":"s","expires_in_seconds":1}"#).json();
    let short = short["key"].as_str().unwrap().to_owned();
    crate::engine::fixture::eventually("its end", || {
        server.ask_as(&short, "GET", "/api/v1/sandboxes", "").status == 401
    });
}

#[test]
fn environments_are_sealed_and_never_returned() {
    let server = Server::start();
    let secret = "hunter2-in-the-environment";
    let path = server.create(&format!(r#"{{"env_vars":{{"TOKEN":"{secret}"}}}}"#));
    assert_eq!(server.says(&path, "echo $TOKEN"), secret);
    for answer in [server.ask("GET", &path, ""), server.ask("GET", "/api/v1/sandboxes", "")] {
        assert!(!String::from_utf8_lossy(&answer.body).contains(secret));
    }
    for file in fs::read_dir(server.data().join("server")).unwrap().flatten() {
        let content = fs::read(file.path()).unwrap();
        assert!(!content.windows(secret.len()).any(|w| w == secret.as_bytes()), "{:?}", file.path());
    }
}

#[test]
fn the_server_is_nobody_special() {
    let server = Server::start();
    let status = fs::read_to_string(format!("/proc/{}/status", server.child.id())).unwrap();
    let line = |name: &str| status.lines().find(|l| l.starts_with(name)).unwrap().to_owned();
    assert!(!line("Uid:").contains("\t0\t") && !line("Gid:").contains("\t0\t"), "{status}");
    assert_eq!(line("CapEff:"), "CapEff:\t0000000000000000");
    assert_eq!(line("Groups:").trim(), "Groups:");
    let refused = std::process::Command::new(env!("CARGO_BIN_EXE_atoll"))
        .args(["serve", "--user", "root", "--data-dir"])
        .arg(server.data().join("other"))
        .output()
        .unwrap();
    assert!(String::from_utf8_lossy(&refused.stderr).contains("never runs as root"));
}

#[test]
fn without_keys_only_this_machine_by_its_own_name() {
    let server = Server::start_with(&["--no-auth"]);
    let list = |headers: &[(&str, &str)], host: &str| {
        let mut text = format!("GET /api/v1/sandboxes HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n");
        headers.iter().for_each(|(k, v)| text.push_str(&format!("{k}: {v}\r\n")));
        http::send(server.address, format!("{text}\r\n").as_bytes()).unwrap().status
    };
    let port = server.address.port();
    assert_eq!(list(&[], &format!("127.0.0.1:{port}")), 200);
    assert_eq!(list(&[], &format!("localhost:{port}")), 200);
    assert_eq!(list(&[], "attacker.example"), 403, "a name that was made to lead here");
    assert_eq!(list(&[("Origin", "https://attacker.example")], &format!("127.0.0.1:{port}")), 403);
    let refused = std::process::Command::new(env!("CARGO_BIN_EXE_atoll"))
        .args(["serve", "--no-auth", "--listen", "0.0.0.0:0", "--data-dir"])
        .arg(server.data().join("other"))
        .output()
        .unwrap();
    assert!(String::from_utf8_lossy(&refused.stderr).contains("loopback"));
}

#[test]
fn a_host_or_origin_that_is_there_twice_is_refused_everywhere() {
    for options in [&[][..], &["--no-auth"]] {
        let server = Server::start_with(options);
        let host = format!("Host: {}\r\n", server.address);
        let origin = format!("Origin: http://{}\r\n", server.address);
        for path in ["/health", "/api/v1/sandboxes", "/mcp", "/api/v1/sandboxes/x/ports/80~t/", "/nowhere"] {
            let status = |lines: &str| {
                let text =
                    format!("GET {path} HTTP/1.1\r\nConnection: close\r\nX-API-Key: {KEY}\r\n{lines}\r\n");
                http::send(server.address, text.as_bytes()).unwrap().status
            };
            assert_eq!(status(&host.repeat(2)), 400, "{path}");
            assert_eq!(status(&(host.clone() + &origin.repeat(2))), 400, "{path}");
            assert!(![400, 403].contains(&status(&(host.clone() + &origin))) || path == "/mcp", "{path}");
        }
    }
}

/// The usual data folder is another for root than for whom the server becomes; both must mean root's.
/// In a mount namespace of its own, so that the machine's own instance is neither met nor made.
#[test]
fn started_plainly_as_root_it_serves_from_the_machines_folder() {
    let script = "mount -t tmpfs tmpfs /var/lib && mount -t tmpfs tmpfs /run && \
                  { \"$ATOLL\" serve --listen 127.0.0.1:0 & } > /run/said 2>&1; \
                  for i in $(seq 300); do grep -q 'data folder' /run/said && break; sleep 0.1; done; \
                  cat /run/said; \"$ATOLL\" down --purge; ls /var/lib";
    let ran = std::process::Command::new("unshare")
        .args(["--mount", "--propagation", "private", "bash", "-c", script])
        .env("ATOLL", env!("CARGO_BIN_EXE_atoll"))
        .env_remove("ATOLL_DATA_DIR")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ran.stdout).into_owned();
    assert!(said.contains("Atoll listens") && said.contains("data folder: /var/lib/atoll;"), "{ran:?}");
    assert!(said.ends_with("down, and nothing is left\n"), "{ran:?}");
}
