//! TLS, as far as the proxy reads it: the server name that a client sends, and both ends of an inspected
//! connection.

mod authority;
mod hello;
mod roots;

pub use authority::Authority;
pub(crate) use hello::{First, Hello, UNRECOGNIZED_NAME};
pub(crate) use roots::upstream;

use rustls::crypto::CryptoProvider;
use std::sync::Arc;

/// The cryptography of every connection. Named, so that nothing depends on a process-wide default.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}
