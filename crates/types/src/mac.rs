//! HMAC-SHA256, with which the server signs everything: rows of the audit trail, preview tokens, egress
//! tokens.

use hmac::{Hmac, Mac as _};
use sha2::Sha256;
use std::fmt;

/// A key, ready for use.
#[derive(Clone)]
pub struct MacKey(Hmac<Sha256>);

impl fmt::Debug for MacKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MacKey(..)")
    }
}

impl MacKey {
    /// The key with these bytes, of which there may be any number.
    #[must_use]
    pub fn new(key: &[u8]) -> Self {
        Self(Hmac::new_from_slice(key).unwrap_or_else(|_| unreachable!("HMAC takes keys of every length")))
    }

    fn over(&self, parts: &[&[u8]]) -> Hmac<Sha256> {
        parts.iter().fold(self.0.clone(), |mac, part| mac.chain_update(part))
    }

    /// The MAC of these parts, concatenated. The boundaries between them are not part of it.
    #[must_use]
    pub fn sign(&self, parts: &[&[u8]]) -> [u8; 32] {
        self.over(parts).finalize().into_bytes().into()
    }

    /// Whether this is the MAC of these parts; in constant time.
    #[must_use]
    pub fn verify(&self, parts: &[&[u8]], code: &[u8]) -> bool {
        self.over(parts).verify_slice(code).is_ok()
    }

    /// A derived key for one purpose: no other purpose of the same key has the same.
    #[must_use]
    pub fn derive(&self, purpose: &[u8]) -> [u8; 32] {
        self.sign(&[purpose])
    }
}

#[cfg(test)]
mod tests {
    use super::MacKey;

    /// The second test case of RFC 4231.
    const CODE: &str = "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";

    #[test]
    fn it_is_the_standards_code_however_the_message_is_cut() {
        let key = MacKey::new(b"Jefe");
        for parts in
            [&[&b"what do ya want for nothing?"[..]][..], &[b"what do ya want ", b"", b"for nothing?"]]
        {
            let code = key.sign(parts);
            assert_eq!(code.map(|byte| format!("{byte:02x}")).concat(), CODE);
            assert!(key.verify(parts, &code) && !key.verify(parts, &code[..31]) && !key.verify(&[], &code));
            assert!(!MacKey::new(b"jefe").verify(parts, &code));
        }
    }
}
