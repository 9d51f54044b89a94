//! The pool of ready containers, for admins.

use crate::{Client, Result, ServerReply};
use hyper::Method;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

const PATH: &str = "/api/v1/pool";

/// The state of the pool.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Pool {
    pub enabled: bool,
    #[serde(default)]
    pub keys: Vec<PoolKey>,
    /// The languages whose interpreters are started in each.
    #[serde(default)]
    pub kernels: Vec<String>,
}

/// The pool of one image.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct PoolKey {
    pub image: String,
    pub ready: u32,
    #[serde(default)]
    pub starting: u32,
    #[serde(default)]
    pub target: u32,
    #[serde(default)]
    pub min: u32,
    #[serde(default)]
    pub max: u32,
    #[serde(default)]
    pub hits: u64,
    #[serde(default)]
    pub misses: u64,
    #[serde(default)]
    pub oldest_age_seconds: Option<f64>,
    #[serde(default)]
    pub refill_seconds: Option<f64>,
    #[serde(default)]
    pub last_failure: Option<PoolFailure>,
}

/// The last failure to make one.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct PoolFailure {
    pub at: String,
    pub reason: String,
}

/// How many of an image to keep ready; what is none stays.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct PoolSize {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max: Option<u32>,
}

/// What to change.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct PatchPool {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// None removes what was set for an image.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub images: BTreeMap<String, Option<PoolSize>>,
}

/// How many were destroyed.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Drained {
    pub drained: u64,
}

#[derive(Serialize)]
struct Drain {
    stop: bool,
}

impl Client {
    /// The state of the pool.
    pub async fn pool(&self) -> Result<ServerReply<Pool>> {
        self.ask(Method::GET, PATH).await
    }

    /// Changes how many are kept ready.
    pub async fn patch_pool(&self, change: &PatchPool) -> Result<ServerReply<Pool>> {
        self.tell(Method::PATCH, PATH, change).await
    }

    /// Destroys what is ready; with `stop` the pool is not refilled.
    pub async fn drain_pool(&self, stop: bool) -> Result<ServerReply<Drained>> {
        self.tell(Method::POST, "/api/v1/pool/drain", &Drain { stop }).await
    }
}
