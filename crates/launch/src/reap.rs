//! Reaping PID 1. Its parent, the launcher or the monitor, reaps it and records how it ended; the worker that
//! started the container makes the link from process id to container.

use crate::{cgroup, context::Folders, record, sys::Ended};
use atoll_types::{ContainerId, Death};
use std::fs;

/// Records the end of a container's PID 1. Other children are ignored.
pub(crate) fn note(folders: &Folders, ended: &Ended) {
    let link = folders.pid_link(ended.pid);
    let Ok(target) = fs::read_link(&link) else { return };
    let Some(container) = target.to_str().and_then(|t| t.parse::<ContainerId>().ok()) else { return };
    let out_of_memory = ended.signal == Some(9) && cgroup::oom_kills(folders, container) > 0;
    let death = Death::from_wait(ended.exit_status, ended.signal, out_of_memory);
    tracing::info!(%container, reason = death.reason(), "a container ended");
    record::save_death(folders, container, &death);
    let _ = fs::remove_file(link);
}
