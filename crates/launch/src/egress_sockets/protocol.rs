//! What the socket holder of egress sockets is asked, and asking it. It is root's alone: only the launcher's own
//! processes talk to it, so the words are here and not in the launcher's protocol.

use super::{EgressSockets, MOST, borrowed};
use crate::{context::Folders, wire};
use atoll_launch_proto::{MAX_ANSWER, decode, encode};
use atoll_types::{ContainerId, Error, ErrorCode, Result};
use rustix::fd::OwnedFd;
use serde::{Deserialize, Serialize};
use std::{io, os::unix::net::UnixStream, thread::sleep, time::Duration};

/// The words. A socket holder that speaks others is not taken over, and the sockets it has are lost; so this
/// changes only where it must.
pub(super) const WORDS: u32 = 1;
/// How long either side may take.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);
/// How often a socket holder that is just being started is asked again, and how long after.
const TRIES: u32 = 100;
const PAUSE: Duration = Duration::from_millis(20);

/// Everything that the socket holder can be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum HolderRequest {
    /// Whether it speaks these words. [`HolderReply::Done`].
    Hello(u32),
    /// Keeps the egress socket set whose sockets come with this. [`HolderReply::Done`].
    Keep(ContainerId),
    /// Its sockets. [`HolderReply::EgressSockets`] with them, or [`HolderReply::Nothing`].
    Get(ContainerId),
    /// Lets go of it. [`HolderReply::Done`], also when there is none.
    Forget(ContainerId),
    /// Whose egress sockets it has. [`HolderReply::Has`].
    List,
}

/// What it answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum HolderReply {
    Done,
    EgressSockets,
    Nothing,
    Has(Vec<ContainerId>),
    /// It has as many as it may have.
    Full,
    /// The question made no sense.
    What,
}

fn unavailable(e: impl std::fmt::Display) -> Error {
    Error::new(ErrorCode::Unavailable, format!("the socket holder does not answer: {e}"))
}

/// Asks once, on a connection of its own.
pub(super) fn once(
    folders: &Folders,
    protocol: HolderRequest,
    with: &[OwnedFd],
) -> io::Result<(HolderReply, Vec<OwnedFd>)> {
    exchange(&UnixStream::connect(folders.holder())?, protocol, with)
}

/// Asks on a connection.
pub(super) fn exchange(
    stream: &UnixStream,
    protocol: HolderRequest,
    with: &[OwnedFd],
) -> io::Result<(HolderReply, Vec<OwnedFd>)> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    wire::send_frame(stream, &encode(&protocol, MAX_ANSWER).map_err(io::Error::other)?, &borrowed(with))?;
    let (body, sockets) = wire::receive_frame(stream, MAX_ANSWER, MOST)?;
    Ok((decode(&body).map_err(io::Error::other)?, sockets))
}

/// Asks, and waits for a socket holder that is just being started in place of one that ended.
fn patiently(
    folders: &Folders,
    protocol: HolderRequest,
    with: &[OwnedFd],
) -> Result<(HolderReply, Vec<OwnedFd>)> {
    let mut tries = 0;
    loop {
        match once(folders, protocol, with) {
            Ok(answer) => return Ok(answer),
            // One that is there and silent is not asked again.
            Err(e) if tries == TRIES || e.kind() == io::ErrorKind::WouldBlock => return Err(unavailable(e)),
            Err(_) => tries += 1,
        }
        sleep(PAUSE);
    }
}

/// Has a egress socket set kept.
pub(crate) fn keep(folders: &Folders, container: ContainerId, egress_sockets: &EgressSockets) -> Result<()> {
    match patiently(folders, HolderRequest::Keep(container), egress_sockets.sockets())?.0 {
        HolderReply::Done => Ok(()),
        HolderReply::Full => {
            let message = "no further gate can be kept: the limit of open files is reached";
            Err(Error::new(ErrorCode::LimitExceeded, message))
        }
        other => Err(unavailable(format!("{other:?}"))),
    }
}

/// The egress socket set that is kept for a container, if one is.
pub(super) fn get(folders: &Folders, container: ContainerId) -> Result<Option<EgressSockets>> {
    match patiently(folders, HolderRequest::Get(container), &[])? {
        (HolderReply::EgressSockets, sockets) => {
            EgressSockets::of(sockets).map(Some).ok_or_else(|| unavailable("half a gate"))
        }
        (HolderReply::Nothing, _) => Ok(None),
        (other, _) => Err(unavailable(format!("{other:?}"))),
    }
}

/// Whose egress sockets are kept.
pub(super) fn list(folders: &Folders) -> Result<Vec<ContainerId>> {
    match patiently(folders, HolderRequest::List, &[])?.0 {
        HolderReply::Has(all) => Ok(all),
        other => Err(unavailable(format!("{other:?}"))),
    }
}

/// Lets go of a container's egress socket set. A socket holder that is not there has none; the next one is told of the
/// living only.
pub(crate) fn forget(folders: &Folders, container: ContainerId) {
    if let Err(error) = once(folders, HolderRequest::Forget(container), &[]) {
        tracing::warn!(%container, %error, "the socket holder was not told that a container is gone");
    }
}
