//! Limits: each named when it is reached, and none a way to more.

use crate::support::*;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

async fn limited(limits: &str) -> (World, Server, Sandbox) {
    let world = World::new().await;
    let server = world.echo().await;
    world.name("a.test", &["127.0.0.1"]);
    let sandbox = Sandbox::new(&world, &policy(limits));
    (world, server, sandbox)
}

fn policy(limits: &str) -> String {
    format!(r#"{{"mode":"allowlist","allow":["a.test","127.0.0.1"],"limits":{limits}}}"#)
}

#[tokio::test]
async fn connections_at_one_time() {
    let (_world, server, sandbox) = limited(r#"{"connections":2}"#).await;
    let to = format!("a.test:{}", server.port);
    let mut one = connect(sandbox.proxy, &to).await.ok().unwrap();
    let mut two = connect(sandbox.proxy, &to).await.ok().unwrap();
    let answer = connect(sandbox.proxy, &to).await.unwrap_err();
    assert_eq!((answer.status(), answer.text().as_str()), (503, "Egress limit reached: connections\n"));
    assert_eq!(sandbox.told.of(|d| !d.allowed).await.rule, "limit: connections");
    assert_eq!((echo(&mut one, "1").await, echo(&mut two, "2").await), ("1".to_owned(), "2".to_owned()));
    drop(one);
    sandbox.told.about("a.test").await;
    let again = async {
        while connect(sandbox.proxy, &to).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    soon("a free place", again).await;
}

#[tokio::test]
async fn a_lower_limit_ends_as_many_as_are_too_many() {
    let (_world, server, sandbox) = limited("{}").await;
    let to = format!("a.test:{}", server.port);
    let mut tunnels = Vec::new();
    for _ in 0..5 {
        let mut tunnel = connect(sandbox.proxy, &to).await.ok().unwrap();
        assert_eq!(echo(&mut tunnel, "x").await, "x");
        tunnels.push(tunnel);
    }
    sandbox.set(&policy(r#"{"connections":2}"#));
    let fewer = async {
        while sandbox.serving.usage().open > 2 {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    soon("fewer", fewer).await;
    let mut left = 0;
    for tunnel in &mut tunnels {
        let mut back = [0; 1];
        if tunnel.write_all(b"y").await.is_ok() && matches!(soon("y", tunnel.read(&mut back)).await, Ok(1)) {
            left += 1;
        }
    }
    assert_eq!(left, 2);
}

#[tokio::test]
async fn connections_in_a_second() {
    let (_world, server, sandbox) = limited(r#"{"connections_per_second":3}"#).await;
    let to = format!("a.test:{}", server.port);
    let mut refused = None;
    // A slow machine gets more through, and never all of these.
    for _ in 0..200 {
        if let Err(answer) = connect(sandbox.proxy, &to).await {
            refused = Some(answer);
            break;
        }
    }
    let answer = refused.expect("two hundred at three a second");
    assert_eq!(answer.text(), "Egress limit reached: connections_per_second\n");
}

#[tokio::test]
async fn bytes_in_all() {
    let (_world, server, sandbox) = limited(r#"{"bytes":100000}"#).await;
    let mut tunnel = connect(sandbox.proxy, &format!("a.test:{}", server.port)).await.ok().unwrap();
    let (mut reader, mut writer) = tunnel.split();
    let sending = async { while writer.write_all(&[7; 1000]).await.is_ok() {} };
    let reading = async {
        let mut total = 0;
        let mut buffer = [0; 4096];
        while let Ok(read @ 1..) = reader.read(&mut buffer).await {
            total += read;
        }
        total
    };
    let (total, ()) = soon("the limit", async { tokio::join!(reading, sending) }).await;
    assert!(total <= 100_000, "{total}");
    let told = sandbox.told.about("a.test").await;
    assert_eq!(told.error.as_deref(), Some("limit reached: bytes"));
    assert!(told.sent + told.received <= 100_000, "{told:?}");
    // More allows more.
    sandbox.set(&policy("{}"));
    let mut tunnel = connect(sandbox.proxy, &format!("a.test:{}", server.port)).await.ok().unwrap();
    assert_eq!(echo(&mut tunnel, "again").await, "again");
}

#[tokio::test]
async fn bytes_in_a_second_are_shared_and_everybody_gets_some() {
    let (_world, server, sandbox) = limited(r#"{"bytes_per_second":400000}"#).await;
    let to = format!("a.test:{}", server.port);
    let text = "z".repeat(60_000);
    let one = async {
        let mut tunnel = connect(sandbox.proxy, &to).await.ok().unwrap();
        let (mut reader, mut writer) = tunnel.split();
        let mut back = vec![0; text.len()];
        let (sent, read) = tokio::join!(writer.write_all(text.as_bytes()), reader.read_exact(&mut back));
        sent.unwrap();
        read.unwrap();
    };
    let two = async {
        let mut tunnel = connect(sandbox.proxy, &to).await.ok().unwrap();
        echo(&mut tunnel, "small").await
    };
    let ((), small) = soon("both", async { tokio::join!(one, two) }).await;
    assert_eq!(small, "small");
}

#[tokio::test]
async fn seconds_of_a_connection() {
    let (_world, server, sandbox) = limited(r#"{"connection_seconds":1}"#).await;
    let mut tunnel = connect(sandbox.proxy, &format!("a.test:{}", server.port)).await.ok().unwrap();
    assert_eq!(echo(&mut tunnel, "x").await, "x");
    assert!(soon("the end", tunnel.read_to_end(&mut Vec::new())).await.is_err());
    let told = sandbox.told.about("a.test").await;
    assert_eq!(told.error.as_deref(), Some("limit reached: connection_seconds"));
}

#[tokio::test]
async fn hundreds_of_connections_are_open_at_one_time() {
    let (_world, server, sandbox) = limited("{}").await;
    let to = format!("a.test:{}", server.port);
    let mut open: Vec<TcpStream> = Vec::new();
    while open.len() < 250 {
        match connect(sandbox.proxy, &to).await {
            Ok(tunnel) => open.push(tunnel),
            Err(answer) => assert_eq!(answer.text(), "Egress limit reached: connections_per_second\n"),
        }
    }
    for tunnel in &mut open {
        assert_eq!(echo(tunnel, "x").await, "x");
    }
    assert_eq!(sandbox.serving.usage().open, 250);
}
