//! The caller of a request, and what it is allowed to do.

use atoll_store::{ApiKey, KeyId, Millis, Scope};
use atoll_types::{Error, ErrorCode, Permission, Result, Tier};

/// Scopes in their order: a wider one is above a narrower one.
fn rank(scope: Scope) -> u8 {
    match scope {
        Scope::ReadOnly => 0,
        Scope::User => 1,
        Scope::Admin => 2,
    }
}

/// The caller of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// Its key; none where the server was started without keys.
    pub key: Option<KeyId>,
    /// The owner whose sandboxes it works with.
    pub owner: String,
    /// The owner's display name.
    pub owner_name: String,
    /// What the key allows.
    pub scope: Scope,
    /// The ceiling of its requests; an admin has none.
    pub tier: Option<Tier>,
    /// When its key expires.
    pub expires_at: Option<Millis>,
    /// Whether it shows the session of a browser, and not the key itself.
    pub by_session: bool,
    /// The front that it calls.
    pub front: &'static str,
    /// The address that it calls from.
    pub address: Option<String>,
}

impl Caller {
    /// The caller behind a key.
    #[must_use]
    pub fn of(key: &ApiKey) -> Self {
        Self {
            key: Some(key.id),
            owner: key.owner.clone(),
            owner_name: key.owner_name.clone(),
            scope: key.scope,
            // An unknown tier name, of a key from before there were tiers, counts as the lowest.
            tier: (key.scope != Scope::Admin).then(|| key.tier.parse().unwrap_or(Tier::Sandbox)),
            expires_at: key.expires_at,
            by_session: false,
            front: "",
            address: None,
        }
    }

    /// Any local caller, where the server was started without keys.
    #[must_use]
    pub fn local() -> Self {
        Self {
            key: None,
            owner: crate::keys::owner_id("local"),
            owner_name: "local".into(),
            scope: Scope::Admin,
            tier: None,
            expires_at: None,
            by_session: false,
            front: "",
            address: None,
        }
    }

    /// The server itself, acting on an owner's sandbox: its own audit rows say why.
    #[must_use]
    pub fn lifecycle(owner: &str, owner_name: &str) -> Self {
        Self {
            key: None,
            owner: owner.to_owned(),
            owner_name: owner_name.to_owned(),
            scope: Scope::Admin,
            tier: None,
            expires_at: None,
            by_session: false,
            front: "lifecycle",
            address: None,
        }
    }

    /// The same, with the address that it calls from.
    #[must_use]
    pub fn from(self, front: &'static str, address: Option<String>) -> Self {
        Self { front, address, ..self }
    }

    /// Whether it may see what belongs to this owner.
    #[must_use]
    pub fn may_see(&self, owner: &str) -> bool {
        self.scope == Scope::Admin || self.owner == owner
    }

    /// Whether a key is the caller's own or not above it: of an owner that it may see, with no wider scope,
    /// no higher tier and no later expiry. Only such keys are shown to the caller, and only such it may make
    /// or revoke.
    pub(crate) fn covers(&self, key: &ApiKey) -> bool {
        let other = Self::of(key);
        let ceiling = |caller: &Self| caller.tier.unwrap_or(Tier::Unrestricted);
        let own = self.key == Some(key.id);
        own || (self.may_see(&key.owner)
            && rank(self.scope) >= rank(other.scope)
            && ceiling(self) >= ceiling(&other)
            && self.outlives(other.expires_at))
    }

    /// Whether its key lasts at least as long as one that expires then.
    pub(crate) fn outlives(&self, expires_at: Option<Millis>) -> bool {
        self.expires_at.is_none_or(|own| expires_at.is_some_and(|other| other <= own))
    }

    /// Refuses what the caller's key does not allow.
    pub(crate) fn must_have(&self, permission: Permission) -> Result<()> {
        match permission {
            Permission::Read => Ok(()),
            Permission::Write => self.must_write(),
            Permission::Admin => self.must_administer(),
        }
    }

    pub(crate) fn must_write(&self) -> Result<()> {
        match self.scope {
            Scope::Admin | Scope::User => Ok(()),
            Scope::ReadOnly => Err(Error::new(ErrorCode::PermissionDenied, "this key is read-only")),
        }
    }

    pub(crate) fn must_administer(&self) -> Result<()> {
        match self.scope {
            Scope::Admin => Ok(()),
            Scope::User | Scope::ReadOnly => {
                Err(Error::new(ErrorCode::PermissionDenied, "this needs an admin key"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use atoll_store::KeyHash;

    fn key(owner: &str, scope: Scope, tier: &str, expires_at: Option<Millis>) -> ApiKey {
        ApiKey {
            id: KeyId::random(),
            name: "key".into(),
            owner: owner.into(),
            owner_name: owner.into(),
            scope,
            tier: tier.into(),
            prefix: "atoll_".into(),
            hash: KeyHash([0; 32]),
            created_at: 0,
            expires_at,
            revoked_at: None,
            last_used_at: None,
        }
    }

    #[test]
    fn what_is_above_a_key_in_anything_is_out_of_its_reach() {
        let own = key("ann", Scope::User, "standard", Some(10));
        let caller = Caller::of(&own);
        assert!(caller.covers(&own));
        assert!(caller.covers(&key("ann", Scope::User, "standard", Some(10))));
        assert!(caller.covers(&key("ann", Scope::ReadOnly, "sandbox", Some(9))));
        for extension in [
            key("bob", Scope::ReadOnly, "sandbox", Some(9)),
            key("ann", Scope::Admin, "sandbox", Some(9)),
            key("ann", Scope::User, "elevated", Some(9)),
            key("ann", Scope::User, "standard", Some(11)),
            key("ann", Scope::User, "standard", None),
        ] {
            assert!(!caller.covers(&extension), "{extension:?}");
        }
        let admin = Caller::of(&key("ann", Scope::Admin, "standard", None));
        assert!(admin.covers(&key("bob", Scope::User, "unrestricted", None)));
        let expiring = Caller::of(&key("ann", Scope::Admin, "standard", Some(10)));
        assert!(!expiring.covers(&key("bob", Scope::User, "standard", None)), "it would outlive the admin");
    }
}
