//! What preview tokens are used for at this moment, so that a token that is revoked or expires ends the connections that
//! it opened.
//!
//! A use is entered before the token's record is read, and a revocation removes the record before it ends the uses: one
//! of the two sees the other.

use atoll_store::{Millis, PreviewTokenId, SandboxId};
use atoll_types::time::now_ms;
use futures_util::future::BoxFuture;
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::sync::watch;

/// A token's id is its holder's word until it is checked; with the sandbox it means that sandbox's token alone.
type Key = (SandboxId, PreviewTokenId);

/// The tokens in use; the senders only ever close.
#[derive(Default)]
pub(crate) struct TokenUses(Mutex<HashMap<Key, watch::Sender<()>>>);

impl TokenUses {
    /// Enters a use of a token. It has ended until the token's record says when it expires.
    pub(super) fn enter(self: &Arc<Self>, key: Key) -> TokenUse {
        let mut uses = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let closed = uses.entry(key).or_insert_with(|| watch::channel(()).0).subscribe();
        TokenUse { uses: Arc::clone(self), key, closed, expires_at: 0 }
    }

    /// Ends every use of a token.
    pub(super) fn end(&self, key: Key) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&key);
    }
}

/// A use of a preview token.
pub struct TokenUse {
    uses: Arc<TokenUses>,
    key: Key,
    closed: watch::Receiver<()>,
    pub(super) expires_at: Millis,
}

impl TokenUse {
    /// When the token expires, in milliseconds since 1970.
    #[must_use]
    pub fn expires_at(&self) -> Millis {
        self.expires_at
    }

    /// Completes when the token is revoked or has expired; the caller must then close what it opened.
    #[must_use]
    pub fn ended(mut self) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let left = u64::try_from(self.expires_at - now_ms()).unwrap_or(0);
            tokio::select! {
                _ = self.closed.changed() => {}
                () = tokio::time::sleep(Duration::from_millis(left)) => {}
            }
        })
    }
}

impl Drop for TokenUse {
    fn drop(&mut self) {
        let mut uses = self.uses.0.lock().unwrap_or_else(PoisonError::into_inner);
        // This one is among them.
        if uses.get(&self.key).is_some_and(|sender| sender.receiver_count() <= 1) {
            uses.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[tokio::test]
    async fn a_use_ends_with_its_token_and_no_other() {
        let uses = Arc::<TokenUses>::default();
        let (sandbox, far) = (SandboxId::random(), now_ms() + 3_600_000);
        let (one, other) = ((sandbox, PreviewTokenId::random()), (sandbox, PreviewTokenId::random()));
        let enter = |key, expires_at| {
            let mut entered = uses.enter(key);
            entered.expires_at = expires_at;
            entered
        };
        let mut open: Vec<_> = [one, one, other].map(|key| enter(key, far).ended()).into();
        drop(enter(one, far));
        assert!(open.iter_mut().all(|ended| ended.now_or_never().is_none()), "they are valid");
        // Of another sandbox with the same id, there is none.
        uses.end((SandboxId::random(), one.1));
        assert!(open.iter_mut().all(|ended| ended.now_or_never().is_none()), "they are another's");
        uses.end(one);
        let ended: Vec<bool> = open.iter_mut().map(|ended| ended.now_or_never().is_some()).collect();
        assert_eq!(ended, [true, true, false]);
        enter(other, now_ms() - 1).ended().await;
        drop(open);
        assert!(uses.0.lock().unwrap().is_empty(), "what ends leaves nothing");
    }
}
