//! The egress socket set of a container that lives: the one that is kept, or made again where its socket holder was killed.
//!
//! A port that a process inside took meanwhile is a `conflict`: that container has no egress, and nothing
//! else is touched.

use super::{EgressSockets, SocketSpec, protocol, recover};
use crate::{context::Context, net, record};
use atoll_types::{ContainerId, Error, ErrorCode, Result};
use rustix::net::SocketType;
use std::{collections::BTreeSet, io};

/// The egress socket set of a container. When its socket holder was killed it is put together again: what somebody outside
/// still has is taken back, what is free is bound, and what somebody inside has taken is an error.
pub(crate) fn find(context: &Context, container: ContainerId) -> Result<EgressSockets> {
    if let Some(egress_sockets) = protocol::get(context, container)? {
        return Ok(egress_sockets);
    }
    let gone =
        || Error::new(ErrorCode::NotFound, format!("there is no container {container}")).at("container");
    // Whoever destroys it waits until the egress socket set is kept, and then lets go of it.
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
        "something in the sandbox has taken {} ({kind}) while nobody kept it, so there is no way out of this container; restart it",
        place.address
    );
    Error::new(ErrorCode::Conflict, message)
}

/// Sees that every container that lives has its egress socket set, and that no other is kept.
pub(crate) fn restore_all(context: &Context) {
    let kept: BTreeSet<ContainerId> = match protocol::list(context) {
        Ok(kept) => kept.into_iter().collect(),
        Err(error) => return tracing::error!(%error, "gates cannot be looked after"),
    };
    for container in kept.iter().filter(|id| !context.container(**id).exists()) {
        protocol::forget(context, *container);
    }
    for container in record::containers(context).into_iter().filter(|id| !kept.contains(id)) {
        let lives = record::load(context, container).is_some_and(|r| r.pid > 0 && r.alive());
        if lives && let Err(error) = find(context, container) {
            tracing::error!(%container, %error, "a container has lost its way out");
        }
    }
}
