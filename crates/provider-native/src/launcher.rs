//! Asking the launcher: one connection for one request, as its protocol has it.

use crate::changes::ObserverClient;
use atoll_launch_proto::{
    Answer, Envelope, HEADER, Layout, MAX_ANSWER, MAX_PROTOCOL, MAX_REQUEST, Reply, Request, decode, encode,
    frame_length,
};
use atoll_types::{ContainerId, Error, ErrorCode, Result};
use rustix::{
    fd::OwnedFd,
    net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg},
};
use std::{io, io::IoSliceMut, mem::MaybeUninit, path::PathBuf, pin::Pin, sync::Arc, time::Duration};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, Interest},
    net::{TcpStream, UnixStream},
};

/// A stream to PID 1, over whatever the container's runtime allows.
pub(crate) trait Both: AsyncRead + AsyncWrite + Send {}
impl<T: AsyncRead + AsyncWrite + Send> Both for T {}
pub(crate) type GuestStream = Pin<Box<dyn Both>>;

/// How long any answer but a death may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// Asks one launcher.
#[derive(Debug)]
pub struct LauncherClient {
    socket: PathBuf,
    /// Beside the launcher, who watches volumes.
    pub(crate) observer: Arc<ObserverClient>,
}

/// A container that goes when this does.
#[derive(Debug)]
pub struct Held {
    _stream: UnixStream,
}

fn unavailable(e: io::Error) -> Error {
    Error::new(ErrorCode::Unavailable, format!("the launcher does not answer: {e}"))
}

impl LauncherClient {
    /// The launcher of an instance.
    #[must_use]
    pub fn new(layout: &Layout) -> Self {
        Self { socket: layout.socket(), observer: Arc::new(ObserverClient::new(layout)) }
    }

    /// Asks, and waits for the answer.
    pub async fn ask(&self, request: Request) -> Result<Reply> {
        // A death may be long in coming; everything else that takes this long will not come.
        let patience = if matches!(request, Request::Wait(_)) { Duration::MAX } else { PATIENCE };
        let answer = async {
            let mut stream = self.send(request).await?;
            receive(&mut stream).await
        };
        match tokio::time::timeout(patience, answer).await {
            Ok(answer) => answer,
            Err(_) => Err(Error::new(ErrorCode::Unavailable, "the launcher did not answer in time")),
        }
    }

    /// Asks, and keeps the connection: what it holds goes when the value does, or this process.
    pub(crate) async fn ask_and_hold(&self, request: Request) -> Result<(Reply, Held)> {
        let mut stream = self.send(request).await?;
        Ok((receive(&mut stream).await?, Held { _stream: stream }))
    }

    /// A connection to a container's PID 1, and the token that its calls need where it is TCP.
    async fn reach(&self, id: ContainerId) -> Result<(OwnedFd, Option<String>)> {
        let mut stream = self.send(Request::Connect(id)).await?;
        let (first, fd) = receive_with(&stream).await.map_err(unavailable)?;
        let (Reply::Connected { token }, Some(fd)) = (receive_rest(&mut stream, first).await?, fd) else {
            return Err(Error::internal("the launcher sent no connection"));
        };
        Ok((fd, token))
    }

    /// A Unix connection to a container's PID 1.
    pub(crate) async fn connect_unix(&self, id: ContainerId) -> Result<std::os::unix::net::UnixStream> {
        match self.reach(id).await? {
            (fd, None) => Ok(fd.into()),
            (_, Some(_)) => Err(Error::new(ErrorCode::Unsupported, "PID 1 listens on TCP")),
        }
    }

    /// A stream to a container's PID 1, and the token that its calls need.
    pub(crate) async fn connect(&self, id: ContainerId) -> Result<(GuestStream, Option<String>)> {
        let (fd, token) = self.reach(id).await?;
        let opened = match token {
            None => {
                let stream = std::os::unix::net::UnixStream::from(fd);
                stream
                    .set_nonblocking(true)
                    .and_then(|()| UnixStream::from_std(stream))
                    .map(|s| Box::pin(s) as GuestStream)
            }
            Some(_) => {
                let stream = std::net::TcpStream::from(fd);
                let made = stream.set_nonblocking(true).and_then(|()| TcpStream::from_std(stream));
                made.and_then(|s| s.set_nodelay(true).map(|()| Box::pin(s) as GuestStream))
            }
        };
        Ok((opened.map_err(unavailable)?, token))
    }

    async fn send(&self, request: Request) -> Result<UnixStream> {
        let envelope = Envelope { protocol: MAX_PROTOCOL, request };
        let frame = encode(&envelope, MAX_REQUEST)
            .map_err(|e| Error::new(ErrorCode::TooLarge, format!("the request is too large: {e}")))?;
        let mut stream = UnixStream::connect(&self.socket).await.map_err(unavailable)?;
        stream.write_all(&frame).await.map_err(unavailable)?;
        Ok(stream)
    }
}

async fn receive(stream: &mut UnixStream) -> Result<Reply> {
    receive_rest(stream, Vec::new()).await
}

/// The answer, of which `read` was read already.
async fn receive_rest(stream: &mut UnixStream, mut read: Vec<u8>) -> Result<Reply> {
    let refused = |e: io::Error| match e.kind() {
        io::ErrorKind::UnexpectedEof => Error::new(
            ErrorCode::Unavailable,
            "the launcher hung up; it may not allow this user, or was restarted",
        ),
        _ => unavailable(e),
    };
    while read.len() < HEADER {
        let mut byte = [0];
        stream.read_exact(&mut byte).await.map_err(refused)?;
        read.push(byte[0]);
    }
    let mut body = read.split_off(HEADER);
    let header = <[u8; HEADER]>::try_from(read).map_err(|_| Error::internal("a short header"))?;
    let length = frame_length(header, MAX_ANSWER).map_err(|e| Error::internal(e.to_string()))?;
    let had = body.len();
    body.resize(length.max(had), 0);
    stream.read_exact(&mut body[had..]).await.map_err(refused)?;
    decode::<Answer>(&body).map_err(|e| Error::internal(e.to_string()))?.into()
}

/// The first bytes of an answer and the descriptor beside them.
async fn receive_with(stream: &UnixStream) -> io::Result<(Vec<u8>, Option<OwnedFd>)> {
    stream
        .async_io(Interest::READABLE, || {
            let mut bytes = [0u8; HEADER];
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let flags = RecvFlags::CMSG_CLOEXEC;
            let got = recvmsg(stream, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags)?;
            let fd = control.drain().find_map(|message| match message {
                RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
                _ => None,
            });
            Ok((bytes[..got.bytes].to_vec(), fd))
        })
        .await
}
