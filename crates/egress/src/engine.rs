//! The proxy as a whole: one [`Egress`] for a server, one [`Serving`] for each sandbox. Whatever a sandbox
//! opened ends with its [`Serving`].

use crate::{Authority, Dialer, Reach, Recorder, Rules, Sockets, Tokens, tls};
use atoll_types::Result;
use rustls::ClientConfig;
use std::{
    fmt, io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};
use tokio::{net::TcpListener, sync::watch};

/// What an operator may set.
#[derive(Debug, Default)]
pub struct EgressSettings {
    /// The addresses that the server's own fetches stay away from. Those of sandboxes are in their rules.
    pub reach: Reach,
    /// Who is asked for addresses. Empty: the machine's own resolver configuration.
    pub nameservers: Vec<SocketAddr>,
    /// Who signs for hosts whose requests are looked at. Without one they cannot be reached over TLS.
    pub authority: Option<Authority>,
    /// Certificates in PEM that are believed beside the machine's own when the proxy speaks TLS itself.
    pub roots: Vec<String>,
}

/// The proxy. Cheap to clone.
#[derive(Clone)]
pub struct Egress(Arc<Shared>);

pub(crate) struct Shared {
    pub(crate) dialer: Dialer,
    pub(crate) authority: Option<Authority>,
    pub(crate) upstream: Arc<ClientConfig>,
}

impl fmt::Debug for Egress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Egress")
    }
}

/// What a sandbox uses now and has used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Connections that are open.
    pub open: u64,
    /// Connections and requests that were allowed.
    pub allowed: u64,
    /// Connections, requests and questions that were refused.
    pub denied: u64,
    /// Questions for names that were answered with an address.
    pub questions: u64,
    /// Bytes that left the sandbox.
    pub sent: u64,
    /// Bytes that came in.
    pub received: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) open: AtomicU64,
    pub(crate) allowed: AtomicU64,
    pub(crate) denied: AtomicU64,
    pub(crate) questions: AtomicU64,
    pub(crate) sent: AtomicU64,
    pub(crate) received: AtomicU64,
}

impl Counters {
    fn usage(&self) -> Usage {
        let Self { open, allowed, denied, questions, sent, received } = self;
        let [open, allowed, denied, questions, sent, received] =
            [open, allowed, denied, questions, sent, received].map(|c| c.load(Ordering::Relaxed));
        Usage { open, allowed, denied, questions, sent, received }
    }
}

/// One sandbox's way out, for as long as this lives.
#[derive(Debug)]
pub struct Serving {
    counters: Arc<Counters>,
}

impl Serving {
    /// What was used so far.
    #[must_use]
    pub fn usage(&self) -> Usage {
        self.counters.usage()
    }

    /// Ends everything, and returns when it has ended.
    pub async fn end(self) {}
}

/// Finds a sandbox's rules and whom to tell, by the session that a token names.
pub type Lookup = dyn Fn(&str) -> Option<(watch::Receiver<Arc<Rules>>, Arc<dyn Recorder>)> + Send + Sync;

impl Egress {
    /// A proxy with these settings.
    pub fn new(settings: EgressSettings) -> Result<Self> {
        let EgressSettings { reach, nameservers, authority, roots } = settings;
        let upstream = tls::upstream(&roots)?;
        let dialer = Dialer::new(reach, &nameservers, Arc::clone(&upstream))?;
        Ok(Self(Arc::new(Shared { dialer, authority, upstream })))
    }

    /// Serves one sandbox until the returned handle is dropped or told to end. Needs a running runtime.
    pub fn serve(
        &self,
        sockets: Sockets,
        rules: watch::Receiver<Arc<Rules>>,
        recorder: Arc<dyn Recorder>,
    ) -> io::Result<Serving> {
        let _ = (sockets, rules, recorder);
        Ok(Serving { counters: Arc::default() })
    }

    /// Serves sandboxes that reach the proxy over a network, each with its token, until the future is dropped.
    pub async fn serve_network(&self, listener: TcpListener, tokens: Tokens, lookup: Arc<Lookup>) {
        let _ = (listener, tokens, lookup);
    }

    /// What the server's own fetches connect with.
    #[must_use]
    pub fn dialer(&self) -> Dialer {
        self.0.dialer.clone()
    }

    /// Who signs for hosts whose requests are looked at.
    #[must_use]
    pub fn authority(&self) -> Option<&Authority> {
        self.0.authority.as_ref()
    }
}
