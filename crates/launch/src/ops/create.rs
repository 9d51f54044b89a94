//! Makes and starts a container. The folder and its lock come first and the record with a pid comes
//! last, so whatever a killed worker leaves is recognised and freed.

use super::destroy::free;
use crate::{
    attachments::{self, FileArea, FileAreas},
    cgroup, clock,
    context::Context,
    egress_sockets::{self, EgressSockets},
    mounts::{self, Attributes},
    observer,
    record::{self, Lock, Record},
    rootfs::{self, Assembled, Disk},
    runtime::{Start, cut_off},
    spec, sys, sysctls, uids, userns, volume_users,
};
use atoll_guest_proto::{FileAreaConfig, GuestConfig, Listen};
use atoll_launch_proto::{ContainerStatus, CreateRequest, ObserveRequest, output_bytes, spool_bytes};
use atoll_storage::{Image, Tree};
use atoll_types::{Error, ErrorCode, Result, RootMode, Storage, VolumeId, text::hex, time::now_ms};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::{fs, io, os::unix::net::UnixListener, path::PathBuf};

const ENDED_EXECS: usize = 512;
/// Where PID 1 listens when it must listen on TCP: a port that programs inside have no reason to want, and not that of the
/// process API.
const TCP_PORT: u16 = 3127;

fn fault(doing: &'static str) -> impl Fn(io::Error) -> Error {
    move |e| Error::internal(format!("cannot {doing}: {e}"))
}

/// A container that was made.
pub(crate) struct Made {
    pub(crate) status: ContainerStatus,
    pub(crate) egress_sockets: EgressSockets,
    /// Where a connection holds the container: the lock that shows this to other processes while it lives.
    pub(crate) held: Option<Lock>,
}

/// Makes and starts a container; on any failure nothing of it is left.
pub(crate) fn create(context: &Context, request: &CreateRequest) -> Result<Made> {
    request.profile.validate()?;
    request.limits.validate()?;
    refuse_unenforced(context)?;
    let start = Start::choose(&request.profile.isolation)?;
    if start.own_kernel() && request.profile.root == RootMode::Writable {
        let message = "a runtime with a kernel of its own has a read-only root";
        return Err(Error::new(ErrorCode::Unsupported, message).at("profile.root"));
    }
    if start.own_kernel() {
        attachments::check_binds(&request.profile)?;
    }
    let image = context.image(&request.profile)?;
    refuse_shared_volume(context, request)?;
    let lock = record::begin(context, request.container)?;
    let result = uids::take(&context.layout, request.container).and_then(|slot| {
        let record = first_record(request, slot, &start, &image)?;
        // Before the record: a container that is listed is listed as held.
        let held = request.held.then(|| record::hold(context, request.container)).transpose()?;
        volume_users::add(context, &record)?;
        record::save(context, &record)?;
        // Again: of two that are made at once, one sees the other's record.
        refuse_shared_volume(context, request)?;
        let (status, egress_sockets) = launch(context, record, &image, &start, request)?;
        Ok(Made { status, egress_sockets, held })
    });
    if result.is_err()
        && let Err(error) = free(context, request.container)
    {
        tracing::error!(container = %request.container, %error, "a failed container could not be freed");
    }
    drop(lock);
    result
}

/// A limit that cannot be enforced is not a limit.
fn refuse_unenforced(context: &Context) -> Result<()> {
    let missing = cgroup::missing().into_iter().filter(|one| !context.options.permit_missing.contains(one));
    let missing: Vec<&str> = missing.map(cgroup::Controller::as_str).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let message = format!(
        "the kernel cannot enforce limits: no cgroup controller {}; enable it, or start with --permit-missing {}",
        missing.join(", "),
        missing.join(",")
    );
    Err(Error::new(ErrorCode::Unsupported, message))
}

/// Two containers on one volume would corrupt each other's overlay and see each other's /tmp. A root that is built is in
/// no other container either: what is put there for a start must not be led away by what runs.
fn refuse_shared_volume(context: &Context, request: &CreateRequest) -> Result<()> {
    let CreateRequest { profile, volume, .. } = request;
    if volume.is_some() && *volume == profile.build_root {
        let message = "a sandbox's own volume cannot be its root";
        return Err(Error::invalid("profile.build_root", message));
    }
    let own: Vec<VolumeId> = volume.iter().chain(&profile.build_root).copied().collect();
    let sharers = own.iter().flat_map(|volume| volume_users::of(context, *volume));
    let builders = profile.volumes.iter().flat_map(|mount| {
        volume_users::of(context, mount.volume).filter(|user| user.profile.build_root == Some(mount.volume))
    });
    match sharers.chain(builders).find(|other| other.container != request.container) {
        Some(other) => {
            let message = format!("the volume belongs to container {}", other.container);
            Err(Error::new(ErrorCode::Conflict, message).at("volume"))
        }
        None => Ok(()),
    }
}

fn first_record(request: &CreateRequest, slot: u32, start: &Start, image: &Image) -> Result<Record> {
    let token = if start.own_kernel() { Some(random_token()?) } else { None };
    Ok(Record {
        container: request.container,
        profile: request.profile.clone(),
        limits: request.limits,
        volume: request.volume,
        created_unix_ms: now_ms().unsigned_abs(),
        slot,
        pid: 0,
        pid_start: 0,
        token,
        tcp_port: TCP_PORT,
        image: image.id.clone(),
    })
}

fn random_token() -> Result<String> {
    let mut bytes = [0u8; 32];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
        .map_err(|e| Error::internal(format!("no randomness: {e}")))?;
    Ok(hex(&bytes))
}

/// The descriptors that PID 1 inherits, in the order of their numbers from 3.
struct Inherited {
    listener: Option<UnixListener>,
    spool: OwnedFd,
    oom: Option<fs::File>,
    clock: fs::File,
    /// The trees of file areas.
    areas: Option<OwnedFd>,
}

fn launch(
    context: &Context,
    record: Record,
    image: &Image,
    start: &Start,
    request: &CreateRequest,
) -> Result<(ContainerStatus, EgressSockets)> {
    let container = record.container;
    wait_for_root(context, &record)?;
    let range = uids::range(record.slot);
    let userns = match start.own_kernel() {
        true => None,
        false => Some(userns::make(range).map_err(fault("make a user namespace"))?),
    };
    let userns = userns.as_ref().map(AsFd::as_fd);
    let disk = prepare_disk(context, &record)?;
    let mut inherited = inherit(context, &record, start, userns)?;
    let disk = disk.as_ref();
    let init = start.own_kernel().then(|| context.init.path().as_path());
    let parts = rootfs::Parts { context, profile: &record.profile, image, disk, userns, range, init };
    let Assembled { root, areas: FileAreas { all: areas, trees }, binds } = parts.assemble()?;
    inherited.areas = trees;
    let (guest, descriptors) = guest_config(&record, start, &inherited, request, areas);
    let bundle = context.container(container).join("bundle");
    let spec = spec::Parts {
        context,
        container,
        profile: &record.profile,
        limits: &record.limits,
        slot: record.slot,
        range,
        userns,
        root: &root,
        disk,
        binds: &binds,
        guest: &guest,
        start,
    };
    let spec = serde_json::to_vec(&spec.build()?).map_err(|e| Error::internal(e.to_string()))?;
    fs::create_dir(&bundle)
        .and_then(|()| fs::write(bundle.join("config.json"), spec))
        .map_err(fault("write the bundle"))?;
    if disk.is_some() {
        // Everything that a start writes is written.
        context.storage.lower(record.tree(), record.limits.disk_bytes)?;
    }
    place(&inherited, descriptors.len())?;
    let count = i32::try_from(descriptors.len()).unwrap_or(0);
    let pid = start.create(context, container, &bundle, count)?;
    // PID 1 does nothing before its start that could fail: if it ends, it was killed.
    begin(context, record, start, pid).map_err(|error| match record::is_ending(pid) {
        true => cut_off(&error.message),
        false => error,
    })
}

/// Starts a container's PID 1, after all that must exist before.
fn begin(
    context: &Context,
    mut record: Record,
    start: &Start,
    pid: i32,
) -> Result<(ContainerStatus, EgressSockets)> {
    let container = record.container;
    // From here on the process that reaps PID 1 finds its container.
    std::os::unix::fs::symlink(container.to_string(), context.pid_link(pid))
        .map_err(fault("note the process id"))?;
    record.pid_start =
        record::start_time(pid).ok_or_else(|| Error::internal("PID 1 ended before it began"))?;
    record.pid = pid;
    // Before anything runs there, so that no process inside can bind these ports first.
    let egress_sockets = egress_sockets::open(pid)?;
    egress_sockets::keep(context, container, &egress_sockets)?;
    cgroup::limit_sockets(context, container, &record.limits)?;
    sysctls::free_shared_memory(pid).map_err(fault("enter the sandbox's IPC namespace"))?;
    start.start(context, container)?;
    record::save(context, &record)?;
    Ok((record.status(context, None), egress_sockets))
}

/// The record names the image or the volume that is the root, so from here on it is not removed.
fn wait_for_root(context: &Context, record: &Record) -> Result<()> {
    match (record.profile.build_root, record.profile.image.id()) {
        (Some(volume), _) => context.storage.wait_for(volume),
        (None, Some(image)) => context.storage.share_image(image).map(drop),
        (None, None) => Ok(()),
    }
}

/// Finds or makes the tree that the sandbox writes to. Whatever a volume holds, this neither waits for it nor
/// needs space within its limit.
fn prepare_disk(context: &Context, record: &Record) -> Result<Option<Disk>> {
    if record.profile.storage != Storage::Volume {
        return Ok(None);
    }
    let (storage, tree) = (&context.storage, record.tree());
    if let Some(volume) = record.volume {
        // The record claims it, so from here on it is neither exchanged nor copied unfrozen.
        storage.wait_for(volume)?;
    }
    let volume = storage.create(tree, record.limits.disk_bytes)?;
    let temporary = storage.create_beside(Tree::Temporary(record.container), tree)?;
    storage.lift(tree, record.limits.disk_bytes)?;
    rootfs::prepare_volume(&volume, &record.profile)?;
    remove_former_tmp(volume.join("tmp"));
    // Before anything runs there: changes that are not observed from the beginning cannot be reported exactly.
    observer::tell(context, ObserveRequest::Watch(record.container));
    Ok(Some(Disk { volume, temporary, tree }))
}

/// Volumes made by earlier versions have a /tmp inside.
fn remove_former_tmp(folder: PathBuf) {
    if folder.exists()
        && let Err(error) = fs::remove_dir_all(folder)
    {
        tracing::warn!(%error, "what an earlier version left in /tmp cannot be removed");
    }
}

fn inherit(
    context: &Context,
    record: &Record,
    start: &Start,
    userns: Option<BorrowedFd<'_>>,
) -> Result<Inherited> {
    let spool = context.storage.create(Tree::Spool(record.container), spool_bytes(&record.limits))?;
    // A mount of its own: PID 1 can reach nothing above it, and its files keep root's ids on disk.
    let attributes = Attributes { read_only: false, no_exec: true };
    let spool = mounts::clone_tree(&spool, false, attributes, userns).map_err(fault("open the spool"))?;
    let oom = cgroup::oom_file(context, record.container)?;
    let listener = if start.own_kernel() {
        None
    } else {
        let path = context.guest_socket(record.container);
        Some(UnixListener::bind(path).map_err(fault("listen for PID 1"))?)
    };
    let clock = clock::make(context, record.container).map_err(fault("make the clock"))?;
    Ok(Inherited { listener, spool, oom, clock, areas: None })
}

fn guest_config(
    record: &Record,
    start: &Start,
    inherited: &Inherited,
    request: &CreateRequest,
    areas: Vec<FileArea>,
) -> (GuestConfig, Vec<i32>) {
    let mut numbers = 3..;
    let mut next = |there: bool| if there { numbers.next() } else { None };
    let listen = next(inherited.listener.is_some());
    // A runtime with a kernel of its own cannot pass descriptors of ours.
    let spool = next(!start.own_kernel());
    let oom = next(!start.own_kernel() && inherited.oom.is_some());
    let clock = next(!start.own_kernel());
    let trees = next(inherited.areas.is_some());
    let areas = areas.into_iter().map(|FileArea { path, tree }| FileAreaConfig { path, tree });
    let listen_at = match (listen, &record.token) {
        (None, Some(token)) => {
            Listen::Tcp { address: format!("127.0.0.1:{}", record.tcp_port), token: token.clone() }
        }
        (number, _) => Listen::Inherited(number.unwrap_or(3)),
    };
    let config = GuestConfig {
        listen: listen_at,
        spool_fd: spool,
        oom_fd: oom,
        clock_fd: clock,
        uid: record.profile.uid,
        gid: record.profile.gid,
        home: record.profile.home().into(),
        environment: request.environment.clone(),
        capabilities: record.profile.capabilities.clone(),
        seccomp: record.profile.seccomp,
        open_files: record.limits.open_files,
        processes: record.limits.processes,
        output_limit: output_bytes(&record.limits),
        max_ended_execs: ENDED_EXECS,
        spool_bytes: spool_bytes(&record.limits),
        guard_proc: !start.own_kernel(),
        areas_fd: trees,
        areas: areas.collect(),
    };
    (config, listen.into_iter().chain(spool).chain(oom).chain(clock).chain(trees).collect())
}

/// Gives the descriptors their numbers.
fn place(inherited: &Inherited, count: usize) -> Result<()> {
    let Inherited { listener, spool, oom, clock, areas } = inherited;
    let listener = listener.as_ref().map(AsFd::as_fd);
    let all = listener.into_iter().chain([spool.as_fd()]).chain(oom.as_ref().map(AsFd::as_fd));
    let all = all.chain([clock.as_fd()]).chain(areas.as_ref().map(AsFd::as_fd));
    // First out of the way, then into place: a number may be another's source.
    let moved: Vec<OwnedFd> = all
        .take(count)
        .map(|fd| rustix::io::fcntl_dupfd_cloexec(fd, 100))
        .collect::<Result<_, _>>()
        .map_err(|e| fault("place descriptors")(e.into()))?;
    for (number, fd) in (3..).zip(&moved) {
        sys::place_fd(fd.as_fd(), number).map_err(fault("place descriptors"))?;
    }
    Ok(())
}
