//! The observer: the process that watches volumes for changes. A launcher starts it, and it outlives the launcher
//! and every server. It collects the kernel's events, and answers which files changed since the last report that
//! was acknowledged. Once a second it also checks what sandboxes hold by sockets ([`socket_guard`]).
//!
//! One thread serves all containers in turn. Nothing in its loop waits for a client ([`connection`]), and a scan
//! runs in slices with requests served in between ([`finder`]), so no container waits for another one's scan. On
//! btrfs nothing is scanned, and the work for an answer is bounded.
//!
//! Its state is in memory only; after a restart the new observer reports `truncated` once for every container.

mod connection;
mod finder;
mod process;
mod reports;

pub(crate) use process::{ObserverProcess, tell};

use crate::{cgroup, context::Context, record, socket_guard, wire};
use atoll_launch_proto::{Layout, ObserveAnswer, ObserveRequest};
use atoll_observe::{Action, Changes};
use atoll_types::{
    ContainerId, Error, ErrorCode, Result, Storage,
    files::{Changed, FileAction, FileChange},
};
use connection::Connection;
use finder::Finder;
use reports::Reports;
use rustix::event::{PollFd, PollFlags, poll};
use std::{
    collections::{BTreeMap, HashMap},
    fs, io,
    os::unix::{fs::PermissionsExt, net::UnixListener},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// The part of a volume that is reported.
const FOLDER: &str = "workspace";
/// The most files in one answer.
const MOST: usize = 10_000;
/// How long events may gather before they are read. The kernel merges equal events while they wait, so a flood
/// costs by the time it lasts and hardly by its length. A request reads at once.
const PACE: Duration = Duration::from_millis(50);
/// Connections at one time.
const MOST_CLIENTS: usize = 4096;
/// Scans at one time. Each has three descriptors open.
const MOST_SCANS: usize = 64;
/// The bytes of all answers that clients have not read. A client whose answer exceeds this is disconnected; its
/// report is not acknowledged, so it can ask again.
const MOST_UNSENT: usize = 64 << 20;

/// What a scan is for.
struct Purpose {
    container: ContainerId,
    connection: u64,
    /// Who gets its report; none where it only begins to watch.
    reader: Option<u64>,
}

/// What the loop keeps.
struct Service<'a> {
    context: &'a Context,
    finder: Finder,
    reports: Reports,
    connections: BTreeMap<u64, Connection>,
    last_connection: u64,
    /// The scans in progress, by tree.
    scans: HashMap<PathBuf, Purpose>,
    /// Requests that begin when a scan is complete, by connection.
    waiting: Vec<(u64, ObserveRequest)>,
}

/// Serves until a launcher ends it.
pub(crate) fn run(context: &Context) -> io::Result<()> {
    let finder = Finder::new(context)?;
    let listener = bind(&context.layout)?;
    let (connections, scans) = (BTreeMap::new(), HashMap::new());
    let (last_connection, waiting) = (0, Vec::new());
    let reports = Reports::new();
    let mut service = Service { context, finder, reports, connections, last_connection, scans, waiting };
    let mut drained: Option<Instant> = None;
    let mut swept = Instant::now();
    loop {
        if swept.elapsed() >= socket_guard::INTERVAL {
            socket_guard::sweep(context);
            swept = Instant::now();
        }
        let next = socket_guard::INTERVAL.saturating_sub(swept.elapsed());
        let pause = drained.and_then(|at| PACE.checked_sub(at.elapsed()));
        if service.turn(&listener, pause, next)? {
            drained = Some(Instant::now());
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

impl Service<'_> {
    /// Waits until there is something to do, `next` at most, and does it, with one slice of a scan. Events are not
    /// read during a pause. True: they were.
    fn turn(&mut self, listener: &UnixListener, pause: Option<Duration>, next: Duration) -> io::Result<bool> {
        let told = self.finder.fd().filter(|_| pause.is_none());
        let mut fds = vec![PollFd::new(listener, PollFlags::IN)];
        fds.extend(self.connections.values().map(|it| PollFd::new(&it.stream, it.interest())));
        fds.extend(told.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        let until =
            if self.scans.is_empty() { pause.map_or(next, |it| it.min(next)) } else { Duration::ZERO };
        poll(&mut fds, until.try_into().ok().as_ref())?;
        let events: Vec<PollFlags> = fds.iter().map(PollFd::revents).collect();
        let drain = told.is_some() && events.last().is_some_and(|it| !it.is_empty());
        drop(fds);
        if drain {
            self.finder.drain()?;
        }
        let ids: Vec<u64> = self.connections.keys().copied().collect();
        for (id, events) in ids.into_iter().zip(events.iter().skip(1)).filter(|(_, it)| !it.is_empty()) {
            self.connections.entry(id).and_modify(|it| it.transfer(*events));
            self.serve(id);
        }
        if !events[0].is_empty() {
            self.accept(listener);
        }
        self.advance();
        self.drop_connections();
        Ok(drain)
    }

    fn accept(&mut self, listener: &UnixListener) {
        while let Ok((stream, _)) = listener.accept() {
            let uid = wire::peer_uid(&stream).unwrap_or(u32::MAX);
            let allowed = uid == 0 || self.context.options.client_uids.contains(&uid);
            if allowed && stream.set_nonblocking(true).is_ok() && self.connections.len() < MOST_CLIENTS {
                self.last_connection += 1;
                self.connections.insert(self.last_connection, Connection::new(stream, uid == 0));
            }
        }
    }

    /// Begins the requests of a connection, each when the one before is answered.
    fn serve(&mut self, id: u64) {
        while let Some(request) = self.connections.get_mut(&id).and_then(Connection::next_request) {
            self.begin(id, request);
        }
    }

    /// Answers a request, or begins the scan that it needs, or has it wait for a scan that is in progress.
    fn begin(&mut self, id: u64, request: ObserveRequest) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        connection.busy = !matches!(request, ObserveRequest::Acknowledge { .. });
        if connection.busy && connection.is_over() {
            return;
        }
        let root = connection.root;
        match self.work(id, root, request) {
            Ok(Some(answer)) => self.answer(id, &answer),
            Ok(None) => {}
            Err(error) => self.answer(id, &ObserveAnswer::Err(error)),
        }
    }

    /// The answer to a request; none where there is none yet, or will be none.
    fn work(&mut self, id: u64, root: bool, request: ObserveRequest) -> Result<Option<ObserveAnswer>> {
        match request {
            ObserveRequest::Hello(asked) if root && asked == process::fingerprint(self.context) => {
                Ok(Some(ObserveAnswer::Done))
            }
            ObserveRequest::Hello(_) => {
                Err(Error::new(ErrorCode::VersionMismatch, "the fingerprint differs"))
            }
            ObserveRequest::Watch(container) if root => {
                self.look(Purpose { container, connection: id, reader: None }, request)
            }
            ObserveRequest::Forget(container) if root => {
                self.forget(container, &tree(self.context, container)?);
                Ok(Some(ObserveAnswer::Done))
            }
            ObserveRequest::Watch(_) | ObserveRequest::Forget(_) => {
                Err(Error::new(ErrorCode::PermissionDenied, "only the launcher decides what is watched"))
            }
            ObserveRequest::Take { container, reader, received } => {
                self.reports.received(container, received);
                self.look(Purpose { container, connection: id, reader: Some(reader) }, request)
            }
            ObserveRequest::Acknowledge { container, sequence } => {
                self.reports.acknowledge(container, sequence);
                Ok(None)
            }
        }
    }

    /// Looks at a container's tree. None: a scan is in progress, this one or one that it has to wait for.
    fn look(&mut self, purpose: Purpose, request: ObserveRequest) -> Result<Option<ObserveAnswer>> {
        let tree = tree(self.context, purpose.container)?;
        if self.scans.contains_key(&tree) || self.scans.len() >= MOST_SCANS {
            self.waiting.push((purpose.connection, request));
            return Ok(None);
        }
        let looked = match purpose.reader {
            None => self.finder.watch(&tree),
            Some(_) => self.finder.take(&tree, &cgroup::process_ids(self.context, purpose.container)),
        };
        match looked.map_err(|e| Error::internal(format!("changes cannot be observed: {e}")))? {
            Some(changes) => Ok(Some(self.looked(&purpose, changes))),
            None => {
                self.scans.insert(tree, purpose);
                Ok(None)
            }
        }
    }

    fn looked(&mut self, purpose: &Purpose, changes: Changes) -> ObserveAnswer {
        let Some(reader) = purpose.reader else { return ObserveAnswer::Done };
        let (sequence, changed) = self.reports.hand_out(purpose.container, reader, shown(changes));
        ObserveAnswer::Changes { sequence, changed }
    }

    /// Runs a slice of the scan whose turn it is; when that is complete, answers its request and begins those
    /// that waited for it.
    fn advance(&mut self) {
        let Some((tree, changes)) = self.finder.advance() else { return };
        let Some(purpose) = self.scans.remove(&tree) else { return };
        let answer = self.looked(&purpose, changes);
        self.answer(purpose.connection, &answer);
        if self.is_useless(&purpose) {
            self.finder.forget(&tree);
        }
        self.serve(purpose.connection);
        self.begin_waiting();
    }

    fn begin_waiting(&mut self) {
        for (id, request) in std::mem::take(&mut self.waiting) {
            self.begin(id, request);
        }
    }

    /// Whether a scan proves nothing: it only began to watch, and the launcher did not wait for it, so the
    /// container may have run meanwhile.
    fn is_useless(&self, purpose: &Purpose) -> bool {
        let connection = self.connections.get(&purpose.connection);
        purpose.reader.is_none() && connection.is_none_or(Connection::is_over)
    }

    fn answer(&mut self, id: u64, answer: &ObserveAnswer) {
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.answer(answer);
        }
        if self.connections.values().map(Connection::unsent).sum::<usize>() > MOST_UNSENT {
            self.connections.remove(&id);
        }
    }

    fn forget(&mut self, container: ContainerId, tree: &Path) {
        self.finder.forget(tree);
        self.reports.forget(container);
        if let Some(ended) = self.scans.remove(tree) {
            self.connections.remove(&ended.connection);
            self.begin_waiting();
        }
    }

    /// Drops the connections that are over. A scan for a report goes on without one: the report is kept.
    fn drop_connections(&mut self) {
        let useless: Vec<PathBuf> =
            self.scans.iter().filter(|it| self.is_useless(it.1)).map(|it| it.0.clone()).collect();
        for tree in &useless {
            self.finder.forget(tree);
            self.scans.remove(tree);
        }
        self.connections.retain(|_, connection| !connection.is_over());
        self.waiting.retain(|(id, _)| self.connections.contains_key(id));
        if !useless.is_empty() {
            self.begin_waiting();
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

fn shown(changes: Changes) -> Changed {
    let Changes { entries, truncated } = changes;
    let entry = |change: atoll_observe::Change| FileChange {
        path: change.path.to_string_lossy().into_owned(),
        action: match change.action {
            Action::Created => FileAction::Created,
            Action::Modified => FileAction::Modified,
            Action::Deleted => FileAction::Deleted,
        },
        size_bytes: change.size_bytes,
    };
    Changed { files: entries.into_iter().map(entry).collect(), truncated }
}
