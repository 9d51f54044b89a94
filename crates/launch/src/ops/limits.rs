//! Changes what a living container may use.

use super::inspect::no_such;
use crate::{cgroup, context::Context, record};
use atoll_types::{ContainerId, Error, ErrorCode, Limits, Result, Storage};

/// Changes the limits: the disk first, because it is the one that can be refused.
pub(crate) fn set_limits(context: &Context, container: ContainerId, limits: &Limits) -> Result<()> {
    limits.validate()?;
    let _lock = record::lock(context, container)?.ok_or_else(|| no_such(container))?;
    let mut record = record::load(context, container).ok_or_else(|| no_such(container))?;
    if !record.alive() {
        return Err(Error::new(ErrorCode::NotRunning, "the container is not running"));
    }
    if record.profile.storage == Storage::Volume && limits.disk_bytes != record.limits.disk_bytes {
        context.storage.set_limit(record.tree(), limits.disk_bytes)?;
        record.limits.disk_bytes = limits.disk_bytes;
        record::save(context, &record)?;
    }
    cgroup::apply(context, container, limits, record.slot)?;
    record.limits = *limits;
    record::save(context, &record)
}
