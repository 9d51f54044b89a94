//! The launcher itself: a loop that accepts a connection, checks the peer's user, and forks a worker. It never
//! reads a byte of a request, so no client can block it.

use crate::{
    ceilings, cgroup,
    context::{Context, Folders},
    egress_sockets::{self, SocketHolder},
    images::Images,
    init::InitProgram,
    mounts,
    observer::ObserverProcess,
    ops,
    options::Options,
    reap, record, repair, staying, sys,
    sysctls::Sysctls,
    volume_users, wire, worker,
};
use atoll_launch_proto::{LauncherAnswer, Layout};
use atoll_storage::{Storage, StorageConfig};
use atoll_types::{Error, ErrorCode};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fd::{AsFd, BorrowedFd, OwnedFd},
    process::{Pid, Signal, getpid, kill_process, set_child_subreaper},
};
use std::{
    collections::BTreeSet,
    fs, io,
    io::Write,
    os::unix::{
        fs::{DirBuilderExt, PermissionsExt},
        net::{UnixListener, UnixStream},
    },
    time::{Duration, Instant},
};

/// The exit status that makes the monitor start another launcher.
pub(crate) const FAULT: i32 = 70;
/// Requests at one time.
const MOST_WORKERS: usize = 1024;
/// How often the free space of the file system below is checked.
const GUARD_SECONDS: i64 = 1;
/// How often it is looked at most whether dirty data is to be written back.
const WRITE_BACK_EVERY: Duration = Duration::from_secs(1);
/// Less than this delays a snapshot by little.
const WORTH_WRITING: u64 = 16 << 20;
/// After how long an ephemeral launcher ends that never got a connection.
const UNUSED: Duration = Duration::from_secs(30);

/// What the loop keeps.
struct Server {
    context: Context,
    listener: UnixListener,
    signals: OwnedFd,
    workers: BTreeSet<i32>,
    /// The process that watches volumes.
    observer: Option<ObserverProcess>,
    /// The process that keeps the egress sockets.
    holder: Option<SocketHolder>,
    served: bool,
    began: Instant,
    /// What storage measured when it was last guarded.
    measured: u64,
    /// The worker that writes back what is dirty.
    writing_back: Option<i32>,
    /// When the dirty data was last looked at.
    dirty_looked_at: Instant,
    lock: fs::File,
}

/// Runs the launcher; returns its exit status.
pub(crate) fn run(options: &Options, lock: fs::File, ready: Option<fs::File>) -> i32 {
    let context = match open(options) {
        Ok(context) => context,
        Err(error) => {
            tracing::error!(error, "cannot start");
            let first = ready.is_some();
            let _ = ready.map(|mut r| write!(r, "{error}"));
            return if first { 1 } else { FAULT };
        }
    };
    let parts = bind(&context.layout).and_then(|listener| {
        Ok((listener, sys::signal_fd(&[libc::SIGCHLD, libc::SIGTERM, libc::SIGINT, libc::SIGHUP])?))
    });
    let (listener, signals) = match parts {
        Ok(parts) => parts,
        Err(error) => {
            let _ = ready.map(|mut r| write!(r, "cannot listen: {error}"));
            return FAULT;
        }
    };
    let workers = BTreeSet::new();
    let (observer, holder, began) = (None, None, Instant::now());
    let measured = context.storage.measure();
    let mut server = Server {
        context,
        listener,
        signals,
        workers,
        observer,
        holder,
        served: false,
        began,
        measured,
        writing_back: None,
        dirty_looked_at: Instant::now(),
        lock,
    };
    // The observer and the socket holder must not keep the ready pipe open: the monitor's caller waits on it.
    server.get_observer(ready.as_ref().map(AsFd::as_fd));
    server.get_socket_holder(ready.as_ref().map(AsFd::as_fd));
    volume_users::repair(&server.context);
    // After the signals are blocked, so that SIGCHLD of its workers is not missed.
    repair::half_made(&server.context);
    repair::orphans(&server.context);
    server.in_worker(ready.as_ref().map(AsFd::as_fd), egress_sockets::restore_all);
    let _ = ready.map(|mut r| write!(r, "ready"));
    server.serve()
}

fn open(options: &Options) -> Result<Context, String> {
    set_child_subreaper(Some(getpid())).map_err(|e| e.to_string())?;
    let folders = Folders { layout: Layout::new(&options.data_dir) };
    let dir = folders.layout.data().join("storage");
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&dir)
        .map_err(|e| format!("the data folder: {e}"))?;
    let mut config = StorageConfig::new(dir, folders.layout.run().join("pool"));
    config.driver = options.storage;
    let images = Images::look(&config.dir.join("images")).map_err(|e| format!("the host image: {e}"))?;
    let storage = Storage::open(&config).map_err(|e| format!("storage: {e}"))?;
    let init = InitProgram::lay_out(&folders.layout).map_err(|e| format!("atoll-init: {e}"))?;
    ceilings::raise();
    cgroup::prepare(&folders).map_err(|e| format!("cgroups: {e}"))?;
    let mut options = options.clone();
    staying::apply(&folders, &mut options);
    let sysctls = Sysctls::look();
    Ok(Context { options, folders, storage, init, images, sysctls })
}

/// Listens. Every user may connect; the peer's uid, from the kernel, decides who is served.
fn bind(layout: &Layout) -> io::Result<UnixListener> {
    let path = layout.socket();
    match fs::remove_file(&path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let listener = UnixListener::bind(&path)?;
    listener.set_nonblocking(true)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666))?;
    Ok(listener)
}

/// Answers with an error to a client whose request is not read. Must not block on the client.
fn refuse(stream: &mut UnixStream, why: &str) {
    if stream.set_nonblocking(true).is_ok() {
        wire::write_answer(stream, &LauncherAnswer::Err(Error::new(ErrorCode::Unavailable, why)));
    }
}

impl Server {
    fn serve(mut self) -> i32 {
        loop {
            let short = self.context.options.ephemeral && self.served;
            let timeout = Timespec {
                tv_sec: if short { 0 } else { GUARD_SECONDS },
                tv_nsec: if short { 50_000_000 } else { 0 },
            };
            let woken = self.sleep(Some(&timeout));
            self.guard_storage();
            self.write_back();
            let mut terminate = false;
            while let Some(signal) = sys::next_signal(&self.signals) {
                terminate |= signal != libc::SIGCHLD;
            }
            if let Some(code) = self.reap() {
                return self.clean_up(code == worker::PURGE);
            }
            if terminate {
                // Containers live on; the next launcher finds them.
                let _ = fs::remove_file(self.context.layout.socket());
                return 0;
            }
            while let Ok((stream, _)) = self.listener.accept() {
                self.admit(stream);
            }
            let retires = self.context.options.ephemeral && (self.served || self.began.elapsed() > UNUSED);
            if woken == 0 && retires && self.idle() && self.may_retire() {
                return self.clean_up(false);
            }
        }
    }

    /// Sleeps until a descriptor is ready, and restarts the observer and the socket holder when they have ended.
    /// Returns the number of ready descriptors.
    fn sleep(&mut self, timeout: Option<&Timespec>) -> usize {
        let observer = self.observer.as_ref().map(ObserverProcess::as_fd);
        let holder = self.holder.as_ref().map(SocketHolder::as_fd);
        let helpers: Vec<BorrowedFd<'_>> = observer.into_iter().chain(holder).collect();
        let all = [self.listener.as_fd(), self.signals.as_fd()].into_iter().chain(helpers);
        let mut fds: Vec<PollFd<'_>> = all.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        let woken = poll(&mut fds, timeout).unwrap_or(1);
        let ended: Vec<bool> = fds.iter().skip(2).map(|fd| !fd.revents().is_empty()).collect();
        drop(fds);
        let mut ended = ended.into_iter();
        if self.observer.is_some() && ended.next() == Some(true) {
            tracing::error!("the observer ended; starting it again");
            self.get_observer(None);
        }
        if self.holder.is_none() || ended.next() == Some(true) {
            tracing::error!("the socket holder ended; starting it again");
            self.get_socket_holder(None);
            self.in_worker(None, egress_sockets::restore_all);
        }
        woken
    }

    /// Adjusts what volumes may use to the free space of the file system below, when that changed.
    fn guard_storage(&mut self) {
        let measure = self.context.storage.measure();
        if measure != self.measured {
            self.measured = measure;
            self.in_worker(None, |context| {
                if let Err(error) = context.storage.guard() {
                    tracing::error!(%error, "what volumes may use does not follow the disk");
                }
            });
        }
    }

    /// Has dirty data written back before the kernel would, so that a snapshot seldom waits for it. One worker at a time,
    /// and not more often than once in a while.
    fn write_back(&mut self) {
        let busy = self.writing_back.is_some_and(|pid| self.workers.contains(&pid));
        if busy || self.dirty_looked_at.elapsed() < WRITE_BACK_EVERY {
            return;
        }
        self.dirty_looked_at = Instant::now();
        if self.context.storage.dirty() < WORTH_WRITING {
            return;
        }
        self.writing_back = self.in_worker(None, |context| {
            if let Err(error) = context.storage.write_back() {
                tracing::warn!(%error, "dirty data is not written back");
            }
        });
    }

    fn idle(&self) -> bool {
        self.workers.is_empty() && record::containers(&self.context).is_empty()
    }

    /// Stops listening, unless a client has just connected.
    fn may_retire(&mut self) -> bool {
        let _ = fs::remove_file(self.context.layout.socket());
        let Ok((stream, _)) = self.listener.accept() else { return true };
        match bind(&self.context.layout) {
            Ok(listener) => self.listener = listener,
            Err(error) => tracing::error!(%error, "cannot listen again"),
        }
        self.admit(stream);
        false
    }

    /// Forks a worker for a connection whose user may give orders.
    fn admit(&mut self, mut stream: UnixStream) {
        self.served = true;
        let uid = wire::peer_uid(&stream).unwrap_or(u32::MAX);
        let allowed = uid == 0 || self.context.options.client_uids.contains(&uid);
        if !allowed || self.workers.len() >= MOST_WORKERS || stream.set_nonblocking(false).is_err() {
            tracing::warn!(uid, workers = self.workers.len(), "a connection was refused");
            if allowed {
                refuse(&mut stream, "the launcher has too much to do");
            }
            return;
        }
        match sys::fork() {
            Ok(sys::Fork::Child) => {
                sys::unblock_signals();
                sys::close_in_child(&[self.listener.as_fd(), self.signals.as_fd(), self.lock.as_fd()]);
                sys::exit_now(worker::serve(&self.context, stream));
            }
            Ok(sys::Fork::Parent(pid)) => {
                self.workers.insert(pid);
            }
            Err(error) => {
                tracing::error!(%error, "cannot fork a worker");
                refuse(&mut stream, "the launcher cannot start another process");
            }
        }
    }

    /// Reaps children. Some: a worker has shut everything down with this status, and the launcher must end with
    /// it.
    fn reap(&mut self) -> Option<i32> {
        let (mut end, mut crashed, mut stay) = (None, false, false);
        while let Ok(Some(ended)) = sys::reap_one(-1, false) {
            if self.workers.remove(&ended.pid) {
                end = end.max(ended.exit_status.filter(|s| [worker::SHUT_DOWN, worker::PURGE].contains(s)));
                crashed |= ended.signal.is_some();
                stay |= ended.exit_status == Some(worker::STAY);
            } else {
                reap::note(&self.context, &ended);
            }
        }
        if crashed {
            tracing::warn!("a worker was killed; looking for what it left");
            self.in_worker(None, repair::after_a_crash);
        }
        if stay {
            let Context { options, folders, .. } = &mut self.context;
            staying::apply(folders, options);
            // The observer has a copy of the users that may connect; one with an older copy is replaced.
            self.get_observer(None);
        }
        end
    }

    /// Makes sure that an observer runs.
    fn get_observer(&mut self, waited_on: Option<BorrowedFd<'_>>) {
        let mut ours = vec![self.listener.as_fd(), self.signals.as_fd(), self.lock.as_fd()];
        ours.extend(waited_on);
        self.observer = ObserverProcess::get(&self.context, &ours);
    }

    /// Makes sure that a socket holder runs.
    fn get_socket_holder(&mut self, waited_on: Option<BorrowedFd<'_>>) {
        let mut ours = vec![self.listener.as_fd(), self.signals.as_fd(), self.lock.as_fd()];
        ours.extend(waited_on);
        self.holder = SocketHolder::get(&self.context, &ours)
            .inspect_err(|error| tracing::error!(%error, "cannot start the socket holder"))
            .ok();
    }

    /// Runs a longer task in a worker, and returns its process id.
    fn in_worker(&mut self, waited_on: Option<BorrowedFd<'_>>, work: fn(&Context)) -> Option<i32> {
        match sys::fork() {
            Ok(sys::Fork::Child) => {
                sys::unblock_signals();
                sys::close_in_child(&[self.listener.as_fd(), self.signals.as_fd(), self.lock.as_fd()]);
                sys::close_in_child(waited_on.as_slice());
                work(&self.context);
                sys::exit_now(0);
            }
            Ok(sys::Fork::Parent(pid)) => {
                self.workers.insert(pid);
                Some(pid)
            }
            Err(error) => {
                tracing::error!(%error, "cannot fork a worker");
                None
            }
        }
    }

    /// Ends what still works, and every container with it.
    fn end_workers(&mut self) {
        if let Some(observer) = self.observer.take() {
            observer.end();
        }
        for worker in &self.workers {
            if let Some(pid) = Pid::from_raw(*worker) {
                let _ = kill_process(pid, Signal::KILL);
            }
        }
        while !self.workers.is_empty() {
            match sys::reap_one(-1, true) {
                Ok(Some(ended)) => _ = self.workers.remove(&ended.pid),
                _ => break,
            }
        }
        if let Err(error) = ops::destroy_all(&self.context) {
            tracing::error!(%error, "a container could not be freed");
        }
        if let Some(holder) = self.holder.take() {
            holder.end();
        }
    }

    /// Removes all that this instance has outside its data folder, and with `purge` what it keeps there.
    fn clean_up(mut self, purge: bool) -> i32 {
        self.end_workers();
        let Context { folders, storage, .. } = self.context;
        let _ = fs::remove_file(folders.layout.socket());
        cgroup::remove_instance(&folders);
        if purge && let Err(error) = storage.delete_read_only() {
            tracing::error!(%error, "snapshots and images cannot be deleted");
        }
        if let Err(error) = storage.close() {
            tracing::error!(%error, "the storage stays mounted");
            return 0;
        }
        if purge && let Err(error) = mounts::remove_tree(folders.layout.data(), "storage") {
            tracing::error!(%error, "the storage cannot be deleted");
        }
        let _ = fs::remove_dir_all(folders.layout.run());
        let _ = fs::remove_file(folders.lock());
        0
    }
}
