//! Reading a request and writing an answer, on a blocking socket. The peer's user was checked; its bytes are not
//! trusted.

use atoll_launch_proto::{
    Envelope, HEADER, LauncherAnswer, LauncherReply, MAX_ANSWER, MAX_DESCRIPTORS, MAX_PROTOCOL, MAX_REQUEST,
    MIN_PROTOCOL, decode, encode, frame_length,
};
use atoll_types::{Error, ErrorCode, Result};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fd::{AsFd, BorrowedFd, OwnedFd},
    io::Errno,
    net::{
        RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
        SendAncillaryMessage, SendFlags, recvmsg, sendmsg, sockopt::socket_peercred,
    },
};
use serde::Deserialize;
use std::{
    io::{self, IoSlice, IoSliceMut, Read, Write},
    mem::MaybeUninit,
    os::unix::net::UnixStream,
    time::Duration,
};

/// How long a client may take to send its request.
const PATIENCE: Duration = Duration::from_secs(10);

/// The user at the other end.
pub(crate) fn peer_uid(stream: &UnixStream) -> io::Result<u32> {
    Ok(socket_peercred(stream)?.uid.as_raw())
}

/// Reads one request.
pub(crate) fn read_request(stream: &mut UnixStream) -> Result<Envelope> {
    let read = |stream: &mut UnixStream, buffer: &mut [u8]| {
        read_plain(stream, buffer)
            .map_err(|e| Error::invalid("request", format!("the request was cut off: {e}")))
    };
    let _ = stream.set_read_timeout(Some(PATIENCE));
    let mut header = [0; HEADER];
    read(stream, &mut header)?;
    let length = frame_length(header, MAX_REQUEST).map_err(|e| Error::invalid("request", e.to_string()))?;
    let mut body = vec![0; length];
    read(stream, &mut body)?;
    let _ = stream.set_read_timeout(None);
    decode(&body).map_err(|e| match decode(&body) {
        Ok(Spoken { protocol }) if protocol > MAX_PROTOCOL => not_spoken(protocol),
        _ => Error::invalid("request", e.to_string()),
    })
}

/// The protocol of a request, which a later release may write in a way that this one cannot read.
#[derive(Deserialize)]
struct Spoken {
    protocol: u32,
}

pub(crate) fn not_spoken(protocol: u32) -> Error {
    let message = format!("this launcher speaks protocols {MIN_PROTOCOL} to {MAX_PROTOCOL}, not {protocol}");
    Error::new(ErrorCode::VersionMismatch, message).at("protocol")
}

/// Fills the buffer. There is no room for descriptors, so the kernel closes any that are sent and sets a flag,
/// and their sender is refused.
fn read_plain(stream: &UnixStream, mut buffer: &mut [u8]) -> io::Result<()> {
    while !buffer.is_empty() {
        let mut control = RecvAncillaryBuffer::new(&mut []);
        let got = match recvmsg(stream, &mut [IoSliceMut::new(buffer)], &mut control, RecvFlags::empty()) {
            Err(Errno::INTR) => continue,
            got => got?,
        };
        if got.flags.contains(ReturnFlags::CTRUNC) {
            return Err(io::Error::other("a request has no descriptors"));
        }
        if got.bytes == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        buffer = &mut buffer[got.bytes..];
    }
    Ok(())
}

/// Writes the answer. A client that has gone away is not an error.
pub(crate) fn write_answer(stream: &mut UnixStream, answer: &LauncherAnswer) {
    let frame = encode(answer, MAX_ANSWER)
        .or_else(|e| encode(&LauncherAnswer::Err(Error::internal(e.to_string())), MAX_ANSWER))
        .unwrap_or_default();
    let _ = stream.set_write_timeout(Some(PATIENCE));
    if let Err(error) = stream.write_all(&frame) {
        tracing::debug!(%error, "the client did not wait for its answer");
    }
}

/// Writes the answer with its descriptors beside its first byte.
pub(crate) fn write_answer_with(
    stream: &mut UnixStream,
    reply: LauncherReply,
    fds: &[OwnedFd],
) -> Result<()> {
    if reply.descriptors() != fds.len() || fds.len() > MAX_DESCRIPTORS {
        return Err(Error::internal("an answer does not say how many descriptors it has"));
    }
    let frame = encode(&LauncherAnswer::Ok(reply), MAX_ANSWER).map_err(|e| Error::internal(e.to_string()))?;
    let fds: Vec<BorrowedFd<'_>> = fds.iter().map(AsFd::as_fd).collect();
    send_frame(stream, &frame, &fds)
        .map_err(|e| Error::internal(format!("the client did not wait for its answer: {e}")))
}

/// Writes a frame with descriptors beside its first byte.
pub(crate) fn send_frame(mut stream: &UnixStream, frame: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::Error::other("the descriptors do not fit beside the answer"));
    }
    let sent = sendmsg(stream, &[IoSlice::new(frame)], &mut control, SendFlags::NOSIGNAL)?;
    stream.write_all(&frame[sent..])
}

/// Reads the body of a frame and the descriptors beside it, `most` at most.
pub(crate) fn receive_frame(
    stream: &UnixStream,
    longest: usize,
    most: usize,
) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
    let mut fds = Vec::new();
    let mut header = [0; HEADER];
    read_with(stream, &mut header, &mut fds)?;
    let mut body = vec![0; frame_length(header, longest).map_err(io::Error::other)?];
    read_with(stream, &mut body, &mut fds)?;
    if fds.len() > most {
        return Err(io::Error::other("too many descriptors came"));
    }
    Ok((body, fds))
}

/// Fills the buffer, and gathers the descriptors that come on the way.
fn read_with(stream: &UnixStream, mut buffer: &mut [u8], fds: &mut Vec<OwnedFd>) -> io::Result<()> {
    while !buffer.is_empty() {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC;
        let got = match recvmsg(stream, &mut [IoSliceMut::new(buffer)], &mut control, flags) {
            Err(Errno::INTR) => continue,
            got => got?,
        };
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(received) = message {
                fds.extend(received);
            }
        }
        // The kernel leaves out descriptors that this process has no room for, and sets a flag.
        if got.flags.contains(ReturnFlags::CTRUNC) || fds.len() > MAX_DESCRIPTORS {
            return Err(io::Error::other("too many descriptors came"));
        }
        if got.bytes == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        buffer = &mut buffer[got.bytes..];
    }
    Ok(())
}

/// Whether the other end has closed already.
pub(crate) fn is_gone(stream: &UnixStream) -> bool {
    let mut fds = [PollFd::new(stream, PollFlags::RDHUP)];
    poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|ready| ready > 0)
}

/// Waits until the other end closes. Anything that it still sends is ignored.
pub(crate) fn wait_for_close(stream: &mut UnixStream) {
    let _ = stream.set_read_timeout(None);
    let mut nothing = [0; 256];
    while matches!(stream.read(&mut nothing), Ok(n) if n > 0) {}
}
