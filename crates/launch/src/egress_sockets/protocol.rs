//! The protocol of the socket holder, and its client. Only the launcher's own processes, as root, talk to it, so
//! the messages are defined here and not in the launcher's protocol.

use super::{EgressSockets, MOST, borrowed};
use crate::{context::Folders, wire};
use atoll_launch_proto::{MAX_ANSWER, decode, encode};
use atoll_types::{ContainerId, Error, ErrorCode, Result};
use rustix::fd::OwnedFd;
use serde::{Deserialize, Serialize};
use std::{io, os::unix::net::UnixStream, thread::sleep, time::Duration};

/// The protocol version. A socket holder of another version is not taken over, and the sockets it has are lost;
/// so this changes only where it must.
pub(super) const WORDS: u32 = 1;
/// How long either side may take.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);
/// How often a client retries while the socket holder is being started, and how long it waits in between.
const TRIES: u32 = 100;
const PAUSE: Duration = Duration::from_millis(20);

/// Every request to the socket holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum HolderRequest {
    /// Whether it speaks this version. [`HolderReply::Done`].
    Hello(u32),
    /// Keeps the egress sockets that come with this request. [`HolderReply::Done`].
    Keep(ContainerId),
    /// A container's egress sockets. [`HolderReply::EgressSockets`] with them, or [`HolderReply::Nothing`].
    Get(ContainerId),
    /// Closes them. [`HolderReply::Done`], also when there are none.
    Forget(ContainerId),
    /// The containers whose egress sockets it keeps. [`HolderReply::Has`].
    List,
}

/// Its reply.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum HolderReply {
    Done,
    EgressSockets,
    Nothing,
    Has(Vec<ContainerId>),
    /// It keeps as many as it may have open.
    Full,
    /// The request was malformed.
    What,
}

fn unavailable(e: impl std::fmt::Display) -> Error {
    Error::new(ErrorCode::Unavailable, format!("the socket holder does not answer: {e}"))
}

/// Sends one request, on a connection of its own.
pub(super) fn once(
    folders: &Folders,
    request: HolderRequest,
    with: &[OwnedFd],
) -> io::Result<(HolderReply, Vec<OwnedFd>)> {
    exchange(&UnixStream::connect(folders.holder())?, request, with)
}

/// Sends one request on a connection.
pub(super) fn exchange(
    stream: &UnixStream,
    request: HolderRequest,
    with: &[OwnedFd],
) -> io::Result<(HolderReply, Vec<OwnedFd>)> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    wire::send_frame(stream, &encode(&request, MAX_ANSWER).map_err(io::Error::other)?, &borrowed(with))?;
    let (body, sockets) = wire::receive_frame(stream, MAX_ANSWER, MOST)?;
    Ok((decode(&body).map_err(io::Error::other)?, sockets))
}

/// Sends a request, and retries while a socket holder is being started in place of one that ended.
fn patiently(
    folders: &Folders,
    request: HolderRequest,
    with: &[OwnedFd],
) -> Result<(HolderReply, Vec<OwnedFd>)> {
    let mut tries = 0;
    loop {
        match once(folders, request, with) {
            Ok(answer) => return Ok(answer),
            // A socket holder that runs and does not answer is not retried.
            Err(e) if tries == TRIES || e.kind() == io::ErrorKind::WouldBlock => return Err(unavailable(e)),
            Err(_) => tries += 1,
        }
        sleep(PAUSE);
    }
}

/// Hands a container's egress sockets to the socket holder.
pub(crate) fn keep(folders: &Folders, container: ContainerId, egress_sockets: &EgressSockets) -> Result<()> {
    match patiently(folders, HolderRequest::Keep(container), egress_sockets.sockets())?.0 {
        HolderReply::Done => Ok(()),
        HolderReply::Full => {
            let message = "no further egress sockets can be kept: the limit of open files is reached";
            Err(Error::new(ErrorCode::LimitExceeded, message))
        }
        other => Err(unavailable(format!("{other:?}"))),
    }
}

/// The egress sockets that are kept for a container, if any.
pub(super) fn get(folders: &Folders, container: ContainerId) -> Result<Option<EgressSockets>> {
    match patiently(folders, HolderRequest::Get(container), &[])? {
        (HolderReply::EgressSockets, sockets) => {
            EgressSockets::of(sockets).map(Some).ok_or_else(|| unavailable("some egress sockets are missing"))
        }
        (HolderReply::Nothing, _) => Ok(None),
        (other, _) => Err(unavailable(format!("{other:?}"))),
    }
}

/// The containers whose egress sockets are kept.
pub(super) fn list(folders: &Folders) -> Result<Vec<ContainerId>> {
    match patiently(folders, HolderRequest::List, &[])?.0 {
        HolderReply::Has(all) => Ok(all),
        other => Err(unavailable(format!("{other:?}"))),
    }
}

/// Closes a container's egress sockets. A socket holder that is not running has none, and the next one is given
/// those of living containers only.
pub(crate) fn forget(folders: &Folders, container: ContainerId) {
    if let Err(error) = once(folders, HolderRequest::Forget(container), &[]) {
        tracing::warn!(%container, %error, "the socket holder could not be asked to close a container's egress sockets");
    }
}
