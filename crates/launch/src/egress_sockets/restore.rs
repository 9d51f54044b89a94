//! The egress sockets of a living container: those that are kept, or restored ones where the socket holder was
//! killed.
//!
//! A port that a process inside took meanwhile is a `conflict`: that container has no egress, and nothing
//! else is touched.

use super::{EgressSockets, SocketSpec, protocol, recover};
use crate::{context::Context, net, record};
use atoll_types::{ContainerId, Error, ErrorCode, Result};
use rustix::net::SocketType;
use std::{collections::BTreeSet, io};

/// The egress sockets of a container. When the socket holder was killed they are restored: a socket that a
/// process outside still has open is taken back, a free port is bound, and a port that a process inside has taken
/// is an error.
pub(crate) fn find(context: &Context, container: ContainerId) -> Result<EgressSockets> {
    if let Some(egress_sockets) = protocol::get(context, container)? {
        return Ok(egress_sockets);
    }
    let gone =
        || Error::new(ErrorCode::NotFound, format!("there is no container {container}")).at("container");
    // A worker that destroys the container waits for this lock, and then closes the restored sockets.
    let _lock = record::lock(context, container)?.ok_or_else(gone)?;
    if let Some(egress_sockets) = protocol::get(context, container)? {
        return Ok(egress_sockets);
    }
    let record = record::load(context, container).ok_or_else(gone)?;
    let fault = |e: io::Error| match record.death(context) {
        Some(death) => Error::died(death),
        None => Error::new(ErrorCode::Unavailable, format!("the container's network is out of reach: {e}")),
    };
    let namespace = net::handle_of(&record).map_err(fault)?;
    let again = |place: SocketSpec, e: io::Error| {
        recover::find(record.pid, place).ok_or_else(|| match e.kind() {
            io::ErrorKind::AddrInUse => taken(place),
            _ => Error::internal(format!("cannot bind {}: {e}", place.address)),
        })
    };
    let egress_sockets = net::inside(namespace, || EgressSockets::bind(again)).map_err(fault)??;
    protocol::keep(context, container, &egress_sockets)?;
    Ok(egress_sockets)
}

fn taken(place: SocketSpec) -> Error {
    let kind = if place.kind == SocketType::STREAM { "TCP" } else { "UDP" };
    let message = format!(
        "a process in the sandbox bound {} ({kind}) while the socket holder was gone, so this container has no egress; restart it",
        place.address
    );
    Error::new(ErrorCode::Conflict, message)
}

/// Makes sure that every living container's egress sockets are kept, and no others.
pub(crate) fn restore_all(context: &Context) {
    let kept: BTreeSet<ContainerId> = match protocol::list(context) {
        Ok(kept) => kept.into_iter().collect(),
        Err(error) => return tracing::error!(%error, "cannot list the egress sockets that are kept"),
    };
    for container in kept.iter().filter(|id| !context.container(**id).exists()) {
        protocol::forget(context, *container);
    }
    for container in record::containers(context).into_iter().filter(|id| !kept.contains(id)) {
        let lives = record::load(context, container).is_some_and(|r| r.pid > 0 && r.alive());
        if lives && let Err(error) = find(context, container) {
            tracing::error!(%container, %error, "a container has lost its egress");
        }
    }
}
