//! What the keeper of gates is asked, and asking it. It is root's alone: only the launcher's own
//! processes talk to it, so the words are here and not in the launcher's protocol.

use super::{Gate, MOST, borrowed};
use crate::{context::Folders, wire};
use atoll_launch_proto::{MAX_ANSWER, decode, encode};
use atoll_types::{ContainerId, Error, ErrorCode, Result};
use rustix::fd::OwnedFd;
use serde::{Deserialize, Serialize};
use std::{io, os::unix::net::UnixStream, thread::sleep, time::Duration};

/// The words. A keeper that speaks others is not taken over, and the sockets it has are lost; so this
/// changes only where it must.
pub(super) const WORDS: u32 = 1;
/// How long either side may take.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);
/// How often a keeper that is just being started is asked again, and how long after.
const TRIES: u32 = 100;
const PAUSE: Duration = Duration::from_millis(20);

/// Everything that the keeper can be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Ask {
    /// Whether it speaks these words. [`Said::Done`].
    Hello(u32),
    /// Keeps the gate whose sockets come with this. [`Said::Done`].
    Keep(ContainerId),
    /// Its sockets. [`Said::Gate`] with them, or [`Said::Nothing`].
    Get(ContainerId),
    /// Lets go of it. [`Said::Done`], also when there is none.
    Forget(ContainerId),
    /// Whose gates it has. [`Said::Has`].
    List,
}

/// What it answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Said {
    Done,
    Gate,
    Nothing,
    Has(Vec<ContainerId>),
    /// It has as many as it may have.
    Full,
    /// The question made no sense.
    What,
}

fn unavailable(e: impl std::fmt::Display) -> Error {
    Error::new(ErrorCode::Unavailable, format!("the keeper of gates does not answer: {e}"))
}

/// Asks once, on a connection of its own.
pub(super) fn once(folders: &Folders, ask: Ask, with: &[OwnedFd]) -> io::Result<(Said, Vec<OwnedFd>)> {
    exchange(&UnixStream::connect(folders.keeper())?, ask, with)
}

/// Asks on a connection.
pub(super) fn exchange(stream: &UnixStream, ask: Ask, with: &[OwnedFd]) -> io::Result<(Said, Vec<OwnedFd>)> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    wire::send_frame(stream, &encode(&ask, MAX_ANSWER).map_err(io::Error::other)?, &borrowed(with))?;
    let (body, sockets) = wire::receive_frame(stream, MAX_ANSWER, MOST)?;
    Ok((decode(&body).map_err(io::Error::other)?, sockets))
}

/// Asks, and waits for a keeper that is just being started in place of one that ended.
fn patiently(folders: &Folders, ask: Ask, with: &[OwnedFd]) -> Result<(Said, Vec<OwnedFd>)> {
    let mut tries = 0;
    loop {
        match once(folders, ask, with) {
            Ok(answer) => return Ok(answer),
            // One that is there and silent is not asked again.
            Err(e) if tries == TRIES || e.kind() == io::ErrorKind::WouldBlock => return Err(unavailable(e)),
            Err(_) => tries += 1,
        }
        sleep(PAUSE);
    }
}

/// Has a gate kept.
pub(crate) fn keep(folders: &Folders, container: ContainerId, gate: &Gate) -> Result<()> {
    match patiently(folders, Ask::Keep(container), gate.sockets())?.0 {
        Said::Done => Ok(()),
        Said::Full => {
            let message = "no further gate can be kept: the limit of open files is reached";
            Err(Error::new(ErrorCode::LimitExceeded, message))
        }
        other => Err(unavailable(format!("{other:?}"))),
    }
}

/// The gate that is kept for a container, if one is.
pub(super) fn get(folders: &Folders, container: ContainerId) -> Result<Option<Gate>> {
    match patiently(folders, Ask::Get(container), &[])? {
        (Said::Gate, sockets) => Gate::of(sockets).map(Some).ok_or_else(|| unavailable("half a gate")),
        (Said::Nothing, _) => Ok(None),
        (other, _) => Err(unavailable(format!("{other:?}"))),
    }
}

/// Whose gates are kept.
pub(super) fn list(folders: &Folders) -> Result<Vec<ContainerId>> {
    match patiently(folders, Ask::List, &[])?.0 {
        Said::Has(all) => Ok(all),
        other => Err(unavailable(format!("{other:?}"))),
    }
}

/// Lets go of a container's gate. A keeper that is not there has none; the next one is told of the
/// living only.
pub(crate) fn forget(folders: &Folders, container: ContainerId) {
    if let Err(error) = once(folders, Ask::Forget(container), &[]) {
        tracing::warn!(%container, %error, "the keeper was not told that a container is gone");
    }
}
