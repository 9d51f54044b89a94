//! One connection for descriptors. Its input is hostile: a reply has a size and a time limit, and every
//! descriptor in it is closed unless the caller takes it.

use super::check::Passed;
use atoll_guest_proto::{
    DESCRIPTOR_MAGIC, FRAME_HEADER, frame_length, from_frame, to_frame,
    v1::{DescriptorReply, DescriptorRequest, descriptor_reply::Reply, descriptor_request::Request},
};
use atoll_types::{Error, ErrorCode, Result};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, recv, recvmsg};
use std::{io, io::IoSliceMut, mem::MaybeUninit, time::Duration};
use tokio::{
    io::{AsyncWriteExt, Interest},
    net::UnixStream,
};

/// How long PID 1 may take to open a file or to rename it, on a disk that is busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// Why there is no reply. The connection is of no more use.
pub(super) enum Broken {
    /// The other end is gone.
    Lost(io::Error),
    /// It does not answer.
    Silent,
    /// Its reply is invalid.
    Hostile(&'static str),
    /// The kernel could not give this process what was passed to it.
    Full,
}

impl From<io::Error> for Broken {
    fn from(error: io::Error) -> Self {
        Self::Lost(error)
    }
}

pub(super) struct Connection {
    stream: UnixStream,
    begun: bool,
}

impl Connection {
    pub(super) fn new(stream: std::os::unix::net::UnixStream) -> Result<Self> {
        let made = stream.set_nonblocking(true).and_then(|()| UnixStream::from_std(stream));
        let stream = made.map_err(|e| Error::new(ErrorCode::Unavailable, e.to_string()))?;
        Ok(Self { stream, begun: false })
    }

    /// Whether it is open and has received nothing unsolicited.
    pub(super) fn is_quiet(&self) -> bool {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        matches!(recv(&self.stream, &mut [0u8; 1][..], flags), Err(rustix::io::Errno::AGAIN))
    }

    /// Sends a request, and waits for the reply and its descriptors.
    pub(super) async fn ask(&mut self, request: Request) -> Result<(Reply, Vec<Passed>), Broken> {
        let frame = to_frame(&DescriptorRequest { request: Some(request) });
        let exchange = async {
            if !self.begun {
                self.stream.write_all(&DESCRIPTOR_MAGIC).await?;
                self.begun = true;
            }
            self.stream.write_all(&frame).await?;
            self.receive().await
        };
        tokio::time::timeout(PATIENCE, exchange).await.unwrap_or(Err(Broken::Silent))
    }

    async fn receive(&self) -> Result<(Reply, Vec<Passed>), Broken> {
        let mut passed = Vec::new();
        let mut header = [0; FRAME_HEADER];
        self.fill(&mut header, &mut passed).await?;
        let length = frame_length(header).ok_or(Broken::Hostile("a message"))?;
        let mut body = vec![0; length];
        self.fill(&mut body, &mut passed).await?;
        match from_frame::<DescriptorReply>(&body).and_then(|m| m.reply) {
            Some(reply) => Ok((reply, passed)),
            None => Err(Broken::Hostile("a message")),
        }
    }

    async fn fill(&self, mut space: &mut [u8], passed: &mut Vec<Passed>) -> Result<(), Broken> {
        while !space.is_empty() {
            let (length, whole) =
                self.stream.async_io(Interest::READABLE, || receive(&self.stream, space, passed)).await?;
            if !whole {
                return Err(if passed.is_empty() { Broken::Full } else { Broken::Hostile("a message") });
            }
            if length == 0 {
                return Err(Broken::Lost(io::ErrorKind::UnexpectedEof.into()));
            }
            // No reply has more than one; another is not kept open to wait for the rest.
            if passed.len() > 1 {
                return Err(Broken::Hostile("a message"));
            }
            space = space.get_mut(length..).unwrap_or_default();
        }
        Ok(())
    }
}

/// Reads what has arrived, and returns whether all descriptors came through. There is room for more
/// descriptors than are right, so that a wrong number is noticed.
fn receive(stream: &UnixStream, space: &mut [u8], passed: &mut Vec<Passed>) -> io::Result<(usize, bool)> {
    let mut control = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut control = RecvAncillaryBuffer::new(&mut control);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let got = recvmsg(stream, &mut [IoSliceMut::new(space)], &mut control, flags)?;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(files) = message {
            passed.extend(files.map(Passed::new));
        }
    }
    Ok((got.bytes, !got.flags.contains(ReturnFlags::CTRUNC)))
}
