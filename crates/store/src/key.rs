//! Keeping API keys.

use crate::{KeyId, Millis, Result};
use async_trait::async_trait;
use atoll_types::{ApiKey, KeyHash};
use std::collections::BTreeMap;

/// The treatment of an installation's last admin key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admins {
    /// It stays: revoking it is refused.
    Keep,
    /// It has expired by its own time, and revoking it only records that.
    Expire,
}

/// The keys. An added or revoked key stays so after a power cut.
#[async_trait]
pub trait Keys: Send + Sync {
    /// Adds a key; `Conflict(Taken)` when its id or hash exists.
    async fn insert_key(&self, key: ApiKey) -> Result<()>;
    /// The same, unless so many other keys of its owner are usable; returns whether it did. Of the owner's revoked keys so
    /// many are kept, those that were revoked last.
    async fn insert_key_within(&self, key: ApiKey, most: u64, now: Millis) -> Result<bool>;
    /// Gives a key another secret and returns it, if it was made at this time or later, was never used and is not
    /// revoked; `None` otherwise, and where there is no such key.
    async fn renew_key(
        &self,
        id: KeyId,
        hash: KeyHash,
        prefix: String,
        since: Millis,
    ) -> Result<Option<ApiKey>>;
    /// Adds a key if there never was one, revoked and expired ones included, and returns whether it did.
    async fn insert_first_key(&self, key: ApiKey) -> Result<bool>;
    /// The key with this hash, if it is usable now.
    async fn key_by_hash(&self, hash: KeyHash, now: Millis) -> Result<Option<ApiKey>>;
    /// Every key of an owner, or of all, usable or not, the newest first.
    async fn list_keys(&self, owner: Option<&str>) -> Result<Vec<ApiKey>>;
    /// Revokes a key and returns it. Succeeds when it is revoked already: the first time counts. With
    /// [`Admins::Keep`] a usable admin key is revoked only where another usable one is left that lasts: one
    /// that never expires where this one does not, any where this one expires; `Conflict(LastAdmin)`
    /// otherwise.
    async fn revoke_key(&self, id: KeyId, now: Millis, admins: Admins) -> Result<ApiKey>;
    /// Records when keys were last used, many in one write. Never moves back; unknown keys are ignored.
    async fn touch_keys(&self, used: &BTreeMap<KeyId, Millis>) -> Result<()>;
    /// Removes the keys that were revoked at this time or before, but never the one that was added last: an
    /// empty table would make the next start create a first key. Returns how many.
    async fn purge_keys(&self, before: Millis) -> Result<u64>;
}
