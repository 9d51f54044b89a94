//! Uploads and downloads through REST, when something goes wrong on the way.

use super::fixture::{KEY, Server};
use crate::engine::fixture::eventually;
use std::{
    io::{Read, Write},
    net::TcpStream,
    time::Duration,
};

/// A request whose body is the test's to send.
fn begin(server: &Server, method: &str, path: &str, length: usize) -> TcpStream {
    let mut stream = TcpStream::connect(server.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {KEY}\r\nConnection: close\r\n\
         Content-Length: {length}\r\n\r\n",
        server.address
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream
}

#[test]
fn a_download_says_how_long_it_is_and_breaks_when_that_is_not_true() {
    let server = Server::start();
    let path = server.create("{}");
    server.exec(&path, "head -c 50000000 /dev/zero > big; touch empty");
    let whole = server.ask("GET", &format!("{path}/files/big"), "");
    assert_eq!((whole.header("content-length"), whole.header("transfer-encoding")), (Some("50000000"), None));
    assert_eq!(whole.body.len(), 50_000_000);
    let empty = server.ask("GET", &format!("{path}/files/empty"), "");
    assert_eq!((empty.status, empty.header("content-length"), empty.body.len()), (200, Some("0"), 0));
    // Nobody reads, so most of it is still in the file when that becomes shorter.
    let mut stream = begin(&server, "GET", &format!("{path}/files/big"), 0);
    let mut first = [0; 1000];
    stream.read_exact(&mut first).unwrap();
    assert!(first.starts_with(b"HTTP/1.1 200"));
    server.exec(&path, "truncate -s 10 big");
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
    assert!(rest.len() < 50_000_000, "{} bytes came", rest.len());
}

#[test]
fn a_full_disk_is_said_and_leaves_nothing() {
    let server = Server::start();
    let path = server.create(r#"{"disk_mb":64}"#);
    let mut stream = begin(&server, "PUT", &format!("{path}/files/big"), 100 << 20);
    // The answer comes before all is sent, and then nobody takes the rest.
    let _ = stream.write_all(&vec![1; 100 << 20]);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.starts_with("HTTP/1.1 507") && answer.contains("disk_full"), "{answer}");
    assert_eq!(server.says(&path, "ls -A"), "");
}

#[test]
fn a_server_killed_in_the_middle_of_an_upload_leaves_nothing() {
    let mut server = Server::start();
    let path = server.create("{}");
    assert_eq!(server.ask("PUT", &format!("{path}/files/f"), "old").status, 204);
    let mut stream = begin(&server, "PUT", &format!("{path}/files/f"), 100 << 20);
    stream.write_all(&vec![1; 10 << 20]).unwrap();
    eventually("the upload has begun", || {
        server.says(&path, "find . -name '.atoll-*' -size +1M | wc -l") == "1"
    });
    server.kill();
    server.restart();
    eventually("it is undone", || server.says(&path, "ls -A") == "f");
    assert_eq!(server.says(&path, "cat f"), "old");
}

#[test]
fn a_client_that_goes_away_leaves_nothing() {
    let server = Server::start();
    let path = server.create("{}");
    let mut stream = begin(&server, "PUT", &format!("{path}/files/f"), 100 << 20);
    stream.write_all(&vec![1; 10 << 20]).unwrap();
    eventually("the upload has begun", || {
        server.says(&path, "find . -name '.atoll-*' -size +1M | wc -l") == "1"
    });
    drop(stream);
    eventually("it is undone", || server.says(&path, "ls -A").is_empty());
}
