//! The egress sockets of a container: the sockets in its network namespace by which processes inside reach the
//! server's egress proxy. They are bound before anything runs there and kept open outside as long as the
//! container lives ([`holder`]), so that no process inside can bind their ports. The server accepts on them.

mod holder;
mod netlink;
mod protocol;
mod recover;
mod redirect;
mod restore;

use crate::{net, sys};
use atoll_types::{
    Error, Result,
    egress_address::{PROXY, REDIRECTED, RESOLVER},
};
pub(crate) use holder::SocketHolder;
pub(crate) use protocol::{forget, keep};
pub(crate) use restore::{find, restore_all};
use rustix::{
    fd::{BorrowedFd, OwnedFd},
    net::{AddressFamily, SocketFlags, SocketType, bind, listen, socket_with, sockopt::set_socket_reuseaddr},
};
use std::{io, net::SocketAddrV4};

/// Connections that may wait until the server accepts them.
const BACKLOG: i32 = 512;
/// The most egress sockets of one container.
const MOST: usize = 4;

/// One of a container's egress sockets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SocketSpec {
    address: SocketAddrV4,
    kind: SocketType,
    /// Whether it accepts connections to addresses that it is not bound to.
    any_address: bool,
}

const PLACES: [SocketSpec; 3] = [
    SocketSpec { address: PROXY, kind: SocketType::STREAM, any_address: false },
    SocketSpec { address: RESOLVER, kind: SocketType::DGRAM, any_address: false },
    SocketSpec { address: RESOLVER, kind: SocketType::STREAM, any_address: false },
];
/// Bound only where the kernel can redirect connections to it.
const REDIRECTED_PLACE: SocketSpec =
    SocketSpec { address: REDIRECTED, kind: SocketType::STREAM, any_address: true };

/// The egress sockets of one container, in the order of the protocol: the proxy's, the resolver's two, and the
/// one that connections to the reserved block are redirected to, where the kernel can.
#[derive(Debug)]
pub(crate) struct EgressSockets(Vec<OwnedFd>);

impl EgressSockets {
    /// Three sockets or four; none for any other number.
    fn of(sockets: Vec<OwnedFd>) -> Option<Self> {
        (PLACES.len()..=MOST).contains(&sockets.len()).then_some(Self(sockets))
    }

    /// Whether connections to the reserved block are redirected here.
    pub(crate) fn redirected(&self) -> bool {
        self.0.len() == MOST
    }

    /// The sockets themselves.
    pub(crate) fn sockets(&self) -> &[OwnedFd] {
        &self.0
    }

    /// The sockets themselves, owned.
    pub(crate) fn into_sockets(self) -> Vec<OwnedFd> {
        self.0
    }

    /// Binds every socket, in the network namespace that this process is in. A socket that cannot be bound is
    /// requested from `otherwise`.
    fn bind(mut otherwise: impl FnMut(SocketSpec, io::Error) -> Result<OwnedFd>) -> Result<Self> {
        let mut sockets = Vec::with_capacity(MOST);
        for place in PLACES {
            sockets.push(place.bind().or_else(|e| otherwise(place, e))?);
        }
        match redirect::set_up() {
            Ok(()) => {
                sockets.push(REDIRECTED_PLACE.bind().or_else(|e| otherwise(REDIRECTED_PLACE, e))?);
            }
            // Tools that ignore proxy settings have no egress then; those that use the proxy still do.
            Err(error) => tracing::warn!(%error, "this kernel cannot redirect connections"),
        }
        Ok(Self(sockets))
    }
}

impl SocketSpec {
    /// No other process can bind the same port: the kernel allows a second socket only if both request that, and
    /// for TCP only if neither listens.
    fn bind(self) -> io::Result<OwnedFd> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::INET, self.kind, flags, None)?;
        let listens = self.kind == SocketType::STREAM;
        // Connections in TIME_WAIT must not keep the port from being bound again.
        set_socket_reuseaddr(&socket, listens)?;
        if self.any_address {
            sys::take_any_address(&socket)?;
        }
        bind(&socket, &self.address)?;
        if listens {
            listen(&socket, BACKLOG)?;
        }
        Ok(socket)
    }
}

/// Prepares the network of a container in which nothing runs yet: its loopback and its egress sockets.
pub(crate) fn open(pid: i32) -> Result<EgressSockets> {
    let fault = |e: io::Error| Error::internal(format!("cannot prepare the container's network: {e}"));
    let namespace = net::namespace_of(pid).map_err(fault)?;
    net::inside(namespace, || {
        net::loopback_up().map_err(fault)?;
        EgressSockets::bind(|place, e| Err(Error::internal(format!("cannot bind {}: {e}", place.address))))
    })
    .map_err(fault)?
}

fn borrowed(sockets: &[OwnedFd]) -> Vec<BorrowedFd<'_>> {
    sockets.iter().map(rustix::fd::AsFd::as_fd).collect()
}
