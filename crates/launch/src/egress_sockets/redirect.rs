//! The reserved block: its addresses are local to the container, TCP connections to them are redirected to the
//! egress sockets, and all other packets to them are dropped.
//!
//! No connection is tracked: the kernel's conntrack table is charged to no cgroup, so any process inside could
//! fill it. No process inside has the capability to change a rule or a route, whatever the profile.

use super::netlink::{Batch, attribute, name, nest, number, open};
use atoll_types::egress_address::{REDIRECTED, RESERVED, RESERVED_PREFIX};
use rustix::net::netlink;
use std::{io, net::Ipv4Addr};

const TABLE: &str = "atoll";
/// The kernel's numbers of its hooks: prerouting, and output.
const INCOMING: u32 = 0;
const OUTGOING: u32 = 3;
const TCP: u8 = 6;

/// Redirects connections to the reserved block to the egress sockets, in the network namespace that this process
/// is in. Succeeds when it is done already.
pub(super) fn set_up() -> io::Result<()> {
    // The rules first: without them the block leads nowhere, so a failure leaves nothing half-done.
    rules().send(&open(Some(netlink::NETFILTER))?).or_else(there_already)?;
    route().send(&open(None)?).or_else(there_already)
}

fn there_already(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::AlreadyExists { Ok(()) } else { Err(error) }
}

/// `ip route add local 198.18.0.0/15 dev lo src 127.0.0.1`
fn route() -> Batch {
    const NEW_ROUTE: u16 = 24;
    const LOOPBACK: u32 = 1;
    let (inet, table_local, by_static, scope_host, kind_local) = (2, 255, 4, 254, 2);
    let fixed = [inet, RESERVED_PREFIX, 0, 0, table_local, by_static, scope_host, kind_local, 0, 0, 0, 0];
    let destination = attribute(1, &RESERVED.octets());
    let device = attribute(4, &LOOPBACK.to_ne_bytes());
    let source = attribute(7, &Ipv4Addr::LOCALHOST.octets());
    Batch::default().make(NEW_ROUTE, &fixed, &[destination, device, source].concat())
}

/// ```text
/// table ip atoll {
///   chain in  { type filter hook prerouting priority -150;
///               ip daddr 198.18.0.0/15 meta l4proto tcp tproxy to 127.0.0.1:3129 accept
///               ip daddr 198.18.0.0/15 drop }
///   chain out { type filter hook output priority 0;
///               ip daddr 198.18.0.0/15 meta l4proto != tcp drop }
/// }
/// ```
/// A drop at output is an error for the sender at once. Without a listening egress socket a connection is dropped
/// rather than delivered to another listener inside.
fn rules() -> Batch {
    let address = load(REGISTER, &Ipv4Addr::LOCALHOST.octets());
    let port = load(NEXT_REGISTER, &REDIRECTED.port().to_be_bytes());
    let ipv4 = 2;
    let take = expression("tproxy", &[number(1, ipv4), number(2, REGISTER), number(3, NEXT_REGISTER)]);
    let connections = [protocol(EQUAL), address, port, take, verdict(ACCEPT)];
    let others = [protocol(NOT_EQUAL), verdict(DROP)];
    Batch::default()
        .mark(0x10, &BATCH)
        .make(nftables(0), &IPV4, &name(1, TABLE))
        .make(nftables(3), &IPV4, &chain("in", INCOMING, -150))
        .make(nftables(3), &IPV4, &chain("out", OUTGOING, 0))
        .append(nftables(6), &IPV4, &rule("in", &connections))
        .append(nftables(6), &IPV4, &rule("in", &[verdict(DROP)]))
        .append(nftables(6), &IPV4, &rule("out", &others))
        .mark(0x11, &BATCH)
}

const REGISTER: u32 = 1;
const NEXT_REGISTER: u32 = 2;
const EQUAL: u32 = 0;
const NOT_EQUAL: u32 = 1;
const DROP: u32 = 0;
const ACCEPT: u32 = 1;
const SUBSYSTEM: u8 = 10;
/// Family, version, and the subsystem that a batch is for.
const BATCH: [u8; 4] = [0, 0, 0, SUBSYSTEM];
const IPV4: [u8; 4] = [2, 0, 0, 0];

const fn nftables(kind: u8) -> u16 {
    u16::from_be_bytes([SUBSYSTEM, kind])
}

fn chain(called: &str, place: u32, priority: i32) -> Vec<u8> {
    let hook = nest(4, &[number(1, place), number(2, priority.cast_unsigned())]);
    [name(1, TABLE), name(3, called), hook, name(7, "filter")].concat()
}

/// A rule for packets to the reserved block.
fn rule(chain: &str, then: &[Vec<u8>]) -> Vec<u8> {
    let mask = Ipv4Addr::from(u32::MAX << (32 - u32::from(RESERVED_PREFIX))).octets();
    let (network_header, destination, length) = (1, 16, 4);
    let address = [number(1, REGISTER), number(2, network_header), number(3, destination), number(4, length)];
    let block =
        [number(1, REGISTER), number(2, REGISTER), number(3, length), value(4, &mask), value(5, &[0; 4])];
    let mut all = vec![expression("payload", &address), expression("bitwise", &block)];
    all.push(compare(EQUAL, &RESERVED.octets()));
    all.extend_from_slice(then);
    [name(1, TABLE), name(2, chain), nest(4, &all)].concat()
}

fn protocol(how: u32) -> Vec<u8> {
    const PROTOCOL: u32 = 16;
    [expression("meta", &[number(1, REGISTER), number(2, PROTOCOL)]), compare(how, &[TCP])].concat()
}

fn compare(how: u32, bytes: &[u8]) -> Vec<u8> {
    expression("cmp", &[number(1, REGISTER), number(2, how), value(3, bytes)])
}

fn load(register: u32, bytes: &[u8]) -> Vec<u8> {
    expression("immediate", &[number(1, register), value(2, bytes)])
}

fn verdict(code: u32) -> Vec<u8> {
    const VERDICT: u32 = 0;
    expression("immediate", &[number(1, VERDICT), nest(2, &[nest(2, &[number(1, code)])])])
}

fn value(kind: u16, bytes: &[u8]) -> Vec<u8> {
    nest(kind, &[attribute(1, bytes)])
}

fn expression(called: &str, data: &[Vec<u8>]) -> Vec<u8> {
    nest(1, &[name(1, called), nest(2, data)])
}
