//! Keeping the answers of requests that a client may repeat.

use crate::{Millis, Result};
use async_trait::async_trait;
use atoll_types::{ReplyState, StoredReply, Ticket};

/// How long an answer is kept, from the beginning of the request.
pub const EXPIRES_AFTER_MS: Millis = 24 * 3600 * 1000;

/// How long an attempt may take before it counts as lost in a crash.
pub const GIVEN_UP_AFTER_MS: Millis = 3600 * 1000;

/// Answers that are kept of one owner.
pub const REPLIES_PER_OWNER: u32 = 10_000;

/// What the answers of one owner may have together.
pub const REPLY_BYTES_PER_OWNER: usize = 32 * 1024 * 1024;

/// What a store keeps of a request that was begun.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    /// The hash of the request.
    pub request_hash: [u8; 32],
    /// When it was begun.
    pub begun_at: Millis,
    /// The reply, once there is one.
    pub reply: Option<StoredReply>,
}

impl Attempt {
    /// The state of the request for a caller that begins it now; `None`: as if it had never been.
    #[must_use]
    pub fn standing(self, request_hash: [u8; 32], now: Millis) -> Option<ReplyState> {
        let lasts = if self.reply.is_some() { EXPIRES_AFTER_MS } else { GIVEN_UP_AFTER_MS };
        if now.saturating_sub(self.begun_at) >= lasts {
            return None;
        }
        if self.request_hash != request_hash {
            return Some(ReplyState::Mismatch);
        }
        Some(self.reply.map_or(ReplyState::InProgress, ReplyState::Done))
    }
}

/// Idempotent requests.
#[async_trait]
pub trait Idempotency: Send + Sync {
    /// Returns the state of a request, and begins a new one. Of many concurrent callers one gets the ticket.
    /// A request that is older than [`EXPIRES_AFTER_MS`], or begun more than [`GIVEN_UP_AFTER_MS`] ago and
    /// never finished, is as if it had never been.
    async fn begin_idempotent(
        &self,
        owner: &str,
        key: &str,
        request_hash: [u8; 32],
        now: Millis,
    ) -> Result<ReplyState>;
    /// Stores the reply. `Conflict(Overtaken)` when the ticket is not the present one. Where the owner has
    /// more replies than [`REPLIES_PER_OWNER`], the oldest finished requests are forgotten; where they have
    /// more than [`REPLY_BYTES_PER_OWNER`], the oldest lose their bodies, and are still not carried out
    /// again.
    async fn finish_idempotent(&self, ticket: &Ticket, reply: StoredReply) -> Result<()>;
    /// Frees the key, so that the request can be repeated. Succeeds when the ticket is not the present one.
    async fn abandon_idempotent(&self, ticket: &Ticket) -> Result<()>;
    /// Removes what is older than [`EXPIRES_AFTER_MS`], and returns how many there were.
    async fn sweep_idempotent(&self, now: Millis) -> Result<u64>;
}
