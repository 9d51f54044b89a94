//! Notifies MCP sessions that a thread's exports changed: every session that listens to the thread, also
//! where another one of the same thread exported. The call that changed them answers after that: a client may
//! close its connection on the answer.

use atoll_tool_sessions::ToolCaller;
use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};
use tokio::{sync::mpsc, time::timeout};

/// Changes that a slow listener may be behind; those beyond are covered by the ones before.
const BEHIND: usize = 64;
/// How long an answer waits for the listeners.
const PATIENCE: Duration = Duration::from_secs(1);

/// An owner's thread.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ThreadKey {
    owner: String,
    thread: String,
}

impl ThreadKey {
    fn of(who: &ToolCaller) -> Self {
        Self { owner: who.caller.owner.clone(), thread: who.thread.as_str().to_owned() }
    }
}

/// A change of which a listener notifies its client; dropped when it has.
pub(crate) type Telling = mpsc::Sender<()>;

/// The listeners of all threads.
#[derive(Debug, Default)]
pub(crate) struct Hub(Mutex<Vec<(ThreadKey, mpsc::Sender<Telling>)>>);

impl Hub {
    /// The exports of a thread changed. Returns when the listeners have notified their clients, or take too
    /// long, and says whether there are any.
    pub(crate) async fn changed(&self, who: &ToolCaller) -> bool {
        let (telling, mut told) = mpsc::channel(1);
        {
            let place = ThreadKey::of(who);
            let mut listeners = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            listeners.retain(|(_, listener)| !listener.is_closed());
            for (_, listener) in listeners.iter().filter(|(of, _)| *of == place) {
                // A listener that is so far behind still has notifications to send.
                let _ = listener.try_send(Telling::clone(&telling));
            }
        }
        let any = telling.strong_count() > 1;
        drop(telling);
        let _ = timeout(PATIENCE, told.recv()).await;
        any
    }

    /// Listens to a thread from now on.
    pub(crate) fn listen(&self, who: &ToolCaller) -> Changes {
        let (listener, heard) = mpsc::channel(BEHIND);
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((ThreadKey::of(who), listener));
        Changes(heard)
    }
}

/// The changes that one listener receives.
pub(crate) struct Changes(mpsc::Receiver<Telling>);

impl Changes {
    /// Returns at the next change; none when there will be no other.
    pub(crate) async fn next(&mut self) -> Option<Telling> {
        self.0.recv().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use atoll_core::Caller;
    use std::sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    };

    fn who(thread: &str) -> ToolCaller {
        ToolCaller { caller: Caller::local(), thread: thread.parse().unwrap(), address: None }
    }

    #[tokio::test]
    async fn a_listener_hears_of_its_own_thread_before_the_answer() {
        let hub = Arc::new(Hub::default());
        assert!(!hub.changed(&who("nobody")).await);
        let mut mine = hub.listen(&who("mine"));
        hub.changed(&who("other")).await;
        assert!(mine.0.is_empty());
        let told = Arc::new(AtomicBool::new(false));
        let (hub, done) = (Arc::clone(&hub), Arc::clone(&told));
        let listening = tokio::spawn(async move {
            let telling = mine.next().await.unwrap();
            tokio::task::yield_now().await;
            done.store(true, Ordering::SeqCst);
            drop(telling);
            mine
        });
        assert!(hub.changed(&who("mine")).await);
        assert!(told.load(Ordering::SeqCst), "the client was told before the call went on");
        drop(listening.await.unwrap());
        hub.changed(&who("mine")).await;
        assert!(hub.0.lock().unwrap().is_empty(), "who went away is forgotten");
    }

    #[tokio::test(start_paused = true)]
    async fn a_listener_that_takes_too_long_holds_nobody_up() {
        let hub = Hub::default();
        let mut mine = hub.listen(&who("mine"));
        for _ in 0..BEHIND * 2 {
            hub.changed(&who("mine")).await;
        }
        assert!(mine.next().await.is_some());
    }
}
