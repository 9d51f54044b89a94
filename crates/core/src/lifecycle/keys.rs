//! Keys that are no longer valid: an expired one is revoked, and one that was revoked long ago is removed.
//! Authentication does not depend on it: it checks the key's own expiry.

use super::{Look, MOST, period, retention::system};
use crate::{Caller, Lifecycle, operation::OperationSpec};
use atoll_store::{Admins, ApiKey};
use atoll_types::{Operation, Result};
use std::time::Duration;

impl Lifecycle {
    pub(super) async fn close_keys(&self, look: &Look<'_>) -> Result<()> {
        if !look.settled() {
            return Ok(());
        }
        let all = self.store.list_keys(None).await?;
        let over = |key: &&ApiKey| {
            key.revoked_at.is_none() && key.expires_at.is_some_and(|at| look.clock.age(at) > Duration::ZERO)
        };
        for key in all.iter().filter(over).take(MOST) {
            self.close_key(key).await?;
        }
        let Some(kept) = period(look.runtime_settings.lifecycle_key_retention_seconds) else { return Ok(()) };
        let before = look.clock.before(kept);
        // The newest stays: a server that finds no key at all would make a first one.
        if !all.iter().skip(1).any(|key| key.revoked_at.is_some_and(|at| at <= before)) {
            return Ok(());
        }
        let reason = format!("worth nothing for {} seconds", kept.as_secs());
        let audited = self
            .operations
            .audited(&system(), OperationSpec::new(Operation::KeyPurge).and("reason", reason))
            .await?;
        let purged = self.store.purge_keys(before).await;
        audited.done(purged.map(drop).map_err(Into::into)).await
    }

    async fn close_key(&self, key: &ApiKey) -> Result<()> {
        let Some(at) = key.expires_at else { return Ok(()) };
        let caller = Caller::lifecycle(&key.owner, &key.owner_name);
        let what =
            OperationSpec::new(Operation::KeyRevoke).with(key.id.to_string()).and("reason", "it has expired");
        let audited = self.operations.audited(&caller, what).await?;
        let revoked = self.store.revoke_key(key.id, at, Admins::Expire).await;
        self.keys.known_keys.forget();
        audited.done(revoked.map(drop).map_err(Into::into)).await
    }
}
