//! Requests that may be repeated: the store decides who carries one out.

use crate::{Caller, Vault};
use atoll_store::{ReplyState, SandboxId, Sealed, Store, StoredReply, Ticket};
use atoll_types::{Result, time::now_ms};
use sha2::{Digest, Sha256};
use std::sync::Arc;
use uuid::Uuid;

/// What something is called that a request which may be repeated begins: the same for the same request of
/// the same owner, so that a repetition finds it, whatever became of the server meanwhile.
pub(crate) fn repeatable(
    kind: &str,
    caller: &Caller,
    sandbox: SandboxId,
    key: &str,
    request: &[u8; 32],
) -> Uuid {
    let sandbox = sandbox.uuid();
    let parts = [kind.as_bytes(), caller.owner.as_bytes(), sandbox.as_bytes(), key.as_bytes(), request];
    let lengths = parts.map(|part| (part.len() as u64).to_be_bytes());
    derived_id(lengths.iter().zip(parts).flat_map(|(length, part)| [&length[..], part]))
}

/// The id that belongs to these bytes: the same at every time and on every server.
pub(crate) fn derived_id<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Uuid {
    let hash = parts.into_iter().fold(Sha256::new(), |hash, part| hash.chain_update(part)).finalize();
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&hash[..16]);
    Uuid::from_bytes(bytes)
}

/// What an answer is sealed for: it opens for no other request.
fn context(owner: &str, key: &str) -> String {
    format!("idempotent {owner} {key}")
}

/// The stored replies of requests that may be repeated.
#[derive(Clone)]
pub struct IdempotentReplies {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) vault: Arc<Vault>,
}

impl IdempotentReplies {
    /// Where a request with this key stands.
    pub async fn begin(&self, caller: &Caller, key: &str, request: [u8; 32]) -> Result<ReplyState> {
        let begun = self.store.begin_idempotent(&caller.owner, key, request, now_ms()).await?;
        let ReplyState::Done(StoredReply { status, body }) = begun else { return Ok(begun) };
        let context = context(&caller.owner, key);
        let body = body.map(|sealed| self.vault.open_bytes(&context, &Sealed(sealed))).transpose()?;
        Ok(ReplyState::Done(StoredReply { status, body }))
    }

    /// Keeps the answer, sealed: it may hold what a command printed, or the secret of a new key. That it cannot be kept does not undo what was
    /// done.
    pub async fn finish(&self, ticket: &Ticket, status: u16, body: Option<Vec<u8>>) {
        let context = context(&ticket.owner, &ticket.key);
        let sealed = body.and_then(|body| self.vault.seal_bytes(&context, &body).ok()).map(|sealed| sealed.0);
        let reply = StoredReply { status, body: sealed }.kept();
        if let Err(error) = self.store.finish_idempotent(ticket, reply).await {
            tracing::error!(%error, "cannot keep an answer");
        }
    }

    /// Lets the request be tried again.
    pub async fn abandon(&self, ticket: &Ticket) {
        if let Err(error) = self.store.abandon_idempotent(ticket).await {
            tracing::error!(%error, "cannot give an idempotency key back");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::derived_id;

    #[test]
    fn a_derived_id_never_changes() {
        // Commands of a former server are found by it.
        let wanted = "ba7816bf-8f01-cfea-4141-40de5dae2223";
        assert_eq!(derived_id([&b"a"[..], b"bc"]).to_string(), wanted, "the start of the SHA-256 of abc");
    }
}
