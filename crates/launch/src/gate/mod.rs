//! The gate of a container: the sockets in its network by which whatever is inside can ask to get out.
//! They are bound before anything runs there and kept outside as long as the container lives
//! ([`keeper`]), so that nobody inside can take their places. Who serves them is the server's business.

mod ask;
mod keeper;
mod netlink;
mod redirect;
mod restore;
mod salvage;

use crate::{net, sys};
pub(crate) use ask::{forget, keep};
use atoll_types::{
    Error, Result,
    gate::{PROXY, REDIRECTED, RESOLVER},
};
pub(crate) use keeper::Keeper;
pub(crate) use restore::{find, restore_all};
use rustix::{
    fd::{BorrowedFd, OwnedFd},
    net::{AddressFamily, SocketFlags, SocketType, bind, listen, socket_with, sockopt::set_socket_reuseaddr},
};
use std::{io, net::SocketAddrV4};

/// Connections that may wait for whoever serves the gate.
const BACKLOG: i32 = 512;
/// The most sockets of a gate.
const MOST: usize = 4;

/// One of the gate's sockets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    address: SocketAddrV4,
    kind: SocketType,
    /// Whether it takes connections to addresses that are not its own.
    any_address: bool,
}

const PLACES: [Place; 3] = [
    Place { address: PROXY, kind: SocketType::STREAM, any_address: false },
    Place { address: RESOLVER, kind: SocketType::DGRAM, any_address: false },
    Place { address: RESOLVER, kind: SocketType::STREAM, any_address: false },
];
/// There only where the kernel can send connections to it.
const REDIRECTED_PLACE: Place = Place { address: REDIRECTED, kind: SocketType::STREAM, any_address: true };

/// The sockets of a gate, in the order of the protocol: the proxy's, the resolver's two, and where
/// connections to the reserved block end up, if they do.
#[derive(Debug)]
pub(crate) struct Gate(Vec<OwnedFd>);

impl Gate {
    /// A gate has three sockets or four.
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
    fn bind(mut otherwise: impl FnMut(Place, io::Error) -> Result<OwnedFd>) -> Result<Self> {
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

impl Place {
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

/// Prepares the network of a container that nothing runs in yet: its loopback and its gate.
pub(crate) fn open(pid: i32) -> Result<Gate> {
    let fault = |e: io::Error| Error::internal(format!("cannot prepare the container's network: {e}"));
    let namespace = net::namespace_of(pid).map_err(fault)?;
    net::inside(namespace, || {
        net::loopback_up().map_err(fault)?;
        Gate::bind(|place, e| Err(Error::internal(format!("cannot bind {}: {e}", place.address))))
    })
    .map_err(fault)?
}

fn borrowed(sockets: &[OwnedFd]) -> Vec<BorrowedFd<'_>> {
    sockets.iter().map(rustix::fd::AsFd::as_fd).collect()
}
