//! Settings that an administrator changes while the server runs. The core interprets them.

use crate::Result;
use async_trait::async_trait;
use serde_json::Value;

/// Named values.
#[async_trait]
pub trait Settings: Send + Sync {
    /// The value, if it was ever set.
    async fn get_setting(&self, name: &str) -> Result<Option<Value>>;
    /// Sets it.
    async fn put_setting(&self, name: &str, value: Value) -> Result<()>;
}
