//! The keys of the trail, derived from the server's secret. Rows and the head have one each, so that a code
//! of one is never a code of the other.

use atoll_store::{Encoded, Mac};
use hmac::{Hmac, Mac as _};
use sha2::Sha256;
use std::fmt;

/// What rows and heads are proven with.
#[derive(Clone)]
pub struct AuditKey {
    rows: [u8; 32],
    head: [u8; 32],
}

impl fmt::Debug for AuditKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AuditKey(..)")
    }
}

fn hmac(key: &[u8; 32]) -> Hmac<Sha256> {
    <Hmac<Sha256> as hmac::Mac>::new_from_slice(key).unwrap_or_else(|_| unreachable!("HMAC takes any length"))
}

fn derived(key: &[u8; 32], label: &str) -> [u8; 32] {
    hmac(key).chain_update(label).finalize().into_bytes().into()
}

impl AuditKey {
    /// The keys that belong to a server's secret.
    #[must_use]
    pub fn from_secret(secret: &[u8; 32]) -> Self {
        let audit = derived(secret, "audit");
        Self { rows: derived(&audit, "rows"), head: derived(&audit, "head") }
    }

    fn row(&self, before: &Mac, seq: u64, facts: &[u8], output: &[u8]) -> Hmac<Sha256> {
        // The length of the facts says where the output begins.
        hmac(&self.rows)
            .chain_update(before.0)
            .chain_update(seq.to_be_bytes())
            .chain_update((facts.len() as u64).to_be_bytes())
            .chain_update(facts)
            .chain_update(output)
    }

    /// The code of a row that follows a row with this code.
    pub(crate) fn prove(&self, before: &Mac, seq: u64, row: &Encoded) -> Mac {
        Mac(self.row(before, seq, &row.facts, &row.output).finalize().into_bytes().into())
    }

    /// Whether a row has the right code.
    pub(crate) fn proves(&self, before: &Mac, seq: u64, facts: &[u8], output: &[u8], mac: &[u8]) -> bool {
        self.row(before, seq, facts, output).verify_slice(mac).is_ok()
    }

    /// The signature of a head.
    pub(crate) fn sign(&self, head: &[u8]) -> Mac {
        Mac(hmac(&self.head).chain_update(head).finalize().into_bytes().into())
    }

    /// Whether a head has the right signature.
    pub(crate) fn signed(&self, head: &[u8], signature: &Mac) -> bool {
        hmac(&self.head).chain_update(head).verify_slice(&signature.0).is_ok()
    }
}
