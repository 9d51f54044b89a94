//! Items that an owner stores beside its conversations.

use super::Metadata;
use crate::Millis;

/// An item. Its owner, namespace and key name it.
#[derive(Debug, Clone, PartialEq)]
pub struct StoreItem {
    /// Where it is: words from the outside inwards.
    pub namespace: Vec<String>,
    /// Its name there.
    pub key: String,
    /// What it is.
    pub value: Metadata,
    /// When it was first put.
    pub created_at: Millis,
    /// When it was last put.
    pub updated_at: Millis,
}

/// Which items of an owner, the last put first.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ItemQuery {
    /// At or below this namespace.
    pub prefix: Vec<String>,
    /// With these values.
    pub filter: Metadata,
    /// Whose value has this text in it, in any case.
    pub text: Option<String>,
    /// At most so many.
    pub limit: u32,
    /// Without the first ones.
    pub offset: u32,
}

/// Which namespaces of an owner.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NamespaceQuery {
    /// Beginning with these words; `*` is any.
    pub prefix: Vec<String>,
    /// Ending with these words; `*` is any.
    pub suffix: Vec<String>,
    /// Cut to so many words.
    pub depth: Option<u32>,
    /// At most so many.
    pub limit: u32,
    /// Without the first ones.
    pub offset: u32,
}
