//! What the proxy works on, and whom it tells.

use std::{
    net::{IpAddr, SocketAddr},
    os::fd::OwnedFd,
    time::Duration,
};

/// The sockets of one sandbox's network. Whoever accepts on them knows by the descriptor alone which
/// sandbox is asking.
#[derive(Debug)]
pub struct Sockets {
    /// Listens on 127.0.0.1:3128: CONNECT, absolute-form HTTP, SOCKS5.
    pub proxy: OwnedFd,
    /// Listens for connections to the reserved block, which a rule sends here; none where the kernel
    /// cannot do that.
    pub redirected: Option<OwnedFd>,
    /// UDP, 127.0.0.53:53.
    pub names: OwnedFd,
    /// TCP, the same.
    pub names_tcp: OwnedFd,
}

/// How something asked to get out.
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
    /// A question for a name.
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

/// What was asked, what was decided, and what came of it. For what was refused, and for questions for
/// names, it is told at once; for a connection or a request when it has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// How it was asked.
    pub via: Via,
    /// The host as it was asked for, shortened to 255 bytes, without control characters.
    pub host: String,
    /// The port; zero for a question for a name.
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
    /// What went wrong after it was allowed, such as a refused connection.
    pub error: Option<String>,
    /// Bytes that left the sandbox.
    pub sent: u64,
    /// Bytes that came in.
    pub received: u64,
    /// From the question to the end.
    pub duration: Duration,
    /// How many of the same came within a second and are told as one.
    pub count: u32,
}

/// Who is told. Both calls return at once: what takes time is done elsewhere.
pub trait Recorder: Send + Sync + 'static {
    /// Something in the sandbox, at this address of its network, asks. While it is still connected is the
    /// time to find out who it is. The number goes with every decision about it.
    fn asked(&self, from: SocketAddr) -> u64;
    /// A decision was made, or what was allowed has ended.
    fn decided(&self, asker: u64, decision: Decision);
}
