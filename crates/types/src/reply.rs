//! Requests that a client may repeat: the first one is carried out, the others get its answer. A ticket
//! stands for the attempt that carries out, so that one that was given up on cannot answer for the one
//! that took over.

use uuid::Uuid;

/// The largest answer that is kept.
pub const REPLY_BYTES: usize = 1024 * 1024;

/// The right to answer a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ticket {
    /// Whose request.
    pub owner: String,
    /// The client's key for it.
    pub key: String,
    /// Which attempt at it.
    pub attempt: Uuid,
}

/// The answer to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredReply {
    /// Its status.
    pub status: u16,
    /// Its body; `None` when it was larger than [`REPLY_BYTES`], or newer ones needed its room: the work is
    /// done, the answer lost.
    pub body: Option<Vec<u8>>,
}

/// Where a request stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReplyState {
    /// The caller has to carry it out, and then to finish or abandon it.
    New(Ticket),
    /// Another attempt carries it out.
    InProgress,
    /// It was carried out.
    Done(StoredReply),
    /// The key was used for another request.
    Mismatch,
}

impl StoredReply {
    /// The answer as it is kept.
    #[must_use]
    pub fn kept(self) -> Self {
        Self { status: self.status, body: self.body.filter(|body| body.len() <= REPLY_BYTES) }
    }
}
