//! Changes the limits of a living container, and claims one from the warm pool.

use super::inspect::no_such;
use crate::{
    cgroup,
    context::Context,
    mounts,
    record::{self, Record},
    spec::shared_memory_bytes,
};
use atoll_launch_proto::spool_bytes;
use atoll_storage::Tree;
use atoll_types::{ContainerId, Error, ErrorCode, Limits, Result, Storage};
use std::io;

/// Changes the limits.
pub(crate) fn set_limits(context: &Context, container: ContainerId, limits: &Limits) -> Result<()> {
    let record = change(context, container, limits, |_| Ok(()))?;
    // /dev/shm may hold more than its new size now. The memory limit holds in any case.
    if let Err(error) = resize_shared_memory(&record, limits) {
        tracing::warn!(%container, %error, "/dev/shm keeps its size");
    }
    Ok(())
}

/// The same, if a new container would be made of the same image.
pub(crate) fn claim(context: &Context, container: ContainerId, limits: &Limits) -> Result<()> {
    let record = change(context, container, limits, |record| match is_current(context, record)? {
        true => Ok(()),
        false => Err(Error::new(ErrorCode::Conflict, "the container's image was rebuilt").at("container")),
    })?;
    resize_shared_memory(&record, limits)
        .map_err(|e| Error::internal(format!("cannot resize the shared memory: {e}")))
}

/// Resizes /dev/shm to what a start with these limits would give it. A runtime with its own kernel has its own.
fn resize_shared_memory(before: &Record, limits: &Limits) -> io::Result<()> {
    if before.limits.memory_bytes == limits.memory_bytes || before.token.is_some() {
        return Ok(());
    }
    let root = mounts::root_of(before.pid)?;
    if !before.alive() {
        return Err(io::ErrorKind::NotFound.into());
    }
    mounts::resize_tmpfs(&root, "/dev/shm", shared_memory_bytes(limits))
}

/// Whether a new container would be made of the same image.
pub(crate) fn current(context: &Context, container: ContainerId) -> Result<bool> {
    let record = record::load(context, container).ok_or_else(|| no_such(container))?;
    is_current(context, &record)
}

fn is_current(context: &Context, record: &Record) -> Result<bool> {
    Ok(context.image(&record.profile)?.id == record.image)
}

/// Changes the limits, and returns the record as it was before.
fn change(
    context: &Context,
    container: ContainerId,
    limits: &Limits,
    check: impl FnOnce(&Record) -> Result<()>,
) -> Result<Record> {
    limits.validate()?;
    let _lock = record::lock(context, container)?.ok_or_else(|| no_such(container))?;
    let mut record = record::load(context, container).ok_or_else(|| no_such(container))?;
    if !record.alive() {
        return Err(Error::new(ErrorCode::NotRunning, "the container is not running"));
    }
    check(&record)?;
    let before = record.clone();
    let disk = limits.disk_bytes != record.limits.disk_bytes;
    // The disk first, because only that change can be refused.
    if disk {
        resize(context, &record, limits)?;
    }
    let all_but_disk = Limits { disk_bytes: limits.disk_bytes, ..record.limits };
    if all_but_disk != *limits {
        if disk {
            record.limits.disk_bytes = limits.disk_bytes;
            record::save(context, &record)?;
        }
        cgroup::apply(context, container, limits, record.slot)?;
    } else if !disk {
        return Ok(before);
    }
    record.limits = *limits;
    record::save(context, &record)?;
    Ok(before)
}

/// Files and output. When the second is refused, the first is set back.
fn resize(context: &Context, record: &Record, limits: &Limits) -> Result<()> {
    let storage = &context.storage;
    if record.profile.storage == Storage::Volume {
        storage.set_limit(record.tree(), limits.disk_bytes)?;
    }
    let (old, new) = (spool_bytes(&record.limits), spool_bytes(limits));
    let resized = if old == new { Ok(()) } else { storage.set_limit(Tree::Spool(record.container), new) };
    if resized.is_err() && record.profile.storage == Storage::Volume {
        storage.set_limit(record.tree(), record.limits.disk_bytes)?;
    }
    resized
}
