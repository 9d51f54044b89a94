//! Reading a request and writing an answer, on a blocking socket, from and to somebody whose user was
//! checked and whose bytes are not trusted.

use atoll_launch_proto::{Answer, Envelope, HEADER, MAX_ANSWER, MAX_REQUEST, decode, encode, frame_length};
use atoll_types::{Error, Result};
use rustix::{
    fd::{AsFd, BorrowedFd},
    net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg, sockopt::socket_peercred},
};
use std::{
    io::{self, IoSlice, Read, Write},
    os::unix::net::UnixStream,
    time::Duration,
};

/// How long a client may take to say what it wants.
const PATIENCE: Duration = Duration::from_secs(10);

/// The user at the other end.
pub(crate) fn peer_uid(stream: &UnixStream) -> io::Result<u32> {
    Ok(socket_peercred(stream)?.uid.as_raw())
}

/// Reads one request.
pub(crate) fn read_request(stream: &mut UnixStream) -> Result<Envelope> {
    let read = |stream: &mut UnixStream, buffer: &mut [u8]| {
        stream
            .read_exact(buffer)
            .map_err(|e| Error::invalid("request", format!("the request was cut off: {e}")))
    };
    let _ = stream.set_read_timeout(Some(PATIENCE));
    let mut header = [0; HEADER];
    read(stream, &mut header)?;
    let length = frame_length(header, MAX_REQUEST).map_err(|e| Error::invalid("request", e.to_string()))?;
    let mut body = vec![0; length];
    read(stream, &mut body)?;
    let _ = stream.set_read_timeout(None);
    decode(&body).map_err(|e| Error::invalid("request", e.to_string()))
}

/// Writes the answer. A client that has gone away is no fault of ours.
pub(crate) fn write_answer(stream: &mut UnixStream, answer: &Answer) {
    let frame = encode(answer, MAX_ANSWER)
        .or_else(|e| encode(&Answer::Err(Error::internal(e.to_string())), MAX_ANSWER))
        .unwrap_or_default();
    let _ = stream.set_write_timeout(Some(PATIENCE));
    if let Err(error) = stream.write_all(&frame) {
        tracing::debug!(%error, "the client did not wait for its answer");
    }
}

/// Writes the answer with a descriptor beside its first byte.
pub(crate) fn write_answer_with(stream: &mut UnixStream, answer: &Answer, fd: BorrowedFd<'_>) -> Result<()> {
    let frame = encode(answer, MAX_ANSWER).map_err(|e| Error::internal(e.to_string()))?;
    let fds = [fd];
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&fds));
    let sent = sendmsg(stream.as_fd(), &[IoSlice::new(&frame)], &mut control, SendFlags::NOSIGNAL);
    let sent = sent.map_err(|e| Error::internal(format!("the client did not wait for its answer: {e}")))?;
    stream.write_all(&frame[sent..]).map_err(|e| Error::internal(e.to_string()))
}

/// Waits until the other end closes. Anything that it still says is ignored.
pub(crate) fn wait_for_close(stream: &mut UnixStream) {
    let _ = stream.set_read_timeout(None);
    let mut nothing = [0; 256];
    while matches!(stream.read(&mut nothing), Ok(n) if n > 0) {}
}
