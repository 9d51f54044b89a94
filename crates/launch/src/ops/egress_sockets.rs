//! The egress sockets of a container, for the server that accepts on them.

use super::inspect::load;
use crate::{
    context::Context,
    egress_sockets::{self, EgressSockets},
};
use atoll_types::{ContainerId, Error, ErrorCode, Result};

/// Descriptors of the sockets by which processes inside reach the server's egress proxy.
pub(crate) fn egress_sockets(context: &Context, container: ContainerId) -> Result<EgressSockets> {
    let record = load(context, container)?;
    if let Some(death) = record.death(context) {
        return Err(Error::died(death));
    }
    if record.pid == 0 {
        return Err(Error::new(ErrorCode::NotRunning, "the container is being made"));
    }
    egress_sockets::find(context, container)
}
