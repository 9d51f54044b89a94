//! Plain HTTP: each request decided anew, read strictly and written anew.

use crate::support::*;
use atoll_egress::Via;
use tokio::{io::AsyncWriteExt, net::TcpStream};

async fn world_with_web() -> (World, Server, Sandbox) {
    let world = World::new().await;
    let server = world.web().await;
    world.name("a.test", &["127.0.0.1"]);
    world.name("b.test", &["127.0.0.1"]);
    let sandbox = Sandbox::new(&world, &allow(&["a.test", &format!("127.0.0.1:{}", server.port)]));
    (world, server, sandbox)
}

#[tokio::test]
async fn a_request_is_forwarded_in_origin_form() {
    let (_world, server, sandbox) = world_with_web().await;
    let host = format!("a.test:{}", server.port);
    let answer = ask(
        sandbox.proxy,
        format!(
            "POST http://{host}/x?q=1 HTTP/1.1\r\nHost: {host}\r\nProxy-Authorization: Basic c2VjcmV0\r\n\
             Proxy-Connection: keep-alive\r\nConnection: X-Private\r\nX-Private: 1\r\nX-Kept: yes\r\n\
             Content-Length: 3\r\n\r\nabc"
        ),
    )
    .await;
    assert_eq!((answer.status(), answer.text().as_str()), (200, "hello 3 bytes"));
    let expected =
        format!("POST /x?q=1 HTTP/1.1\r\nHost: {host}\r\nX-Kept: yes\r\nContent-Length: 3\r\n\r\n");
    assert_eq!(server.heads(), [expected]);
    let told = sandbox.told.about("a.test").await;
    assert_eq!((told.via, told.allowed), (Via::Http, true));
    assert_eq!(told.request, Some(("POST".to_owned(), "/x".to_owned())), "never the query");
    assert!(told.sent > 3 && told.received > 0);
}

#[tokio::test]
async fn each_request_is_decided_anew_and_the_connection_is_kept() {
    let (_world, server, sandbox) = world_with_web().await;
    let port = server.port;
    let mut stream = TcpStream::connect(sandbox.proxy).await.unwrap();
    let request = |host: &str| format!("GET http://{host}:{port}/ HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n");
    // Three at once, as apt sends them.
    let three = [request("a.test"), request("b.test"), request("a.test")].concat();
    stream.write_all(three.as_bytes()).await.unwrap();
    let mut statuses = Vec::new();
    for _ in 0..3 {
        statuses.push(read_answer(&mut stream).await.status());
    }
    assert_eq!(statuses, [200, 403, 200]);
    stream.write_all(request("a.test").as_bytes()).await.unwrap();
    assert_eq!(read_answer(&mut stream).await.status(), 200);
    assert_eq!(server.heads().len(), 3);
    assert_eq!(server.connections(), 1, "the same connection for the same host");
}

#[tokio::test]
async fn answers_arrive_however_they_are_framed() {
    let (_world, server, sandbox) = world_with_web().await;
    let host = format!("a.test:{}", server.port);
    let answer = get(sandbox.proxy, &host, "/chunked").await;
    assert_eq!(answer.text(), "hello world");
    assert!(!answer.head.contains("Trailer"), "{}", answer.head);
    assert_eq!(get(sandbox.proxy, &host, "/close").await.text(), "until the end");
    assert_eq!(get(sandbox.proxy, &host, "/big").await.body.len(), 1 << 20);
    let answer = get(sandbox.proxy, &host, "/both").await;
    assert_eq!(answer.status(), 502, "an answer that can be read in two ways is none");
    let old = ask(sandbox.proxy, format!("GET http://{host}/close HTTP/1.0\r\n\r\n")).await;
    assert!(old.head.contains("Connection: close") && !old.head.contains("chunked"), "{}", old.head);
    let mut stream = TcpStream::connect(sandbox.proxy).await.unwrap();
    let request = format!("HEAD http://{host}/ HTTP/1.1\r\nHost: {host}\r\n\r\n").repeat(2);
    stream.write_all(request.as_bytes()).await.unwrap();
    for _ in 0..2 {
        assert!(read_head(&mut stream).await.contains("Content-Length: 13"), "what a body would have had");
    }
    let mut stream = TcpStream::connect(sandbox.proxy).await.unwrap();
    let request = format!("GET http://{host}/interim HTTP/1.1\r\nHost: {host}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    assert!(read_head(&mut stream).await.starts_with("HTTP/1.1 103 "));
    assert_eq!(read_answer(&mut stream).await.text(), "late");
}

#[tokio::test]
async fn a_chunked_request_is_framed_anew() {
    let (_world, server, sandbox) = world_with_web().await;
    let host = format!("a.test:{}", server.port);
    let head = format!("POST http://{host}/ HTTP/1.1\r\nHost: {host}\r\nTransfer-Encoding: chunked\r\n\r\n");
    let answer = ask(sandbox.proxy, format!("{head}3;x=y\r\nabc\r\n0\r\nT: u\r\n\r\n")).await;
    assert_eq!(
        (answer.status(), answer.text().as_str()),
        (200, "hello 13 bytes"),
        "3 CRLF abc CRLF 0 CRLF CRLF"
    );
    // A chunk that lies, a size that is none, a line without CR.
    for odd in ["3\r\nabcd\r\n0\r\n\r\n", "-3\r\nabc\r\n0\r\n\r\n", "3\nabc\r\n0\r\n\r\n"] {
        let mut stream = TcpStream::connect(sandbox.proxy).await.unwrap();
        stream.write_all(format!("{head}{odd}GET http://b.test/ HTTP/1.1\r\n\r\n").as_bytes()).await.unwrap();
        let back = rest(&mut stream).await;
        assert!(!String::from_utf8_lossy(&back).contains("HTTP/1.1 200"), "{odd:?}");
    }
    assert!(server.heads().iter().all(|head| !head.contains("b.test")));
}

#[tokio::test]
async fn a_websocket_passes_and_no_other_upgrade() {
    let (_world, server, sandbox) = world_with_web().await;
    let host = format!("a.test:{}", server.port);
    let request = |path: &str, upgrade: &str| {
        format!(
            "GET http://{host}{path} HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade, HTTP2-Settings\r\n\
             Upgrade: {upgrade}\r\nHTTP2-Settings: x\r\n\r\n"
        )
    };
    let mut stream = TcpStream::connect(sandbox.proxy).await.unwrap();
    stream.write_all(request("/ws", "websocket").as_bytes()).await.unwrap();
    assert!(read_head(&mut stream).await.starts_with("HTTP/1.1 101 "));
    assert_eq!(echo(&mut stream, "frames").await, "frames");
    drop(stream);
    assert_eq!(ask(sandbox.proxy, request("/", "h2c")).await.status(), 200);
    assert!(!server.heads()[1].to_ascii_lowercase().contains("upgrade"), "{}", server.heads()[1]);
    let answer = get(sandbox.proxy, &host, "/ws").await;
    assert_eq!(answer.status(), 502, "a switch that nobody asked for");
}

#[tokio::test]
async fn methods_and_paths_are_looked_at() {
    let world = World::new().await;
    let server = world.web().await;
    world.name("a.test", &["127.0.0.1"]);
    let policy = format!(
        r#"{{"mode":"allowlist","allow":[{{"to":"a.test","methods":["GET"],"paths":["/v1"]}},"127.0.0.1:{}"]}}"#,
        server.port
    );
    let sandbox = Sandbox::new(&world, &policy);
    let host = format!("a.test:{}", server.port);
    assert_eq!(get(sandbox.proxy, &host, "/v1/x?y").await.status(), 200);
    for path in ["/", "/v2", "/v1/../v2", "/v1/%2e%2e/v2", "//v1"] {
        assert_eq!(get(sandbox.proxy, &host, path).await.status(), 403, "{path}");
    }
    let post = format!("POST http://{host}/v1 HTTP/1.1\r\nHost: {host}\r\nContent-Length: 3\r\n\r\nabc");
    assert_eq!(ask(sandbox.proxy, post).await.status(), 403);
    assert_eq!(server.heads().len(), 1);
    let told = sandbox.told.of(|d| d.rule == "ambiguous path").await;
    assert!(!told.allowed);
}
