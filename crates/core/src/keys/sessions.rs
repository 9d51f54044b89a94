//! Signed-in browsers. A session is a derived credential of a key: it has the key's owner, scope and tier, and ends
//! when its time is over, when its browser signs out, and whenever its key does. Only the hash of what the browser's
//! cookie holds is stored. Signing in and out are operations of the audit trail. What a session makes may outlast it,
//! but it makes no key without an end.

use super::{Credential, Keys, hash, random_digits};
use crate::{Caller, operation::OperationSpec};
use atoll_store::{ApiKey, ConsoleSession, Millis};
use atoll_types::{Error, ErrorCode, Operation, Result, time::now_ms};
use std::time::Duration;

/// How long a session lasts: a working day.
const LASTS_MS: Millis = 12 * 3600 * 1000;
/// How often a session is looked at while an answer goes on: its time may be over, or its key revoked elsewhere.
const LOOK: Duration = Duration::from_secs(5);

/// A session that was just made, with what the browser's cookie holds, which is never shown again.
#[derive(Debug)]
pub struct SignedIn {
    /// What the cookie holds.
    pub secret: String,
    /// What is known of it.
    pub session: SessionInfo,
}

/// A signed-in browser, as it may know itself.
#[derive(Debug, Clone)]
pub struct SessionInfo {
    /// Whom it acts for.
    pub caller: Caller,
    /// What the key is called.
    pub key_name: String,
    /// When the session ends.
    pub expires_at: Millis,
}

impl SessionInfo {
    fn of(session: &ConsoleSession, key: &ApiKey) -> Self {
        Self { caller: Caller::of(key), key_name: key.name.clone(), expires_at: session.expires_at }
    }
}

fn refused() -> Error {
    Error::new(ErrorCode::PermissionDenied, "the session has ended; sign in again")
}

impl Keys {
    /// Signs a browser in with a key. The caller says from where it asks.
    pub async fn sign_in(&self, secret: &str, from: impl FnOnce(Caller) -> Caller) -> Result<SignedIn> {
        let key = self.usable(secret).await?;
        let caller = from(Caller::of(&key));
        let audited = self.operations.audited(&caller, OperationSpec::new(Operation::ConsoleSignIn)).await?;
        let result = async {
            let secret = random_digits();
            let now = now_ms();
            let expires_at = key.expires_at.map_or(now + LASTS_MS, |end| end.min(now + LASTS_MS));
            let session = ConsoleSession { hash: hash(&secret), key: key.id, created_at: now, expires_at };
            self.store.insert_console_session(session.clone()).await?;
            let session = SessionInfo { caller: caller.clone(), ..SessionInfo::of(&session, &key) };
            Ok(SignedIn { secret, session })
        }
        .await;
        audited.done(result).await
    }

    /// The caller behind a session.
    pub async fn authenticate_session(&self, secret: &str) -> Result<Caller> {
        let hash = hash(secret);
        let key = match self.known_keys.get(Credential::Session, hash) {
            Ok(key) => key,
            Err(read_after) => {
                let (_, key) = self.store.console_session(hash, now_ms()).await?.ok_or_else(refused)?;
                self.known_keys.keep(Credential::Session, hash, &key, read_after);
                key
            }
        };
        self.touch(&key).await;
        Ok(Caller { by_session: true, ..Caller::of(&key) })
    }

    /// What is known of a session.
    pub async fn session(&self, secret: &str) -> Result<SessionInfo> {
        let found = self.store.console_session(hash(secret), now_ms()).await?;
        found.map(|(session, key)| SessionInfo::of(&session, &key)).ok_or_else(refused)
    }

    /// Returns when a session has ended: its browser signed out, its time is over, or its key is of no use any more.
    pub async fn session_ended(&self, secret: &str) {
        let mut forgot = self.known_keys.forgot.subscribe();
        loop {
            forgot.mark_unchanged();
            // A store that does not answer ends no session.
            if matches!(self.store.console_session(hash(secret), now_ms()).await, Ok(None)) {
                return;
            }
            // It ends without a change too, when its time is over.
            let _ = tokio::time::timeout(LOOK, forgot.changed()).await;
        }
    }

    /// Signs a browser out. Its session is of no use from then on.
    pub async fn sign_out(&self, caller: &Caller, secret: &str) -> Result<()> {
        let audited = self.operations.audited(caller, OperationSpec::new(Operation::ConsoleSignOut)).await?;
        let removed = self.store.remove_console_session(hash(secret)).await;
        self.known_keys.forget();
        audited.done(removed.map(drop).map_err(Into::into)).await
    }
}
