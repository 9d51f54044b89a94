//! TLS, as far as the proxy looks at it: which name a client asks for, and both ends of a connection whose
//! requests are looked at.

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
