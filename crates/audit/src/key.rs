//! The keys of the trail, derived from the server's secret. Rows and the head have one each, so that a MAC of
//! one is never a MAC of the other.

use atoll_store::{Encoded, Mac};
use atoll_types::MacKey;

/// The keys of rows and heads.
#[derive(Debug, Clone)]
pub struct AuditKey {
    rows: MacKey,
    head: MacKey,
}

fn derived(key: &[u8; 32], label: &str) -> [u8; 32] {
    MacKey::new(key).derive(label.as_bytes())
}

/// What the MAC of a row covers besides its bytes. The length of the facts says where the output begins.
fn before_row(before: &Mac, seq: u64, facts: &[u8]) -> Vec<u8> {
    [&before.0[..], &seq.to_be_bytes(), &(facts.len() as u64).to_be_bytes()].concat()
}

impl AuditKey {
    /// The keys derived from a server's secret.
    #[must_use]
    pub fn from_secret(secret: &[u8; 32]) -> Self {
        let audit = derived(secret, "audit");
        let key = |label| MacKey::new(&derived(&audit, label));
        Self { rows: key("rows"), head: key("head") }
    }

    /// The MAC of a row that follows a row with this MAC.
    pub(crate) fn prove(&self, before: &Mac, seq: u64, row: &Encoded) -> Mac {
        Mac(self.rows.sign(&[&before_row(before, seq, &row.facts), &row.facts, &row.output]))
    }

    /// Whether a row has the right MAC.
    pub(crate) fn proves(&self, before: &Mac, seq: u64, facts: &[u8], output: &[u8], mac: &[u8]) -> bool {
        self.rows.verify(&[&before_row(before, seq, facts), facts, output], mac)
    }

    /// The signature of a head.
    pub(crate) fn sign(&self, head: &[u8]) -> Mac {
        Mac(self.head.sign(&[head]))
    }

    /// Whether a head has the right signature.
    pub(crate) fn signed(&self, head: &[u8], signature: &Mac) -> bool {
        self.head.verify(&[head], &signature.0)
    }
}
