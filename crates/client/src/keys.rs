//! Keys.

use crate::{Client, Result, ServerReply, encode};
use hyper::Method;
use serde::{Deserialize, Serialize};
use std::fmt;
use uuid::Uuid;

const ROOT: &str = "/api/v1/keys";

/// A key to make.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct CreateKey {
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// admin, user or read_only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tier: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_in_seconds: Option<u64>,
}

/// A key, without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Key {
    pub id: Uuid,
    pub name: String,
    #[serde(default)]
    pub owner: String,
    #[serde(default)]
    pub scope: String,
    #[serde(default)]
    pub tier: Option<String>,
    /// Its first characters.
    #[serde(default)]
    pub prefix: String,
    #[serde(default)]
    pub created_at: String,
    #[serde(default)]
    pub expires_at: Option<String>,
    #[serde(default)]
    pub revoked_at: Option<String>,
    #[serde(default)]
    pub last_used_at: Option<String>,
}

/// A new key with its secret, which is shown this once.
#[derive(Clone, PartialEq, Eq, Deserialize)]
pub struct IssuedKey {
    /// The secret.
    #[serde(rename = "key")]
    pub secret: String,
    /// The key as the server stores it.
    #[serde(flatten)]
    pub key: Key,
}

impl fmt::Debug for IssuedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IssuedKey").field("key", &self.key).finish_non_exhaustive()
    }
}

/// One page of keys.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct KeyPage {
    pub items: Vec<Key>,
    pub total: u64,
}

impl Client {
    /// Makes a key.
    pub async fn create_key(&self, new: &CreateKey) -> Result<ServerReply<IssuedKey>> {
        self.tell(Method::POST, ROOT, new).await
    }

    /// A page of keys, the newest first.
    pub async fn list_keys(&self, page: u64, page_size: u32) -> Result<ServerReply<KeyPage>> {
        let query =
            encode::query(&[("page", Some(page.to_string())), ("page_size", Some(page_size.to_string()))]);
        self.ask(Method::GET, &format!("{ROOT}{query}")).await
    }

    /// Revokes a key.
    pub async fn revoke_key(&self, id: Uuid) -> Result<ServerReply<Key>> {
        self.ask(Method::DELETE, &format!("{ROOT}/{id}")).await
    }
}
