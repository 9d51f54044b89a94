//! Servers inside a container. A socket belongs to the network namespace in which it was made, so the
//! launcher makes a few there and this process, which is elsewhere, connects them: each leads to the
//! container's loopback and to nothing else. [`Networks::close`] closes those that are left.

use crate::{launcher::LauncherClient, unexpected};
use async_trait::async_trait;
use atoll_launch_proto::{Family, LauncherReply, Request, SocketsRequest};
use atoll_provider::{EgressSockets, PortStream, Ports};
use atoll_types::{
    ContainerId, Error, ErrorCode, Result,
    egress_address::{PROXY, REDIRECTED},
};
use futures_util::future::BoxFuture;
use rustix::fd::OwnedFd;
use std::{
    collections::HashMap,
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::net::{TcpSocket, TcpStream};
use tokio_util::sync::CancellationToken;

/// How many sockets one request gets: a page opens a handful of connections.
const BATCH: u8 = 8;
/// The same for IPv6, which is tried only where IPv4 is refused.
const BATCH_V6: u8 = 2;
/// How long a server may take to accept a connection.
const PATIENCE: Duration = Duration::from_secs(10);

/// Unused sockets of one container's network that this process holds.
#[derive(Debug, Default)]
pub(crate) struct Network {
    spare: Mutex<Spare>,
    /// Cancelled to make the holders of connections close them.
    closed: CancellationToken,
}

#[derive(Debug, Default)]
struct Spare {
    v4: Vec<OwnedFd>,
    v6: Vec<OwnedFd>,
    /// As they came when the container was made, until the egress session takes them.
    egress_sockets: Option<EgressSockets>,
}

impl Spare {
    fn of(&mut self, family: Family) -> &mut Vec<OwnedFd> {
        match family {
            Family::V4 => &mut self.v4,
            Family::V6 => &mut self.v6,
        }
    }
}

impl Network {
    fn take(&self, family: Family) -> Option<OwnedFd> {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner).of(family).pop()
    }

    /// Keeps unused sockets, unless the container was destroyed meanwhile.
    fn keep(&self, family: Family, sockets: Vec<OwnedFd>) {
        let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.closed.is_cancelled() {
            spare.of(family).extend(sockets);
        }
    }

    /// Keeps the egress sockets until the egress session takes them, under the same condition.
    pub(crate) fn hold_egress_sockets(&self, egress_sockets: EgressSockets) {
        let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.closed.is_cancelled() {
            spare.egress_sockets = Some(egress_sockets);
        }
    }

    pub(crate) fn take_egress_sockets(&self) -> Option<EgressSockets> {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner).egress_sockets.take()
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.is_cancelled()
    }

    /// Completes with [`Network::close`].
    pub(crate) fn closed(&self) -> BoxFuture<'static, ()> {
        Box::pin(self.closed.clone().cancelled_owned())
    }

    fn close(&self) {
        let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        self.closed.cancel();
        *spare = Spare::default();
    }
}

/// Every network of which this process holds sockets.
#[derive(Debug, Default)]
pub(crate) struct Networks {
    open: Mutex<HashMap<ContainerId, Arc<Network>>>,
}

impl Networks {
    /// The network of a container, the same for every handle on it.
    pub(crate) fn find(&self, id: ContainerId) -> Arc<Network> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(open.entry(id).or_default())
    }

    /// Closes a container's spare sockets, and notifies the holders of its connections.
    pub(crate) fn close(&self, id: ContainerId) {
        let network = self.open.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
        if let Some(network) = network {
            network.close();
        }
    }
}

/// The ports of one container.
pub(crate) struct ContainerPorts {
    launcher: Arc<LauncherClient>,
    id: ContainerId,
    network: Arc<Network>,
}

impl ContainerPorts {
    pub(crate) fn new(launcher: &Arc<LauncherClient>, id: ContainerId) -> Self {
        Self { launcher: Arc::clone(launcher), id, network: launcher.networks.find(id) }
    }

    async fn socket(&self, family: Family) -> Result<TcpSocket> {
        let fd = match self.network.take(family) {
            Some(fd) => fd,
            None => self.fresh(family).await?,
        };
        // It is not connected yet; the type only transfers the ownership.
        Ok(TcpSocket::from_std_stream(std::net::TcpStream::from(fd)))
    }

    async fn fresh(&self, family: Family) -> Result<OwnedFd> {
        let count = match family {
            Family::V4 => BATCH,
            Family::V6 => BATCH_V6,
        };
        let request = Request::Sockets(SocketsRequest { container: self.id, family, count });
        let (LauncherReply::Sockets { .. }, mut sockets) = self.launcher.ask_with(request).await? else {
            return Err(Error::internal("the launcher sent no sockets"));
        };
        let first = sockets.pop().ok_or_else(|| Error::internal("the launcher sent no sockets"))?;
        self.network.keep(family, sockets);
        Ok(first)
    }

    async fn try_connect(&self, family: Family, port: u16) -> Result<io::Result<TcpStream>> {
        let address: IpAddr = match family {
            Family::V4 => Ipv4Addr::LOCALHOST.into(),
            Family::V6 => Ipv6Addr::LOCALHOST.into(),
        };
        let connecting = self.socket(family).await?.connect(SocketAddr::new(address, port));
        match tokio::time::timeout(PATIENCE, connecting).await {
            Ok(connected) => Ok(connected),
            Err(_) => {
                let message = format!("what listens on port {port} in the sandbox accepts no connection");
                Err(Error::new(ErrorCode::Timeout, message))
            }
        }
    }
}

#[async_trait]
impl Ports for ContainerPorts {
    async fn connect(&self, port: u16) -> Result<PortStream> {
        let nothing = || {
            let message = format!("nothing listens on port {port} in the sandbox");
            Error::new(ErrorCode::BadGateway, message)
        };
        // The egress ports are for processes inside: a client outside must not send in the sandbox's name.
        if [PROXY.port(), REDIRECTED.port()].contains(&port) {
            return Err(nothing());
        }
        let refused = |e: &io::Error| e.kind() == io::ErrorKind::ConnectionRefused;
        let connected = match self.try_connect(Family::V4, port).await? {
            Err(e) if refused(&e) => match self.try_connect(Family::V6, port).await {
                Ok(connected) => connected,
                Err(error) if error.code == ErrorCode::Unsupported => return Err(nothing()),
                Err(error) => return Err(error),
            },
            connected => connected,
        };
        let stream = connected.map_err(|e| match e.kind() {
            // A machine without IPv6 has no such address.
            io::ErrorKind::ConnectionRefused | io::ErrorKind::AddrNotAvailable => nothing(),
            _ => {
                Error::new(ErrorCode::BadGateway, format!("port {port} in the sandbox is out of reach: {e}"))
            }
        })?;
        let _ = stream.set_nodelay(true);
        Ok(Box::pin(stream))
    }

    fn closed(&self) -> BoxFuture<'static, ()> {
        self.network.closed()
    }

    async fn listening(&self) -> Result<Vec<u16>> {
        match self.launcher.ask(Request::Ports(self.id)).await? {
            LauncherReply::Ports(ports) => Ok(ports),
            other => Err(unexpected(&other)),
        }
    }
}
