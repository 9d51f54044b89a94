//! The egress socket set of a container: the sockets in its network by which whatever is inside can ask to get out.
//! They are bound before anything runs there and kept outside as long as the container lives
//! ([`holder`]), so that nobody inside can take their places. Who serves them is the server's business.

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

/// Connections that may wait for whoever serves the egress socket set.
const BACKLOG: i32 = 512;
/// The most sockets of a egress socket set.
const MOST: usize = 4;

/// One of the egress socket set's sockets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SocketSpec {
    address: SocketAddrV4,
    kind: SocketType,
    /// Whether it takes connections to addresses that are not its own.
    any_address: bool,
}

const PLACES: [SocketSpec; 3] = [
    SocketSpec { address: PROXY, kind: SocketType::STREAM, any_address: false },
    SocketSpec { address: RESOLVER, kind: SocketType::DGRAM, any_address: false },
    SocketSpec { address: RESOLVER, kind: SocketType::STREAM, any_address: false },
];
/// There only where the kernel can send connections to it.
const REDIRECTED_PLACE: SocketSpec =
    SocketSpec { address: REDIRECTED, kind: SocketType::STREAM, any_address: true };

/// The sockets of a egress socket set, in the order of the protocol: the proxy's, the resolver's two, and where
/// connections to the reserved block end up, if they do.
#[derive(Debug)]
pub(crate) struct EgressSockets(Vec<OwnedFd>);

impl EgressSockets {
    /// A egress socket set has three sockets or four.
    fn of(sockets: Vec<OwnedFd>) -> Option<Self> {
        (PLACES.len()..=MOST).contains(&sockets.len()).then_some(Self(sockets))
    }

    /// Whether connections to the reserved block end up here.
    pub(crate) fn redirected(&self) -> bool {
        self.0.len() == MOST
    }

    /// The sockets themselves.
    pub(crate) fn sockets(&self) -> &[OwnedFd] {
        &self.0
    }

    /// The same, for whoever gets them.
    pub(crate) fn into_sockets(self) -> Vec<OwnedFd> {
        self.0
    }

    /// Binds every socket, in the network namespace that this process is in. What cannot be bound is
    /// asked for from `otherwise`.
    fn bind(mut otherwise: impl FnMut(SocketSpec, io::Error) -> Result<OwnedFd>) -> Result<Self> {
        let mut sockets = Vec::with_capacity(MOST);
        for place in PLACES {
            sockets.push(place.bind().or_else(|e| otherwise(place, e))?);
        }
        match redirect::set_up() {
            Ok(()) => {
                sockets.push(REDIRECTED_PLACE.bind().or_else(|e| otherwise(REDIRECTED_PLACE, e))?);
            }
            // Tools that know no proxy have no way out then; those that do still have theirs.
            Err(error) => tracing::warn!(%error, "this kernel cannot redirect connections"),
        }
        Ok(Self(sockets))
    }
}

impl SocketSpec {
    /// Nobody else can bind where it did: a second socket is let in only if both ask for that, and for
    /// connections only if neither listens.
    fn bind(self) -> io::Result<OwnedFd> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::INET, self.kind, flags, None)?;
        let listens = self.kind == SocketType::STREAM;
        // Connections that have just ended must not keep it from being bound again.
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

/// Prepares the network of a container that nothing runs in yet: its loopback and its egress socket set.
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
