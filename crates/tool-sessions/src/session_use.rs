//! Which sessions are in use at this moment, so that none is collected or evicted during a call.

use atoll_store::ToolSessionId;
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

#[derive(Default, Clone)]
pub(crate) struct SessionUsers(Arc<Mutex<HashMap<ToolSessionId, usize>>>);

/// A session is in use until this is dropped.
pub(crate) struct SessionUse {
    users: SessionUsers,
    session: ToolSessionId,
}

impl SessionUsers {
    fn map(&self) -> MutexGuard<'_, HashMap<ToolSessionId, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn begin(&self, session: ToolSessionId) -> SessionUse {
        *self.map().entry(session).or_insert(0) += 1;
        SessionUse { users: self.clone(), session }
    }

    pub(crate) fn uses(&self, session: ToolSessionId) -> bool {
        self.map().contains_key(&session)
    }
}

impl Drop for SessionUse {
    fn drop(&mut self) {
        let mut map = self.users.map();
        if let Some(count) = map.get_mut(&self.session) {
            *count -= 1;
            if *count == 0 {
                map.remove(&self.session);
            }
        }
    }
}

/// Locks by owner: one for each that is wanted at the moment.
#[derive(Default)]
pub(crate) struct Turns(Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>);

impl Turns {
    pub(crate) fn of(&self, owner: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut turns = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        turns.retain(|_, turn| Arc::strong_count(turn) > 1);
        Arc::clone(turns.entry(owner.to_owned()).or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_used_until_the_last_has_gone() {
        let (users, id) = (SessionUsers::default(), ToolSessionId(1));
        let (first, second) = (users.begin(id), users.begin(id));
        drop(first);
        assert!(users.uses(id) && !users.uses(ToolSessionId(2)));
        drop(second);
        assert!(!users.uses(id) && users.map().is_empty());
    }
}
