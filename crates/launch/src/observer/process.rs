//! The launcher's handle on the observer. The observer outlives launchers, because the events it has collected
//! are stored nowhere else: the next launcher takes it over if it would start the same one.

use crate::{context::Context, sys};
use atoll_launch_proto::{
    HEADER, MAX_ANSWER, MAX_REQUEST, OBSERVER_PROTOCOL, ObserveAnswer, ObserveRequest, decode, encode,
};
use rustix::{
    event::{PollFd, PollFlags, poll},
    fd::{AsFd, BorrowedFd, OwnedFd},
    net::sockopt::socket_peercred,
    process::{PidfdFlags, Signal, getpid, pidfd_open, pidfd_send_signal},
};
use std::{
    fs,
    hash::{Hash, Hasher},
    io::{self, Read, Write},
    os::unix::net::UnixStream,
    time::Duration,
};

/// How long a running observer may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long a new observer may take to listen, in milliseconds.
const START: u32 = 200;

/// A running observer, of this launcher or of an earlier one.
pub(crate) struct ObserverProcess(OwnedFd);

impl ObserverProcess {
    /// Takes over the running observer, or starts one and waits until it listens: a container that is made before
    /// that would not be watched from its beginning. The child closes `ours`.
    pub(crate) fn get(context: &Context, ours: &[BorrowedFd<'_>]) -> Option<Self> {
        if let Some(found) = Self::find(context) {
            return Some(found);
        }
        let _ = fs::remove_file(context.layout.observer());
        let pid = match sys::fork() {
            Ok(sys::Fork::Child) => {
                sys::unblock_signals();
                sys::close_in_child(ours);
                if let Err(error) = super::run(context) {
                    tracing::error!(%error, "changes cannot be observed");
                    // So that an observer that fails at once is not restarted in a tight loop.
                    std::thread::sleep(Duration::from_secs(1));
                }
                sys::exit_now(1);
            }
            Ok(sys::Fork::Parent(pid)) => pid,
            Err(error) => {
                tracing::error!(%error, "cannot fork the observer");
                return None;
            }
        };
        let fd = pidfd_open(rustix::process::Pid::from_raw(pid)?, PidfdFlags::empty()).ok()?;
        for _ in 0..START {
            if context.layout.observer().exists() {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Some(Self(fd))
    }

    /// The observer that an earlier launcher left. One with another fingerprint is ended.
    fn find(context: &Context) -> Option<Self> {
        let stream = UnixStream::connect(context.layout.observer()).ok()?;
        let peer = socket_peercred(&stream).ok().filter(|peer| peer.uid.is_root() && peer.pid != getpid())?;
        let found = Self(pidfd_open(peer.pid, PidfdFlags::empty()).ok()?);
        match greet(stream, fingerprint(context)) {
            Ok(ObserveAnswer::Done) => Some(found),
            other => {
                tracing::warn!(?other, "an observer of another launcher is ended");
                found.end();
                None
            }
        }
    }

    /// Readable when the observer has ended.
    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Ends the observer and waits until it is gone.
    pub(crate) fn end(self) {
        let _ = pidfd_send_signal(&self.0, Signal::KILL);
        while poll(&mut [PollFd::new(&self.0, PollFlags::IN)], None) == Err(rustix::io::Errno::INTR) {}
    }
}

/// Identifies what an observer was started with: another release or other users need another observer.
pub(crate) fn fingerprint(context: &Context) -> u64 {
    let mut hasher = std::hash::DefaultHasher::new();
    let mut uids = context.options.client_uids.clone();
    uids.sort_unstable();
    (env!("CARGO_PKG_VERSION"), OBSERVER_PROTOCOL, uids, format!("{:?}", context.storage.kind()))
        .hash(&mut hasher);
    hasher.finish()
}

fn greet(mut stream: UnixStream, fingerprint: u64) -> io::Result<ObserveAnswer> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(&encode(&ObserveRequest::Hello(fingerprint), MAX_REQUEST).map_err(io::Error::other)?)?;
    let mut header = [0; HEADER];
    stream.read_exact(&mut header)?;
    let length = atoll_launch_proto::frame_length(header, MAX_ANSWER).map_err(io::Error::other)?;
    let mut body = vec![0; length];
    stream.read_exact(&mut body)?;
    decode(&body).map_err(io::Error::other)
}

/// Sends a request to the observer, from a worker. When the observer cannot be reached, a later answer is
/// `truncated`; the container is not affected.
pub(crate) fn tell(context: &Context, request: ObserveRequest) {
    let told = UnixStream::connect(context.layout.observer()).and_then(|mut stream| {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(&encode(&request, MAX_REQUEST).map_err(io::Error::other)?)?;
        let mut header = [0; HEADER];
        stream.read_exact(&mut header)
    });
    if let Err(error) = told {
        tracing::warn!(%error, ?request, "the observer could not be reached");
    }
}
