//! What bodies of requests can make the server hold: of callers, and of peers without a key who ask to be signed in.

use super::{
    fixture::{KEY, Server},
    http,
};
use crate::engine::fixture::eventually;
use std::{
    io::{Read, Write},
    net::TcpStream,
    time::Duration,
};

/// Less than the largest body.
const LARGE: usize = 3 << 20;

/// A request whose body is begun and not ended.
fn begun(server: &Server, path: &str) -> TcpStream {
    let mut stream = TcpStream::connect(server.address).unwrap();
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\nContent-Length: {}\r\n\r\n",
        LARGE + 1
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(&vec![b'x'; LARGE]).unwrap();
    stream
}

fn is_unanswered(request: &TcpStream) -> bool {
    request.set_nonblocking(true).unwrap();
    request.peek(&mut [0]).is_err_and(|e| e.kind() == std::io::ErrorKind::WouldBlock)
}

#[test]
fn bodies_hold_no_more_than_an_owner_may() {
    let server = Server::start_with(&["--set", "http.owner_answers_mb=8"]);
    // No JSON: it is read whole, and then refused.
    let wrong = "x".repeat(LARGE);
    let whole = |path: &str| server.ask("POST", path, &wrong);
    let paths = ["/api/v1/sandboxes", "/threads/t/tools/execute_code", "/api/sandbox/create"];
    for path in paths {
        assert_ne!(whole(path).status, 429, "{path}: alone it fits");
    }
    let mut held = Vec::new();
    for path in paths {
        eventually("a body to be refused for want of room", || {
            // Until both are read, it may be one of them that found no room.
            held.retain(is_unanswered);
            let missing = paths[held.len()..2].iter().map(|path| begun(&server, path));
            held.extend(missing.collect::<Vec<_>>());
            whole(path).status == 429
        });
    }
    let other = server.ask("POST", "/api/v1/keys", r#"{"name":"o","owner":"other"}"#);
    let other = other.json()["key"].as_str().unwrap().to_owned();
    assert_ne!(server.ask_as(&other, "POST", paths[0], &wrong).status, 429, "another owner's");
    drop(held);
    eventually("room again", || whole(paths[0]).status != 429);
}

/// A request to sign in as a page of this host sends it.
fn sign_in(server: &Server, origin: Option<&str>, length: usize, body: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(server.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let origin = origin.map(|origin| format!("Origin: {origin}\r\n")).unwrap_or_default();
    let head = format!(
        "POST /ui/session HTTP/1.1\r\nHost: {}\r\n{origin}Connection: close\r\nContent-Length: {length}\r\n\r\n",
        server.address
    );
    stream.write_all(&[head.as_bytes(), body].concat()).unwrap();
    stream
}

fn status(mut stream: TcpStream) -> u16 {
    let mut line = [0; 12];
    stream.read_exact(&mut line).unwrap();
    std::str::from_utf8(&line[9..]).unwrap().parse().unwrap()
}

#[test]
fn a_request_to_sign_in_is_small_and_short_and_of_the_own_page() {
    let server = Server::start();
    let own = format!("http://{}", server.address);
    // Refused before anything of its body is read.
    assert_eq!(status(sign_in(&server, None, 1 << 20, b"")), 403);
    assert_eq!(status(sign_in(&server, Some("http://other.example"), 1 << 20, b"")), 403);
    assert_eq!(status(sign_in(&server, Some(&own), 5000, &[b' '; 5000])), 413);
    assert_eq!(status(sign_in(&server, Some(&own), 100, b"{")), 422, "it took too long");
    let held: Vec<_> = (0..16).map(|_| sign_in(&server, Some(&own), 100, b"{")).collect();
    eventually("a place to be missing", || status(sign_in(&server, Some(&own), 2, b"{}")) == 429);
    drop(held);
    let body = format!(r#"{{"key":"{KEY}"}}"#);
    eventually("a place again", || status(sign_in(&server, Some(&own), body.len(), body.as_bytes())) == 200);
    // And the peer has a rate.
    let refused = (0..5000).any(|_| status(sign_in(&server, Some(&own), 2, b"{}")) == 429);
    assert!(refused, "a peer may try keys without end");
    assert_eq!(http::request(server.address, "GET", "/health", &[], b"").unwrap().status, 200);
}
