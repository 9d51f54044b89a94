//! Who must hear that a thread's exports changed. Every MCP session that listens to a thread hears of it,
//! also where another one of the same thread exported.

use atoll_sessions::Who;
use tokio::sync::broadcast;

/// Changes that a slow listener may be behind; one that is behind by more hears of one change for all.
const BEHIND: usize = 64;

/// An owner's thread.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Place {
    owner: String,
    thread: String,
}

impl Place {
    fn of(who: &Who) -> Self {
        Self { owner: who.caller.owner.clone(), thread: who.thread.as_str().to_owned() }
    }
}

/// Tells listeners.
#[derive(Debug, Clone)]
pub(crate) struct Hub(broadcast::Sender<Place>);

impl Default for Hub {
    fn default() -> Self {
        Self(broadcast::channel(BEHIND).0)
    }
}

impl Hub {
    /// The exports of a thread changed.
    pub(crate) fn changed(&self, who: &Who) {
        // Nobody needs to listen.
        let _ = self.0.send(Place::of(who));
    }

    /// Hears of a thread from now on.
    pub(crate) fn listen(&self, who: &Who) -> Changes {
        Changes { place: Place::of(who), heard: self.0.subscribe() }
    }
}

/// What one listener hears.
pub(crate) struct Changes {
    place: Place,
    heard: broadcast::Receiver<Place>,
}

impl Changes {
    /// Returns at the next change; none when there will be no other.
    pub(crate) async fn next(&mut self) -> Option<()> {
        loop {
            match self.heard.recv().await {
                Ok(place) if place == self.place => return Some(()),
                Ok(_) => {}
                // What was missed may have been ours.
                Err(broadcast::error::RecvError::Lagged(_)) => return Some(()),
                Err(broadcast::error::RecvError::Closed) => return None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use atoll_core::Caller;

    fn who(thread: &str) -> Who {
        Who { caller: Caller::local(), thread: thread.parse().unwrap() }
    }

    #[tokio::test]
    async fn a_listener_hears_of_its_own_thread() {
        let hub = Hub::default();
        hub.changed(&who("nobody"));
        let mut mine = hub.listen(&who("mine"));
        hub.changed(&who("other"));
        hub.changed(&who("mine"));
        assert_eq!(mine.next().await, Some(()));
        for _ in 0..BEHIND * 2 {
            hub.changed(&who("other"));
        }
        assert_eq!(mine.next().await, Some(()), "it cannot know that none was its own");
        drop(hub);
        while mine.next().await.is_some() {}
    }
}
