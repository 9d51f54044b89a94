//! The process that keeps the sockets of every container's gate: started by a launcher, it outlives it
//! and every server, and the next launcher takes it over. It does nothing else: it is asked one thing at
//! a time, by root, and never looks at what it keeps.

use super::{
    Gate, MOST,
    ask::{Ask, PATIENCE, Said, WORDS, exchange},
    borrowed,
};
use crate::{context::Folders, sys, wire};
use atoll_launch_proto::{MAX_ANSWER, MAX_REQUEST, decode, encode};
use atoll_types::ContainerId;
use rustix::{
    event::{PollFd, PollFlags, poll},
    fd::{AsFd, BorrowedFd, OwnedFd},
    process::{
        Pid, PidfdFlags, Resource, Rlimit, Signal, getpid, getrlimit, pidfd_open, pidfd_send_signal,
        setrlimit,
    },
};
use std::{
    collections::BTreeMap,
    fs, io,
    os::unix::{
        fs::PermissionsExt,
        net::{UnixListener, UnixStream},
    },
    thread::sleep,
    time::Duration,
};

/// Descriptors that are not for gates.
const SPARE: u64 = 64;

/// The launcher's hold on a keeper, whoever started it.
pub(crate) struct Keeper(OwnedFd);

impl Keeper {
    /// Takes over the one that lives, or starts one. The child closes `ours`.
    pub(crate) fn get(folders: &Folders, ours: &[BorrowedFd<'_>]) -> io::Result<Self> {
        match Self::find(folders) {
            Some(found) => Ok(found),
            None => Self::start(folders, ours),
        }
    }

    fn start(folders: &Folders, ours: &[BorrowedFd<'_>]) -> io::Result<Self> {
        // Bound here: whoever knocks from now on is heard as soon as it listens.
        let listener = bind(folders)?;
        let pid = match sys::fork()? {
            sys::Fork::Child => {
                sys::unblock_signals();
                sys::close_in_child(ours);
                sys::exit_now(run(&listener));
            }
            sys::Fork::Parent(pid) => pid,
        };
        let pid = Pid::from_raw(pid).ok_or(io::ErrorKind::NotFound)?;
        Ok(Self(pidfd_open(pid, PidfdFlags::empty())?))
    }

    /// The one that an earlier launcher left. One that speaks other words is ended.
    fn find(folders: &Folders) -> Option<Self> {
        let stream = UnixStream::connect(folders.keeper()).ok()?;
        // The kernel names whoever bound the socket, and that was a launcher; the keeper sends a handle on
        // itself.
        let (said, mut sent) = exchange(&stream, Ask::Hello(WORDS), &[]).ok()?;
        let found = Self(sent.pop()?);
        if said == Said::Done {
            return Some(found);
        }
        tracing::warn!(?said, "a keeper of another launcher is ended");
        found.end();
        None
    }

    /// Readable when it has ended.
    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Ends it, and waits for that.
    pub(crate) fn end(self) {
        let _ = pidfd_send_signal(&self.0, Signal::KILL);
        let ended = &mut [PollFd::new(&self.0, PollFlags::IN)];
        while poll(ended, None) == Err(rustix::io::Errno::INTR) {}
    }
}

fn bind(folders: &Folders) -> io::Result<UnixListener> {
    match fs::remove_file(folders.keeper()) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let listener = UnixListener::bind(folders.keeper())?;
    fs::set_permissions(folders.keeper(), fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// Serves until a launcher ends it.
fn run(listener: &UnixListener) -> i32 {
    let Ok(itself) = pidfd_open(getpid(), PidfdFlags::empty()) else { return 1 };
    let _ = rustix::thread::set_name(c"atoll-keeper");
    // When memory is short, others are better ended: it has little, and what it keeps is nowhere else.
    let _ = fs::write("/proc/self/oom_score_adj", "-1000");
    let mut kept = Kept { gates: BTreeMap::new(), most: room(), itself };
    loop {
        match listener.accept() {
            // Whoever is cut off or talks nonsense has no answer, which is one.
            Ok((stream, _)) => _ = kept.serve(&stream),
            Err(_) => sleep(Duration::from_millis(10)),
        }
    }
}

/// How many gates fit into what this process may have open: the soft limit is raised to the hard one.
fn room() -> usize {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let raised = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).is_ok();
    let files = if raised { maximum } else { current }.unwrap_or(u64::MAX);
    usize::try_from(files.saturating_sub(SPARE) / MOST as u64).unwrap_or(usize::MAX)
}

struct Kept {
    gates: BTreeMap<ContainerId, Gate>,
    most: usize,
    /// A handle on this process.
    itself: OwnedFd,
}

impl Kept {
    fn serve(&mut self, stream: &UnixStream) -> io::Result<()> {
        if wire::peer_uid(stream)? != 0 {
            return Ok(());
        }
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let (body, sockets) = wire::receive_frame(stream, MAX_REQUEST, MOST)?;
        let (said, sockets) = match decode::<Ask>(&body) {
            Ok(ask) => self.answer(ask, sockets),
            Err(_) => (Said::What, Vec::new()),
        };
        wire::send_frame(stream, &encode(&said, MAX_ANSWER).map_err(io::Error::other)?, &sockets)
    }

    fn answer(&mut self, ask: Ask, sockets: Vec<OwnedFd>) -> (Said, Vec<BorrowedFd<'_>>) {
        match ask {
            Ask::Hello(words) => {
                (if words == WORDS { Said::Done } else { Said::What }, vec![self.itself.as_fd()])
            }
            Ask::Keep(_) if self.gates.len() >= self.most => (Said::Full, Vec::new()),
            Ask::Keep(container) => match Gate::of(sockets) {
                Some(gate) => {
                    self.gates.insert(container, gate);
                    (Said::Done, Vec::new())
                }
                None => (Said::What, Vec::new()),
            },
            Ask::Get(container) => match self.gates.get(&container) {
                Some(gate) => (Said::Gate, borrowed(gate.sockets())),
                None => (Said::Nothing, Vec::new()),
            },
            Ask::Forget(container) => {
                self.gates.remove(&container);
                (Said::Done, Vec::new())
            }
            Ask::List => (Said::Has(self.gates.keys().copied().collect()), Vec::new()),
        }
    }
}
