//! Inspecting, waiting, connecting: the operations that change nothing.

use crate::{
    cgroup,
    context::Context,
    freezer::Freezer,
    net,
    record::{self, Record},
    runtime, wire,
};
use atoll_launch_proto::{ContainerState, ContainerStatus, LauncherAnswer, LauncherReply, Quota, Report};
use atoll_storage::{DriverKind, QuotaKind};
use atoll_types::{ContainerId, Death, DeathKind, Error, ErrorCode, Result};
use rustix::{
    event::{PollFd, PollFlags, poll},
    fd::OwnedFd,
    net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with},
    process::{Pid, PidfdFlags, pidfd_open},
};
use std::{
    io,
    net::{SocketAddr, TcpStream},
    os::unix::net::UnixStream,
    path::Path,
    thread::sleep,
    time::Duration,
};

/// The error for an id that no container has.
pub(crate) fn no_such(container: ContainerId) -> Error {
    Error::new(ErrorCode::NotFound, format!("there is no container {container}")).at("container")
}

pub(super) fn load(context: &Context, container: ContainerId) -> Result<Record> {
    record::load(context, container).ok_or_else(|| no_such(container))
}

/// PID 1's parent records its end a moment after it ended; waits for that moment.
fn settled_death(context: &Context, record: &Record) -> Option<Death> {
    let mut tries = 0;
    loop {
        // The link is removed after the end is recorded, so the link is checked first.
        let pending = context.pid_link(record.pid).symlink_metadata().is_ok();
        let death = record.death(context)?;
        if death.kind != DeathKind::Lost || !pending || tries == 200 {
            return Some(death);
        }
        tries += 1;
        sleep(Duration::from_millis(5));
    }
}

/// How a container is.
pub(crate) fn inspect(context: &Context, container: ContainerId) -> Result<ContainerStatus> {
    let record = load(context, container)?;
    let freezer = Freezer::find();
    let status = record.status(context, freezer.as_ref());
    if status.state != ContainerState::Dead {
        return Ok(status);
    }
    // Only once it is seen dead: one that dies after a look at a living PID 1 would have no cause yet.
    settled_death(context, &record);
    Ok(record.status(context, freezer.as_ref()))
}

/// Every container of this launcher.
pub(crate) fn list(context: &Context) -> Vec<ContainerStatus> {
    let records = record::containers(context).into_iter().filter_map(|id| record::load(context, id));
    let freezer = Freezer::find();
    let status = |record: Record| {
        let held = record::is_held(context, record.container);
        ContainerStatus { held, ..record.status(context, freezer.as_ref()) }
    };
    records.map(status).collect()
}

/// The pidfd of a PID 1 that lives. Opened before it is seen alive, so that it is never that of another process with the
/// same number.
fn living_init(record: &Record) -> Option<OwnedFd> {
    let pidfd = Pid::from_raw(record.pid).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
    pidfd.filter(|_| record.alive())
}

/// PID 1's pidfd, by which the client learns of its death without a worker that waits; or how it died.
pub(crate) fn watch(context: &Context, container: ContainerId) -> Result<(LauncherReply, Vec<OwnedFd>)> {
    let record = load(context, container)?;
    Ok(match living_init(&record) {
        Some(pidfd) => (LauncherReply::Watched, vec![pidfd]),
        None => {
            let death = settled_death(context, &record).unwrap_or_else(Death::lost);
            (LauncherReply::Died(death), Vec::new())
        }
    })
}

/// Answers when the container is dead, or ends when the client disconnects.
pub(crate) fn wait(context: &Context, stream: &mut UnixStream, container: ContainerId) {
    let death = load(context, container).and_then(|record| {
        if let Some(handle) = living_init(&record) {
            let mut fds = [PollFd::new(&handle, PollFlags::IN), PollFd::new(stream, PollFlags::RDHUP)];
            poll(&mut fds, None).map_err(|e| Error::internal(format!("cannot wait: {e}")))?;
        }
        Ok(settled_death(context, &record).unwrap_or_else(Death::lost))
    });
    let answer = match death {
        Ok(death) => LauncherAnswer::Ok(LauncherReply::Died(death)),
        Err(error) => LauncherAnswer::Err(error),
    };
    wire::write_answer(stream, &answer);
}

/// A stream to PID 1, and what the caller needs to use it.
pub(crate) fn connect(context: &Context, container: ContainerId) -> Result<(LauncherReply, OwnedFd)> {
    let paused = Freezer::find().is_some_and(|freezer| freezer.is_frozen(&context.cgroup(container)));
    let (fd, token) = reach(context, container, paused)?;
    Ok((LauncherReply::Connected { token, paused }, fd))
}

fn reach(context: &Context, container: ContainerId, paused: bool) -> Result<(OwnedFd, Option<String>)> {
    let record = load(context, container)?;
    let refused = |e: std::io::Error| match settled_death(context, &record) {
        Some(death) => Error::died(death),
        None => Error::new(ErrorCode::Unavailable, format!("PID 1 does not answer: {e}")),
    };
    if record.token.is_none() && paused {
        // A frozen PID 1 accepts no connection: a blocking connect to its full backlog would wait for ever.
        let stream = connect_at_once(&context.guest_socket(container)).map_err(refused)?;
        return Ok((stream, None));
    }
    if record.token.is_none() {
        let stream = UnixStream::connect(context.guest_socket(container)).map_err(refused)?;
        return Ok((stream.into(), None));
    }
    net::enter_checked(&record).map_err(refused)?;
    let address = SocketAddr::from(([127, 0, 0, 1], record.tcp_port));
    // PID 1 listens a moment after it was started.
    let mut tries = 0;
    loop {
        match TcpStream::connect_timeout(&address, Duration::from_secs(5)) {
            Ok(stream) => return Ok((stream.into(), record.token)),
            Err(_) if tries < 500 && record.alive() => tries += 1,
            Err(e) => return Err(refused(e)),
        }
        sleep(Duration::from_millis(20));
    }
}

fn connect_at_once(path: &Path) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    rustix::io::ioctl_fionbio(&socket, false)?;
    Ok(socket)
}

/// What this machine can do.
pub(crate) fn report(context: &Context) -> Result<Report> {
    let storage = context.storage.report()?;
    let driver = match storage.driver {
        DriverKind::BtrfsNative => "btrfs",
        DriverKind::BtrfsLoop => "btrfs on a loop file",
        DriverKind::Dir => "dir",
    };
    let quota = match storage.quota {
        QuotaKind::Simple => Quota::Simple,
        QuotaKind::Classic => Quota::Classic,
        QuotaKind::None => Quota::None,
    };
    Ok(Report {
        cgroup: cgroup::version().into(),
        missing_controllers: cgroup::missing().into_iter().map(|one| one.as_str().to_owned()).collect(),
        storage: driver.into(),
        quota,
        capacity_bytes: storage.capacity_bytes,
        free_bytes: storage.free_bytes,
        disk_low: storage.low,
        runtimes: runtime::found(),
        notes: [storage.notes, context.sysctls.notes.clone(), cgroup::notes()].concat(),
    })
}
