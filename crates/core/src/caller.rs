//! Who asks, and what that allows.

use atoll_store::{ApiKey, KeyId, Scope};
use atoll_types::{Error, ErrorCode, Result, Tier};

/// Who asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// By which key; none where the server was started without keys.
    pub key: Option<KeyId>,
    /// Whose sandboxes.
    pub owner: String,
    /// What people call the owner.
    pub owner_name: String,
    /// What the key allows.
    pub scope: Scope,
    /// What its requests may ask for at most; an admin has none.
    pub tier: Option<Tier>,
    /// By which front it asks.
    pub front: &'static str,
    /// From which address.
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
            // A name that is no tier, of a key from before there were tiers, is worth the least.
            tier: (key.scope != Scope::Admin).then(|| key.tier.parse().unwrap_or(Tier::Sandbox)),
            front: "",
            address: None,
        }
    }

    /// Whoever is on this machine, where the server was started without keys.
    #[must_use]
    pub fn local() -> Self {
        Self {
            key: None,
            owner: crate::keys::owner_id("local"),
            owner_name: "local".into(),
            scope: Scope::Admin,
            tier: None,
            front: "",
            address: None,
        }
    }

    /// The server itself, about what is an owner's: its own trail tells why.
    #[must_use]
    pub fn lifecycle(owner: &str, owner_name: &str) -> Self {
        Self {
            key: None,
            owner: owner.to_owned(),
            owner_name: owner_name.to_owned(),
            scope: Scope::Admin,
            tier: None,
            front: "lifecycle",
            address: None,
        }
    }

    /// The same, with where it asks from.
    #[must_use]
    pub fn from(self, front: &'static str, address: Option<String>) -> Self {
        Self { front, address, ..self }
    }

    /// Whether it may see what belongs to this owner.
    #[must_use]
    pub fn may_see(&self, owner: &str) -> bool {
        self.scope == Scope::Admin || self.owner == owner
    }

    pub(crate) fn must_write(&self) -> Result<()> {
        match self.scope {
            Scope::Admin | Scope::User => Ok(()),
            Scope::ReadOnly => Err(Error::new(ErrorCode::PermissionDenied, "this key may only look")),
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
