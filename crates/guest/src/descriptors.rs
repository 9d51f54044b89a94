//! Connections over which files pass to the host as open descriptors, so that PID 1 does not copy their bytes.
//! PID 1 opens as the user what the kernel lets the user open, and gives a new file its name; the host reads and
//! writes.
//!
//! The host is trusted to send one request at a time. When a connection ends, for whatever reason, the upload
//! that it had begun is undone.

use crate::{
    files::{Files, Waiting},
    setup,
};
use atoll_guest_proto::{
    DESCRIPTOR_MAGIC, FRAME_HEADER, frame_length, from_frame, to_failure, to_frame,
    v1::{
        Abandoned, DescriptorReply, DescriptorRequest, Opened, descriptor_reply::Reply,
        descriptor_request::Request,
    },
};
use atoll_types::{Error, ErrorCode, Result};
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, recv, sendmsg};
use std::{
    io,
    io::IoSlice,
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};
use tokio::{
    io::{AsyncReadExt, Interest},
    net::UnixStream,
};

/// Whether a new connection is one of these, by its first bytes. They are only peeked at.
pub(crate) async fn wanted(stream: &UnixStream) -> io::Result<bool> {
    let look = || {
        let mut first = [0; DESCRIPTOR_MAGIC.len()];
        let (_, length) = recv(stream, &mut first[..], RecvFlags::PEEK)?;
        // Only a prefix has come: the rest is needed to decide.
        if (1..first.len()).contains(&length) && DESCRIPTOR_MAGIC.starts_with(&first[..length]) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(first == DESCRIPTOR_MAGIC)
    };
    stream.async_io(Interest::READABLE, look).await
}

/// Answers until the host closes the connection.
pub(crate) async fn serve(stream: UnixStream, files: Files) {
    let mut connection = Connection { stream, files, upload: None };
    // An error means that the host disconnected; there is no peer left to report it to.
    let _ = connection.serve().await;
    drop(connection);
    setup::trim_memory();
}

struct Connection {
    stream: UnixStream,
    files: Files,
    upload: Option<Waiting>,
}

impl Connection {
    async fn serve(&mut self) -> io::Result<()> {
        self.stream.read_exact(&mut [0; DESCRIPTOR_MAGIC.len()]).await?;
        loop {
            let request = self.receive().await?;
            let (reply, read) = match self.answer(request).await {
                Ok(answer) => answer,
                Err(error) => (Reply::Failure(to_failure(&error)), None),
            };
            // Only a request to write leaves an upload behind.
            let written = self.upload.as_ref().and_then(Waiting::descriptor);
            let file = read.as_ref().map(AsFd::as_fd).or(written);
            send(&self.stream, reply, file.as_slice()).await?;
        }
    }

    async fn receive(&mut self) -> io::Result<Option<Request>> {
        let mut header = [0; FRAME_HEADER];
        self.stream.read_exact(&mut header).await?;
        let length = frame_length(header).ok_or(io::ErrorKind::InvalidData)?;
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body).await?;
        let request = from_frame::<DescriptorRequest>(&body).ok_or(io::ErrorKind::InvalidData)?;
        Ok(request.request)
    }

    /// The answer, and what is to be read.
    async fn answer(&mut self, request: Option<Request>) -> Result<(Reply, Option<OwnedFd>)> {
        match (request, self.upload.take()) {
            (Some(Request::Read(request)), None) => {
                let (entry, file) = self.files.open_to_read(&request.path).await?;
                Ok((Reply::Entry(entry), Some(file)))
            }
            (Some(Request::Write(head)), None) => {
                self.upload = Some(self.files.open_to_write(head).await?);
                Ok((Reply::Opened(Opened {}), None))
            }
            (Some(Request::Commit(_)), Some(upload)) => Ok((Reply::Entry(upload.finish().await?), None)),
            (Some(Request::Abandon(_)), Some(upload)) => {
                upload.abandon().await?;
                Ok((Reply::Abandoned(Abandoned {}), None))
            }
            // The upload that was begun is undone, since the host's request is malformed.
            _ => Err(Error::new(ErrorCode::InvalidArgument, "the request does not fit here").at("request")),
        }
    }
}

/// Sends one message, with the descriptors beside its first byte.
async fn send(stream: &UnixStream, reply: Reply, files: &[BorrowedFd<'_>]) -> io::Result<()> {
    let frame = to_frame(&DescriptorReply { reply: Some(reply) });
    let first = || {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !files.is_empty() && !control.push(SendAncillaryMessage::ScmRights(files)) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        Ok(sendmsg(stream, &[IoSlice::new(&frame)], &mut control, SendFlags::NOSIGNAL)?)
    };
    let sent = stream.async_io(Interest::WRITABLE, first).await?;
    // An answer is small, and the host has taken the one before.
    if sent == frame.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}
