//! API keys. The key itself is never stored, only its hash: a reader of the database can use none.

use crate::{KeyId, Millis, names};
use std::fmt;

names!(
    /// What a key may do.
    Scope {
        /// Everything, with the sandboxes of all owners.
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
    /// From when on it is not valid.
    pub expires_at: Option<Millis>,
    /// Since when it is not valid.
    pub revoked_at: Option<Millis>,
    /// When it was last seen, more or less.
    pub last_used_at: Option<Millis>,
}

/// A signed-in browser. It has the rights of its key and ends with it at the latest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsoleSession {
    /// The hash of what the browser's cookie holds; unique.
    pub hash: KeyHash,
    /// The key that it was signed in with.
    pub key: KeyId,
    /// When it began.
    pub created_at: Millis,
    /// From when on it is not valid.
    pub expires_at: Millis,
}

impl ApiKey {
    /// Whether it is valid now.
    #[must_use]
    pub fn is_usable(&self, now: Millis) -> bool {
        self.revoked_at.is_none() && self.expires_at.is_none_or(|end| now < end)
    }
}
