//! What an attacker tries, line by line.

use crate::{socks::socks, support::*};
use tokio::{io::AsyncWriteExt, net::TcpStream};

/// Every way to write this machine's loopback, and the metadata address.
const SPELLINGS: &[&str] = &[
    "127.0.0.1",
    "127.1",
    "0x7f.1",
    "0x7f000001",
    "2130706433",
    "017700000001",
    "0177.0.0.1",
    "[::1]",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "[64:ff9b::7f00:1]",
    "[2002:7f00:1::]",
    "0.0.0.0",
    "0",
    "[::]",
    "169.254.169.254",
    "2852039166",
    "0xa9.0xfe.0xa9.0xfe",
    "[::ffff:169.254.169.254]",
    "[fe80::1]",
    "10.0.0.1",
    "192.168.0.1",
    "[fd00:ec2::254]",
    "127.0.1",
    "127.0.0.1.",
    "0x7f.0.0.1",
    "0X7F.1",
    "0251.0376.0251.0376",
    "0xa9fea9fe",
    "[::127.0.0.1]",
    "[::ffff:a9fe:a9fe]",
    "[64:ff9b::a9fe:a9fe]",
    "[64:ff9b:1::7f00:1]",
    "[2002:a9fe:a9fe::]",
    "167772161",
    "172.16.0.1",
    "100.64.0.1",
    "198.18.0.1",
    "224.0.0.1",
    "255.255.255.255",
    "[ff02::1]",
];

#[tokio::test]
async fn no_spelling_of_an_address_out_of_reach_passes() {
    let world = World::new().await;
    let server = world.echo().await;
    // The widest policy there is.
    let sandbox = Sandbox::new(&world, r#"{"mode":"full"}"#);
    for host in SPELLINGS {
        let to = format!("{host}:{}", server.port);
        let answer = connect(sandbox.proxy, &to).await.err().unwrap_or_else(|| panic!("{to}"));
        assert_eq!(answer.status(), 403, "CONNECT {to}: {}", answer.text());
        assert_eq!(get(sandbox.proxy, &to, "/").await.status(), 403, "GET {to}");
        let bare = host.trim_matches(['[', ']']);
        let (code, _) = socks(sandbox.proxy, 1, 3, bare.as_bytes(), server.port).await;
        assert_eq!(code, 2, "SOCKS {to}");
    }
    assert_eq!(server.connections(), 0);
    assert!(world.questions.lock().unwrap().is_empty(), "an address is nobody's name");
}

#[tokio::test]
async fn a_name_that_changes_its_address_gains_nothing() {
    let world = World::new().await;
    let server = world.echo().await;
    let to = format!("rebind.test:{}", server.port);
    // The name alone is allowed; whatever it says of its address, this machine's is not.
    let sandbox = Sandbox::new(&world, r#"{"mode":"allowlist","allow":["rebind.test"]}"#);
    world.name("rebind.test", &["169.254.169.254", "127.0.0.1"]);
    for _ in 0..3 {
        let answer = connect(sandbox.proxy, &to).await.unwrap_err();
        assert_eq!(answer.text(), "Host not allowed: rebind.test (address out of reach)\n");
    }
    let asked = world.questions.lock().unwrap().iter().filter(|name| *name == "rebind.test").count();
    assert!(asked >= 3, "asked anew each time, so each answer was checked: {asked}");
    assert_eq!(server.connections(), 0);
}

#[tokio::test]
async fn the_address_that_was_checked_is_the_one_connected_to() {
    let world = World::new().await;
    let server = world.echo().await;
    // 127.0.0.2 is named, 127.0.0.1 is not: a proxy that looked the name up twice would connect to the second.
    world.name("rebind.test", &["127.0.0.2", "127.0.0.1"]);
    let sandbox = Sandbox::new(&world, &allow(&["rebind.test", "127.0.0.2"]));
    let to = format!("rebind.test:{}", server.port);
    // Nothing listens there: the server is on 127.0.0.1.
    assert_eq!(connect(sandbox.proxy, &to).await.unwrap_err().status(), 502);
    assert!(sandbox.told.about("rebind.test").await.error.is_some());
    assert_eq!(connect(sandbox.proxy, &to).await.unwrap_err().status(), 403);
    assert_eq!(server.connections(), 0);
}

#[tokio::test]
async fn one_host_is_not_a_way_to_another() {
    let world = World::new().await;
    let server = world.web().await;
    for name in ["a.test", "b.test"] {
        world.name(name, &["127.0.0.1"]);
    }
    let sandbox = Sandbox::new(&world, &allow(&["a.test", "127.0.0.1"]));
    let port = server.port;
    for text in [
        // A host in the URL and another in the header.
        format!("GET http://a.test:{port}/ HTTP/1.1\r\nHost: b.test:{port}\r\n\r\n"),
        format!("GET http://a.test:{port}/ HTTP/1.1\r\nHost: a.test:{port}\r\nHost: b.test\r\n\r\n"),
        format!("GET http://a.test:{port}/ HTTP/1.1\r\nHost: a.test:{port}\r\n Host: b.test\r\n\r\n"),
        format!("GET http://a.test:{port}@b.test/ HTTP/1.1\r\nHost: a.test:{port}\r\n\r\n"),
        format!("GET http://a.test:{port}\\@b.test/ HTTP/1.1\r\nHost: a.test:{port}\r\n\r\n"),
        format!("GET http://b.test#@a.test:{port}/ HTTP/1.1\r\nHost: a.test:{port}\r\n\r\n"),
        format!("CONNECT a.test:{port} HTTP/1.1\r\nHost: b.test:{port}\r\n\r\n"),
        format!("CONNECT a.test:{port}@b.test:{port} HTTP/1.1\r\n\r\n"),
        format!("CONNECT http://a.test:{port}/ HTTP/1.1\r\n\r\n"),
        "CONNECT a.test HTTP/1.1\r\n\r\n".to_owned(),
        format!("CONNECT a.test:{port}:80 HTTP/1.1\r\n\r\n"),
        format!("CONNECT a.test%2eb.test:{port} HTTP/1.1\r\n\r\n"),
        format!("GET / HTTP/1.1\r\nHost: a.test:{port}\r\n\r\n"),
        format!("GET https://a.test:{port}/ HTTP/1.1\r\nHost: a.test:{port}\r\n\r\n"),
    ] {
        let answer = ask(sandbox.proxy, &text).await;
        assert_eq!(answer.status(), 400, "{text}: {}", answer.text());
    }
    assert_eq!(server.connections(), 0);
    assert!(sandbox.told.all().iter().all(|d| !d.allowed));
}

#[tokio::test]
async fn smuggling_is_refused_before_anything_is_sent() {
    let world = World::new().await;
    let server = world.web().await;
    world.name("a.test", &["127.0.0.1"]);
    let sandbox = Sandbox::new(&world, &allow(&["a.test", "127.0.0.1"]));
    let host = format!("a.test:{}", server.port);
    let hidden = format!("GET /hidden HTTP/1.1\r\nHost: {host}\r\n\r\n");
    for lines in [
        "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n",
        "Content-Length: 4\r\nContent-Length: 100\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
        "Transfer-Encoding: \x0bchunked\r\n",
        "Transfer-Encoding : chunked\r\n",
        "Transfer-Encoding: chunked, identity\r\n",
        "Content-Length: 0x4\r\n",
        "X: y\nContent-Length: 4\r\n",
        "X: y\r\n\tContent-Length: 4\r\n",
        "X: \0\r\n",
    ] {
        let text = format!("POST http://{host}/ HTTP/1.1\r\nHost: {host}\r\n{lines}\r\n0\r\n\r\n{hidden}");
        assert_eq!(ask(sandbox.proxy, &text).await.status(), 400, "{lines:?}");
    }
    assert!(server.heads().is_empty());
    // What follows a body is another request, and is read as one.
    let two =
        format!("POST http://{host}/ HTTP/1.1\r\nHost: {host}\r\nContent-Length: 4\r\n\r\nabcd{hidden}");
    let mut stream = TcpStream::connect(sandbox.proxy).await.unwrap();
    stream.write_all(two.as_bytes()).await.unwrap();
    assert_eq!(read_answer(&mut stream).await.status(), 200);
    assert_eq!(read_answer(&mut stream).await.status(), 400, "a path is not for a proxy");
    assert_eq!(server.heads().len(), 1);
}

#[tokio::test]
async fn heads_are_bounded() {
    let world = World::new().await;
    let sandbox = Sandbox::new(&world, &allow(&["a.test"]));
    for head in [
        format!("GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\nX: {}\r\n\r\n", "y".repeat(70_000)),
        format!("GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\n{}\r\n", "X: y\r\n".repeat(200)),
        format!("GET http://a.test/{} HTTP/1.1\r\nHost: a.test\r\n\r\n", "y".repeat(70_000)),
    ] {
        assert_eq!(ask(sandbox.proxy, head).await.status(), 400);
    }
    let told = sandbox.told.of(|d| d.rule.starts_with("malformed")).await;
    assert!(!told.allowed);
}

#[tokio::test]
async fn a_redirect_to_the_metadata_address_ends_at_the_proxy() {
    let world = World::new().await;
    let server = world.web().await;
    world.name("a.test", &["127.0.0.1"]);
    let sandbox =
        Sandbox::new(&world, &format!(r#"{{"mode":"full","allow":["127.0.0.1:{}"]}}"#, server.port));
    let answer = get(sandbox.proxy, &format!("a.test:{}", server.port), "/redirect").await;
    assert_eq!(answer.status(), 302);
    let next = answer.head.lines().find_map(|line| line.strip_prefix("Location: http://")).unwrap();
    let (host, path) = next.split_once('/').unwrap();
    let answer = get(sandbox.proxy, host, &format!("/{path}")).await;
    assert_eq!(answer.text(), "Host not allowed: 169.254.169.254 (address out of reach)\n");
}

#[tokio::test]
async fn nothing_passes_without_a_policy() {
    let world = World::new().await;
    let sandbox = Sandbox::new(&world, "{}");
    let answer = connect(sandbox.proxy, "a.test:443").await.unwrap_err();
    assert_eq!(answer.text(), "Host not allowed: a.test (none)\n");
    assert_eq!(socks(sandbox.proxy, 1, 3, b"a.test", 443).await.0, 2);
    assert!(world.questions.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_flood_of_refusals_is_told_in_a_few_rows_and_counted_whole() {
    let world = World::new().await;
    let sandbox = Sandbox::new(&world, &allow(&["a.test"]));
    for n in 0..60 {
        let host = if n % 2 == 0 { "evil.test:443" } else { "worse.test:443" };
        assert_eq!(connect(sandbox.proxy, host).await.unwrap_err().status(), 403);
    }
    let (told, used) = (sandbox.told.clone(), sandbox.serving.usage());
    assert_eq!(used.denied, 60);
    sandbox.serving.end().await;
    let rows = told.all();
    assert_eq!(rows.iter().map(|d| d.count).sum::<u32>(), 60);
    assert!(rows.len() < 30, "{} rows", rows.len());
}

#[tokio::test]
async fn arbitrary_first_bytes_end_a_connection_and_nothing_else() {
    let world = World::new().await;
    let sandbox = Sandbox::new(&world, &allow(&["a.test"]));
    for bytes in [
        &b"\0\0\0\0\r\n\r\n"[..],
        b"\xff\xfe\xfd\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x04\x01\x00\x50\n",
    ] {
        let mut stream = TcpStream::connect(sandbox.proxy).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        stream.shutdown().await.unwrap();
        let back = rest(&mut stream).await;
        assert!(back.is_empty() || back.starts_with(b"HTTP/1.1 400"), "{back:?}");
    }
    assert_eq!(connect(sandbox.proxy, "evil.test:443").await.unwrap_err().status(), 403, "still there");
}
