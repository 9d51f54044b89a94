//! The socket holder: the process that keeps the egress sockets of every container open. A launcher starts it, it
//! outlives the launcher and every server, and the next launcher takes it over. It serves one request at a time,
//! from root only, and never reads from the sockets it keeps.

use super::{
    EgressSockets, MOST, borrowed,
    protocol::{HolderReply, HolderRequest, PATIENCE, WORDS, exchange},
};
use crate::{context::Folders, sys, wire};
use atoll_launch_proto::{MAX_ANSWER, MAX_REQUEST, decode, encode};
use atoll_types::ContainerId;
use rustix::{
    event::{PollFd, PollFlags, poll},
    fd::{AsFd, BorrowedFd, OwnedFd},
    net::sockopt::socket_peercred,
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

/// Descriptors that are not for egress sockets.
const SPARE: u64 = 64;
/// How long a new socket holder may take to listen, in milliseconds.
const START: u32 = 200;

/// The launcher's handle on a socket holder, of this launcher or of an earlier one.
pub(crate) struct SocketHolder(OwnedFd);

impl SocketHolder {
    /// Takes over the running socket holder, or starts one. The child closes `ours`.
    pub(crate) fn get(folders: &Folders, ours: &[BorrowedFd<'_>]) -> io::Result<Self> {
        match Self::find(folders) {
            Some(found) => Ok(found),
            None => Self::start(folders, ours),
        }
    }

    fn start(folders: &Folders, ours: &[BorrowedFd<'_>]) -> io::Result<Self> {
        match fs::remove_file(folders.holder()) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        let pid = match sys::fork()? {
            sys::Fork::Child => {
                sys::unblock_signals();
                sys::close_in_child(ours);
                if let Err(error) = run(folders) {
                    tracing::error!(%error, "the socket holder failed");
                    // So that a socket holder that fails at once is not restarted in a tight loop.
                    sleep(Duration::from_secs(1));
                }
                sys::exit_now(1);
            }
            sys::Fork::Parent(pid) => pid,
        };
        let pid = Pid::from_raw(pid).ok_or(io::ErrorKind::NotFound)?;
        let started = Self(pidfd_open(pid, PidfdFlags::empty())?);
        // Workers retry until it listens; waiting here saves them that.
        for _ in 0..START {
            if folders.holder().exists() {
                break;
            }
            sleep(Duration::from_millis(1));
        }
        Ok(started)
    }

    /// The socket holder that an earlier launcher left. One that does not answer, or speaks another version, is
    /// ended.
    fn find(folders: &Folders) -> Option<Self> {
        let stream = UnixStream::connect(folders.holder()).ok()?;
        let peer = socket_peercred(&stream).ok().filter(|peer| peer.uid.is_root() && peer.pid != getpid())?;
        let found = Self(pidfd_open(peer.pid, PidfdFlags::empty()).ok()?);
        match exchange(&stream, HolderRequest::Hello(WORDS), &[]) {
            Ok((HolderReply::Done, _)) => Some(found),
            other => {
                tracing::warn!(?other, "a socket holder of another launcher is ended");
                found.end();
                None
            }
        }
    }

    /// Readable when the socket holder has ended.
    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Ends the socket holder and waits until it is gone.
    pub(crate) fn end(self) {
        let _ = pidfd_send_signal(&self.0, Signal::KILL);
        let ended = &mut [PollFd::new(&self.0, PollFlags::IN)];
        while poll(ended, None) == Err(rustix::io::Errno::INTR) {}
    }
}

/// Serves until a launcher ends it.
fn run(folders: &Folders) -> io::Result<()> {
    let listener = UnixListener::bind(folders.holder())?;
    fs::set_permissions(folders.holder(), fs::Permissions::from_mode(0o600))?;
    let _ = rustix::thread::set_name(c"atoll-holder");
    // When memory is short, another process is the better one to kill: this one uses little, and the sockets it
    // keeps are open nowhere else.
    let _ = fs::write("/proc/self/oom_score_adj", "-1000");
    let mut kept = HeldSockets { egress_sockets: BTreeMap::new(), most: room() };
    loop {
        match listener.accept() {
            // A malformed or disconnected client gets no reply.
            Ok((stream, _)) => _ = kept.serve(&stream),
            Err(_) => sleep(Duration::from_millis(10)),
        }
    }
}

/// How many egress sockets fit into what this process may have open: the soft limit is raised to the hard one.
fn room() -> usize {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let raised = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).is_ok();
    let files = if raised { maximum } else { current }.unwrap_or(u64::MAX);
    usize::try_from(files.saturating_sub(SPARE) / MOST as u64).unwrap_or(usize::MAX)
}

struct HeldSockets {
    egress_sockets: BTreeMap<ContainerId, EgressSockets>,
    most: usize,
}

impl HeldSockets {
    fn serve(&mut self, stream: &UnixStream) -> io::Result<()> {
        if wire::peer_uid(stream)? != 0 {
            return Ok(());
        }
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let (body, sockets) = wire::receive_frame(stream, MAX_REQUEST, MOST)?;
        let (said, sockets) = match decode::<HolderRequest>(&body) {
            Ok(request) => self.answer(request, sockets),
            Err(_) => (HolderReply::What, Vec::new()),
        };
        wire::send_frame(stream, &encode(&said, MAX_ANSWER).map_err(io::Error::other)?, &sockets)
    }

    fn answer(
        &mut self,
        request: HolderRequest,
        sockets: Vec<OwnedFd>,
    ) -> (HolderReply, Vec<BorrowedFd<'_>>) {
        match request {
            HolderRequest::Hello(words) => {
                (if words == WORDS { HolderReply::Done } else { HolderReply::What }, Vec::new())
            }
            HolderRequest::Keep(_) if self.egress_sockets.len() >= self.most => {
                (HolderReply::Full, Vec::new())
            }
            HolderRequest::Keep(container) => match EgressSockets::of(sockets) {
                Some(egress_sockets) => {
                    self.egress_sockets.insert(container, egress_sockets);
                    (HolderReply::Done, Vec::new())
                }
                None => (HolderReply::What, Vec::new()),
            },
            HolderRequest::Get(container) => match self.egress_sockets.get(&container) {
                Some(egress_sockets) => (HolderReply::EgressSockets, borrowed(egress_sockets.sockets())),
                None => (HolderReply::Nothing, Vec::new()),
            },
            HolderRequest::Forget(container) => {
                self.egress_sockets.remove(&container);
                (HolderReply::Done, Vec::new())
            }
            HolderRequest::List => {
                (HolderReply::Has(self.egress_sockets.keys().copied().collect()), Vec::new())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sockets(count: usize) -> Vec<OwnedFd> {
        (0..count).map(|_| UnixStream::pair().unwrap().0.into()).collect()
    }

    #[test]
    fn it_keeps_what_it_was_given_within_its_room_and_nothing_else() {
        let mut kept = HeldSockets { egress_sockets: BTreeMap::new(), most: 2 };
        let [a, b, c] = [(); 3].map(|()| ContainerId::random());
        let mut said = |request, given| {
            let (said, sent) = kept.answer(request, sockets(given));
            (said, sent.len())
        };
        assert_eq!(said(HolderRequest::Hello(WORDS), 0), (HolderReply::Done, 0));
        assert_eq!(said(HolderRequest::Hello(WORDS + 1), 0), (HolderReply::What, 0));
        assert_eq!(said(HolderRequest::Get(a), 0), (HolderReply::Nothing, 0));
        // Fewer sockets than one container has are refused.
        assert_eq!(said(HolderRequest::Keep(a), 2), (HolderReply::What, 0));
        assert_eq!(said(HolderRequest::Keep(a), 0), (HolderReply::What, 0));
        assert_eq!(said(HolderRequest::Keep(a), 4), (HolderReply::Done, 0));
        assert_eq!(said(HolderRequest::Keep(b), 3), (HolderReply::Done, 0));
        assert_eq!(said(HolderRequest::Get(a), 0), (HolderReply::EgressSockets, 4));
        assert_eq!(said(HolderRequest::Get(b), 0), (HolderReply::EgressSockets, 3));
        assert_eq!(said(HolderRequest::Keep(c), 4), (HolderReply::Full, 0));
        assert_eq!(said(HolderRequest::Forget(a), 0), (HolderReply::Done, 0));
        assert_eq!(said(HolderRequest::Forget(a), 0), (HolderReply::Done, 0));
        assert_eq!(said(HolderRequest::Keep(c), 4), (HolderReply::Done, 0));
        let mut all = vec![b, c];
        all.sort_unstable();
        assert_eq!(said(HolderRequest::List, 0), (HolderReply::Has(all), 0));
    }

    #[test]
    fn what_it_forgets_is_closed() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut kept = HeldSockets { egress_sockets: BTreeMap::new(), most: 1 };
        let container = ContainerId::random();
        let mut egress_sockets = sockets(2);
        egress_sockets.push(theirs.into());
        kept.answer(HolderRequest::Keep(container), egress_sockets);
        ours.set_nonblocking(true).unwrap();
        let open = io::Read::read(&mut &ours, &mut [0]).unwrap_err();
        assert_eq!(open.kind(), io::ErrorKind::WouldBlock);
        kept.answer(HolderRequest::Forget(container), Vec::new());
        assert_eq!(io::Read::read(&mut &ours, &mut [0]).unwrap(), 0);
    }
}
