//! Mutual exclusion by name: creates with one session key, and starts of one sandbox. Without this, two
//! requests for the same sandbox would both count, and one of them might be refused because of the other.

use atoll_types::Result;
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, Weak},
};
use tokio::{
    sync::{Mutex as Turnstile, OwnedMutexGuard},
    time::Instant,
};

/// The locks, by name.
#[derive(Default)]
pub(crate) struct Turns(Mutex<HashMap<String, Weak<Turnstile<()>>>>);

/// A held lock; dropped, the next request gets it.
pub(crate) struct Turn(#[allow(dead_code, reason = "held, not read")] OwnedMutexGuard<()>);

/// Names remembered; beyond that, unused ones are forgotten.
const MOST: usize = 1024;

impl Turns {
    /// Waits for a turn until the deadline; `late` makes the error where that passes.
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

    /// A turn that no other request has; none where one does.
    pub(crate) fn try_take(&self, name: &str) -> Option<Turn> {
        self.find(name).try_lock_owned().ok().map(Turn)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_that_is_held_is_not_waited_for() {
        let turns = Turns::default();
        let held = turns.try_take("a").unwrap();
        assert!(turns.try_take("a").is_none());
        assert!(turns.try_take("b").is_some());
        drop(held);
        assert!(turns.try_take("a").is_some());
    }
}
