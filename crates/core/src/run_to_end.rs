//! Work that a request has begun and that must not stop half-way where its caller disconnects.

use atoll_types::{Error, Result};

/// Runs work in a task of its own, so that it completes whether its caller waits for it or not. `what` names the work
/// in the error of one that panicked.
pub(crate) async fn run_to_end<T: Send + 'static>(
    what: &str,
    work: impl Future<Output = Result<T>> + Send + 'static,
) -> Result<T> {
    let done = tokio::spawn(work).await;
    done.unwrap_or_else(|_| Err(Error::internal(format!("{what} was not completed"))))
}
