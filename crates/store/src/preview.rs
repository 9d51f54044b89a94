//! Keeping preview tokens.

use crate::{Millis, PreviewTokenId, PreviewTokenRecord, Result, SandboxId};
use async_trait::async_trait;

/// Valid tokens that one sandbox may have.
pub const MOST_PREVIEW_TOKENS: u32 = 1000;

/// Preview tokens. A removed one stays so after a power cut.
#[async_trait]
pub trait PreviewTokens: Send + Sync {
    /// Adds a token and removes those of all sandboxes that have expired by its beginning. `NotFound(Sandbox)` where there
    /// is no such sandbox or it is destroyed, `Beyond(PreviewTokens)` where it has so many, `Conflict(Taken)` where the id is
    /// taken.
    async fn insert_preview_token(&self, token: PreviewTokenRecord) -> Result<()>;
    /// A token of a sandbox, if it is valid now.
    async fn preview_token(
        &self,
        sandbox: SandboxId,
        id: PreviewTokenId,
        now: Millis,
    ) -> Result<Option<PreviewTokenRecord>>;
    /// Every token of a sandbox that is valid now, the newest first.
    async fn preview_tokens(&self, sandbox: SandboxId, now: Millis) -> Result<Vec<PreviewTokenRecord>>;
    /// Removes a token of a sandbox; false when there was none.
    async fn remove_preview_token(&self, sandbox: SandboxId, id: PreviewTokenId) -> Result<bool>;
}
