//! Preview tokens are listed and revoked one by one, and one that is revoked ends what it opened.

use super::{
    fixture::Server,
    forwarding::{atoll, id_of},
    http,
    preview::{begin, sandbox_with_app},
};
use std::{
    io::{Read, Write},
    net::TcpStream,
};

/// The id and the text of a new token.
fn made(server: &Server, sandbox: &str, body: &str) -> (String, String) {
    let made = server.ask("POST", &format!("{sandbox}/preview-tokens"), body);
    assert_eq!(made.status, 201, "{made:?}");
    let text = |name: &str| made.json()[name].as_str().unwrap().to_owned();
    (text("id"), text("token"))
}

/// The ids of the tokens that the server lists.
fn listed(server: &Server, sandbox: &str) -> Vec<String> {
    let answer = server.ask("GET", &format!("{sandbox}/preview-tokens"), "");
    assert_eq!(answer.status, 200, "{answer:?}");
    let list = answer.json();
    list.as_array().unwrap().iter().map(|token| token["id"].as_str().unwrap().to_owned()).collect()
}

fn status(server: &Server, sandbox: &str, token: &str) -> u16 {
    let path = format!("{sandbox}/ports/8080~{token}/");
    http::request(server.address, "GET", &path, &[], b"").unwrap().status
}

/// An upgraded connection that a token opened, to which the app answers.
fn upgraded(server: &Server, sandbox: &str, token: &str) -> TcpStream {
    let text = format!(
        "GET {sandbox}/ports/8081~{token}/upgrade HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Key: x\r\nSec-WebSocket-Version: 13\r\n\r\n"
    );
    let (head, mut stream) = begin(server.address, &text);
    assert!(head.starts_with("http/1.1 101"), "{head}");
    assert_eq!(echo(&mut stream), "HELLO");
    stream
}

fn echo(stream: &mut TcpStream) -> String {
    stream.write_all(b"hello").unwrap();
    let mut back = [0; 5];
    stream.read_exact(&mut back).unwrap();
    String::from_utf8_lossy(&back).into_owned()
}

#[test]
fn a_revoked_token_opens_nothing_and_ends_what_it_opened() {
    let mut server = Server::start();
    let sandbox = sandbox_with_app(&server);
    let (lost, lost_token) = made(&server, &sandbox, "{}");
    let (kept, kept_token) = made(&server, &sandbox, r#"{"ttl_seconds":604800}"#);
    assert_eq!(listed(&server, &sandbox), [kept.clone(), lost.clone()]);
    let list = server.ask("GET", &format!("{sandbox}/preview-tokens"), "");
    let shown = String::from_utf8_lossy(&list.body).into_owned();
    assert!(!shown.contains(&lost_token) && !shown.contains(&kept_token), "{shown}");
    let (mut open, mut other) =
        (upgraded(&server, &sandbox, &lost_token), upgraded(&server, &sandbox, &kept_token));
    // An answer that is on its way, far larger than what lies between the two.
    const SIZE: usize = 1 << 30;
    let big = format!(
        "GET {sandbox}/ports/8080~{lost_token}/big?{SIZE} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"
    );
    let (head, mut streaming) = begin(server.address, &big);
    assert!(head.starts_with("http/1.1 200"), "{head}");
    let revoked = server.ask("DELETE", &format!("{sandbox}/preview-tokens/{lost}"), "");
    assert_eq!(revoked.status, 204, "{revoked:?}");
    assert_eq!(status(&server, &sandbox, &lost_token), 401);
    let mut rest = Vec::new();
    let _ = open.read_to_end(&mut rest);
    assert!(rest.is_empty(), "the connection is closed without a word of the app: {rest:?}");
    let mut piece = vec![0; 1 << 20];
    let read = std::iter::from_fn(|| streaming.read(&mut piece).ok().filter(|n| *n > 0)).sum::<usize>();
    assert!(read < SIZE, "the answer went on to its end");
    // The other token is as good as before.
    assert_eq!((status(&server, &sandbox, &kept_token), echo(&mut other).as_str()), (200, "HELLO"));
    assert_eq!(listed(&server, &sandbox), std::slice::from_ref(&kept));
    let again = server.ask("DELETE", &format!("{sandbox}/preview-tokens/{lost}"), "");
    assert_eq!(again.status, 404, "{again:?}");
    drop((open, other, streaming));
    server.kill();
    server.restart();
    assert_eq!(status(&server, &sandbox, &lost_token), 401);
    assert_eq!(status(&server, &sandbox, &kept_token), 200);
    assert_eq!(listed(&server, &sandbox), [kept]);
}

#[test]
fn only_the_owner_and_an_admin_list_and_revoke() {
    let server = Server::start();
    let key =
        |body: &str| server.ask("POST", "/api/v1/keys", body).json()["key"].as_str().unwrap().to_owned();
    let ann = key(r#"{"name":"a","owner":"ann"}"#);
    let bob = key(r#"{"name":"b","owner":"bob"}"#);
    let reader = key(r#"{"name":"r","owner":"ann","scope":"read_only"}"#);
    let create = |key: &str| {
        let made = server.ask_as(key, "POST", "/api/v1/sandboxes", "{}").json();
        format!("/api/v1/sandboxes/{}", made["id"].as_str().unwrap())
    };
    let (anns, bobs) = (create(&ann), create(&bob));
    let token = server.ask_as(&ann, "POST", &format!("{anns}/preview-tokens"), "{}").json();
    let token = token["id"].as_str().unwrap();
    let all = format!("{anns}/preview-tokens");
    let one = format!("{all}/{token}");
    assert_eq!(server.ask_as(&bob, "GET", &all, "").status, 404);
    assert_eq!(server.ask_as(&bob, "DELETE", &one, "").status, 404);
    // As one of a sandbox of its own, it is not there either.
    assert_eq!(server.ask_as(&bob, "DELETE", &format!("{bobs}/preview-tokens/{token}"), "").status, 404);
    assert_eq!(server.ask_as(&reader, "GET", &all, "").status, 200);
    assert_eq!(server.ask_as(&reader, "DELETE", &one, "").status, 403);
    assert_eq!(listed(&server, &anns), [token], "an admin sees it");
    assert_eq!(server.ask_as(&ann, "DELETE", &one, "").status, 204);
    assert!(listed(&server, &anns).is_empty());
    // A link of a sandbox that is stopped can be revoked, one of a destroyed sandbox is gone with it.
    let (id, _) = made(&server, &anns, "{}");
    assert_eq!(server.ask("POST", &format!("{anns}/stop"), "").status, 200);
    assert_eq!(server.ask("DELETE", &format!("{all}/{id}"), "").status, 204);
    assert_eq!(server.ask("DELETE", &anns, "").status, 204);
    assert_eq!(server.ask("GET", &all, "").status, 404);
}

#[test]
fn the_command_line_lists_and_revokes_addresses() {
    let server = Server::start();
    let sandbox = server.create("{}");
    let says = |arguments: &[&str]| {
        let ran = atoll(&server, &[&["preview", id_of(&sandbox)], arguments].concat()).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (ran.status.code(), text(ran.stdout), text(ran.stderr))
    };
    let (code, url, _) = says(&["8000"]);
    assert_eq!((code, url.lines().count()), (Some(0), 1), "{url}");
    let ids = listed(&server, &sandbox);
    let short = &ids[0][..8];
    let (code, list, _) = says(&["--list"]);
    assert!(code == Some(0) && list.contains(short) && list.contains("8000"), "{list}");
    let (_, json, _) = says(&["--list", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&json[0]["id"], &json[0]["port"]), (&ids[0].as_str().into(), &8000.into()));
    assert_eq!(says(&["--revoke", short]), (Some(0), format!("{short}\n"), String::new()));
    assert!(listed(&server, &sandbox).is_empty());
    let (code, _, error) = says(&["--revoke", short]);
    assert!(code == Some(1) && error.contains("there is no preview token"), "{error}");
    for wrong in [&[][..], &["8000", "--list"], &["8000", "--revoke", short]] {
        assert_eq!(says(wrong).0, Some(2), "{wrong:?}");
    }
}
