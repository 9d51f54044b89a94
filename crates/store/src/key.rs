//! API keys. The key itself is never stored, only its hash: whoever reads the database can use none.

use crate::{KeyId, Millis, Result, names::names};
use async_trait::async_trait;
use std::{collections::BTreeMap, fmt};

names!(
    /// What a key may do.
    Scope {
        /// Everything, for everybody.
        Admin = "admin",
        /// Everything with its owner's sandboxes.
        User = "user",
        /// Look at its owner's sandboxes.
        ReadOnly = "read_only",
    }
);

/// The hash of a key.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct KeyHash(pub [u8; 32]);

impl fmt::Debug for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyHash(..)")
    }
}

/// One API key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiKey {
    /// Which.
    pub id: KeyId,
    /// What its owner calls it.
    pub name: String,
    /// Whose it is.
    pub owner: String,
    /// What people call the owner.
    pub owner_name: String,
    /// What it may do.
    pub scope: Scope,
    /// The name of its ceiling of limits.
    pub tier: String,
    /// Its first characters, for lists.
    pub prefix: String,
    /// Its hash; unique.
    pub hash: KeyHash,
    /// When it was made.
    pub created_at: Millis,
    /// From when on it is worth nothing.
    pub expires_at: Option<Millis>,
    /// Since when it is worth nothing.
    pub revoked_at: Option<Millis>,
    /// When it was last seen, more or less.
    pub last_used_at: Option<Millis>,
}

impl ApiKey {
    /// Whether it is worth anything now.
    #[must_use]
    pub fn is_usable(&self, now: Millis) -> bool {
        self.revoked_at.is_none() && self.expires_at.is_none_or(|end| now < end)
    }
}

/// What becomes of an installation's last admin key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admins {
    /// It stays: revoking it is refused.
    Keep,
    /// It has expired by its own time, and revoking it only writes that down.
    Expire,
}

/// The keys. A key that was added or revoked stays so after a power cut.
#[async_trait]
pub trait Keys: Send + Sync {
    /// Adds a key; `Conflict(Taken)` when its id or hash is there.
    async fn insert_key(&self, key: ApiKey) -> Result<()>;
    /// Adds a key if there never was one, revoked and expired ones included, and says whether it did.
    async fn insert_first_key(&self, key: ApiKey) -> Result<bool>;
    /// The key with this hash, if it is usable now.
    async fn key_by_hash(&self, hash: KeyHash, now: Millis) -> Result<Option<ApiKey>>;
    /// Every key of an owner, or of all, usable or not, the newest first.
    async fn list_keys(&self, owner: Option<&str>) -> Result<Vec<ApiKey>>;
    /// Makes a key worthless and returns it. Fine when it is already: the first time counts. With
    /// [`Admins::Keep`] a usable admin key is revoked only where another usable one is left that lasts: one
    /// that never expires where this one does not, any where this one expires; `Conflict(LastAdmin)` otherwise.
    async fn revoke_key(&self, id: KeyId, now: Millis, admins: Admins) -> Result<ApiKey>;
    /// Notes when keys were last used, many in one write. Never moves back; unknown keys are passed over.
    async fn touch_keys(&self, used: &BTreeMap<KeyId, Millis>) -> Result<()>;
    /// Forgets the keys that were revoked at this time or before, but never the one that was added last: that
    /// there were keys must not be forgotten. Returns how many.
    async fn purge_keys(&self, before: Millis) -> Result<u64>;
}
