//! The launcher's client: one connection for one request, as its protocol has it.

use crate::ports::Networks;
use atoll_launch_proto::{
    Envelope, HEADER, LauncherAnswer, LauncherReply, Layout, MAX_ANSWER, MAX_DESCRIPTORS, MAX_REQUEST,
    Request, decode, encode, frame_length,
};
use atoll_provider::PortStream;
use atoll_types::{ContainerId, Error, ErrorCode, Result};
use rustix::{
    fd::OwnedFd,
    net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, recvmsg},
};
use std::{io, io::IoSliceMut, mem::MaybeUninit, path::PathBuf, sync::OnceLock, time::Duration};
use tokio::{
    io::{AsyncWriteExt, Interest},
    net::{TcpStream, UnixStream},
};

/// How long any reply but a death may take, by default.
const PATIENCE: Duration = Duration::from_secs(120);

/// The same where a volume is copied, as with plain folders.
const COPY_PATIENCE: Duration = Duration::from_secs(1800);

/// The client of one launcher.
#[derive(Debug)]
pub struct LauncherClient {
    socket: PathBuf,
    patience: OnceLock<Duration>,
    /// Where the observer listens, the process beside the launcher that watches volumes.
    pub(crate) observer: PathBuf,
    /// The sockets of containers' networks that this process holds.
    pub(crate) networks: Networks,
}

/// A container that is destroyed when this is dropped.
#[derive(Debug)]
pub struct Held {
    _stream: UnixStream,
}

/// Nothing listens at the launcher's socket. Its monitor restarts it, unless both were killed.
fn ended(e: io::Error) -> Error {
    match e.kind() {
        io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => {
            let message = "the launcher ended; if it is not back in a few seconds, restart `atoll serve`";
            Error::new(ErrorCode::Unavailable, message)
        }
        _ => unavailable(e),
    }
}

fn unavailable(e: io::Error) -> Error {
    Error::new(ErrorCode::Unavailable, format!("the launcher does not answer: {e}"))
}

impl LauncherClient {
    /// The launcher of an instance.
    #[must_use]
    pub fn new(layout: &Layout) -> Self {
        let (socket, observer) = (layout.socket(), layout.observer());
        Self { socket, patience: OnceLock::new(), observer, networks: Networks::default() }
    }

    /// Sets how long any reply but a death may take. The first call counts.
    pub fn wait_at_most(&self, patience: Duration) {
        let _ = self.patience.set(patience);
    }

    /// Opens a connection and sends nothing.
    pub(crate) async fn visit(&self) -> io::Result<UnixStream> {
        UnixStream::connect(&self.socket).await
    }

    /// Sends a request, and waits for the reply.
    pub async fn ask(&self, request: Request) -> Result<LauncherReply> {
        self.ask_with(request).await.map(|(reply, _)| reply)
    }

    /// Sends a request, and waits for the reply with its descriptors.
    pub(crate) async fn ask_with(&self, request: Request) -> Result<(LauncherReply, Vec<OwnedFd>)> {
        // A death may be long in coming; any other reply that takes this long will not come.
        let patience = match request {
            Request::Wait(_) => Duration::MAX,
            Request::Snapshot(_)
            | Request::DeleteSnapshot(_)
            | Request::Rollback(_)
            | Request::RollbackInPlace(_)
            | Request::Fork(_)
            | Request::Diff(_)
            | Request::SealImage(_)
            | Request::VolumeFromImage(_)
            | Request::RemoveImage(_)
            | Request::ListImages => COPY_PATIENCE,
            _ => *self.patience.get().unwrap_or(&PATIENCE),
        };
        let answer = async {
            let stream = self.send(request).await?;
            receive(&stream).await
        };
        match tokio::time::timeout(patience, answer).await {
            Ok(answer) => answer,
            Err(_) => Err(Error::new(ErrorCode::Unavailable, "the launcher did not answer in time")),
        }
    }

    /// Sends a request, and keeps the connection: the container is destroyed when the value is dropped, or
    /// this process ends.
    pub(crate) async fn ask_and_hold(&self, request: Request) -> Result<(LauncherReply, Held)> {
        let stream = self.send(request).await?;
        Ok((receive(&stream).await?.0, Held { _stream: stream }))
    }

    /// A connection to a container's PID 1, the token that its calls need where it is TCP, and whether it is
    /// paused.
    async fn reach(&self, id: ContainerId) -> Result<(OwnedFd, Option<String>, bool)> {
        let (reply, mut fds) = self.ask_with(Request::Connect(id)).await?;
        let (LauncherReply::Connected { token, paused }, Some(fd)) = (reply, fds.pop()) else {
            return Err(Error::internal("the launcher sent no connection"));
        };
        Ok((fd, token, paused))
    }

    /// A Unix connection to a container's PID 1.
    pub(crate) async fn connect_unix(&self, id: ContainerId) -> Result<std::os::unix::net::UnixStream> {
        match self.reach(id).await? {
            (fd, None, _) => Ok(fd.into()),
            (_, Some(_), _) => Err(Error::new(ErrorCode::Unsupported, "PID 1 listens on TCP")),
        }
    }

    /// A stream to a container's PID 1, the token that its calls need, and whether it is paused.
    pub(crate) async fn connect(&self, id: ContainerId) -> Result<(PortStream, Option<String>, bool)> {
        let (fd, token, paused) = self.reach(id).await?;
        let opened = match token {
            None => {
                let stream = std::os::unix::net::UnixStream::from(fd);
                stream
                    .set_nonblocking(true)
                    .and_then(|()| UnixStream::from_std(stream))
                    .map(|s| Box::pin(s) as PortStream)
            }
            Some(_) => {
                let stream = std::net::TcpStream::from(fd);
                let made = stream.set_nonblocking(true).and_then(|()| TcpStream::from_std(stream));
                made.and_then(|s| s.set_nodelay(true).map(|()| Box::pin(s) as PortStream))
            }
        };
        Ok((opened.map_err(unavailable)?, token, paused))
    }

    async fn send(&self, request: Request) -> Result<UnixStream> {
        let envelope = Envelope { protocol: request.protocol(), request };
        let frame = encode(&envelope, MAX_REQUEST)
            .map_err(|e| Error::new(ErrorCode::TooLarge, format!("the request is too large: {e}")))?;
        let mut stream = UnixStream::connect(&self.socket).await.map_err(ended)?;
        stream.write_all(&frame).await.map_err(unavailable)?;
        Ok(stream)
    }
}

/// The reply and the descriptors beside it, which are as many as it says. Any others are closed.
async fn receive(stream: &UnixStream) -> Result<(LauncherReply, Vec<OwnedFd>)> {
    let refused = |e: io::Error| match e.kind() {
        io::ErrorKind::UnexpectedEof => Error::new(
            ErrorCode::Unavailable,
            "the launcher hung up; it may not allow this user, or was restarted",
        ),
        _ => unavailable(e),
    };
    let mut fds = Vec::new();
    let mut header = [0; HEADER];
    read_exact(stream, &mut header, &mut fds).await.map_err(refused)?;
    let length = frame_length(header, MAX_ANSWER).map_err(|e| Error::internal(e.to_string()))?;
    let mut body = vec![0; length];
    read_exact(stream, &mut body, &mut fds).await.map_err(refused)?;
    let reply = Result::from(decode::<LauncherAnswer>(&body).map_err(|e| Error::internal(e.to_string()))?)?;
    if reply.descriptors() != fds.len() {
        return Err(Error::internal("the launcher's answer and its descriptors do not agree"));
    }
    Ok((reply, fds))
}

/// Fills the buffer, and collects the descriptors that arrive meanwhile.
async fn read_exact(stream: &UnixStream, mut buffer: &mut [u8], fds: &mut Vec<OwnedFd>) -> io::Result<()> {
    while !buffer.is_empty() {
        let read = stream.async_io(Interest::READABLE, || {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let flags = RecvFlags::CMSG_CLOEXEC;
            let got = recvmsg(stream, &mut [IoSliceMut::new(buffer)], &mut control, flags)?;
            for message in control.drain() {
                if let RecvAncillaryMessage::ScmRights(received) = message {
                    fds.extend(received);
                }
            }
            if got.flags.contains(ReturnFlags::CTRUNC) || fds.len() > MAX_DESCRIPTORS {
                return Err(io::Error::other("too many descriptors came"));
            }
            Ok(got.bytes)
        });
        match read.await? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            n => buffer = &mut buffer[n..],
        }
    }
    Ok(())
}
