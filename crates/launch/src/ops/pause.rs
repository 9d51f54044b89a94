//! Pauses and unpauses a container. No process inside takes part; the kernel freezes all of them. Each operation
//! may be repeated and interrupted: the state afterwards is read from the kernel.

use super::inspect::no_such;
use crate::{clock, context::Context, freezer::Freezer, record};
use atoll_types::{ContainerId, Error, ErrorCode, Isolation, Result};

/// Pauses the container; answers when all of its processes are frozen. On failure it is thawed.
pub(crate) fn pause(context: &Context, container: ContainerId) -> Result<()> {
    let _lock = record::lock(context, container)?.ok_or_else(|| no_such(container))?;
    let freezer = freezer_of(context, container)?;
    let cgroup = context.cgroup(container);
    // Before, so that after a crash in between timeouts leave out too much time rather than too little.
    if !freezer.is_frozen(&cgroup)
        && let Err(error) = clock::stops(context, container)
    {
        tracing::warn!(%container, %error, "timeouts will count the time that it is paused");
    }
    freezer.freeze(&cgroup)
}

/// Unpauses the container; succeeds when it is not paused.
pub(crate) fn unpause(context: &Context, container: ContainerId) -> Result<()> {
    let _lock = record::lock(context, container)?.ok_or_else(|| no_such(container))?;
    let freezer = freezer_of(context, container)?;
    let cgroup = context.cgroup(container);
    if !freezer.is_frozen(&cgroup) {
        return Ok(());
    }
    if let Err(error) = clock::goes_on(context, container) {
        tracing::warn!(%container, %error, "timeouts will count the time that it was paused");
    }
    freezer.thaw(&cgroup)
}

/// Reclaims memory that a paused container can do without. Not under its lock: this may take a while, and an
/// unpause must not wait for it.
pub(crate) fn reclaim(context: &Context, container: ContainerId) {
    if let Some(freezer) = Freezer::find() {
        freezer.reclaim(&context.cgroup(container));
    }
}

/// The freezer, where it is one of this container's.
fn freezer_of(context: &Context, container: ContainerId) -> Result<Freezer> {
    let record = record::load(context, container).ok_or_else(|| no_such(container))?;
    if record.pid == 0 {
        return Err(Error::new(ErrorCode::NotRunning, "the container is being made"));
    }
    if let Some(death) = record.death(context) {
        return Err(Error::died(death));
    }
    let lacking = |message: String| Error::new(ErrorCode::Unsupported, message);
    let freezer = Freezer::find().ok_or_else(|| lacking("this machine has no cgroup freezer".into()))?;
    if freezer.holds(&context.cgroup(container), record.pid) {
        return Ok(freezer);
    }
    Err(match record.profile.isolation {
        Isolation::Runtime(name) => lacking(format!("a container of {name} cannot be paused here")),
        _ => lacking("its processes are not in a freezer's cgroup".into()),
    })
}
