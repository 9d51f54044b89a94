//! SOCKS5: names and addresses, the same rules.

use crate::support::*;
use atoll_egress::Via;
use std::net::SocketAddr;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

pub(crate) async fn socks(
    proxy: SocketAddr,
    command: u8,
    kind: u8,
    address: &[u8],
    port: u16,
) -> (u8, TcpStream) {
    let mut stream = TcpStream::connect(proxy).await.unwrap();
    stream.write_all(&[5, 1, 0]).await.unwrap();
    let mut method = [0; 2];
    soon("a method", stream.read_exact(&mut method)).await.unwrap();
    assert_eq!(method, [5, 0]);
    let mut request = vec![5, command, 0, kind];
    if kind == 3 {
        request.push(u8::try_from(address.len()).unwrap());
    }
    request.extend_from_slice(address);
    request.extend_from_slice(&port.to_be_bytes());
    stream.write_all(&request).await.unwrap();
    let mut reply = [0; 10];
    soon("a reply", stream.read_exact(&mut reply)).await.unwrap();
    (reply[1], stream)
}

#[tokio::test]
async fn names_and_addresses_pass_by_the_same_rules() {
    let world = World::new().await;
    let server = world.echo().await;
    world.name("a.test", &["127.0.0.1"]);
    let sandbox = Sandbox::new(&world, &allow(&["a.test", &format!("127.0.0.1:{}", server.port)]));
    let mapped = [&[0; 10][..], &[0xff, 0xff, 127, 0, 0, 1]].concat();
    for (kind, address) in [(3, b"a.test".to_vec()), (1, vec![127, 0, 0, 1]), (4, mapped)] {
        let (code, mut stream) = socks(sandbox.proxy, 1, kind, &address, server.port).await;
        assert_eq!(code, 0);
        assert_eq!(echo(&mut stream, "hello").await, "hello");
    }
    let told = sandbox.told.about("a.test").await;
    assert_eq!((told.via, told.sent), (Via::Socks, 5));
}

#[tokio::test]
async fn what_is_not_allowed_is_refused_as_such() {
    let world = World::new().await;
    world.name("closed.test", &["127.0.0.1"]);
    let sandbox = Sandbox::new(&world, &allow(&["closed.test", "127.0.0.1:1"]));
    assert_eq!(socks(sandbox.proxy, 1, 3, b"evil.test", 443).await.0, 2);
    assert_eq!(socks(sandbox.proxy, 1, 1, &[127, 0, 0, 1], 22).await.0, 2);
    assert_eq!(socks(sandbox.proxy, 1, 3, b"closed.test", 1).await.0, 5);
    assert_eq!(socks(sandbox.proxy, 1, 3, b"a b", 1).await.0, 1);
    for command in [2, 3, 9] {
        assert_eq!(socks(sandbox.proxy, command, 3, b"closed.test", 1).await.0, 7);
    }
    let mut stream = TcpStream::connect(sandbox.proxy).await.unwrap();
    stream.write_all(&[5, 1, 2]).await.unwrap();
    let mut method = [0; 2];
    soon("a method", stream.read_exact(&mut method)).await.unwrap();
    assert_eq!(method, [5, 0xff], "nobody signs in here");
}
