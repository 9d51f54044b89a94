//! Descriptors that the runtime watches.

use std::os::fd::OwnedFd;
use tokio::io::{Interest, unix::AsyncFd};

/// Watches a descriptor that never blocks.
pub(crate) fn watch(fd: OwnedFd, interest: Interest) -> std::io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` is the same open descriptor for as long as it lives, and it is never
    // replaced inside the `AsyncFd`.
    Ok(unsafe { AsyncFd::register_with_interest(fd, interest) }?)
}
