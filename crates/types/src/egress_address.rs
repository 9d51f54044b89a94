//! Addresses of the egress sockets, inside a sandbox's network. Fixed, so that images and tools can name
//! them.

use std::net::{Ipv4Addr, SocketAddrV4};

/// The proxy: CONNECT, absolute-form HTTP, SOCKS5.
pub const PROXY: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 3128);
/// Where connections to the reserved block are redirected.
pub const REDIRECTED: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 3129);
/// The resolver, UDP and TCP.
pub const RESOLVER: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(127, 0, 0, 53), 53);
/// The reserved block: the addresses that the resolver gives to names.
pub const RESERVED: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 0);
/// The length of its prefix.
pub const RESERVED_PREFIX: u8 = 15;
/// The certificates that a sandbox trusts: the image's own and the one that inspected connections are signed
/// with.
pub const TRUST_BUNDLE: &str = "/etc/atoll/ca-bundle.pem";
/// The one that inspected connections are signed with, alone.
pub const TRUST_CERTIFICATE: &str = "/etc/atoll/ca.pem";
