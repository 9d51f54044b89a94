//! `atoll port-forward` and `atoll preview`, and what is beneath them.

use super::{
    fixture::{KEY, Server},
    http,
    preview::sandbox_with_app,
};
use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    process::{Child, Command, Stdio},
};

pub(crate) fn atoll(server: &Server, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_atoll"));
    command.args(arguments).env("ATOLL_URL", format!("http://{}", server.address)).env("ATOLL_API_KEY", KEY);
    command
}

pub(crate) fn id_of(sandbox: &str) -> &str {
    sandbox.rsplit('/').next().unwrap()
}

/// Starts `port-forward` and returns where it listens, in the order of its mappings.
fn forward(server: &Server, sandbox: &str, mappings: &[&str]) -> (Child, Vec<SocketAddr>) {
    let mut command = atoll(server, &["port-forward", id_of(sandbox)]);
    let mut child = command.args(mappings).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let addresses = mappings.iter().map(|mapping| {
        let line = lines.next().unwrap().unwrap();
        let (address, remote) = line.split_once(" -> ").unwrap();
        assert!(mapping.ends_with(remote), "{line}");
        address.parse().unwrap()
    });
    let addresses = addresses.collect();
    (child, addresses)
}

/// What comes back from a port of a sandbox for a text, until the connection ends.
pub(crate) fn through(server: &Server, sandbox: &str, port: u16, text: &str) -> String {
    let (mut child, at) = forward(server, sandbox, &[&format!("0:{port}")]);
    let mut stream = TcpStream::connect(at[0]).unwrap();
    let mut said = String::new();
    let _ = stream.write_all(text.as_bytes()).and_then(|()| stream.read_to_string(&mut said));
    child.kill().unwrap();
    child.wait().unwrap();
    said
}

#[test]
fn ports_of_this_machine_lead_into_the_sandbox() {
    let server = Server::start();
    let sandbox = sandbox_with_app(&server);
    let (mut child, at) = forward(&server, &sandbox, &["0:8080", "0:8081", "0:9999"]);
    for _ in 0..10 {
        let answer = http::request(at[0], "POST", "/x", &[("X-API-Key", "mine")], b"hello").unwrap();
        assert_eq!((answer.status, &answer.json()["length"]), (200, &5.into()));
        // Bytes are bytes here: the app sees what was sent.
        assert!(answer.json()["headers"].to_string().contains("mine"));
    }
    let big = http::request(at[0], "GET", "/big?30000000", &[], b"").unwrap();
    assert_eq!(big.body.len(), 30_000_000);
    let body = vec![b'y'; 20_000_000];
    assert_eq!(http::request(at[0], "PUT", "/", &[], &body).unwrap().json()["length"], 20_000_000);
    // One direction can end before the other.
    let mut stream = TcpStream::connect(at[1]).unwrap();
    stream.write_all(b"GET /upgrade HTTP/1.1\r\nUpgrade: x\r\n\r\n").unwrap();
    let mut head = [0; 12];
    stream.read_exact(&mut head).unwrap();
    assert_eq!(&head, b"HTTP/1.1 101");
    stream.write_all(b"abc").unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut rest = String::new();
    stream.read_to_string(&mut rest).unwrap();
    assert!(rest.ends_with("ABCbye"), "{rest}");
    // A port where nothing listens is said, connection by connection, and nothing else ends.
    let mut stream = TcpStream::connect(at[2]).unwrap();
    assert_eq!(stream.read(&mut [0]).unwrap_or(0), 0);
    assert_eq!(http::request(at[0], "GET", "/", &[], b"").unwrap().status, 200);
    Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains("-> 9999: nothing listens on port 9999 in the sandbox"), "{said}");
}

#[test]
fn mistakes_are_told_before_anything_listens() {
    let server = Server::start();
    let sandbox = server.create("{}");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mapping = format!("{}:80", taken.local_addr().unwrap().port());
    let says = |arguments: &[&str]| {
        let ran = atoll(&server, arguments).output().unwrap();
        (ran.status.code().unwrap(), String::from_utf8(ran.stderr).unwrap())
    };
    let (code, said) = says(&["port-forward", id_of(&sandbox), &mapping]);
    assert!(code == 1 && said.contains("name another port as LOCAL:REMOTE"), "{said}");
    let missing = "00000000-0000-4000-8000-000000000000";
    let (code, said) = says(&["port-forward", missing, "0:80"]);
    assert!(code == 1 && said.contains("there is no sandbox"), "{said}");
    let (code, said) = says(&["preview", missing, "80"]);
    assert!(code == 1 && said.contains("there is no sandbox"), "{said}");
    let (code, said) = says(&["preview", id_of(&sandbox), "80", "--ttl", "200h"]);
    assert!(code == 1 && said.contains("7 days"), "{said}");
}

#[test]
fn a_preview_is_an_address_for_a_browser() {
    let server = Server::start();
    let sandbox = sandbox_with_app(&server);
    let ran = atoll(&server, &["preview", id_of(&sandbox), "8080", "--ttl", "10m"]).output().unwrap();
    let url = String::from_utf8(ran.stdout).unwrap();
    // Every name below localhost is this machine's own, for curl as for browsers.
    let name =
        format!("http://8080-{}.localhost:{}/?", id_of(&sandbox).replace('-', ""), server.address.port());
    assert!(url.starts_with(&name), "{url}");
    let page = Command::new("curl").args(["-sf", url.trim()]).output().unwrap();
    assert!(page.status.success() && !page.stdout.is_empty(), "{page:?}");
    // By path, as before, and that alone where the name is switched off.
    let below = format!("http://{}{sandbox}/ports/8080~", server.address);
    let body = r#"{"port":8080}"#;
    let made = server.ask("POST", &format!("{sandbox}/preview-tokens"), body).json();
    assert!(made["url"].as_str().unwrap().starts_with(&below), "{made}");
    let server = Server::start_in("warn", &[], &[("ATOLL_PREVIEW_DOMAIN", "")]);
    let sandbox = sandbox_with_app(&server);
    let ran = atoll(&server, &["preview", id_of(&sandbox), "8080"]).output().unwrap();
    let url = String::from_utf8(ran.stdout).unwrap();
    let path = url.trim().strip_prefix(&format!("http://{}", server.address)).unwrap();
    assert!(path.starts_with(&format!("{sandbox}/ports/8080~")) && path.ends_with('/'), "{url}");
    assert_eq!(http::request(server.address, "GET", path, &[], b"").unwrap().status, 200);
}

#[test]
fn a_forward_is_for_programs() {
    let server = Server::start();
    let sandbox = sandbox_with_app(&server);
    let open = |headers: &str, port: u16| {
        let text = format!(
            "GET {sandbox}/forward?port={port} HTTP/1.1\r\nHost: {}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{headers}\r\n",
            server.address
        );
        let mut stream = TcpStream::connect(server.address).unwrap();
        stream.write_all(text.as_bytes()).unwrap();
        let mut head = [0; 12];
        stream.read_exact(&mut head).unwrap();
        String::from_utf8_lossy(&head[9..]).parse::<u16>().unwrap()
    };
    let key = format!("X-API-Key: {KEY}\r\n");
    assert_eq!(open(&key, 8080), 101);
    assert_eq!(open("", 8080), 401);
    assert_eq!(open(&format!("{key}Origin: http://{}\r\n", server.address), 8080), 101);
    for origin in ["null", "http://evil.example", "http://127.0.0.1:1"] {
        assert_eq!(open(&format!("{key}Origin: {origin}\r\n"), 8080), 403, "{origin}");
    }
    assert_eq!((open(&key, 9999), open(&key, 0)), (502, 422));
    let plain = server.ask("GET", &format!("{sandbox}/forward?port=8080"), "");
    assert_eq!((plain.status, plain.header("upgrade")), (426, Some("websocket")), "{plain:?}");
}
