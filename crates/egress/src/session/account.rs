//! What one connection or request was allowed and has used, and its outcome. The decision is recorded when this
//! is dropped, so that whatever ends a connection, it is recorded once.

use super::{Caller, Claim};
use crate::Decision;
use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

/// Which way bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Out,
    In,
}

/// Why an allowed connection has to end.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Stop {
    /// The rules no longer allow it, or never did: the rule.
    #[error("not allowed: {0}")]
    Denied(String),
    /// A limit, by its name.
    #[error("limit reached: {0}")]
    Limit(&'static str),
    /// It broke.
    #[error("{0}")]
    Broken(String),
}

impl From<std::io::Error> for Stop {
    fn from(error: std::io::Error) -> Self {
        Self::Broken(error.to_string())
    }
}

pub(crate) struct Account {
    caller: Arc<Caller>,
    claim: Claim,
    started: Instant,
    sent: AtomicU64,
    received: AtomicU64,
    /// Milliseconds after the start at which bytes last moved.
    moved: AtomicU64,
    /// Whether it ends because there are too many connections.
    shed: AtomicBool,
    /// Whether its outcome is not recorded.
    silent: AtomicBool,
    outcome: Mutex<Outcome>,
}

struct Outcome {
    allowed: bool,
    rule: String,
    error: Option<String>,
}

impl Account {
    pub(crate) fn new(caller: &Arc<Caller>, claim: Claim, rule: &str, started: Instant) -> Self {
        let outcome = Outcome { allowed: true, rule: rule.to_owned(), error: None };
        Self {
            caller: Arc::clone(caller),
            claim,
            started,
            sent: AtomicU64::new(0),
            received: AtomicU64::new(0),
            moved: AtomicU64::new(millis(started.elapsed())),
            shed: AtomicBool::new(false),
            silent: AtomicBool::new(false),
            outcome: Mutex::new(outcome),
        }
    }

    pub(crate) fn caller(&self) -> &Arc<Caller> {
        &self.caller
    }

    pub(crate) fn claim(&self) -> &Claim {
        &self.claim
    }

    pub(crate) fn age(&self) -> Duration {
        self.started.elapsed()
    }

    /// How long no byte has moved.
    pub(crate) fn idle(&self) -> Duration {
        self.age().saturating_sub(Duration::from_millis(self.moved.load(Ordering::Relaxed)))
    }

    /// Counts bytes before they are passed on: waits for the rate limit, and fails at the byte limit.
    pub(crate) async fn spend(&self, way: Direction, bytes: usize) -> Result<(), Stop> {
        let bytes = bytes as u64;
        let wait = self.caller.session().spend(way, bytes).map_err(Stop::Limit)?;
        let counter = if way == Direction::Out { &self.sent } else { &self.received };
        counter.fetch_add(bytes, Ordering::Relaxed);
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
        self.moved.store(millis(self.age()), Ordering::Relaxed);
        Ok(())
    }

    /// How many bytes are read at most before they are counted.
    pub(crate) fn chunk(&self) -> usize {
        self.caller.session().chunk()
    }

    /// Notes that it ends because there are too many connections.
    pub(super) fn shed(&self) {
        self.shed.store(true, Ordering::Relaxed);
    }

    /// Notes that it is retried, and that only the retry is recorded.
    pub(crate) fn forget(&self) {
        self.silent.store(true, Ordering::Relaxed);
    }

    /// Notes why it ends. The first reason stays.
    pub(crate) fn stop(&self, stop: &Stop) {
        let mut outcome = self.outcome.lock().unwrap_or_else(PoisonError::into_inner);
        if outcome.error.is_some() {
            return;
        }
        let none = |bytes: &AtomicU64| bytes.load(Ordering::Relaxed) == 0;
        if let Stop::Denied(rule) = stop
            && none(&self.sent)
            && (none(&self.received) || rule == "sni")
        {
            // It was refused before any byte moved or left: some hosts send before a client has named them.
            outcome.allowed = false;
            rule.clone_into(&mut outcome.rule);
            return;
        }
        outcome.error = Some(stop.to_string());
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        if *self.shed.get_mut() {
            self.caller.session().shed_one();
        }
        if *self.silent.get_mut() {
            return;
        }
        let outcome = self.outcome.get_mut().unwrap_or_else(PoisonError::into_inner);
        let Outcome { allowed, rule, error } = outcome;
        let decision = Decision {
            sent: *self.sent.get_mut(),
            received: *self.received.get_mut(),
            duration: self.started.elapsed(),
            ..super::decision(&self.claim, *allowed, rule, error.take())
        };
        self.caller.session().record(self.caller.asker(), decision);
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
