//! The observer: the process that watches volumes for changes. A launcher starts it, and it outlives the launcher
//! and every server. It collects the kernel's events, and answers which files changed since the last request.
//! Once a second it also checks what sandboxes hold by sockets ([`socket_guard`]).
//!
//! Its state is in memory only; after a restart the new observer reports `truncated` once for every container.

mod process;

pub(crate) use process::{ObserverProcess, tell};

use crate::{cgroup, context::Context, record, socket_guard, wire};
use atoll_launch_proto::{
    FileAction, FileChange, HEADER, Layout, MAX_ANSWER, MAX_REQUEST, ObserveAnswer, ObserveRequest, decode,
    encode, frame_length,
};
use atoll_observe::{Action, Changes, Limits, Observer, Scanner};
use atoll_storage::{DriverKind, Tree};
use atoll_types::{ContainerId, Error, ErrorCode, Result, Storage};
use rustix::{
    event::{PollFd, PollFlags, poll},
    fd::{AsFd, BorrowedFd},
};
use std::{
    fs, io,
    io::{Read, Write},
    os::unix::{
        fs::PermissionsExt,
        net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// The part of a volume that is reported.
const FOLDER: &str = "workspace";
/// The most files in one answer.
const MOST: usize = 10_000;
/// What is kept for one container between two requests: enough for an answer of the most files. A container that
/// changes more gets `truncated`; its neighbours are not delayed.
const LIMITS: Limits =
    Limits { tree_bytes: 4 << 20, all_bytes: 256 << 20, tree_events: 250_000, entries: MOST };
/// How long events may gather before they are read. The kernel merges equal events while they wait, so a flood
/// costs by the time it lasts and hardly by its length. A request reads at once.
const PACE: Duration = Duration::from_millis(50);
/// Connections at one time.
const MOST_CLIENTS: usize = 4096;
/// How long a client may take to read an answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// How changes are found: on btrfs the kernel reports them, elsewhere the observer compares scans.
enum Finder {
    Told(Box<Observer>),
    Looking(Scanner),
}

impl Finder {
    fn new(context: &Context) -> io::Result<Self> {
        match context.storage.kind() {
            DriverKind::Dir => Ok(Self::Looking(Scanner::new())),
            DriverKind::BtrfsLoop | DriverKind::BtrfsNative => {
                let anywhere = context.storage.path(Tree::Scratch(ContainerId::random()));
                let root = anywhere.ancestors().nth(2).unwrap_or(Path::new("/"));
                Ok(Self::Told(Box::new(Observer::with_limits(root, LIMITS)?)))
            }
        }
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Told(observer) => Some(observer.as_fd()),
            Self::Looking(_) => None,
        }
    }

    fn watch(&mut self, tree: &Path) -> io::Result<()> {
        match self {
            Self::Told(observer) => observer.watch(tree),
            Self::Looking(scanner) => scanner.watch(tree, FOLDER),
        }
    }

    fn forget(&mut self, tree: &Path) {
        match self {
            Self::Told(observer) => observer.forget(tree),
            Self::Looking(scanner) => scanner.forget(tree),
        }
    }

    fn take(&mut self, tree: &Path, processes: &[i32]) -> io::Result<Changes> {
        match self {
            Self::Told(observer) => observer.take(tree, FOLDER, processes),
            Self::Looking(scanner) => scanner.take(tree, FOLDER, processes),
        }
    }
}

struct Client {
    stream: UnixStream,
    root: bool,
    buffer: Vec<u8>,
}

/// Serves until a launcher ends it.
pub(crate) fn run(context: &Context) -> io::Result<()> {
    let mut finder = Finder::new(context)?;
    let listener = bind(&context.layout)?;
    let mut clients: Vec<Client> = Vec::new();
    let mut drained: Option<Instant> = None;
    let mut swept = Instant::now();
    loop {
        if swept.elapsed() >= socket_guard::INTERVAL {
            socket_guard::sweep(context);
            swept = Instant::now();
        }
        let next = socket_guard::INTERVAL.saturating_sub(swept.elapsed());
        let pause = drained.and_then(|at| PACE.checked_sub(at.elapsed()));
        let mut fds: Vec<PollFd<'_>> = vec![PollFd::new(&listener, PollFlags::IN)];
        fds.extend(clients.iter().map(|c| PollFd::new(&c.stream, PollFlags::IN)));
        let told = finder.fd().filter(|_| pause.is_none());
        let events = told.is_some();
        fds.extend(told.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        let until = pause.map_or(next, |pause| pause.min(next));
        poll(&mut fds, until.try_into().ok().as_ref())?;
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        drop(fds);
        if let (true, Some(true), Finder::Told(observer)) = (events, ready.last(), &mut finder) {
            observer.drain()?;
            drained = Some(Instant::now());
        }
        let mut keep = ready.iter().skip(1);
        clients.retain_mut(|client| !keep.next().is_some_and(|r| *r) || serve(context, &mut finder, client));
        if ready[0] {
            accept(context, &listener, &mut clients);
        }
    }
}

fn bind(layout: &Layout) -> io::Result<UnixListener> {
    match fs::remove_file(layout.observer()) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let listener = UnixListener::bind(layout.observer())?;
    listener.set_nonblocking(true)?;
    fs::set_permissions(layout.observer(), fs::Permissions::from_mode(0o666))?;
    Ok(listener)
}

fn accept(context: &Context, listener: &UnixListener, clients: &mut Vec<Client>) {
    while let Ok((stream, _)) = listener.accept() {
        let uid = wire::peer_uid(&stream).unwrap_or(u32::MAX);
        let allowed = uid == 0 || context.options.client_uids.contains(&uid);
        let tame = stream.set_nonblocking(true).is_ok() && stream.set_write_timeout(Some(PATIENCE)).is_ok();
        if allowed && tame && clients.len() < MOST_CLIENTS {
            clients.push(Client { stream, root: uid == 0, buffer: Vec::new() });
        }
    }
}

/// Reads what a client has sent and answers every complete request. False: the client is gone or sent a malformed
/// request.
fn serve(context: &Context, finder: &mut Finder, client: &mut Client) -> bool {
    let mut piece = [0; 4096];
    loop {
        match client.stream.read(&mut piece) {
            Ok(0) => return false,
            Ok(n) => client.buffer.extend_from_slice(&piece[..n]),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return false,
        }
        if client.buffer.len() > HEADER + MAX_REQUEST {
            return false;
        }
    }
    while let Some(header) = client.buffer.first_chunk::<HEADER>() {
        let Ok(length) = frame_length(*header, MAX_REQUEST) else { return false };
        if client.buffer.len() < HEADER + length {
            return true;
        }
        let body: Vec<u8> = client.buffer.drain(..HEADER + length).skip(HEADER).collect();
        let answer = match decode::<ObserveRequest>(&body) {
            Ok(request) => answer(context, finder, client.root, request).unwrap_or_else(ObserveAnswer::Err),
            Err(_) => return false,
        };
        if send(&mut client.stream, &answer).is_err() {
            return false;
        }
    }
    true
}

fn send(stream: &mut UnixStream, answer: &ObserveAnswer) -> io::Result<()> {
    let frame = encode(answer, MAX_ANSWER).map_err(io::Error::other)?;
    stream.set_nonblocking(false)?;
    stream.write_all(&frame)?;
    stream.set_nonblocking(true)
}

fn answer(
    context: &Context,
    finder: &mut Finder,
    root: bool,
    request: ObserveRequest,
) -> Result<ObserveAnswer> {
    let fault = |e: io::Error| Error::internal(format!("changes cannot be observed: {e}"));
    match request {
        ObserveRequest::Hello(fingerprint) if root && fingerprint == process::fingerprint(context) => {
            Ok(ObserveAnswer::Done)
        }
        ObserveRequest::Hello(_) => Err(Error::new(ErrorCode::VersionMismatch, "the fingerprint differs")),
        ObserveRequest::Watch(container) if root => {
            finder.watch(&tree(context, container)?).map_err(fault)?;
            Ok(ObserveAnswer::Done)
        }
        ObserveRequest::Forget(container) if root => {
            finder.forget(&tree(context, container)?);
            Ok(ObserveAnswer::Done)
        }
        ObserveRequest::Watch(_) | ObserveRequest::Forget(_) => {
            Err(Error::new(ErrorCode::PermissionDenied, "only the launcher decides what is watched"))
        }
        ObserveRequest::Take(container) => {
            let processes = cgroup::process_ids(context, container);
            finder.take(&tree(context, container)?, &processes).map(shown).map_err(fault)
        }
    }
}

/// Where a container's volume is.
fn tree(context: &Context, container: ContainerId) -> Result<PathBuf> {
    let record = record::load(context, container)
        .ok_or_else(|| Error::new(ErrorCode::NotFound, format!("there is no container {container}")))?;
    if record.profile.storage != Storage::Volume {
        return Err(Error::new(ErrorCode::Unsupported, "a sandbox in memory has no volume to observe"));
    }
    Ok(context.storage.path(record.tree()))
}

fn shown(changes: Changes) -> ObserveAnswer {
    let Changes { entries, truncated } = changes;
    let truncated = truncated || entries.len() > MOST;
    let entry = |change: atoll_observe::Change| FileChange {
        path: change.path.to_string_lossy().into_owned(),
        action: match change.action {
            Action::Created => FileAction::Created,
            Action::Modified => FileAction::Modified,
            Action::Deleted => FileAction::Deleted,
        },
        size_bytes: change.size_bytes,
    };
    ObserveAnswer::Changes { entries: entries.into_iter().take(MOST).map(entry).collect(), truncated }
}
