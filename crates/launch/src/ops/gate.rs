//! The gate of a container, for whoever serves it.

use super::inspect::load;
use crate::{
    context::Context,
    gate::{self, Gate},
};
use atoll_types::{ContainerId, Error, ErrorCode, Result};

/// Descriptors of the sockets by which whatever is inside can ask to get out.
pub(crate) fn gate(context: &Context, container: ContainerId) -> Result<Gate> {
    let record = load(context, container)?;
    if let Some(death) = record.death(context) {
        return Err(Error::died(death));
    }
    if record.pid == 0 {
        return Err(Error::new(ErrorCode::NotRunning, "the container is being made"));
    }
    gate::find(context, container)
}
