//! Sessions of the console, with faults.

use super::{Broken, Fault};
use async_trait::async_trait;
use atoll_store::{ApiKey, ConsoleSession, ConsoleSessions, KeyHash, Keys, Millis, Result};

#[async_trait]
impl ConsoleSessions for Broken {
    async fn insert_console_session(&self, session: ConsoleSession) -> Result<()> {
        self.sessions.lock().unwrap().push(session.clone());
        self.inner.insert_console_session(session).await
    }

    async fn console_session(&self, hash: KeyHash, now: Millis) -> Result<Option<(ConsoleSession, ApiKey)>> {
        let found = self.inner.console_session(hash, now).await?;
        let kept = self.sessions.lock().unwrap().iter().find(|one| one.hash == hash).cloned();
        let (None, Some(kept)) = (&found, kept) else { return Ok(found) };
        let key = self.inner.list_keys(None).await?.into_iter().find(|key| key.id == kept.key);
        let Some(key) = key.filter(|_| kept.expires_at > now) else { return Ok(None) };
        let revoked = !key.is_usable(now);
        let faulty = match self.fault {
            Fault::KeepsSessionsOfRevokedKeys => revoked,
            Fault::KeepsEverySession => !revoked && kept.created_at == now,
            _ => false,
        };
        Ok(faulty.then_some((kept, key)))
    }

    async fn remove_console_session(&self, hash: KeyHash) -> Result<bool> {
        if self.is(Fault::KeepsRemovedSessions) {
            return Ok(true);
        }
        self.inner.remove_console_session(hash).await
    }
}
