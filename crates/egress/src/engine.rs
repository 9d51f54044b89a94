//! The proxy as a whole: one [`Egress`] for a server, one [`Serving`] for each sandbox. Every connection of a
//! sandbox ends with its [`Serving`].

use crate::{
    Authority, Dialer, Reach, Recorder, Rules, Sockets, Tokens, Via, front, names,
    session::{Caller, ConnectionLimit, Counters, EgressSession},
    tls,
};
use atoll_types::Result;
use rustls::ClientConfig;
use std::{
    fmt,
    future::{Future, pending},
    io, net,
    net::SocketAddr,
    os::fd::OwnedFd,
    sync::{Arc, Weak},
    time::Duration,
};
use tokio::{
    net::{TcpListener, TcpStream, UdpSocket},
    sync::{Semaphore, oneshot, watch},
    task::{JoinHandle, JoinSet},
};

/// The operator's settings.
#[derive(Debug, Default)]
pub struct EgressSettings {
    /// The addresses that the server's own fetches must not connect to. Those of sandboxes are in their rules.
    pub reach: Reach,
    /// The nameservers. Empty: the machine's own resolver configuration.
    pub nameservers: Vec<SocketAddr>,
    /// The authority that signs for inspected hosts. Without one they cannot be reached over TLS.
    pub authority: Option<Authority>,
    /// Certificates in PEM that the proxy trusts beside the machine's own when it speaks TLS itself.
    pub roots: Vec<String>,
    /// Connections that all sandboxes together may have open; each takes two descriptors. None: no bound.
    pub connections: Option<u64>,
}

/// The proxy. Cheap to clone.
#[derive(Clone)]
pub struct Egress(pub(crate) Arc<Shared>);

pub(crate) struct Shared {
    pub(crate) dialer: Dialer,
    pub(crate) authority: Option<Authority>,
    pub(crate) upstream: Arc<ClientConfig>,
    pub(crate) connection_limit: ConnectionLimit,
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
    /// Connections, requests and DNS queries that were refused.
    pub denied: u64,
    /// DNS queries that were answered with an address.
    pub questions: u64,
    /// Bytes that left the sandbox.
    pub sent: u64,
    /// Bytes that came in.
    pub received: u64,
}

/// One sandbox's egress, for as long as this lives. Dropping it ends every connection.
#[derive(Debug)]
pub struct Serving {
    counters: Arc<Counters>,
    /// The task has it; it ends with the task.
    session: Weak<EgressSession>,
    end: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

impl Serving {
    /// What was used so far.
    #[must_use]
    pub fn usage(&self) -> Usage {
        self.counters.usage()
    }

    /// Records the decisions that wait to be recorded together, for a reader who wants all of them now.
    pub fn flush(&self) {
        if let Some(session) = self.session.upgrade() {
            session.flush_all();
        }
    }

    /// Ends every connection, and returns when all have ended and were recorded.
    pub async fn end(mut self) {
        self.end.take();
        let _ = (&mut self.task).await;
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Finds a sandbox's rules and recorder, by the session that a token names.
pub type Lookup = dyn Fn(&str) -> Option<(watch::Receiver<Arc<Rules>>, Arc<dyn Recorder>)> + Send + Sync;

impl Egress {
    /// A proxy with these settings.
    pub fn new(settings: EgressSettings) -> Result<Self> {
        let EgressSettings { reach, nameservers, authority, roots, connections } = settings;
        let upstream = tls::upstream(&roots)?;
        let dialer = Dialer::new(reach, &nameservers, Arc::clone(&upstream))?;
        let connection_limit = ConnectionLimit::new(connections);
        Ok(Self(Arc::new(Shared { dialer, authority, upstream, connection_limit })))
    }

    /// Serves one sandbox until the returned handle is dropped or ended. Needs a running runtime. When the sender
    /// of the rules is dropped, nothing passes any more.
    pub fn serve(
        &self,
        sockets: Sockets,
        rules: watch::Receiver<Arc<Rules>>,
        recorder: Arc<dyn Recorder>,
    ) -> io::Result<Serving> {
        let Sockets { proxy, redirected, names, names_tcp } = sockets;
        let sockets = Listening {
            proxy: listener(proxy)?,
            redirected: redirected.map(listener).transpose()?,
            names_tcp: listener(names_tcp)?,
        };
        let names = net::UdpSocket::from(names);
        names.set_nonblocking(true)?;
        let names = UdpSocket::from_std(names)?;
        let session = EgressSession::new(Arc::clone(&self.0), rules, recorder);
        let counters = session.counters();
        let own = Arc::downgrade(&session);
        let (end, ended) = oneshot::channel();
        let task = tokio::spawn(run(session, sockets, names, ended));
        Ok(Serving { counters, session: own, end: Some(end), task })
    }

    /// Serves sandboxes that reach the proxy over a network, each with its token, until the future is dropped.
    pub async fn serve_network(&self, listener: TcpListener, tokens: Tokens, lookup: Arc<Lookup>) {
        front::serve_network(Arc::clone(&self.0), listener, tokens, lookup).await;
    }

    /// The dialer of the server's own fetches.
    #[must_use]
    pub fn dialer(&self) -> Dialer {
        self.0.dialer.clone()
    }

    /// The authority that signs for inspected hosts.
    #[must_use]
    pub fn authority(&self) -> Option<&Authority> {
        self.0.authority.as_ref()
    }
}

fn listener(socket: OwnedFd) -> io::Result<TcpListener> {
    let listener = net::TcpListener::from(socket);
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}

struct Listening {
    proxy: TcpListener,
    redirected: Option<TcpListener>,
    names_tcp: TcpListener,
}

/// Connections over a limit that get an error at one time; more are only closed.
const MOST_TOLD: usize = 64;

async fn run(
    session: Arc<EgressSession>,
    sockets: Listening,
    names: UdpSocket,
    mut ended: oneshot::Receiver<()>,
) {
    let mut sandbox = Sandbox { session, tasks: JoinSet::new(), told: Arc::new(Semaphore::new(MOST_TOLD)) };
    sandbox.tasks.spawn(Arc::clone(&sandbox.session).keep_telling());
    sandbox.tasks.spawn(names::serve_datagrams(Arc::clone(&sandbox.session), names));
    let redirected = || async {
        match &sockets.redirected {
            Some(listener) => listener.accept().await,
            None => pending().await,
        }
    };
    loop {
        tokio::select! {
            new = sockets.proxy.accept() => sandbox.accepted(new, Via::Connect, front::proxy).await,
            new = redirected() => sandbox.accepted(new, Via::Transparent, front::redirected).await,
            new = sockets.names_tcp.accept() => {
                let serve = |caller, stream| async { drop(names::serve_stream(caller, stream).await) };
                sandbox.accepted(new, Via::Name, serve).await;
            }
            Some(done) = sandbox.tasks.join_next() => {
                if let Err(error) = done {
                    tracing::error!(%error, "a connection of the proxy ended badly");
                }
            }
            _ = &mut ended => break,
        }
    }
    sandbox.tasks.shutdown().await;
}

struct Sandbox {
    session: Arc<EgressSession>,
    tasks: JoinSet<()>,
    told: Arc<Semaphore>,
}

impl Sandbox {
    async fn accepted<F>(
        &mut self,
        new: io::Result<(TcpStream, SocketAddr)>,
        via: Via,
        serve: impl FnOnce(Arc<Caller>, TcpStream) -> F + Send + 'static,
    ) where
        F: Future<Output = ()> + Send + 'static,
    {
        let (stream, from) = match new {
            Ok(new) => new,
            Err(error) => {
                // Most likely too many open files; waiting clients stay in the backlog.
                tracing::warn!(%error, "cannot accept a connection of a sandbox");
                return tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let caller = Caller::new(&self.session, self.session.asked(from), None);
        match self.session.admit() {
            Ok(slot) => {
                self.tasks.spawn(async move {
                    let _slot = slot;
                    serve(caller, stream).await;
                });
            }
            Err(limit) => {
                caller.malformed(via, "", &format!("limit: {limit}"));
                if via == Via::Connect
                    && let Ok(permit) = Arc::clone(&self.told).try_acquire_owned()
                {
                    self.tasks.spawn(async move {
                        front::limited(stream, limit).await;
                        drop(permit);
                    });
                }
            }
        }
    }
}
