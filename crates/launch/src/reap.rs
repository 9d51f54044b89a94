//! Seeing PID 1 end. Whoever is its parent, launcher or monitor, reaps it and writes down how it
//! ended; the link from process id to container is made by the worker that started it.

use crate::{cgroup, context::Folders, record, sys::Ended};
use atoll_types::{ContainerId, Death};
use std::fs;

/// Writes down the end of a container's PID 1. Other processes are nobody's business.
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
