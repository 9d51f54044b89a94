//! Ends a container and frees everything that it had. This is the one place that frees; it may be
//! repeated, and it works from what is there rather than from what should be.
//!
//! A failed create, a destroy, a held connection that closes, a shutdown and a repair all end here. The
//! container's folder is removed last but one and its uid range last, so a repair finds a container that is
//! freed by half.

use crate::{
    cgroup, context::Context, egress_sockets, observer, record, runtime::Start, uids, volume_users, wire,
};
use atoll_launch_proto::ObserveRequest;
use atoll_storage::Tree;
use atoll_types::{ContainerId, Error, Result, Storage};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use std::{fs, io, os::unix::net::UnixStream, path::Path, thread::sleep, time::Duration};

/// Ends a container and frees all that it had; succeeds when there is none.
pub(crate) fn destroy(context: &Context, container: ContainerId) -> Result<()> {
    match record::lock(context, container)? {
        Some(lock) => {
            let result = free(context, container);
            drop(lock);
            result
        }
        None => Ok(()),
    }
}

/// Ends every container of this launcher.
pub(crate) fn destroy_all(context: &Context) -> Result<()> {
    record::containers(context).into_iter().try_for_each(|container| destroy(context, container))
}

/// Destroys a container when the connection that holds it closes.
pub(crate) fn hold(context: &Context, stream: &mut UnixStream, container: ContainerId) {
    wire::wait_for_close(stream);
    if let Err(error) = destroy(context, container) {
        tracing::error!(%container, %error, "a held container could not be freed");
    }
}

/// Frees all that a container has. The caller holds its lock. The folder goes last but one and the
/// user ids last, so a cut-off free is found again and no ids are reused too early.
pub(crate) fn free(context: &Context, container: ContainerId) -> Result<()> {
    let record = record::load(context, container);
    if record.as_ref().is_none_or(|r| r.pid == 0) {
        end_strays(context, container);
    }
    cgroup::end_frozen(context, container);
    if let Some(record) = &record {
        if record.alive() {
            end_process(record.pid)?;
        }
        let _ = fs::remove_file(context.pid_link(record.pid));
    }
    // The end of PID 1 ended its whole process namespace; this waits for the last of it.
    cgroup::remove(context, container)?;
    if record.as_ref().is_none_or(|r| r.pid == 0) {
        // The worker that made the container may have made the pid link and been killed before it wrote the
        // record. The next process with this pid must be able to make its own link.
        context.forget_pids(|other| other != container);
    }
    let fault =
        |what: &'static str| move |e: io::Error| Error::internal(format!("cannot remove {what}: {e}"));
    Start::Builtin.forget(context, container).map_err(fault("libcontainer's state"))?;
    if let Some(record) = &record
        && let Ok(start @ Start::Runtime { .. }) = Start::choose(&record.profile.isolation)
    {
        start.forget(context, container).map_err(fault("the runtime's state"))?;
    }
    if record.as_ref().is_some_and(|r| r.profile.storage == Storage::Volume) {
        observer::tell(context, ObserveRequest::Forget(container));
    }
    // A socket that is left open would keep the container's network alive.
    egress_sockets::forget(context, container);
    context.storage.remove(Tree::Spool(container))?;
    context.storage.remove(Tree::Temporary(container))?;
    context.storage.remove(Tree::Scratch(container))?;
    if let Some(record) = &record {
        volume_users::remove(context, record);
    }
    remove_folder(&context.container(container)).map_err(fault("the container's folder"))?;
    match record {
        Some(record) => uids::release(&context.layout, record.slot, container).map_err(fault("the user ids")),
        // Cut off before the record was written: the slot names a container that is gone now.
        None => {
            uids::repair();
            Ok(())
        }
    }
}

/// Removes a container's folder. The launcher or the monitor may be recording PID 1's end there at this moment.
fn remove_folder(folder: &Path) -> io::Result<()> {
    let mut tries = 0;
    loop {
        match fs::remove_dir_all(folder) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(e) if e.kind() == io::ErrorKind::DirectoryNotEmpty && tries < 100 => tries += 1,
            other => return other,
        }
        sleep(Duration::from_millis(2));
    }
}

/// Kills a process and waits until it is gone or a zombie, whose parent reaps it.
fn end_process(pid: i32) -> Result<()> {
    let Some(pid) = Pid::from_raw(pid) else { return Ok(()) };
    let Ok(handle) = pidfd_open(pid, PidfdFlags::empty()) else { return Ok(()) };
    let _ = kill_process(pid, Signal::KILL);
    let mut fds = [rustix::event::PollFd::new(&handle, rustix::event::PollFlags::IN)];
    let limit = Duration::from_secs(30).try_into().ok();
    match rustix::event::poll(&mut fds, limit.as_ref()) {
        Ok(0) => Err(Error::internal("PID 1 does not end")),
        _ => Ok(()),
    }
}

/// Kills the children that a killed worker left on their way into the container: in no cgroup yet, waiting for
/// the worker. They are found by the container's lock file, which they have open.
fn end_strays(context: &Context, container: ContainerId) {
    let lock = context.container(container).join("lock");
    let me = std::process::id().to_string();
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    for process in processes.filter(|p| p.file_name() != me.as_str()) {
        let Some(pid) = process.file_name().to_str().and_then(|n| n.parse().ok()).and_then(Pid::from_raw)
        else {
            continue;
        };
        let open = fs::read_dir(process.path().join("fd")).into_iter().flatten().flatten();
        if open.filter_map(|fd| fs::read_link(fd.path()).ok()).any(|target| target == lock)
            && !waits_for_lock(pid)
        {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

/// Whether a process is another worker that waits to change the same container.
fn waits_for_lock(pid: Pid) -> bool {
    fs::read_to_string(format!("/proc/{}/comm", pid.as_raw_nonzero()))
        .is_ok_and(|name| name.trim() == "atoll-launch")
}
