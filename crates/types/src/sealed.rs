//! Bytes that the core encrypted. The store keeps, compares and returns them; it never parses or prints them.

use std::fmt;

/// Encrypted bytes.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Sealed(pub Vec<u8>);

impl fmt::Debug for Sealed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sealed({} bytes)", self.0.len())
    }
}
