//! HTTPS that the rules look into: TLS ends at the proxy, and each request is decided.

use crate::support::*;
use atoll_egress::{Authority, Via};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};
use std::sync::Arc;
use tokio::{io::AsyncWriteExt, net::TcpStream};
use tokio_rustls::{TlsConnector, client::TlsStream};

/// What a client trusts.
fn trusting(pem: &str) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Arc::new(config)
}

async fn secure(stream: TcpStream, name: &str, trust: &str) -> std::io::Result<TlsStream<TcpStream>> {
    let name = ServerName::try_from(name.to_owned()).unwrap();
    soon("a handshake", TlsConnector::from(trusting(trust)).connect(name, stream)).await
}

async fn ask_in(stream: &mut TlsStream<TcpStream>, text: &str) -> Answer {
    stream.write_all(text.as_bytes()).await.unwrap();
    read_answer(stream).await
}

struct Inspected {
    world: World,
    server: Server,
    sandbox: Sandbox,
    trust: String,
    _folder: tempfile::TempDir,
}

async fn inspected(certificate: &str) -> Inspected {
    let world = World::new().await;
    let server = world.secure_web(&[certificate]).await;
    world.name("a.test", &["127.0.0.1"]);
    world.name("b.test", &["127.0.0.1"]);
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::load_or_create(folder.path()).unwrap();
    let trust = authority.certificate_pem().to_owned();
    let policy = format!(
        r#"{{"mode":"allowlist","allow":[{{"to":"a.test","methods":["GET"],"paths":["/v1"]}},"b.test","127.0.0.1:{}"]}}"#,
        server.port
    );
    let sandbox = Sandbox::with(egress(&world, Some(authority)), &policy);
    Inspected { world, server, sandbox, trust, _folder: folder }
}

#[tokio::test]
async fn each_request_is_decided_inside_the_connection() {
    let Inspected { server, sandbox, trust, world, .. } = inspected("a.test").await;
    let to = format!("a.test:{}", server.port);
    let tunnel = connect(sandbox.proxy, &to).await.ok().unwrap();
    let mut stream = secure(tunnel, "a.test", &trust).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
    let request = |method: &str, path: &str| format!("{method} {path} HTTP/1.1\r\nHost: {to}\r\n\r\n");
    assert_eq!(ask_in(&mut stream, &request("GET", "/v1/x?key=secret")).await.status(), 200);
    let refused = ask_in(&mut stream, &request("GET", "/v2")).await;
    assert_eq!((refused.status(), refused.text().as_str()), (403, "Host not allowed: a.test (not listed)\n"));
    assert_eq!(ask_in(&mut stream, &request("DELETE", "/v1")).await.status(), 403);
    assert_eq!(ask_in(&mut stream, &request("GET", "/v1/../v2")).await.status(), 403);
    assert_eq!(ask_in(&mut stream, &request("GET", "/v1")).await.status(), 200);
    assert_eq!(server.heads().len(), 2);
    assert_eq!(server.connections(), 1, "and over one connection");
    let told = sandbox.told.of(|d| d.allowed).await;
    assert_eq!((told.via, told.rule.as_str()), (Via::Http, "allow: a.test"));
    assert_eq!(told.request, Some(("GET".to_owned(), "/v1/x".to_owned())));
    drop(world);
}

#[tokio::test]
async fn another_host_inside_is_refused() {
    let Inspected { server, sandbox, trust, world, .. } = inspected("a.test").await;
    let to = format!("a.test:{}", server.port);
    let tunnel = connect(sandbox.proxy, &to).await.ok().unwrap();
    let mut stream = secure(tunnel, "a.test", &trust).await.unwrap();
    let answer = ask_in(&mut stream, "GET /v1 HTTP/1.1\r\nHost: b.test\r\n\r\n").await;
    assert_eq!(answer.status(), 400);
    let tunnel = connect(sandbox.proxy, &to).await.ok().unwrap();
    assert!(secure(tunnel, "b.test", &trust).await.is_err(), "nor under another name");
    assert_eq!(sandbox.told.of(|d| d.rule == "sni").await.host, "a.test");
    assert!(server.heads().is_empty());
    drop(world);
}

#[tokio::test]
async fn the_host_is_verified() {
    let Inspected { server, sandbox, trust, world, .. } = inspected("other.test").await;
    let to = format!("a.test:{}", server.port);
    let tunnel = connect(sandbox.proxy, &to).await.ok().unwrap();
    let mut stream = secure(tunnel, "a.test", &trust).await.unwrap();
    let answer = ask_in(&mut stream, &format!("GET /v1 HTTP/1.1\r\nHost: {to}\r\n\r\n")).await;
    assert_eq!(answer.status(), 502);
    assert!(answer.text().contains("certificate"), "{}", answer.text());
    assert!(server.heads().is_empty());
    drop(world);
}

#[tokio::test]
async fn what_needs_no_looking_at_is_not_looked_at() {
    let Inspected { server, sandbox, trust, world, .. } = inspected("b.test").await;
    let tunnel = connect(sandbox.proxy, &format!("b.test:{}", server.port)).await.ok().unwrap();
    let mut stream = secure(tunnel, "b.test", &world.root).await.unwrap();
    assert_eq!(ask_in(&mut stream, "GET /any HTTP/1.1\r\nHost: b.test\r\n\r\n").await.status(), 200);
    let tunnel = connect(sandbox.proxy, &format!("b.test:{}", server.port)).await.ok().unwrap();
    assert!(secure(tunnel, "b.test", &trust).await.is_err(), "our authority signs nothing here");
}

#[tokio::test]
async fn plain_requests_in_a_tunnel_are_decided_too() {
    let world = World::new().await;
    let server = world.web().await;
    world.name("a.test", &["127.0.0.1"]);
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::load_or_create(folder.path()).unwrap();
    let policy = r#"{"mode":"allowlist","allow":[{"to":"a.test","methods":["GET"]},"127.0.0.1"]}"#;
    let sandbox = Sandbox::with(egress(&world, Some(authority)), policy);
    let to = format!("a.test:{}", server.port);
    let mut tunnel = connect(sandbox.proxy, &to).await.ok().unwrap();
    tunnel.write_all(format!("GET / HTTP/1.1\r\nHost: {to}\r\n\r\n").as_bytes()).await.unwrap();
    assert_eq!(read_answer(&mut tunnel).await.status(), 200);
    tunnel.write_all(format!("PUT / HTTP/1.1\r\nHost: {to}\r\n\r\n").as_bytes()).await.unwrap();
    assert_eq!(read_answer(&mut tunnel).await.status(), 403);
    let mut tunnel = connect(sandbox.proxy, &to).await.ok().unwrap();
    tunnel.write_all(b"SSH-2.0-x\r\n\r\n").await.unwrap();
    assert_eq!(read_answer(&mut tunnel).await.status(), 400, "what cannot be looked at does not pass");
    assert_eq!(server.heads().len(), 1);
}

#[tokio::test]
async fn without_an_authority_it_is_a_refusal_that_says_so() {
    let world = World::new().await;
    world.name("a.test", &["127.0.0.1"]);
    let sandbox = Sandbox::new(&world, r#"{"mode":"allowlist","allow":[{"to":"a.test","methods":["GET"]}]}"#);
    let answer = connect(sandbox.proxy, "a.test:443").await.unwrap_err();
    assert_eq!(answer.status(), 403);
    assert!(answer.text().contains("no authority to look inside TLS"), "{}", answer.text());
}
