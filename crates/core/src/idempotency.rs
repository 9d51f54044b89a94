//! Requests that may be repeated: the store decides who carries one out.

use crate::{Caller, Core, now};
use atoll_store::{Begun, Reply, Ticket};
use atoll_types::Result;

impl Core {
    /// Where a request with this key stands.
    pub async fn begin_idempotent(&self, caller: &Caller, key: &str, request: [u8; 32]) -> Result<Begun> {
        Ok(self.store.begin_idempotent(&caller.owner, key, request, now()).await?)
    }

    /// Keeps the answer. That it cannot be kept does not undo what was done.
    pub async fn finish_idempotent(&self, ticket: &Ticket, status: u16, body: Vec<u8>) {
        let reply = Reply { status, body: Some(body) }.kept();
        if let Err(error) = self.store.finish_idempotent(ticket, reply).await {
            tracing::error!(%error, "cannot keep an answer");
        }
    }

    /// Lets the request be tried again.
    pub async fn abandon_idempotent(&self, ticket: &Ticket) {
        if let Err(error) = self.store.abandon_idempotent(ticket).await {
            tracing::error!(%error, "cannot give an idempotency key back");
        }
    }
}
