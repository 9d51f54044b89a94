//! Pauses and unpauses a container. No process inside takes part; the kernel freezes all of them. Each operation
//! may be repeated and interrupted: the state afterwards is read from the kernel. The same freezer keeps a container from
//! writing while its volume is copied.

use super::inspect::no_such;
use crate::{clock, context::Context, freezer::Freezer, record};
use atoll_types::{ContainerId, Error, ErrorCode, Isolation, Result};
use std::fs;

/// Pauses the container; answers when all of its processes are frozen. On failure it is thawed.
pub(crate) fn pause(context: &Context, container: ContainerId) -> Result<()> {
    complete_rollback(context, container)?;
    let _lock = record::lock(context, container)?.ok_or_else(|| no_such(container))?;
    let freezer = freezer_of(context, container)?;
    thaw_abandoned(context, container, record::lock_copying(context, container))?;
    let cgroup = context.cgroup(container);
    if !freezer.is_frozen(&cgroup) {
        stop_clock(context, container);
    }
    freezer.freeze(&cgroup)
}

/// Completes a rollback in place that a killed worker left: the container was frozen for it, and its files are between two
/// states. Before any lock of the container, which the worker that rolls back takes after the volume.
pub(crate) fn complete_rollback(context: &Context, container: ContainerId) -> Result<()> {
    let volume = record::load(context, container).and_then(|record| record.volume);
    match volume {
        Some(volume) if context.storage.unfinished_rollback(volume)?.is_some() => {
            context.storage.hold(volume).map(drop)
        }
        _ => Ok(()),
    }
}

/// A rollback in place that began, and failed, while the caller waited for the container's lock: its container stays frozen.
fn refuse_unfinished_rollback(context: &Context, container: ContainerId) -> Result<()> {
    let volume = record::load(context, container).and_then(|record| record.volume);
    match volume.map(|volume| context.storage.unfinished_rollback(volume)).transpose()?.flatten() {
        Some(_) => Err(Error::new(ErrorCode::Conflict, "the sandbox's files are being rolled back")),
        None => Ok(()),
    }
}

/// Before a freeze, so that after a crash in between timeouts leave out too much time rather than too little.
fn stop_clock(context: &Context, container: ContainerId) {
    if let Err(error) = clock::stops(context, container) {
        tracing::warn!(%container, %error, "timeouts will count the time that it is paused");
    }
}

/// A container none of whose processes runs until this is dropped. One that was paused before stays so. When the worker
/// is killed in between, [`thaw_abandoned`] thaws it.
pub(super) struct Frozen<'a> {
    context: &'a Context,
    container: ContainerId,
    /// None where there is nothing to thaw.
    freezer: Option<Freezer>,
    _locks: [Option<record::Lock>; 2],
}

impl<'a> Frozen<'a> {
    pub(super) fn new(context: &'a Context, container: ContainerId) -> Result<Self> {
        let lock = record::lock(context, container)?;
        // Without a container, or with a dead one, nothing runs.
        let freezer = match &lock {
            None => None,
            Some(_) => match freezer_of(context, container) {
                Err(error) if error.code == ErrorCode::ContainerDied => None,
                found => Some(found?),
            },
        };
        let mut frozen = Self { context, container, freezer: None, _locks: [lock, None] };
        let Some(freezer) = freezer else { return Ok(frozen) };
        let cgroup = context.cgroup(container);
        // One that is frozen with the file there was left so by a dead worker, which had stopped its clock; without the
        // file it is paused. The file is looked for first: a repair thaws before it removes the file.
        let copied = record::copying(context, container).exists();
        let was_frozen = freezer.is_frozen(&cgroup);
        if was_frozen && !copied {
            return Ok(frozen);
        }
        // Before the file: a repair that finds the file adds the time since the clock was stopped.
        if !was_frozen {
            stop_clock(context, container);
        }
        let copying = record::begin_copying(context, container)?;
        let result = freezer.freeze(&cgroup);
        (frozen.freezer, frozen._locks[1]) = (Some(freezer), Some(copying));
        result?;
        Ok(frozen)
    }

    /// Leaves it frozen.
    pub(super) fn stay(mut self) {
        self.freezer = None;
    }
}

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        let Self { context, container, freezer: Some(freezer), .. } = self else { return };
        if let Err(error) = thaw(context, *container, freezer) {
            tracing::error!(%container, %error, "a container stays frozen");
        }
    }
}

/// Thaws a container that a worker left frozen which was killed while it copied. The lock of that worker's file is held.
pub(crate) fn thaw_abandoned(
    context: &Context,
    container: ContainerId,
    held: Option<record::Lock>,
) -> Result<()> {
    let Some(_held) = held else { return Ok(()) };
    match freezer_of(context, container) {
        Ok(freezer) => thaw(context, container, &freezer),
        Err(error) if error.code == ErrorCode::ContainerDied => Ok(()),
        Err(error) => Err(error),
    }
}

fn thaw(context: &Context, container: ContainerId, freezer: &Freezer) -> Result<()> {
    if let Err(error) = clock::goes_on(context, container) {
        tracing::warn!(%container, %error, "timeouts will count the time that it was frozen");
    }
    freezer.thaw(&context.cgroup(container))?;
    let _ = fs::remove_file(record::copying(context, container));
    Ok(())
}

/// Unpauses the container; succeeds when it is not paused.
pub(crate) fn unpause(context: &Context, container: ContainerId) -> Result<()> {
    complete_rollback(context, container)?;
    let _lock = record::lock(context, container)?.ok_or_else(|| no_such(container))?;
    refuse_unfinished_rollback(context, container)?;
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
