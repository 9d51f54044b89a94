//! Who notes a command's end. A retry, a watcher and the one who began it may all wait for the same
//! command; the first has the claim.

use atoll_store::SandboxId;
use atoll_types::ExecId;
use std::{
    collections::HashSet,
    sync::{Arc, Mutex, PoisonError},
};

type Key = (SandboxId, ExecId);

/// Every claim that is held.
#[derive(Default)]
pub(crate) struct Claims(Mutex<HashSet<Key>>);

/// The duty to note one end. Given back when dropped.
pub(crate) struct Claim {
    claims: Arc<Claims>,
    key: Key,
}

impl Claims {
    /// The claim on this command, unless somebody has it.
    pub(crate) fn take(self: &Arc<Self>, sandbox: SandboxId, exec: ExecId) -> Option<Claim> {
        let key = (sandbox, exec);
        let first = self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(key);
        first.then(|| Claim { claims: Arc::clone(self), key })
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.claims.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_holds_it_at_a_time() {
        let (claims, sandbox, exec) = (Arc::new(Claims::default()), SandboxId::random(), ExecId::random());
        let first = claims.take(sandbox, exec);
        assert!(first.is_some() && claims.take(sandbox, exec).is_none());
        assert!(
            claims.take(sandbox, ExecId::random()).is_some()
                && claims.take(SandboxId::random(), exec).is_some()
        );
        drop(first);
        assert!(claims.take(sandbox, exec).is_some());
    }
}
