//! The proxy's sockets, and the recorder of its decisions.

use std::{
    net::{IpAddr, SocketAddr},
    os::fd::OwnedFd,
    time::Duration,
};

/// The sockets of one sandbox's network. The descriptor alone identifies the sandbox that a connection comes
/// from.
#[derive(Debug)]
pub struct Sockets {
    /// Listens on 127.0.0.1:3128: CONNECT, absolute-form HTTP, SOCKS5.
    pub proxy: OwnedFd,
    /// Listens for connections to the reserved block, which an nftables rule redirects here; none where the
    /// kernel cannot do that.
    pub redirected: Option<OwnedFd>,
    /// UDP, 127.0.0.53:53.
    pub names: OwnedFd,
    /// TCP, the same.
    pub names_tcp: OwnedFd,
}

/// How an egress request came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Via {
    /// HTTP CONNECT.
    Connect,
    /// Absolute-form HTTP, and each request of inspected HTTPS.
    Http,
    /// SOCKS5.
    Socks,
    /// A connection to an address of the reserved block.
    Transparent,
    /// A DNS query.
    Name,
}

impl Via {
    /// The name on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Via::Connect => "connect",
            Via::Http => "http",
            Via::Socks => "socks",
            Via::Transparent => "transparent",
            Via::Name => "name",
        }
    }
}

/// An egress request, its verdict, and its outcome. A refusal or a DNS query is recorded at once; a connection or
/// an HTTP request when it has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// How it came.
    pub via: Via,
    /// The requested host, shortened to 255 bytes, without control characters.
    pub host: String,
    /// The port; zero for a DNS query.
    pub port: u16,
    /// The address that was connected to.
    pub address: Option<IpAddr>,
    /// Method and path, where the proxy saw them; never the query.
    pub request: Option<(String, String)>,
    /// The verdict.
    pub allowed: bool,
    /// The rule that decided, or why none could: `allow: *.example.com`, `deny: x`, `preset python: h`,
    /// `full`, `none`, `not listed`, `address out of reach`, `limit: connections`, `sni`, `malformed` …
    pub rule: String,
    /// The error after it was allowed, such as a refused connection.
    pub error: Option<String>,
    /// Bytes that left the sandbox.
    pub sent: u64,
    /// Bytes that came in.
    pub received: u64,
    /// From the request to the end.
    pub duration: Duration,
    /// How many equal ones came within a second and are recorded as one.
    pub count: u32,
}

/// The recorder of decisions. Both calls return at once: slow work is done elsewhere.
pub trait Recorder: Send + Sync + 'static {
    /// A client in the sandbox connected from this address of its network. Its process must be looked up now,
    /// while it is still connected. The returned number goes with every decision about it.
    fn asked(&self, from: SocketAddr) -> u64;
    /// A decision was made, or an allowed connection has ended.
    fn decided(&self, asker: u64, decision: Decision);
}
