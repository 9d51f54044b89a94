//! Blocking work on files, away from the runtime's threads. The kernel may take its time with a file, so one
//! container has only a few such jobs at a time, and others are not held up.

use atoll_types::{Error, Result};
use std::sync::Arc;
use tokio::{sync::Semaphore, task::JoinHandle};

/// Of one container. The runtime has some hundreds of threads for all.
const AT_ONCE: usize = 16;

#[derive(Clone)]
pub(super) struct Jobs(Arc<Semaphore>);

impl Default for Jobs {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(AT_ONCE)))
    }
}

/// A job under way. It goes on when its handle is dropped.
pub(super) type Job<T> = JoinHandle<Result<T>>;

impl Jobs {
    /// Starts a job when there is a free slot.
    pub(super) async fn start<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<Job<T>> {
        let room = Arc::clone(&self.0).acquire_owned().await.map_err(|_| Error::internal("no more jobs"))?;
        Ok(tokio::task::spawn_blocking(move || {
            let done = job();
            drop(room);
            done
        }))
    }

    /// Runs a job to its end.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let job = self.start(job).await?;
        finished(job.await)
    }
}

/// The result of a job.
pub(super) fn finished<T>(done: Result<Result<T>, tokio::task::JoinError>) -> Result<T> {
    done.unwrap_or_else(|_| Err(Error::internal("file work was interrupted")))
}
