//! The world beyond this machine, made for one test: a network of its own for the server, and one behind it
//! in which addresses of every kind live, with somebody who sees each packet that arrives there.

use crate::engine::network::{Network, ip};
use rustix::net::{AddressFamily, Protocol, RawProtocol, SocketType, socket};
use std::{
    io::{BufRead, BufReader, Write},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener, UdpSocket},
    sync::{Arc, Mutex, mpsc},
    thread,
};

/// This machine's own address, in the network that the server is in.
pub(super) const OWN: &str = "192.0.2.2";
/// Addresses out there: one that anybody may ask for, and two that nobody reaches by accident.
pub(super) const PUBLIC: &str = "203.0.113.9";
pub(super) const METADATA: &str = "169.254.169.254";
pub(super) const PRIVATE: &str = "10.0.0.1";
const NEXT: &str = "192.0.2.1";
const NEXT_V6: &str = "2001:db8::1";
/// Where markers go.
const MARKED: u16 = 9999;

/// A packet that came: its protocol, whom it was for, and the port where there is one.
pub(super) type Packet = (u8, IpAddr, u16);

/// The world outside. The thread that made it is in the server's network until this is dropped.
pub(super) struct Outside {
    before: Network,
    came: Arc<Mutex<Vec<Packet>>>,
    /// The local address of every connection that was accepted out there.
    accepted: Arc<Mutex<Vec<IpAddr>>>,
    /// The port out there where anybody is answered.
    pub(super) port: u16,
}

impl Outside {
    pub(super) fn new() -> Self {
        let (before, own, world) = (Network::here(), Network::new(), Network::new());
        own.enter();
        let (came, accepted) = (Arc::<Mutex<Vec<Packet>>>::default(), Arc::<Mutex<Vec<IpAddr>>>::default());
        let (told, ready) = mpsc::channel();
        let (seen, taken, to) = (Arc::clone(&came), Arc::clone(&accepted), own.path());
        thread::spawn(move || {
            world.enter();
            connect(&to);
            let listener = TcpListener::bind("[::]:0").unwrap();
            let watch = socket(AddressFamily::PACKET, SocketType::DGRAM, Some(everything())).unwrap();
            told.send(listener.local_addr().unwrap().port()).unwrap();
            thread::spawn(move || answer(&listener, &taken));
            let mut packet = [0; 2048];
            while let Ok(length) = rustix::io::read(&watch, &mut packet) {
                seen.lock().unwrap().extend(read(&packet[..length]));
            }
        });
        let port = ready.recv().unwrap();
        ip(&[
            format!("addr add {OWN}/24 dev street"),
            "addr add 2001:db8::2/64 dev street nodad".into(),
            "link set street up".into(),
            format!("route add default via {NEXT}"),
            format!("-6 route add default via {NEXT_V6}"),
        ]);
        Self { before, came, accepted, port }
    }

    /// Every packet that came until now, which are forgotten then.
    pub(super) fn came(&self) -> Vec<Packet> {
        // What was sent before this one has come when it has.
        let marker: Packet = (17, NEXT.parse().unwrap(), MARKED);
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        crate::engine::fixture::eventually("the marker", || {
            socket.send_to(b"marker", (NEXT, MARKED)).unwrap();
            thread::sleep(std::time::Duration::from_millis(20));
            self.came.lock().unwrap().contains(&marker)
        });
        let came = std::mem::take(&mut *self.came.lock().unwrap());
        came.into_iter().filter(|packet| *packet != marker).collect()
    }

    /// The addresses at which connections came, which are forgotten then.
    pub(super) fn accepted(&self) -> Vec<IpAddr> {
        std::mem::take(&mut *self.accepted.lock().unwrap())
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        self.before.enter();
    }
}

/// A street between the two networks, and houses at its far end.
fn connect(server: &str) {
    ip(&[
        format!("link add world type veth peer name street netns {server}"),
        format!("addr add {NEXT}/24 dev world"),
        format!("addr add {NEXT_V6}/64 dev world nodad"),
        "link set world up".into(),
        format!("addr add {PUBLIC}/32 dev lo"),
        format!("addr add {METADATA}/32 dev lo"),
        format!("addr add {PRIVATE}/32 dev lo"),
        "addr add 2001:db8:1::9/128 dev lo".into(),
    ]);
}

fn everything() -> Protocol {
    let all = u32::from(3_u16.to_be());
    Protocol::from_raw(RawProtocol::new(all).unwrap())
}

fn answer(listener: &TcpListener, accepted: &Mutex<Vec<IpAddr>>) {
    for mut stream in listener.incoming().flatten() {
        let Ok(at) = stream.local_addr() else { continue };
        let at = at.ip().to_canonical();
        accepted.lock().unwrap().push(at);
        thread::spawn(move || {
            let lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
            let head: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
            if head.iter().any(|line| line.contains(" /metadata ")) {
                let to = format!("http://{METADATA}:{}/", stream.local_addr().unwrap().port());
                return write!(stream, "HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n");
            }
            let body = format!("outside {at}\n");
            let length = body.len();
            write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}")
        });
    }
}

/// What a packet is, unless it is an answer of this side or part of how neighbours find each other.
fn read(packet: &[u8]) -> Option<Packet> {
    let (protocol, from, to, rest): (u8, IpAddr, IpAddr, &[u8]) = match packet.first()? >> 4 {
        4 => {
            let address = |at: usize| Some(Ipv4Addr::from(*packet.get(at..)?.first_chunk::<4>()?));
            let start = usize::from(packet[0] & 15) * 4;
            (*packet.get(9)?, address(12)?.into(), address(16)?.into(), packet.get(start..)?)
        }
        6 => {
            let address = |at: usize| Some(Ipv6Addr::from(*packet.get(at..)?.first_chunk::<16>()?));
            (*packet.get(6)?, address(8)?.into(), address(24)?.into(), packet.get(40..)?)
        }
        _ => return None,
    };
    let ours = [NEXT, PUBLIC, METADATA, PRIVATE, NEXT_V6, "2001:db8:1::9"];
    let is_ours = ours.iter().any(|address| *address == from.to_string());
    // Announcements of groups, and neighbours and routers of IPv6.
    let neighbours = protocol == 0 || (protocol == 58 && matches!(rest.first(), Some(130..=143)));
    let link_local = matches!(from, IpAddr::V6(from) if from.is_unicast_link_local());
    if is_ours || neighbours || link_local {
        return None;
    }
    let port =
        if matches!(protocol, 6 | 17) { u16::from_be_bytes(*rest.get(2..)?.first_chunk()?) } else { 0 };
    Some((protocol, to, port))
}
