//! The ready containers of one profile, and their counters.

use super::{demand::Demand, warm::PooledContainer};
use crate::{PoolSize, admission::PoolReservation};
use atoll_types::{ContainerId, Error, ErrorCode, time::now_ms};
use std::{collections::VecDeque, time::Duration};
use tokio::time::Instant;

/// The last failure to make one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolFailure {
    /// Milliseconds since 1970.
    pub at: i64,
    /// What went wrong.
    pub reason: String,
}

/// The pool of one profile, for an admin.
#[derive(Debug, Clone, PartialEq)]
pub struct PoolKey {
    pub image: String,
    pub image_id: String,
    /// The image's name for people.
    pub display_name: String,
    /// The profile's name.
    pub profile: String,
    pub size: PoolSize,
    pub ready: u32,
    pub starting: u32,
    /// How many are to be ready.
    pub target: u32,
    /// Creates that got one.
    pub hits: u64,
    /// Creates that found none.
    pub misses: u64,
    /// The age of the oldest.
    pub oldest: Option<Duration>,
    /// How many were made, and how long that took in all.
    pub refills: u64,
    pub refill_time: Duration,
    pub failures: u64,
    pub last_failure: Option<PoolFailure>,
    /// Interpreters that wait in those that are ready.
    pub kernels: u32,
}

/// The shortest and the longest pause after a failure.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// How long the pool makes nothing where the machine has no room.
const REST: Duration = Duration::from_secs(5);

/// The containers of one profile.
pub(super) struct ProfilePool {
    pub(super) image: String,
    /// The oldest first.
    pub(super) ready: VecDeque<PooledContainer>,
    pub(super) starting: u32,
    pub(super) demand: Demand,
    pub(super) hits: u64,
    pub(super) misses: u64,
    refills: u64,
    refill_time: Duration,
    failures: u64,
    last_failure: Option<PoolFailure>,
    /// Failures in a row, and when it may be tried again.
    failing: u32,
    pub(super) not_before: Instant,
}

impl ProfilePool {
    pub(super) fn new(image: String) -> Self {
        let now = Instant::now();
        Self {
            image,
            ready: VecDeque::new(),
            starting: 0,
            demand: Demand::new(now),
            hits: 0,
            misses: 0,
            refills: 0,
            refill_time: Duration::ZERO,
            failures: 0,
            last_failure: None,
            failing: 0,
            not_before: now,
        }
    }

    /// The oldest live one, where it `fits`. Those found dead are removed.
    pub(super) fn take(
        &mut self,
        dead: &mut Vec<PooledContainer>,
        fits: impl FnOnce(&mut PoolReservation) -> bool,
    ) -> Option<PooledContainer> {
        self.demand.note(Instant::now());
        while self.ready.front().is_some_and(PooledContainer::is_dead) {
            dead.extend(self.ready.pop_front());
        }
        let fits = self.ready.front_mut().and_then(PooledContainer::reservation).is_some_and(fits);
        match fits {
            true => self.hits += 1,
            false => self.misses += 1,
        }
        if fits { self.ready.pop_front() } else { None }
    }

    pub(super) fn remove(&mut self, container: ContainerId) -> Option<PooledContainer> {
        let at = self.ready.iter().position(|warm| warm.id() == container)?;
        self.ready.remove(at)
    }

    pub(super) fn made(&mut self, warm: Option<PooledContainer>, took: Duration) {
        self.ready.extend(warm);
        self.refills += 1;
        self.refill_time += took;
        self.failing = 0;
    }

    /// Makes nothing for a while: a request needs the room.
    pub(super) fn rest(&mut self) {
        self.not_before = self.not_before.max(Instant::now() + REST);
    }

    /// One could not be made; returns how long to wait.
    pub(super) fn failed(&mut self, error: &Error) -> Duration {
        // Room comes back when a sandbox ends, so waiting longer each time does not help.
        let pause = match error.code {
            ErrorCode::LimitExceeded => REST,
            _ => PAUSES.0.saturating_mul(1 << self.failing.min(16)).min(PAUSES.1),
        };
        self.failing += 1;
        self.failures += 1;
        self.last_failure = Some(PoolFailure { at: now_ms(), reason: error.message.clone() });
        self.not_before = Instant::now() + pause;
        pause
    }

    pub(super) fn key(&mut self, profile: &str, size: PoolSize) -> PoolKey {
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        PoolKey {
            image: self.image.clone(),
            image_id: self.image.clone(),
            display_name: self.image.clone(),
            profile: profile.to_owned(),
            size,
            ready: count(self.ready.len()),
            starting: self.starting,
            target: self.demand.target(size, Instant::now()),
            hits: self.hits,
            misses: self.misses,
            oldest: self.ready.front().map(|warm| warm.made().elapsed()),
            refills: self.refills,
            refill_time: self.refill_time,
            failures: self.failures,
            last_failure: self.last_failure.clone(),
            kernels: count(self.ready.iter().map(|warm| warm.kernels().len()).sum()),
        }
    }
}
