//! Memory of the server that answers hold until they are sent, by owner. Code that keeps an answer of a size
//! that its caller decides takes a [`HeldAnswer`] for it and drops that with the answer. A stream out of a sandbox holds
//! a window of a fixed size while its client does not read, so these are counted ([`OpenStream`]); and few answers of an
//! owner are read from the store at a time ([`LookUpPlace`]), because their size is known only afterwards.

use crate::runtime_settings::LiveSettings;
use atoll_types::{Error, ErrorCode, Result};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// When to ask again. A client that reads makes room at once; one that does not is cut off by the write
/// timeout.
const RETRY_SECONDS: u32 = 5;

/// Bytes held, by owner; owners that hold none are not in it.
#[derive(Debug, Default)]
pub(crate) struct Answers(Mutex<HashMap<String, u64>>);

impl Answers {
    fn held(&self) -> MutexGuard<'_, HashMap<String, u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What one answer holds, until it is dropped.
#[derive(Debug)]
pub struct HeldAnswer {
    answers: Arc<Answers>,
    owner: String,
    bytes: u64,
    most: u64,
}

impl HeldAnswer {
    /// Holds so many bytes more, unless that is above what the owner may hold.
    pub fn grow(&mut self, bytes: usize) -> bool {
        let mut held = self.answers.held();
        let used = held.get(&self.owner).copied().unwrap_or_default();
        let after = used.saturating_add(bytes as u64);
        if after > self.most {
            return false;
        }
        held.insert(self.owner.clone(), after);
        self.bytes += bytes as u64;
        true
    }
}

impl HeldAnswer {
    /// Holds all that is left, for an answer that must be given though it is above what the owner may hold.
    pub fn fill(&mut self) {
        let used = self.answers.held().get(&self.owner).copied().unwrap_or_default();
        let left = self.most.saturating_sub(used);
        self.grow(usize::try_from(left).unwrap_or(usize::MAX));
    }
}

#[cfg(test)]
impl HeldAnswer {
    /// What an owner holds who may hold so much and has no other answer.
    pub(crate) fn unshared(most: u64) -> Self {
        Self { answers: Arc::default(), owner: "ann".into(), bytes: 0, most }
    }

    /// Another answer to the same owner.
    pub(crate) fn another(&self) -> Self {
        Self { answers: Arc::clone(&self.answers), owner: self.owner.clone(), bytes: 0, most: self.most }
    }
}

impl Drop for HeldAnswer {
    fn drop(&mut self) {
        let mut held = self.answers.held();
        let left = held.get(&self.owner).copied().unwrap_or_default().saturating_sub(self.bytes);
        if left == 0 {
            held.remove(&self.owner);
        } else {
            held.insert(self.owner.clone(), left);
        }
    }
}

/// A stream out of a sandbox to its caller: a command's output, a terminal, a file, a folder's archive or its changes.
/// Until it is dropped it counts for its owner.
#[derive(Debug)]
pub struct OpenStream(#[expect(dead_code, reason = "counts until it is dropped")] HeldAnswer);

/// Answers of one owner that are read from the store at a time. Each may take a few times what the store gives at most.
const LOOK_UPS: usize = 2;

/// The look-ups of each owner that has any.
#[derive(Debug, Default)]
pub(crate) struct LookUps(Mutex<HashMap<String, Weak<Semaphore>>>);

impl LookUps {
    fn of(&self, owner: &str) -> Arc<Semaphore> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(places) = all.get(owner).and_then(Weak::upgrade) {
            return places;
        }
        all.retain(|_, places| places.strong_count() > 0);
        let places = Arc::new(Semaphore::new(LOOK_UPS));
        all.insert(owner.to_owned(), Arc::downgrade(&places));
        places
    }
}

/// A place among the look-ups of an owner, until it is dropped.
#[derive(Debug)]
pub struct LookUpPlace(#[expect(dead_code, reason = "is free when it is dropped")] OwnedSemaphorePermit);

/// What a connection may do, as is set now.
#[derive(Debug, Clone, Copy)]
pub struct ConnectionLimits {
    /// How long an answer may stay unread.
    pub write_timeout: Duration,
    /// How long the head of the first request may take.
    pub head_timeout: Duration,
    /// Connections of one peer.
    pub per_peer: usize,
}

/// How much of the server's memory each owner's answers hold, and may hold.
#[derive(Clone)]
pub struct AnswerBudget {
    pub(crate) answers: Arc<Answers>,
    /// Streams by owner, in the place of bytes.
    pub(crate) streams: Arc<Answers>,
    pub(crate) look_ups: Arc<LookUps>,
    pub(crate) live_settings: Arc<LiveSettings>,
}

impl AnswerBudget {
    /// With nothing held.
    pub(crate) fn new(live_settings: Arc<LiveSettings>) -> Self {
        Self { answers: Arc::default(), streams: Arc::default(), look_ups: Arc::default(), live_settings }
    }

    /// What a connection may do, as is set now.
    #[must_use]
    pub fn connection_limits(&self) -> ConnectionLimits {
        let runtime_settings = self.live_settings.now();
        let seconds = |seconds: u32| Duration::from_secs(seconds.into());
        ConnectionLimits {
            write_timeout: seconds(runtime_settings.http_write_timeout_seconds),
            head_timeout: seconds(runtime_settings.http_head_timeout_seconds),
            per_peer: runtime_settings.http_connections_per_peer as usize,
        }
    }

    /// An answer to this owner, which holds nothing yet; refused where the owner's unread answers hold all
    /// that they may.
    pub fn hold(&self, owner: &str) -> Result<HeldAnswer> {
        let most = u64::from(self.live_settings.now().http_owner_answers_mb) << 20;
        let answers = Arc::clone(&self.answers);
        let used = answers.held().get(owner).copied().unwrap_or_default();
        if used >= most {
            let message =
                "your answers that are not yet read hold all the memory that they may; read them first";
            return Err(Error::new(ErrorCode::LimitExceeded, message)
                .fact("limit", "http.owner_answers_mb")
                .fact("allowed", most >> 20)
                .retry_after(RETRY_SECONDS));
        }
        Ok(HeldAnswer { answers, owner: owner.to_owned(), bytes: 0, most })
    }

    /// One more stream to this owner; refused where it has as many as it may.
    pub(crate) fn stream(&self, owner: &str) -> Result<OpenStream> {
        let most = u64::from(self.live_settings.now().http_owner_streams);
        let mut held =
            HeldAnswer { answers: Arc::clone(&self.streams), owner: owner.to_owned(), bytes: 0, most };
        if held.grow(1) {
            return Ok(OpenStream(held));
        }
        let message =
            "you have as many outputs, terminals, downloads and watches open as you may; close one first";
        Err(Error::new(ErrorCode::LimitExceeded, message)
            .fact("limit", "http.owner_streams")
            .fact("allowed", most)
            .retry_after(RETRY_SECONDS))
    }

    /// A place to build an answer to this owner from the store, as soon as there is one; refused where the owner's
    /// unread answers hold all that they may by then.
    pub async fn look_up(&self, owner: &str) -> Result<LookUpPlace> {
        let place = self.look_ups.of(owner).acquire_owned().await;
        let place = place.map_err(|_| Error::internal("the places of look-ups were closed"))?;
        self.hold(owner)?;
        Ok(LookUpPlace(place))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_holds_no_more_than_it_may_and_what_is_dropped_is_free() {
        let answers = Arc::new(Answers::default());
        let answer =
            |owner: &str| HeldAnswer { answers: answers.clone(), owner: owner.into(), bytes: 0, most: 10 };
        let (mut one, mut two, mut other) = (answer("ann"), answer("ann"), answer("bob"));
        assert!(one.grow(6) && two.grow(4) && !two.grow(1) && other.grow(10));
        drop(one);
        assert!(two.grow(6) && !two.grow(1));
        drop((two, other));
        assert!(answers.held().is_empty());
    }

    #[tokio::test]
    async fn look_ups_of_an_owner_wait_for_one_another() {
        let all = LookUps::default();
        let take = |owner: &str| all.of(owner).try_acquire_owned();
        let mut held: Vec<_> = (0..LOOK_UPS).map(|_| take("ann").unwrap()).collect();
        assert!(take("ann").is_err() && take("bob").is_ok());
        held.pop();
        let _last = take("ann").unwrap();
        assert!(take("ann").is_err() && take("eve").is_ok());
        assert_eq!(all.0.lock().unwrap().len(), 2, "those of bob are forgotten");
    }
}
