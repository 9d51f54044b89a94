//! The policy changes while connections are open.

use crate::support::*;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

#[tokio::test]
async fn an_open_connection_ends_when_it_is_allowed_no_more_and_others_stay() {
    let world = World::new().await;
    let server = world.echo().await;
    for name in ["a.test", "b.test"] {
        world.name(name, &["127.0.0.1"]);
    }
    let port = server.port;
    let sandbox = Sandbox::new(&world, &allow(&["a.test", "b.test", "127.0.0.1"]));
    let mut a = connect(sandbox.proxy, &format!("a.test:{port}")).await.ok().unwrap();
    let mut b = connect(sandbox.proxy, &format!("b.test:{port}")).await.ok().unwrap();
    assert_eq!((echo(&mut a, "a").await, echo(&mut b, "b").await), ("a".to_owned(), "b".to_owned()));
    sandbox.set(&allow(&["b.test", "127.0.0.1"]));
    let mut rest = Vec::new();
    let end = soon("the end", a.read_to_end(&mut rest)).await;
    assert!(end.is_err(), "a reset, and not an ordinary end");
    assert_eq!(echo(&mut b, "still here").await, "still here");
    let told = sandbox.told.about("a.test").await;
    assert_eq!(told.error.as_deref(), Some("not allowed: not listed"));
    // The address is taken away, and the name stays.
    sandbox.set(&allow(&["b.test"]));
    assert!(soon("the end", b.read_to_end(&mut rest)).await.is_err());
    let told = sandbox.told.about("b.test").await;
    assert_eq!(told.error.as_deref(), Some("not allowed: address out of reach"));
}

#[tokio::test]
async fn a_connection_that_is_not_looked_into_ends_when_it_has_to_be() {
    let world = World::new().await;
    let server = world.echo().await;
    world.name("a.test", &["127.0.0.1"]);
    let sandbox = Sandbox::new(&world, &allow(&["a.test", "127.0.0.1"]));
    let mut tunnel = connect(sandbox.proxy, &format!("a.test:{}", server.port)).await.ok().unwrap();
    assert_eq!(echo(&mut tunnel, "x").await, "x");
    sandbox.set(r#"{"mode":"allowlist","allow":[{"to":"a.test","methods":["GET"]},"127.0.0.1"]}"#);
    assert!(soon("the end", tunnel.read_to_end(&mut Vec::new())).await.is_err());
}

#[tokio::test]
async fn the_next_request_on_a_kept_connection_obeys_the_new_policy() {
    let world = World::new().await;
    let server = world.web().await;
    world.name("a.test", &["127.0.0.1"]);
    let sandbox = Sandbox::new(&world, &allow(&["a.test", "127.0.0.1"]));
    let host = format!("a.test:{}", server.port);
    let request = format!("GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\n\r\n");
    let mut stream = TcpStream::connect(sandbox.proxy).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    assert_eq!(read_answer(&mut stream).await.status(), 200);
    sandbox.set(&allow(&["a.test"]));
    stream.write_all(request.as_bytes()).await.unwrap();
    assert_eq!(read_answer(&mut stream).await.status(), 403, "the connection from before is not used");
    sandbox.set("{}");
    stream.write_all(request.as_bytes()).await.unwrap();
    assert_eq!(read_answer(&mut stream).await.status(), 403);
    assert_eq!(server.heads().len(), 1);
}

#[tokio::test]
async fn everything_ends_with_its_serving_and_is_told() {
    let world = World::new().await;
    let server = world.echo().await;
    world.name("a.test", &["127.0.0.1"]);
    let sandbox = Sandbox::new(&world, &allow(&["a.test", "127.0.0.1"]));
    let mut tunnel = connect(sandbox.proxy, &format!("a.test:{}", server.port)).await.ok().unwrap();
    assert_eq!(echo(&mut tunnel, "x").await, "x");
    assert_eq!(sandbox.serving.usage().open, 1);
    sandbox.serving.end().await;
    rest(&mut tunnel).await;
    assert_eq!(sandbox.told.all().len(), 1);
    assert!(TcpStream::connect(sandbox.proxy).await.is_err(), "nobody listens any more");
    // Dropped, the same.
    let sandbox = Sandbox::new(&world, &allow(&["a.test", "127.0.0.1"]));
    let mut tunnel = connect(sandbox.proxy, &format!("a.test:{}", server.port)).await.ok().unwrap();
    assert_eq!(echo(&mut tunnel, "x").await, "x");
    drop(sandbox.serving);
    rest(&mut tunnel).await;
    sandbox.told.about("a.test").await;
}

#[tokio::test]
async fn when_nobody_can_change_the_rules_nothing_passes_on() {
    let world = World::new().await;
    let server = world.echo().await;
    world.name("a.test", &["127.0.0.1"]);
    let sandbox = Sandbox::new(&world, &allow(&["a.test", "127.0.0.1"]));
    let mut tunnel = connect(sandbox.proxy, &format!("a.test:{}", server.port)).await.ok().unwrap();
    assert_eq!(echo(&mut tunnel, "x").await, "x");
    drop(sandbox.rules);
    assert!(soon("the end", tunnel.read_to_end(&mut Vec::new())).await.is_err());
}

#[tokio::test]
async fn a_reset_is_passed_on() {
    let world = World::new().await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let sandbox = Sandbox::new(&world, &allow(&["127.0.0.1"]));
    let mut tunnel = connect(sandbox.proxy, &format!("127.0.0.1:{port}")).await.ok().unwrap();
    let (upstream, _) = soon("a connection", listener.accept()).await.unwrap();
    socket2::SockRef::from(&upstream).set_linger(Some(std::time::Duration::ZERO)).unwrap();
    drop(upstream);
    assert!(soon("the end", tunnel.read_to_end(&mut Vec::new())).await.is_err());
}
