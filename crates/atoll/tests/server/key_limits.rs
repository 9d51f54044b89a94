//! Keys cannot climb: no key sees, makes or revokes one that is above it, and there always is an admin.

use super::{
    fixture::{KEY, Server},
    http,
};
use std::process::{Command, Output};

/// A key that was made: its secret and its id.
fn make(server: &Server, by: &str, body: &str) -> (String, String) {
    let made = server.ask_as(by, "POST", "/api/v1/keys", body);
    assert_eq!(made.status, 201, "{made:?}");
    let text = |name: &str| made.json()[name].as_str().unwrap().to_owned();
    (text("key"), text("id"))
}

fn ids(server: &Server, by: &str) -> Vec<String> {
    let listed = server.ask_as(by, "GET", "/api/v1/keys?page_size=200", "").json();
    listed["items"].as_array().unwrap().iter().map(|key| key["id"].as_str().unwrap().to_owned()).collect()
}

fn revoke(server: &Server, by: &str, id: &str) -> u16 {
    server.ask_as(by, "DELETE", &format!("/api/v1/keys/{id}"), "").status
}

fn recover(server: &Server) -> Output {
    Command::new(env!("CARGO_BIN_EXE_atoll"))
        .args(["keys", "recover", "--data-dir"])
        .arg(server.data())
        .output()
        .unwrap()
}

#[test]
fn a_user_key_of_the_admins_owner_neither_sees_nor_revokes_the_admins() {
    let server = Server::start();
    let first = ids(&server, KEY).remove(0);
    let (user, user_id) = make(&server, KEY, r#"{"name":"u","owner":"admin","tier":"standard"}"#);
    let (_, higher) = make(&server, KEY, r#"{"name":"h","owner":"admin","tier":"elevated"}"#);
    let (reader, _) =
        make(&server, KEY, r#"{"name":"r","owner":"admin","scope":"read_only","tier":"standard"}"#);
    assert_eq!(revoke(&server, &user, &first), 404);
    assert_eq!(revoke(&server, &user, &higher), 404);
    let seen = ids(&server, &user);
    assert!(seen.contains(&user_id) && !seen.contains(&first) && !seen.contains(&higher), "{seen:?}");
    let seen = ids(&server, &reader);
    assert!(!seen.contains(&user_id) && !seen.contains(&first), "{seen:?}");
    assert_eq!(
        server.ask("GET", "/api/v1/sandboxes", "").status,
        200,
        "the first key is still worth something"
    );
}

#[test]
fn an_expiring_key_makes_and_revokes_nothing_that_outlives_it() {
    let server = Server::start();
    for scope in ["user", "admin"] {
        let lasting = make(&server, KEY, r#"{"name":"l","owner":"ann"}"#).1;
        let body = format!(r#"{{"name":"e","owner":"ann","scope":"{scope}","expires_in_seconds":600}}"#);
        let (expiring, _) = make(&server, KEY, &body);
        let asked = |body: &str| server.ask_as(&expiring, "POST", "/api/v1/keys", body);
        assert_eq!(asked(r#"{"name":"x","expires_in_seconds":6000}"#).status, 403);
        let inherited = asked(r#"{"name":"x"}"#).json();
        assert!(inherited["expires_at"].is_string(), "it expires with the key that made it: {inherited}");
        assert_eq!(asked(r#"{"name":"x","expires_in_seconds":60}"#).status, 201);
        assert!(!ids(&server, &expiring).contains(&lasting));
        assert_eq!(revoke(&server, &expiring, &lasting), 404);
        assert_eq!(revoke(&server, KEY, &lasting), 200);
    }
}

#[test]
fn a_session_is_no_key_and_makes_none_that_lasts_for_ever() {
    let server = Server::start();
    let origin = format!("http://{}", server.address);
    let own = [("Origin", origin.as_str())];
    let sign_in = format!(r#"{{"key":"{KEY}"}}"#);
    let signed_in = http::request(server.address, "POST", "/ui/session", &own, sign_in.as_bytes()).unwrap();
    let cookie = signed_in.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
    let ask = |method: &str, path: &str, body: &str| {
        let headers = [("Cookie", cookie.as_str()), ("X-Atoll-Console", "1"), own[0]];
        http::request(server.address, method, path, &headers, body.as_bytes()).unwrap().status
    };
    let secret = cookie.split_once('=').unwrap().1;
    for _ in 0..3 {
        // What was just looked up is cached for a moment, as a session and not as a key.
        assert_eq!(ask("GET", "/api/v1/sandboxes", ""), 200);
        assert_eq!(server.ask_as(secret, "GET", "/api/v1/sandboxes", "").status, 401);
        assert_eq!(server.ask("GET", "/api/v1/sandboxes", "").status, 200);
        let as_cookie = format!("atoll-session={KEY}");
        let headers = [("Cookie", as_cookie.as_str())];
        let key = http::request(server.address, "GET", "/api/v1/sandboxes", &headers, b"").unwrap();
        assert_eq!(key.status, 401, "a key is no session");
    }
    for (body, status) in [
        (r#"{"name":"x"}"#, 403),
        (r#"{"name":"x","expires_in_seconds":63072000}"#, 403),
        (r#"{"name":"x","expires_in_seconds":31536000}"#, 201),
    ] {
        assert_eq!(ask("POST", "/api/v1/keys", body), status, "{body}");
    }
}

#[test]
fn the_last_admin_that_lasts_cannot_be_revoked() {
    let server = Server::start();
    let first = ids(&server, KEY).remove(0);
    let (temporary, _) = make(&server, KEY, r#"{"name":"t","scope":"admin","expires_in_seconds":600}"#);
    for by in [KEY, &temporary] {
        assert!(matches!(revoke(&server, by, &first), 404 | 409), "no admin would be left in ten minutes");
    }
    assert_eq!(revoke(&server, KEY, &first), 409);
    let (next, _) = make(&server, KEY, r#"{"name":"n","owner":"bea","scope":"admin"}"#);
    assert_eq!(revoke(&server, &next, &first), 200);
    assert_eq!(server.ask("GET", "/api/v1/sandboxes", "").status, 401);
    assert_eq!(server.ask_as(&next, "GET", "/api/v1/settings/sandbox", "").status, 200);
}

#[test]
fn a_lost_admin_is_recovered_from_the_stopped_data_folder_and_audited() {
    let mut server = Server::start();
    let refused = recover(&server);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && refused.stdout.is_empty(), "{refused:?}");
    assert!(said.contains("another server runs on this data folder"), "{said}");
    server.kill();
    let recovered = recover(&server);
    assert!(recovered.status.success(), "{recovered:?}");
    let secret = String::from_utf8(recovered.stdout).unwrap().trim().to_owned();
    server.restart();
    assert_eq!(server.ask_as(&secret, "GET", "/api/v1/settings/sandbox", "").status, 200, "it is an admin's");
    let rows = server.ask("GET", "/api/v1/audit?kind=key.recover", "").json();
    assert!(rows.to_string().contains(r#""ok""#), "{rows}");
    assert!(!rows.to_string().contains(&secret));
    assert_eq!(server.ask("GET", "/api/v1/audit/verify", "").json()["sound"], true);
    let nowhere = Command::new(env!("CARGO_BIN_EXE_atoll"))
        .args(["keys", "recover", "--data-dir", "/nonexistent"])
        .output()
        .unwrap();
    assert!(!nowhere.status.success() && nowhere.stdout.is_empty(), "{nowhere:?}");
}
