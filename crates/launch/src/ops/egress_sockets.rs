//! The egress socket set of a container, for whoever serves it.

use super::inspect::load;
use crate::{
    context::Context,
    egress_sockets::{self, EgressSockets},
};
use atoll_types::{ContainerId, Error, ErrorCode, Result};

/// Descriptors of the sockets by which whatever is inside can ask to get out.
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
