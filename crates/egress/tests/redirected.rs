//! Connections that know of no proxy. The redirect needs a network of its own, so the test runs itself again
//! inside one.

use crate::support::*;
use atoll_egress::Via;
use hickory_proto::{
    op::{Message, MessageType, OpCode, Query},
    rr::{Name, RData, RecordType},
};
use std::{net::Ipv4Addr, process::Command};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpStream, UdpSocket},
};

const INSIDE: &str = "ATOLL_TEST_INSIDE_NETWORK";

fn run(command: &str) -> bool {
    Command::new("sh").args(["-c", command]).status().is_ok_and(|status| status.success())
}

#[test]
fn redirected_connections_obey_the_same_rules() {
    if !run("unshare -rn sh -c 'nft list tables && ip link' >/dev/null 2>&1") {
        eprintln!("skipped: no network of its own, or no nft");
        return;
    }
    let test = std::env::current_exe().unwrap();
    let done = Command::new("unshare")
        .args(["-rn", test.to_str().unwrap(), "--exact", "redirected::inside", "--ignored", "--nocapture"])
        .env(INSIDE, "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&done.stdout);
    assert!(
        done.status.success() && text.contains("1 passed"),
        "{text}{}",
        String::from_utf8_lossy(&done.stderr)
    );
}

async fn resolve(sandbox: &Sandbox, name: &str) -> Ipv4Addr {
    let mut message = Message::new(1, MessageType::Query, OpCode::Query);
    message.add_query(Query::query(Name::from_ascii(name).unwrap(), RecordType::A));
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    socket.send_to(&message.to_vec().unwrap(), sandbox.names).await.unwrap();
    let mut buffer = [0; 512];
    let (length, _) = soon("an answer", socket.recv_from(&mut buffer)).await.unwrap();
    match Message::from_vec(&buffer[..length]).unwrap().answers[0].data {
        RData::A(address) => address.0,
        ref other => panic!("{other:?}"),
    }
}

#[tokio::test]
#[ignore = "run by redirected_connections_obey_the_same_rules, inside a network of its own"]
async fn inside() {
    assert!(std::env::var_os(INSIDE).is_some(), "not for the machine's own network");
    assert!(run("ip link set lo up && ip route add local 198.18.0.0/15 dev lo"));
    let world = World::new().await;
    let server = world.echo().await;
    world.name("a.test", &["127.0.0.1"]);
    let entries = ["a.test", &format!("127.0.0.1:{}", server.port)];
    let sandbox = Sandbox::new(&world, &allow(&entries));
    assert!(run(&format!(
        "nft add table ip nat && nft 'add chain ip nat output {{ type nat hook output priority -100; }}' && \
         nft add rule ip nat output ip daddr 198.18.0.0/15 meta l4proto tcp redirect to :{}",
        sandbox.redirected.port()
    )));
    let address = resolve(&sandbox, "a.test.").await;
    let mut stream = TcpStream::connect((address, server.port)).await.unwrap();
    assert_eq!(echo(&mut stream, "hello").await, "hello");
    drop(stream);
    let told = sandbox.told.of(|d| d.via == Via::Transparent).await;
    assert_eq!((told.host.as_str(), told.port, told.sent, told.allowed), ("a.test", server.port, 5, true));
    // An address that was given to no name.
    let unknown = Ipv4Addr::new(198, 19, 255, 250);
    let mut stream = TcpStream::connect((unknown, server.port)).await.unwrap();
    let _ = stream.write_all(b"x").await;
    assert!(soon("the end", stream.read_to_end(&mut Vec::new())).await.is_err());
    assert_eq!(sandbox.told.about("198.19.255.250").await.rule, "unknown address");
    // The policy has changed since the answer.
    sandbox.set(&allow(&["b.test"]));
    let mut stream = TcpStream::connect((address, server.port)).await.unwrap();
    let _ = stream.write_all(b"x").await;
    assert!(soon("the end", stream.read_to_end(&mut Vec::new())).await.is_err());
    sandbox.told.of(|d| d.via == Via::Transparent && !d.allowed && d.rule == "not listed").await;
    assert_eq!(server.connections(), 1);
    // Straight to the listener, nothing was redirected.
    let mut stream = TcpStream::connect(sandbox.redirected).await.unwrap();
    let _ = stream.write_all(b"x").await;
    assert!(soon("the end", stream.read_to_end(&mut Vec::new())).await.is_err());
}
