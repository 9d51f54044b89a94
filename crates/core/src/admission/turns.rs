//! One at a time, by name: creates of one session key, and starts of one sandbox. Without this, two that
//! want the same sandbox would both count, and one of them might be refused for the other.

use atoll_types::Result;
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, Weak},
};
use tokio::{
    sync::{Mutex as Turnstile, OwnedMutexGuard},
    time::Instant,
};

/// Whose turn it is, by name.
#[derive(Default)]
pub(crate) struct Turns(Mutex<HashMap<String, Weak<Turnstile<()>>>>);

/// A turn; dropped, it is the next one's.
pub(crate) struct Turn(#[allow(dead_code, reason = "held, not read")] OwnedMutexGuard<()>);

/// Names remembered; beyond that, those that nobody uses are forgotten.
const MOST: usize = 1024;

impl Turns {
    /// Waits for a turn until the deadline; `late` says what is wrong then.
    pub(crate) async fn take(
        &self,
        name: &str,
        deadline: Instant,
        late: impl FnOnce() -> atoll_types::Error,
    ) -> Result<Turn> {
        let turnstile = self.find(name);
        match tokio::time::timeout_at(deadline, turnstile.lock_owned()).await {
            Ok(guard) => Ok(Turn(guard)),
            Err(_) => Err(late()),
        }
    }

    fn find(&self, name: &str) -> Arc<Turnstile<()>> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(turnstile) = all.get(name).and_then(Weak::upgrade) {
            return turnstile;
        }
        if all.len() >= MOST {
            all.retain(|_, turnstile| turnstile.strong_count() > 0);
        }
        let turnstile = Arc::new(Turnstile::new(()));
        all.insert(name.to_owned(), Arc::downgrade(&turnstile));
        turnstile
    }
}
