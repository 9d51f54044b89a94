//! One sandbox's egress while it is open: its current rules, what it has used, its recorder. Every decision of
//! the proxy is made here.

mod account;
mod caller;
mod coalescer;
mod connection_limit;

pub(crate) use account::{Account, Direction, Stop};
use atoll_types::{Rate, TokenBucket};
use caller::decision;
pub(crate) use caller::{Caller, Claim, shown};
pub(crate) use connection_limit::ConnectionLimit;

use crate::{Decision, Limits, Recorder, Rules, Usage, Verdict, Via, engine::Shared, names::Table};
use coalescer::DecisionCoalescer;
use std::{
    net::{IpAddr, SocketAddr},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};
use tokio::sync::watch;

fn locked(bucket: &Mutex<TokenBucket>) -> MutexGuard<'_, TokenBucket> {
    bucket.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The limits where a policy sets none.
const CONNECTIONS: u32 = 1024;
const CONNECTIONS_PER_SECOND: u32 = 1000;
/// How long a connection may be idle.
const IDLE: Duration = Duration::from_secs(15 * 60);
/// What a connection reads at once.
const BUFFER: usize = 64 * 1024;

const BURST: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(crate) struct Counters {
    open: AtomicU64,
    allowed: AtomicU64,
    denied: AtomicU64,
    questions: AtomicU64,
    sent: AtomicU64,
    received: AtomicU64,
}

impl Counters {
    pub(crate) fn usage(&self) -> Usage {
        let Self { open, allowed, denied, questions, sent, received } = self;
        let [open, allowed, denied, questions, sent, received] =
            [open, allowed, denied, questions, sent, received].map(|c| c.load(Relaxed));
        Usage { open, allowed, denied, questions, sent, received }
    }
}

/// One sandbox's egress.
pub(crate) struct EgressSession {
    pub(crate) shared: Arc<Shared>,
    pub(crate) names: Table,
    rules: watch::Receiver<Arc<Rules>>,
    coalescer: DecisionCoalescer,
    counters: Arc<Counters>,
    starts: Mutex<TokenBucket>,
    bytes: Mutex<TokenBucket>,
    /// Bytes in both directions, reserved before they are passed on.
    total: AtomicU64,
    /// Connections that are being ended because there are too many.
    shedding: AtomicU64,
}

/// A slot among the open connections.
pub(crate) struct ConnectionSlot(Arc<EgressSession>);

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.0.counters.open.fetch_sub(1, Relaxed);
        self.0.shared.connection_limit.give_back();
    }
}

impl EgressSession {
    pub(crate) fn new(
        shared: Arc<Shared>,
        rules: watch::Receiver<Arc<Rules>>,
        recorder: Arc<dyn Recorder>,
    ) -> Arc<Self> {
        Arc::new(Self {
            shared,
            names: Table::default(),
            rules,
            coalescer: DecisionCoalescer::new(recorder),
            counters: Arc::default(),
            starts: Mutex::default(),
            bytes: Mutex::default(),
            total: AtomicU64::new(0),
            shedding: AtomicU64::new(0),
        })
    }

    pub(crate) fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.counters)
    }

    pub(crate) fn rules(&self) -> Arc<Rules> {
        Arc::clone(&self.rules.borrow())
    }

    /// The rules from here on: what changes after this is seen as a change.
    pub(crate) fn watch(&self) -> watch::Receiver<Arc<Rules>> {
        let mut rules = self.rules.clone();
        rules.mark_unchanged();
        rules
    }

    /// Whether the sender of the rules is gone.
    pub(crate) fn is_over(&self) -> bool {
        self.rules.has_changed().is_err()
    }

    /// Whether it uses these rules.
    pub(crate) fn is_of(&self, rules: &watch::Receiver<Arc<Rules>>) -> bool {
        self.rules.same_channel(rules)
    }

    /// Records what waits to be recorded, if it is time.
    pub(crate) fn flush(&self) {
        self.coalescer.flush();
    }

    /// Records all of it now.
    pub(crate) fn flush_all(&self) {
        self.coalescer.flush_all();
    }

    fn limits<T>(&self, f: impl Fn(&Limits) -> T) -> T {
        f(self.rules.borrow().limits())
    }

    pub(crate) fn recorder(&self) -> &Arc<dyn Recorder> {
        self.coalescer.recorder()
    }

    /// Counts one new connection or query.
    pub(crate) fn start(&self) -> Result<(), &'static str> {
        let rate = self.limits(|l| l.connections_per_second.unwrap_or(CONNECTIONS_PER_SECOND));
        let rate = Rate::over(rate.into(), BURST);
        locked(&self.starts).take(1.0, rate, Instant::now()).map_err(|_| "connections_per_second")
    }

    /// A slot for one more connection.
    pub(crate) fn admit(self: &Arc<Self>) -> Result<ConnectionSlot, &'static str> {
        self.start()?;
        let most = u64::from(self.limits(|l| l.connections.unwrap_or(CONNECTIONS)));
        let more = |open: u64| (open < most).then_some(open + 1);
        let own = self.counters.open.fetch_update(Relaxed, Relaxed, more).map_err(|_| "connections")?;
        if self.shared.connection_limit.take(own) {
            return Ok(ConnectionSlot(Arc::clone(self)));
        }
        self.counters.open.fetch_sub(1, Relaxed);
        Err("connections of all sandboxes")
    }

    /// Whether there are more connections than the rules allow now; then one of them has to end.
    fn shed(&self) -> bool {
        let most = u64::from(self.limits(|l| l.connections.unwrap_or(CONNECTIONS)));
        let open = self.counters.open.load(Relaxed);
        let more = |shedding: u64| (open.saturating_sub(shedding) > most).then_some(shedding + 1);
        self.shedding.fetch_update(Relaxed, Relaxed, more).is_ok()
    }

    /// A connection that had to end has ended.
    fn shed_one(&self) {
        self.shedding.fetch_sub(1, Relaxed);
    }

    /// Counts bytes, and returns how long they have to wait.
    fn spend(&self, way: Direction, bytes: u64) -> Result<Duration, &'static str> {
        let (most, rate) = self.limits(|l| (l.bytes.unwrap_or(u64::MAX), l.bytes_per_second));
        let more = |total: u64| total.checked_add(bytes).filter(|total| *total <= most);
        self.total.fetch_update(Relaxed, Relaxed, more).map_err(|_| "bytes")?;
        let Counters { sent, received, .. } = &*self.counters;
        if way == Direction::Out { sent } else { received }.fetch_add(bytes, Relaxed);
        let Some(rate) = rate.map(|rate| Rate::over(rate, BURST / 4)) else { return Ok(Duration::ZERO) };
        // One bucket serves every connection of a sandbox, so none is ahead of another by more than one chunk.
        Ok(locked(&self.bytes).borrow(bytes as f64, rate, Instant::now()))
    }

    /// How much a connection reads at once: little at a low rate, so that the others get their share.
    fn chunk(&self) -> usize {
        let rate = self.limits(|l| l.bytes_per_second);
        rate.map_or(BUFFER, |rate| usize::try_from(rate / 16).unwrap_or(BUFFER).clamp(1, BUFFER))
    }

    fn record(&self, asker: u64, decision: Decision) {
        let counter = match (decision.allowed, decision.via) {
            (false, _) => &self.counters.denied,
            (true, Via::Name) => &self.counters.questions,
            (true, _) => &self.counters.allowed,
        };
        counter.fetch_add(1, Relaxed);
        if !decision.allowed || decision.via == Via::Name {
            self.coalescer.at_once(asker, decision);
        } else {
            self.coalescer.ended(asker, decision);
        }
    }

    /// Records what waits to be recorded, once a second.
    pub(crate) async fn keep_telling(self: Arc<Self>) {
        let mut ticks = tokio::time::interval(Duration::from_millis(500));
        loop {
            ticks.tick().await;
            self.flush();
        }
    }

    /// Whether a connection to this address may be made. An address of this machine needs an entry that names it,
    /// whatever range it is in.
    pub(crate) fn decide_address(&self, address: IpAddr, port: u16) -> Verdict {
        let rules = self.rules.borrow();
        match rules.decide_address(address, port) {
            Verdict::Allow(_) if crate::dial::is_ours(address) => rules.decide_own_address(address, port),
            verdict => verdict,
        }
    }

    /// A client at this address connected.
    pub(crate) fn asked(&self, from: SocketAddr) -> u64 {
        self.recorder().asked(from)
    }
}
