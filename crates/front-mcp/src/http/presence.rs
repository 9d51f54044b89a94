//! Which clients are connected. A client that listens holds a stream open as long as it lives; when that and
//! all its requests are closed, and nothing new comes for a while, the client has vanished without a word.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// What is known of one client's session.
#[derive(Debug, Default)]
struct Seen {
    open: usize,
    /// Whether it ever listened. One that never did is idle between its requests, and not gone.
    listened: bool,
    /// How often something was opened.
    opened: u64,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Presence(Mutex<HashMap<String, Seen>>);

impl Presence {
    fn seen(&self) -> MutexGuard<'_, HashMap<String, Seen>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A stream or request of a session is open until the guard is dropped; where the client may then be
    /// gone, `left` is called with what [`Presence::forget_gone`] needs.
    pub(super) fn enter(self: &Arc<Self>, session: &str, listens: bool, left: Left) -> PresenceGuard {
        let mut all = self.seen();
        let seen = all.entry(session.to_owned()).or_default();
        seen.open += 1;
        seen.opened += 1;
        seen.listened |= listens;
        PresenceGuard { presence: Arc::clone(self), session: session.to_owned(), left }
    }

    /// Forgets a session whose client has opened nothing since, and says whether it was so: a client that comes at the
    /// same moment is either not gone, or comes to a session that has ended.
    pub(super) fn forget_gone(&self, session: &str, since: u64) -> bool {
        let mut all = self.seen();
        let gone = all.get(session).is_some_and(|seen| seen.open == 0 && seen.opened == since);
        if gone {
            all.remove(session);
        }
        gone
    }

    /// The sessions of which a stream or request is open.
    pub(super) fn open(&self) -> Vec<String> {
        let all = self.seen();
        all.iter().filter(|(_, seen)| seen.open > 0).map(|(session, _)| session.clone()).collect()
    }

    /// Whether a stream or request of a session is open.
    pub(super) fn is_open(&self, session: &str) -> bool {
        self.seen().get(session).is_some_and(|seen| seen.open > 0)
    }

    pub(super) fn forget(&self, session: &str) {
        self.seen().remove(session);
    }
}

/// Called when no stream or request of a session is open any more, with its id and the count for
/// [`Presence::forget_gone`].
pub(super) type Left = Arc<dyn Fn(String, u64) + Send + Sync>;

/// An open stream or request of a session.
pub(super) struct PresenceGuard {
    presence: Arc<Presence>,
    session: String,
    left: Left,
}

/// A client, without an open stream or request.
pub(super) struct Client {
    presence: Arc<Presence>,
    session: String,
}

impl Client {
    /// Whether no stream or request of it is open.
    pub(super) fn is_away(&self) -> bool {
        !self.presence.is_open(&self.session)
    }
}

impl PresenceGuard {
    /// Ends it; what is left can be asked about its client.
    pub(super) fn leave(self) -> Client {
        Client { presence: Arc::clone(&self.presence), session: self.session.clone() }
    }
}

impl Drop for PresenceGuard {
    fn drop(&mut self) {
        let since = {
            let mut all = self.presence.seen();
            let Some(seen) = all.get_mut(&self.session) else { return };
            seen.open = seen.open.saturating_sub(1);
            match (seen.open, seen.listened) {
                (0, true) => seen.opened,
                (0, false) => {
                    all.remove(&self.session);
                    return;
                }
                _ => return,
            }
        };
        (self.left)(self.session.clone(), since);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn who_listened_and_closed_everything_may_be_gone() {
        let presence: Arc<Presence> = Arc::default();
        let told: Arc<AtomicU64> = Arc::default();
        let noted = Arc::clone(&told);
        let left: Left = Arc::new(move |_, since| noted.store(since, Ordering::SeqCst));
        drop(presence.enter("a", false, Arc::clone(&left)));
        assert!(told.load(Ordering::SeqCst) == 0 && presence.seen().is_empty(), "it only asks");
        let listening = presence.enter("a", true, Arc::clone(&left));
        drop(presence.enter("a", false, Arc::clone(&left)));
        assert_eq!(told.load(Ordering::SeqCst), 0, "it still listens");
        drop(listening);
        let since = told.load(Ordering::SeqCst);
        assert!(since > 0 && !presence.forget_gone("a", since + 1));
        let again = presence.enter("a", false, left);
        assert!(!presence.forget_gone("a", since));
        drop(again);
        assert!(!presence.forget_gone("a", since), "it was there in between");
        let since = told.load(Ordering::SeqCst);
        assert!(presence.forget_gone("a", since) && !presence.forget_gone("a", since), "once");
    }
}
