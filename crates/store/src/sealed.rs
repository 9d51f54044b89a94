//! Bytes that somebody else encrypted. They are stored, compared and handed back, never looked into
//! and never printed.

use std::fmt;

/// Encrypted bytes.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Sealed(pub Vec<u8>);

impl fmt::Debug for Sealed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sealed({} bytes)", self.0.len())
    }
}
