//! CONNECT: what passes, what is refused and how, and the name that TLS asks for.

use crate::support::*;
use atoll_egress::Via;
use rustls::{ClientConnection, pki_types::ServerName};
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

fn hello(name: &str) -> Vec<u8> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let mut out = Vec::new();
    ClientConnection::new(Arc::new(config), name).unwrap().write_tls(&mut out).unwrap();
    out
}

#[tokio::test]
async fn bytes_pass_both_ways_and_are_counted() {
    let world = World::new().await;
    let server = world.echo().await;
    world.name("a.test", &["127.0.0.1"]);
    let sandbox = Sandbox::new(&world, &allow(&["a.test", &format!("127.0.0.1:{}", server.port)]));
    let mut tunnel = connect(sandbox.proxy, &format!("a.test:{}", server.port)).await.ok().unwrap();
    assert_eq!(echo(&mut tunnel, "hello out there").await, "hello out there");
    // Half of it may end before the other.
    tunnel.write_all(b"last").await.unwrap();
    tunnel.shutdown().await.unwrap();
    let mut rest = String::new();
    soon("the rest", tunnel.read_to_string(&mut rest)).await.unwrap();
    assert_eq!(rest, "last");
    let told = sandbox.told.about("a.test").await;
    assert_eq!((told.via, told.allowed, told.rule.as_str()), (Via::Connect, true, "allow: a.test"));
    assert_eq!((told.sent, told.received, told.error), (19, 19, None));
    assert_eq!(told.address, Some("127.0.0.1".parse().unwrap()));
    let used = sandbox.serving.usage();
    assert_eq!((used.sent, used.received, used.allowed, used.denied), (19, 19, 1, 0));
    assert_eq!(sandbox.told.askers.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn a_refusal_names_the_host_in_its_first_line() {
    let world = World::new().await;
    world.name("evil.test", &["127.0.0.1"]);
    let sandbox = Sandbox::new(&world, &allow(&["a.test"]));
    let answer = connect(sandbox.proxy, "Evil.test:443").await.unwrap_err();
    assert!(answer.head.starts_with("HTTP/1.1 403 Host not allowed: evil.test\r\n"), "{}", answer.head);
    assert_eq!(answer.text(), "Host not allowed: evil.test (not listed)\n");
    let told = sandbox.told.about("evil.test").await;
    assert_eq!((told.allowed, told.port, told.rule.as_str()), (false, 443, "not listed"));
    assert!(
        world.questions.lock().unwrap().is_empty(),
        "nobody was asked for a name that may not be reached"
    );
}

#[tokio::test]
async fn what_lives_here_needs_an_entry_that_names_it() {
    let world = World::new().await;
    let server = world.echo().await;
    world.name("a.test", &["127.0.0.1"]);
    for policy in [allow(&["a.test"]), r#"{"mode":"full"}"#.to_owned()] {
        let sandbox = Sandbox::new(&world, &policy);
        let answer = connect(sandbox.proxy, &format!("a.test:{}", server.port)).await.unwrap_err();
        assert_eq!(answer.text(), "Host not allowed: a.test (address out of reach)\n");
        assert_eq!(sandbox.told.about("a.test").await.address, Some("127.0.0.1".parse().unwrap()));
    }
    assert_eq!(server.connections(), 0);
}

#[tokio::test]
async fn what_fails_says_why() {
    let world = World::new().await;
    world.name("closed.test", &["127.0.0.1"]);
    let sandbox = Sandbox::new(&world, &allow(&["*.test", "127.0.0.1"]));
    let answer = connect(sandbox.proxy, "closed.test:1").await.unwrap_err();
    assert_eq!(answer.status(), 502);
    assert!(answer.text().contains("closed.test") && answer.text().contains("refused"), "{}", answer.text());
    let answer = connect(sandbox.proxy, "nowhere.test:443").await.unwrap_err();
    assert_eq!(answer.status(), 502);
    assert!(answer.text().contains("cannot be resolved"), "{}", answer.text());
    let told = sandbox.told.about("closed.test").await;
    assert!(told.allowed && told.error.is_some_and(|e| e.contains("refused")));
}

#[tokio::test]
async fn a_host_may_speak_first() {
    let world = World::new().await;
    let server = world.greeter().await;
    world.name("a.test", &["127.0.0.1"]);
    let sandbox = Sandbox::new(&world, &allow(&["a.test", "127.0.0.1"]));
    let mut tunnel = connect(sandbox.proxy, &format!("a.test:{}", server.port)).await.ok().unwrap();
    let mut welcome = [0; 13];
    soon("the welcome", tunnel.read_exact(&mut welcome)).await.unwrap();
    assert_eq!(&welcome, b"220 welcome\r\n");
    assert_eq!(echo(&mut tunnel, "HELO").await, "HELO");
}

#[tokio::test]
async fn tls_names_the_host_it_asked_for() {
    let world = World::new().await;
    let server = world.echo().await;
    world.name("a.test", &["127.0.0.1"]);
    let sandbox = Sandbox::new(&world, &allow(&["a.test", "127.0.0.1"]));
    let to = format!("a.test:{}", server.port);
    let bytes = hello("A.test");
    let mut tunnel = connect(sandbox.proxy, &to).await.ok().unwrap();
    for part in bytes.chunks(100) {
        tunnel.write_all(part).await.unwrap();
        tokio::task::yield_now().await;
    }
    let mut back = vec![0; bytes.len()];
    soon("the echo", tunnel.read_exact(&mut back)).await.unwrap();
    assert_eq!(back, bytes, "what was looked at is passed on as it came");
    // To an address no name belongs.
    let mut tunnel = connect(sandbox.proxy, &format!("127.0.0.1:{}", server.port)).await.ok().unwrap();
    tunnel.write_all(&bytes).await.unwrap();
    soon("the echo", tunnel.read_exact(&mut back)).await.unwrap();
}

#[tokio::test]
async fn tls_for_another_host_never_arrives() {
    let world = World::new().await;
    let server = world.greeter().await;
    world.name("a.test", &["127.0.0.1"]);
    let sandbox = Sandbox::new(&world, &allow(&["a.test", "127.0.0.1"]));
    // Another name, none at all, half a message, and what no client begins with.
    let half = hello("a.test")[..60].to_vec();
    for first in [hello("b.test"), hello("192.0.2.1"), half, vec![0x15, 3, 1, 0, 2, 1, 0]] {
        let mut tunnel = connect(sandbox.proxy, &format!("a.test:{}", server.port)).await.ok().unwrap();
        tunnel.write_all(&first).await.unwrap();
        tunnel.shutdown().await.unwrap();
        let back = rest(&mut tunnel).await;
        assert!(back.len() <= "220 welcome\r\n".len() + 7, "only an alert, and nothing echoed: {back:?}");
        let told = sandbox.told.of(|d| d.rule == "sni").await;
        assert_eq!((told.allowed, told.sent), (false, 0));
    }
}
