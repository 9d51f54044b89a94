//! Records of preview tokens. The token itself is not stored: it is the record's id, signed.

use crate::{Millis, PreviewTokenId, SandboxId};

/// A token that opens a port of a sandbox, until it ends or is revoked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PreviewTokenRecord {
    /// Its id.
    pub id: PreviewTokenId,
    /// Whose ports it opens.
    pub sandbox: SandboxId,
    /// The one port that it opens; all, where none is named.
    pub port: Option<u16>,
    /// When it was made.
    pub created_at: Millis,
    /// From when on it is not valid.
    pub expires_at: Millis,
}
