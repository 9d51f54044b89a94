//! The resolver inside: what it answers, what it never forwards.

use crate::{socks::socks, support::*};
use atoll_egress::Via;
use hickory_proto::{
    op::{Message, MessageType, OpCode, Query, ResponseCode},
    rr::{Name, RData, RecordType},
};
use std::net::{Ipv4Addr, SocketAddr};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpStream, UdpSocket},
};

fn question(name: &str, kind: RecordType) -> Message {
    let mut message = Message::new(7, MessageType::Query, OpCode::Query);
    message.metadata.recursion_desired = true;
    message.add_query(Query::query(Name::from_ascii(name).unwrap(), kind));
    message
}

async fn raw(server: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    socket.send_to(bytes, server).await.unwrap();
    let mut buffer = [0; 4096];
    let (length, _) = soon("an answer", socket.recv_from(&mut buffer)).await.unwrap();
    buffer[..length].to_vec()
}

async fn resolve(server: SocketAddr, name: &str, kind: RecordType) -> Message {
    let answer = raw(server, &question(name, kind).to_vec().unwrap()).await;
    let answer = Message::from_vec(&answer).unwrap();
    assert_eq!(answer.metadata.id, 7);
    answer
}

fn address(answer: &Message) -> Option<Ipv4Addr> {
    answer.answers.iter().find_map(|record| match &record.data {
        RData::A(a) => Some(a.0),
        _ => None,
    })
}

fn is_reserved(address: Ipv4Addr) -> bool {
    let [a, b, ..] = address.octets();
    a == 198 && (b == 18 || b == 19)
}

#[tokio::test]
async fn allowed_names_get_an_address_that_means_something_here_alone() {
    let world = World::new().await;
    let sandbox = Sandbox::new(&world, &allow(&["*.a.test", "b.test:443"]));
    let one = address(&resolve(sandbox.names, "X.a.test.", RecordType::A).await).unwrap();
    let two = address(&resolve(sandbox.names, "b.test.", RecordType::A).await).unwrap();
    assert!(is_reserved(one) && is_reserved(two) && one != two);
    assert_eq!(address(&resolve(sandbox.names, "x.A.test.", RecordType::A).await), Some(one));
    for kind in [RecordType::AAAA, RecordType::MX, RecordType::TXT, RecordType::ANY] {
        let answer = resolve(sandbox.names, "b.test.", kind).await;
        assert_eq!(
            (answer.metadata.response_code, answer.answers.len()),
            (ResponseCode::NoError, 0),
            "{kind}"
        );
    }
    let [a, b, c, d] = one.octets();
    let back = resolve(sandbox.names, &format!("{d}.{c}.{b}.{a}.in-addr.arpa."), RecordType::PTR).await;
    assert!(back.answers[0].to_string().contains("x.a.test."), "{}", back.answers[0]);
    let local = resolve(sandbox.names, "localhost.", RecordType::A).await;
    assert_eq!(address(&local), Some(Ipv4Addr::LOCALHOST));
    let told = sandbox.told.about("b.test").await;
    assert_eq!((told.via, told.allowed, told.port), (Via::Name, true, 0));
    assert!(world.questions.lock().unwrap().is_empty(), "nobody else was asked");
}

#[tokio::test]
async fn data_in_labels_goes_nowhere() {
    let world = World::new().await;
    let sandbox = Sandbox::new(&world, &allow(&["a.test"]));
    for name in [
        "c2VjcmV0IGtleQ.evil.test.",
        "deadbeef.a.test.",
        "1.0.0.127.in-addr.arpa.",
        "127.0.0.1.",
        "evil.test.",
        "a.test.evil.test.",
    ] {
        for kind in [RecordType::A, RecordType::AAAA, RecordType::TXT, RecordType::NULL] {
            let answer = resolve(sandbox.names, name, kind).await;
            assert_eq!(answer.metadata.response_code, ResponseCode::NXDomain, "{name} {kind}");
            assert!(answer.answers.is_empty());
        }
    }
    // A whole alphabet of bytes that no host has.
    for n in (0..=255_u8).filter(|n| !matches!(n, b'a' | b'A')) {
        let mut message = question("x.test.", RecordType::A).to_vec().unwrap();
        message[13] = n;
        let answer = Message::from_vec(&raw(sandbox.names, &message).await).unwrap();
        assert_eq!(answer.metadata.response_code, ResponseCode::NXDomain);
    }
    assert!(world.questions.lock().unwrap().is_empty());
    assert!(sandbox.told.all().iter().all(|d| !d.allowed && d.via == Via::Name));
    assert!(sandbox.told.all().len() < 100, "a flood is told in a few rows");
}

#[tokio::test]
async fn the_same_over_tcp() {
    let world = World::new().await;
    let sandbox = Sandbox::new(&world, &allow(&["a.test"]));
    let mut stream = TcpStream::connect(sandbox.names_tcp).await.unwrap();
    for (name, code) in [("a.test.", ResponseCode::NoError), ("b.test.", ResponseCode::NXDomain)] {
        let bytes = question(name, RecordType::A).to_vec().unwrap();
        stream.write_u16(u16::try_from(bytes.len()).unwrap()).await.unwrap();
        stream.write_all(&bytes).await.unwrap();
        let mut answer = vec![0; soon("a length", stream.read_u16()).await.unwrap().into()];
        stream.read_exact(&mut answer).await.unwrap();
        assert_eq!(Message::from_vec(&answer).unwrap().metadata.response_code, code);
    }
    stream.write_u16(65535).await.unwrap();
    assert!(rest(&mut stream).await.is_empty(), "no question is as long as that");
}

#[tokio::test]
async fn malformed_questions_are_survived() {
    let world = World::new().await;
    let sandbox = Sandbox::new(&world, &allow(&["a.test"]));
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let good = question("a.test.", RecordType::A).to_vec().unwrap();
    let mut looped = good.clone();
    looped.truncate(12);
    looped.extend_from_slice(&[0xc0, 12, 0, 1, 0, 1]);
    for bytes in [&[][..], &[0; 11], &[0xff; 512], &good[..good.len() - 1], &looped, &[0; 4096]] {
        socket.send_to(bytes, sandbox.names).await.unwrap();
    }
    assert!(address(&resolve(sandbox.names, "a.test.", RecordType::A).await).is_some());
    let mut two = question("a.test.", RecordType::A);
    two.add_query(Query::query(Name::from_ascii("b.test.").unwrap(), RecordType::A));
    let answer = Message::from_vec(&raw(sandbox.names, &two.to_vec().unwrap()).await).unwrap();
    assert_eq!(answer.metadata.response_code, ResponseCode::FormErr);
}

#[tokio::test]
async fn a_tool_that_resolves_first_may_give_the_proxy_the_address() {
    let world = World::new().await;
    let server = world.echo().await;
    world.name("a.test", &["127.0.0.1"]);
    let sandbox = Sandbox::new(&world, &allow(&["a.test", &format!("127.0.0.1:{}", server.port)]));
    let given = address(&resolve(sandbox.names, "a.test.", RecordType::A).await).unwrap();
    let (code, mut stream) = socks(sandbox.proxy, 1, 1, &given.octets(), server.port).await;
    assert_eq!(code, 0);
    assert_eq!(echo(&mut stream, "hello").await, "hello");
    drop(stream);
    sandbox.told.of(|d| d.host == "a.test" && d.via == Via::Socks).await;
    // An address that was not given out is nobody's.
    assert_eq!(socks(sandbox.proxy, 1, 1, &[198, 19, 255, 254], server.port).await.0, 2);
    // What was given out counts for nothing once the policy is another.
    sandbox.set(&allow(&["b.test"]));
    assert_eq!(socks(sandbox.proxy, 1, 1, &given.octets(), server.port).await.0, 2);
    let answer = resolve(sandbox.names, "a.test.", RecordType::A).await;
    assert_eq!(answer.metadata.response_code, ResponseCode::NXDomain);
}
