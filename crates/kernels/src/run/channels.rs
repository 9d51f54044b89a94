//! The pipes between the kernel manager and an interpreter. A checkpoint has those of the interpreter that it was
//! made of, so they live as long as either.

use rustix::{
    io::ioctl_fionread,
    net::{
        AddressFamily, RecvAncillaryBuffer, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
        SocketFlags, SocketType,
    },
    pipe::PipeFlags,
};
use std::{
    cell::Cell,
    io::{ErrorKind, IoSlice, IoSliceMut},
    os::fd::{AsFd, OwnedFd},
};
use tokio::net::unix::pipe::{Receiver, Sender};

/// The most that is read at once.
pub(super) const READ: usize = 64 << 10;
/// The most that an ordinary user can put into a pipe.
const LARGEST_PIPE: u64 = 1 << 20;

/// A pipe that the kernel manager reads.
pub(super) struct Source {
    pipe: Receiver,
    closed: Cell<bool>,
}

impl Source {
    fn new(pipe: OwnedFd) -> std::io::Result<Self> {
        Ok(Self { pipe: Receiver::from_owned_fd(pipe)?, closed: Cell::new(false) })
    }

    /// Waits until there is something to read; for ever where the other end is closed.
    pub(super) async fn readable(&self) {
        if self.closed.get() || self.pipe.readable().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Reads what is there, if the runtime has reported the pipe readable.
    pub(super) fn read<'a>(&self, buffer: &'a mut [u8]) -> &'a [u8] {
        let result = self.pipe.try_read(buffer);
        self.took(result, buffer)
    }

    /// Reads what is in the pipe now, and not what comes meanwhile.
    pub(super) fn drain(&self, mut take: impl FnMut(&[u8])) {
        let mut left = ioctl_fionread(&self.pipe).unwrap_or(0).min(LARGEST_PIPE) as usize;
        let mut buffer = vec![0; left.min(READ)];
        while left > 0 && !self.closed.get() {
            let most = left.min(READ);
            let result = rustix::io::read(&self.pipe, &mut buffer[..most]);
            let taken = self.took(result.map_err(Into::into), &buffer);
            if taken.is_empty() {
                return;
            }
            left -= taken.len();
            take(taken);
        }
    }

    /// Whether its other end is closed for good.
    pub(super) fn is_closed(&self) -> bool {
        self.closed.get()
    }

    fn took<'a>(&self, result: std::io::Result<usize>, buffer: &'a [u8]) -> &'a [u8] {
        match result {
            Ok(length @ 1..) => buffer.get(..length).unwrap_or_default(),
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => &[],
            Ok(_) | Err(_) => {
                self.closed.set(true);
                &[]
            }
        }
    }
}

/// The kernel manager's ends.
pub(super) struct Channels {
    pub(super) stdout: Source,
    pub(super) stderr: Source,
    pub(super) events: Source,
    requests: Sender,
    /// Of an interpreter that can be forked.
    fork: Option<ForkEnds>,
}

/// What only an interpreter that can be forked has.
struct ForkEnds {
    socket: OwnedFd,
    /// Copies of its own ends, to take away what a killed one has not read.
    requests_theirs: OwnedFd,
    socket_theirs: OwnedFd,
}

/// The interpreter's ends.
pub(super) struct InterpreterEnds {
    pub(super) stdout: OwnedFd,
    pub(super) stderr: OwnedFd,
    pub(super) requests: OwnedFd,
    pub(super) events: OwnedFd,
    pub(super) socket: Option<OwnedFd>,
}

impl Channels {
    pub(super) fn open(forks: bool) -> std::io::Result<(Self, InterpreterEnds)> {
        let pipe = || rustix::pipe::pipe_with(PipeFlags::CLOEXEC);
        let (stdout, stdout_theirs) = pipe()?;
        let (stderr, stderr_theirs) = pipe()?;
        let (events, events_theirs) = pipe()?;
        let (requests_theirs, requests) = pipe()?;
        let (fork, socket) = match forks {
            true => {
                let (ours, theirs) = rustix::net::socketpair(
                    AddressFamily::UNIX,
                    SocketType::STREAM,
                    SocketFlags::CLOEXEC,
                    None,
                )?;
                let ends = ForkEnds {
                    socket: ours,
                    requests_theirs: rustix::io::fcntl_dupfd_cloexec(&requests_theirs, 10)?,
                    socket_theirs: rustix::io::fcntl_dupfd_cloexec(&theirs, 10)?,
                };
                (Some(ends), Some(theirs))
            }
            false => (None, None),
        };
        let ours = Self {
            stdout: Source::new(stdout)?,
            stderr: Source::new(stderr)?,
            events: Source::new(events)?,
            requests: Sender::from_owned_fd(requests)?,
            fork,
        };
        let theirs = InterpreterEnds {
            stdout: stdout_theirs,
            stderr: stderr_theirs,
            requests: requests_theirs,
            events: events_theirs,
            socket,
        };
        Ok((ours, theirs))
    }

    /// Waits until a request can go on.
    pub(super) async fn writable(&self) {
        if self.requests.writable().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Writes as much of a request as there is room for. None when no process can read it any more.
    pub(super) fn write(&self, bytes: &[u8]) -> Option<usize> {
        match self.requests.try_write(bytes) {
            Ok(length) => Some(length),
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Some(0),
            Err(_) => None,
        }
    }

    /// Discards what is in the pipes in either direction, of an interpreter that is gone.
    pub(super) fn clear(&self) {
        for source in [&self.stdout, &self.stderr, &self.events] {
            source.drain(|_| {});
        }
        let Some(ForkEnds { requests_theirs, .. }) = &self.fork else { return };
        let mut buffer = vec![0; READ];
        let mut left = ioctl_fionread(requests_theirs).unwrap_or(0).min(LARGEST_PIPE);
        // No other process reads now, so this many bytes are there, and reading does not block.
        while left > 0 {
            let most = usize::try_from(left).unwrap_or(READ).min(READ);
            match rustix::io::read(requests_theirs, &mut buffer[..most]) {
                Ok(length @ 1..) => left = left.saturating_sub(length as u64),
                _ => return,
            }
        }
        self.clear_socket();
    }

    /// Discards descriptors that no interpreter has received.
    fn clear_socket(&self) {
        let Some(ForkEnds { socket_theirs, .. }) = &self.fork else { return };
        let mut byte = [0; 16];
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
        loop {
            let mut ancillary = RecvAncillaryBuffer::new(&mut space);
            let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
            let parts = &mut [IoSliceMut::new(&mut byte)];
            match rustix::net::recvmsg(socket_theirs, parts, &mut ancillary, flags) {
                Ok(message) if message.bytes > 0 => {}
                _ => return,
            }
        }
    }

    /// Sends the ends of a new interpreter to one that is to fork.
    pub(super) fn send_ends(&self, theirs: &InterpreterEnds) -> std::io::Result<()> {
        let Some(ForkEnds { socket, .. }) = &self.fork else {
            return Err(ErrorKind::Unsupported.into());
        };
        self.clear_socket();
        let InterpreterEnds { stdout, stderr, requests, events, socket: new } = theirs;
        let new = new.as_ref().ok_or(ErrorKind::Unsupported)?;
        let ends = [stdout.as_fd(), stderr.as_fd(), requests.as_fd(), events.as_fd(), new.as_fd()];
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(5))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !ancillary.push(SendAncillaryMessage::ScmRights(&ends)) {
            return Err(ErrorKind::OutOfMemory.into());
        }
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        rustix::net::sendmsg(socket, &[IoSlice::new(b"F")], &mut ancillary, flags)?;
        Ok(())
    }
}
