//! What the launcher does at its start about the end of the one before, whether clean or a crash: containers that
//! live are kept, half-made ones are freed, and nothing of a container outlives its folder.

use crate::{cgroup, context::Context, ops, record, uids};
use atoll_storage::{Tree, TreeKind};
use atoll_types::ContainerId;
use std::{collections::BTreeSet, fs};

/// Frees what a worker left that was killed while the launcher goes on.
pub(crate) fn after_a_crash(context: &Context) {
    half_made(context);
    if let Err(error) = context.storage.sweep() {
        tracing::error!(%error, "a half-made volume could not be freed");
    }
}

/// Frees every container that a dead worker left half-made, and thaws those that it left frozen. A living worker
/// would hold its lock.
pub(crate) fn half_made(context: &Context) {
    for container in record::containers(context) {
        let running = record::load(context, container).is_some_and(|r| r.pid > 0);
        if running {
            let thawed = ops::complete_rollback(context, container).and_then(|()| {
                ops::thaw_abandoned(context, container, record::try_lock_copying(context, container))
            });
            if let Err(error) = thawed {
                tracing::error!(%container, %error, "a container stays frozen");
            }
            continue;
        }
        // A free lock means that no worker is busy with the container.
        if let Ok(Some(lock)) = record::try_lock(context, container)
            && record::load(context, container).is_none_or(|r| r.pid == 0)
        {
            tracing::warn!(%container, "freeing a container that was left half-made");
            if let Err(error) = ops::free(context, container) {
                tracing::error!(%container, %error, "a half-made container could not be freed");
            }
            drop(lock);
        }
    }
}

/// Frees what belongs to no container.
pub(crate) fn orphans(context: &Context) {
    let known: BTreeSet<ContainerId> = record::containers(context).into_iter().collect();
    for container in cgroup::containers(context).into_iter().filter(|c| !known.contains(c)) {
        let _ = cgroup::remove(context, container);
    }
    for kind in [TreeKind::Spool, TreeKind::Temporary, TreeKind::Scratch] {
        for tree in context.storage.list(kind).unwrap_or_default() {
            if let Tree::Spool(container) | Tree::Temporary(container) | Tree::Scratch(container) = tree
                && !known.contains(&container)
                && let Err(error) = context.storage.remove(tree)
            {
                tracing::warn!(%container, %error, "cannot remove a leftover");
            }
        }
    }
    for folder in [context.libcontainer(), context.oci()] {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let owner = entry.file_name().to_str().and_then(|n| n.parse().ok());
            if owner.is_none_or(|id: ContainerId| !known.contains(&id)) {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
    }
    // Checked again: a worker of the earlier launcher may have begun another container since.
    context.forget_pids(|container| context.container(container).exists());
    uids::repair();
}
