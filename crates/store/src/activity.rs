//! Keeping what happened in sandboxes.

use crate::{Result, SandboxId};
use async_trait::async_trait;
use atoll_types::{Activity, ActivityEntry};

/// How many entries of a sandbox are kept: the last ones.
pub const ACTIVITIES_KEPT: u64 = 1000;

/// What happened in sandboxes.
#[async_trait]
pub trait Activities: Send + Sync {
    /// Stores the entry, adds to the counters, moves `last_activity_at` forward and removes the entry that is
    /// one too many, all of it or nothing. The revision stays. Destroyed sandboxes take entries too: a
    /// command may end after its sandbox. Counters saturate.
    async fn record_activity(&self, activity: Activity) -> Result<()>;
    /// The latest entries first; with `before`, those with a smaller number.
    async fn activities(
        &self,
        sandbox: SandboxId,
        limit: u32,
        before: Option<u64>,
    ) -> Result<Vec<ActivityEntry>>;
}
