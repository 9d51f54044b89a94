//! The connection to the kernel manager of one container, shared by all callers. It lives as long as the
//! kernel manager: a stream that breaks is attached to again at the next byte, and where bytes are missing
//! the link asks again for what the kernel manager knows of the cells.

use super::{cell::Cell, wire::believed};
use atoll_kernels::{
    Answer, CellError, CellEvent, CellReport, KernelInfo, LONGEST_LINE, Language, Line, Request, RequestKind,
};
use atoll_provider::{Command, Container, ExecEvent, ExecReport, ExecStream, Guest, OutputStream, State};
use atoll_types::{
    CellId, Death, Error, ErrorCode, ExecId, KernelId, Result,
    lines::{self, LineBuffer},
};
use bytes::Bytes;
use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, timeout_at},
};
use uuid::Uuid;

/// Bytes of the kernel manager's output that PID 1 keeps for the server.
const OUTPUT: u64 = 32 << 20;
/// How long an answer may take; an interpreter may have to be started for it.
const PATIENCE: Duration = Duration::from_secs(120);
/// Before a stream that broke is tried again.
const PAUSE: Duration = Duration::from_millis(500);
/// What was lost is asked for again when nothing more was lost for so long, and in a flood without an end after so long:
/// what is sent again must not be lost in the same flood and make it larger.
const QUIET: Duration = Duration::from_millis(300);
const LATEST: Duration = Duration::from_secs(5);
/// Requests that wait to be written.
const QUEUE: usize = 256;
/// Requests go to the sandbox in pieces of this.
const PIECE: usize = 1 << 18;

/// Why a link is over.
#[derive(Debug, Clone)]
enum Over {
    /// The kernel manager ended, and all kernels with it.
    KernelManager(Death),
    /// The container ended, or cannot be reached.
    Container(Error),
}

impl Over {
    fn error(&self) -> Error {
        match self {
            Self::KernelManager(death) => {
                let message = format!("all kernels of this sandbox ended: {}", death.reason());
                Error::new(ErrorCode::KernelDied, message)
            }
            Self::Container(error) => error.clone(),
        }
    }
}

#[derive(Default)]
struct Talk {
    asked: HashMap<ExecId, oneshot::Sender<Result<Answer>>>,
    /// Those that are followed, and where they run as far as that is known.
    cells: HashMap<CellId, (Option<KernelId>, Arc<Cell>)>,
    /// Those whose end is being asked for again.
    asked_again: HashSet<CellId>,
    defaults: HashMap<Language, KernelId>,
    /// How often the memory limit had killed, as last seen.
    oom_kills: u64,
    /// Requests on their way, until it is over.
    requests: Option<mpsc::Sender<(ExecId, Vec<u8>)>>,
    over: Option<Over>,
}

/// A connection to a kernel manager.
pub(crate) struct Link {
    guest: Guest,
    exec: ExecId,
    talk: Mutex<Talk>,
    /// Held by the request that starts a dead kernel anew.
    pub(super) reviving: tokio::sync::Mutex<()>,
    /// Shared by each request that sends a cell, until the kernel manager has it; held alone while kernels and files are
    /// kept or rolled back together.
    pub(super) sending: Arc<tokio::sync::RwLock<()>>,
    /// Held by the request that looks whether a cell is known, and sends it if it is not.
    pub(super) repeating: tokio::sync::Mutex<()>,
}

/// The kernel manager, as a command.
fn command() -> Command {
    let mut command = Command::tool("kernels", b"{}".to_vec()).environment_of_sandbox();
    command.stdin = true;
    command.keep_newest = true;
    command.output_limit = Some(OUTPUT);
    command
}

/// How the kernel manager ended.
fn death(report: &ExecReport) -> Death {
    Death::from_wait(report.exit_code, report.signal, report.oom_killed)
}

/// The report of a cell that ended with everything else.
fn lost(kernel: Option<KernelId>, death: Death) -> CellReport {
    CellReport {
        kernel: kernel.unwrap_or_else(|| KernelId::from_uuid(Uuid::nil())),
        success: false,
        stdout: String::new(),
        stderr: String::new(),
        result: None,
        error: Some(CellError::kernel_died(&death.reason())),
        display_outputs: Vec::new(),
        execution_count: 0,
        duration_us: 0,
        timed_out: false,
        interrupted: false,
        state_lost: true,
        restarted: false,
        death: Some(death),
        truncated: false,
    }
}

impl Link {
    /// Starts the kernel manager of a container, or joins it.
    pub(super) async fn make(container: &Arc<dyn Container>, exec: ExecId) -> Result<Arc<Self>> {
        let guest = container.guest().clone();
        if !guest.has(atoll_provider::FEATURE_KERNELS) {
            let message = "this sandbox was started by an older release; stop it and resume it";
            return Err(Error::new(ErrorCode::Unsupported, message));
        }
        let mut report = guest.start(exec, &command()).await?;
        if report.ended && report.failure.is_none() {
            // What it left behind goes, and another takes its place.
            guest.kill(exec).await?;
            guest.forget_exec(exec).await?;
            report = guest.start(exec, &command()).await?;
        }
        if let Some(failure) = &report.failure {
            let message = format!("kernels cannot be started: {}", failure.message);
            let error = Error::new(ErrorCode::ExecFailed, message);
            // So that it can be tried again.
            let _ = guest.forget_exec(exec).await;
            return Err(error);
        }
        let from = report.output_bytes;
        let events = guest.attach(exec, from, true).await?;
        let (requests, queue) = mpsc::channel(QUEUE);
        let talk = Talk { oom_kills: report.oom_kills, requests: Some(requests), ..Talk::default() };
        let link = Arc::new(Self {
            guest,
            exec,
            talk: Mutex::new(talk),
            reviving: Default::default(),
            repeating: Default::default(),
            sending: Default::default(),
        });
        tokio::spawn(write(Arc::clone(&link), queue));
        let listener =
            Listener { link: Arc::clone(&link), container: Arc::clone(container), next: from, loss: None };
        tokio::spawn(listener.listen(events));
        Ok(link)
    }

    fn talk(&self) -> MutexGuard<'_, Talk> {
        self.talk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The kernel manager's own id among the commands.
    pub(super) fn exec(&self) -> ExecId {
        self.exec
    }

    pub(super) fn is_over(&self) -> bool {
        self.talk().over.is_some()
    }

    /// Asks, and waits for the answer. Where that is lost, a request that may be repeated is sent again.
    pub(super) async fn ask(&self, ask: RequestKind) -> Result<Answer> {
        let asked = async {
            let mut repeated = false;
            loop {
                match self.ask_once(&ask).await? {
                    // The cell was taken by the request whose answer was lost, which is this caller's too.
                    Some(Answer::Queued { .. }) if repeated && matches!(ask, RequestKind::Execute(_)) => {
                        return Ok(Answer::Queued { joined: false });
                    }
                    Some(answer) => return Ok(answer),
                    None if ask.may_be_repeated() => repeated = true,
                    None => return Err(Error::new(ErrorCode::Unavailable, "the answer got lost; ask again")),
                }
            }
        };
        let late = |_| Error::new(ErrorCode::Timeout, "the sandbox's kernels do not answer");
        tokio::time::timeout(PATIENCE, asked).await.map_err(late)?
    }

    /// The answer to one request; none where it is among bytes that were lost.
    async fn ask_once(&self, ask: &RequestKind) -> Result<Option<Answer>> {
        let tag = ExecId::random();
        let request = Request { tag, ask: ask.clone() };
        let mut line = serde_json::to_vec(&request).map_err(|e| Error::internal(e.to_string()))?;
        line.push(b'\n');
        let gone = || Error::new(ErrorCode::Unavailable, "the sandbox's kernels do not answer");
        let (sender, answer) = oneshot::channel();
        let requests = {
            let mut talk = self.talk();
            if let Some(over) = &talk.over {
                return Err(over.error());
            }
            talk.asked.insert(tag, sender);
            talk.requests.clone().ok_or_else(gone)?
        };
        let _asked = Asked { link: self, tag };
        requests.send((tag, line)).await.map_err(|_| gone())?;
        // The sender is dropped without a word where bytes were lost.
        answer.await.ok().transpose()
    }

    /// The cell with this id, which is followed from now on; and whether it was before.
    pub(super) fn cell(&self, kernel: Option<KernelId>, id: CellId) -> Result<(Arc<Cell>, bool)> {
        let mut talk = self.talk();
        if let Some(over) = &talk.over {
            return Err(over.error());
        }
        if let Some((_, cell)) = talk.cells.get(&id) {
            return Ok((Arc::clone(cell), true));
        }
        let cell = Arc::new(Cell::new(id));
        talk.cells.insert(id, (kernel, Arc::clone(&cell)));
        Ok((cell, false))
    }

    /// The cells that are followed, because they have not ended.
    pub(super) fn cells(&self) -> Vec<CellId> {
        self.talk().cells.keys().copied().collect()
    }

    /// Follows this cell no longer.
    pub(super) fn forget(&self, id: CellId) {
        self.talk().cells.remove(&id);
    }

    pub(super) fn default_kernel(&self, language: Language) -> Option<KernelId> {
        self.talk().defaults.get(&language).copied()
    }

    pub(super) fn remember_default(&self, info: &KernelInfo) {
        if info.default {
            self.talk().defaults.insert(info.language, info.kernel);
        }
    }

    pub(super) fn forget_default(&self, kernel: KernelId) {
        self.talk().defaults.retain(|_, default| *default != kernel);
    }

    /// Whether the memory limit killed anything since this was last asked. Only PID 1 knows.
    pub(super) async fn ran_out_of_memory(&self) -> bool {
        let Ok(report) = self.guest.get_exec(self.exec).await else { return false };
        let before = std::mem::replace(&mut self.talk().oom_kills, report.oom_kills);
        report.oom_kills > before
    }

    fn heard(&self, line: &[u8]) {
        let Ok(line) = serde_json::from_slice::<Line>(line) else {
            // The rest of a line that began before this server came, or nothing of ours.
            return tracing::trace!("a line of a kernel manager cannot be read");
        };
        match line {
            Line::Answer { tag, result } => {
                if let Some(asked) = self.talk().asked.remove(&tag) {
                    // The caller may have gone.
                    let _ = asked.send(believed(result));
                }
            }
            Line::Event { cell, event } => {
                let mut talk = self.talk();
                let Some((kernel, heard)) = talk.cells.get(&cell) else { return };
                let (kernel, heard) = (*kernel, Arc::clone(heard));
                if matches!(event, CellEvent::Ended(_)) {
                    talk.cells.remove(&cell);
                }
                drop(talk);
                match event {
                    CellEvent::Ended(mut report) => {
                        report.kernel = kernel.unwrap_or(report.kernel);
                        heard.end(Ok(Arc::from(report)));
                    }
                    event => heard.hear(event),
                }
            }
        }
    }

    /// Bytes were lost: answers to what is asked now may be among them, and events of the cells that are followed now.
    fn lose(&self, loss: &mut Loss) {
        let talk = self.talk();
        loss.asked.extend(talk.asked.keys().copied());
        for (id, (_, cell)) in &talk.cells {
            cell.lose();
            loss.cells.insert(*id);
        }
    }

    /// Asks again for what has not come since it was lost: answers, and the ends of cells.
    fn ask_again(self: &Arc<Self>, loss: &Loss) {
        let mut talk = self.talk();
        talk.asked.retain(|tag, _| !loss.asked.contains(tag));
        let Talk { cells, asked_again, .. } = &mut *talk;
        let lost = cells.iter().filter(|(id, _)| loss.cells.contains(id) && asked_again.insert(**id));
        let lost: Vec<Arc<Cell>> = lost.map(|(_, (_, cell))| Arc::clone(cell)).collect();
        drop(talk);
        for cell in lost {
            let link = Arc::clone(self);
            tokio::spawn(async move {
                let asked = link.ask(RequestKind::Follow { cell: cell.id, end_only: true }).await;
                link.talk().asked_again.remove(&cell.id);
                if let Err(error) = asked {
                    link.forget(cell.id);
                    cell.end(Err(error));
                }
            });
        }
    }

    /// Nothing more comes.
    fn end(&self, over: Over) {
        let mut talk = self.talk();
        let Talk { asked, cells, .. } = &mut *talk;
        let (asked, cells) = (std::mem::take(asked), std::mem::take(cells));
        (talk.over, talk.requests) = (Some(over.clone()), None);
        drop(talk);
        for sender in asked.into_values() {
            let _ = sender.send(Err(over.error()));
        }
        for (kernel, cell) in cells.into_values() {
            cell.end(match &over {
                Over::KernelManager(death) => Ok(Arc::new(lost(kernel, death.clone()))),
                Over::Container(error) => Err(error.clone()),
            });
        }
    }

    fn refuse(&self, tag: ExecId, error: &Error) {
        if let Some(asked) = self.talk().asked.remove(&tag) {
            let _ = asked.send(Err(error.clone()));
        }
    }
}

/// A caller waits for an answer, until this is dropped.
struct Asked<'a> {
    link: &'a Link,
    tag: ExecId,
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        self.link.talk().asked.remove(&self.tag);
    }
}

/// Writes requests, each whole, also where the caller has gone.
async fn write(link: Arc<Link>, mut queue: mpsc::Receiver<(ExecId, Vec<u8>)>) {
    // A server that died may have left half a line.
    let mut first = vec![b'\n'];
    while let Some((tag, line)) = queue.recv().await {
        let line = Bytes::from([std::mem::take(&mut first), line].concat());
        let length = line.len();
        let pieces: Vec<Bytes> =
            (0..length).step_by(PIECE).map(|at| line.slice(at..length.min(at + PIECE))).collect();
        let written = link.guest.add_stdin(link.exec, futures_util::stream::iter(pieces)).await;
        let error = match written {
            Ok(written) if written == length as u64 => continue,
            Ok(_) => Error::new(ErrorCode::Unavailable, "the sandbox's kernels take no requests"),
            Err(error) => error,
        };
        // Half of it may have been written.
        first = vec![b'\n'];
        link.refuse(tag, &error);
    }
}

/// What the task that reads a kernel manager's stream owns.
struct Listener {
    link: Arc<Link>,
    container: Arc<dyn Container>,
    /// The next byte.
    next: u64,
    /// What was lost and is not asked for again yet.
    loss: Option<Loss>,
}

/// What may have been in bytes that were lost.
struct Loss {
    since: Instant,
    ask_again: Instant,
    asked: HashSet<ExecId>,
    cells: HashSet<CellId>,
}

impl Listener {
    async fn listen(mut self, events: ExecStream) {
        let mut events = Some(events);
        let mut lines = LineBuffer::new(LONGEST_LINE);
        let over = loop {
            let broken = match &mut events {
                Some(events) => match self.follow(events, &mut lines).await {
                    Ok(Some(over)) => break over,
                    Ok(None) => Error::new(ErrorCode::Unavailable, "the stream broke off"),
                    Err(error) => error,
                },
                None => Error::new(ErrorCode::Unavailable, "the sandbox cannot be reached"),
            };
            match self.again(broken).await {
                Ok(again) => events = again,
                Err(error) => break Over::Container(error),
            }
        };
        self.link.end(over);
    }

    /// Takes the stream up where it broke; none when that has to wait.
    async fn again(&self, broken: Error) -> Result<Option<ExecStream>> {
        if matches!(broken.code, ErrorCode::NotFound | ErrorCode::ContainerDied) {
            return Err(broken);
        }
        tokio::time::sleep(PAUSE).await;
        match self.container.state().await {
            Ok(State::Dead(death)) => return Err(Error::died(death)),
            Err(error) if error.code == ErrorCode::NotFound => return Err(error),
            _ => {}
        }
        match self.link.guest.attach(self.link.exec, self.next, true).await {
            Ok(events) => Ok(Some(events)),
            Err(error) if matches!(error.code, ErrorCode::NotFound | ErrorCode::ContainerDied) => Err(error),
            Err(error) => {
                tracing::debug!(%error, "cannot listen to a kernel manager");
                Ok(None)
            }
        }
    }

    fn lose(&mut self) {
        let now = Instant::now();
        let nothing = || Loss { since: now, ask_again: now, asked: HashSet::new(), cells: HashSet::new() };
        let loss = self.loss.get_or_insert_with(nothing);
        loss.ask_again = (loss.since + LATEST).min(now + QUIET);
        self.link.lose(loss);
    }

    /// The next event; before it, at its time, what was lost is asked for again.
    async fn next_event(&mut self, events: &mut ExecStream) -> Result<Option<ExecEvent>> {
        let Some(loss) = &self.loss else { return events.next().await };
        let next = timeout_at(loss.ask_again, events.next()).await;
        if Instant::now() >= loss.ask_again
            && let Some(loss) = self.loss.take()
        {
            self.link.ask_again(&loss);
        }
        match next {
            Ok(next) => next,
            Err(_) => events.next().await,
        }
    }

    async fn follow(&mut self, events: &mut ExecStream, lines: &mut LineBuffer) -> Result<Option<Over>> {
        while let Some(event) = self.next_event(events).await? {
            match event {
                ExecEvent::Started(_) => {}
                ExecEvent::Ended(report) => return Ok(Some(Over::KernelManager(death(&report)))),
                ExecEvent::Output { stream, offset, data } => {
                    if offset > self.next {
                        lines.cut();
                        self.lose();
                    }
                    self.next = offset + data.len() as u64;
                    match stream {
                        OutputStream::Stdout => lines.push(&data),
                        OutputStream::Stderr => {
                            let text = super::wire::shown(&String::from_utf8_lossy(&data), 500);
                            tracing::debug!(container = %self.container.id(), text, "a kernel manager complains");
                        }
                    }
                    while let Some(line) = lines.next_line() {
                        // One that is too long is no line of ours.
                        if let lines::Line::Whole(line) = line {
                            self.link.heard(line);
                        }
                    }
                }
            }
        }
        Ok(None)
    }
}
