//! The decisions of one sandbox's proxy, on their way to the audit trail. Recording one never waits:
//! decisions above the row limit are added up into one row, so neither memory nor the trail grows without
//! bound, and nothing is lost silently.
//!
//! A decision never waits for the audit trail. A sandbox causes at most 1024 rows at once and 20 a second
//! after that; the rest is added up in rows whose `via` is `several`.

use super::running::Running;
use atoll_audit::Redactor;
use atoll_egress::{Decision, Recorder};
use atoll_provider::Guest;
use atoll_store::{Egress, Millis, OperationId, OperationQuery, SandboxId, Store};
use atoll_types::{ExecId, Operation, Rate, TokenBucket, time::now_ms};
use std::{
    collections::{HashMap, VecDeque},
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::sync::{Notify, Semaphore};

/// Decisions that may wait for the audit trail.
const QUEUE: usize = 1024;
/// Rows that a sandbox may cause at once, and in a second after that.
const ROWS: Rate = Rate { per_second: 20.0, burst: 1024.0 };
/// Sockets whose operation is remembered, and how long the lookup of one may take.
const ASKERS: usize = 8192;
const PATIENCE: Duration = Duration::from_secs(2);
/// Lookups at PID 1 that wait, and those that run at a time.
const LOOKUPS: usize = 64;
const AT_ONCE: usize = 4;
/// How often the added-up row is written.
const PAUSE: Duration = Duration::from_secs(1);
/// Operations that are searched for a command of a former server.
const LOOKED_THROUGH: u32 = 500;

/// The operation that a socket belongs to.
enum Whose {
    /// The lookup runs; and the one command that ran when the connection was made.
    Looking(Instant, Option<OperationId>),
    Known(Option<OperationId>),
}

struct Waiting {
    asker: u64,
    at: Millis,
    decision: Decision,
}

/// Decisions that are added up into one row.
#[derive(Default)]
struct Sum {
    count: u64,
    sent: u64,
    received: u64,
}

struct State {
    next: u64,
    askers: HashMap<u64, Whose>,
    order: VecDeque<u64>,
    queue: VecDeque<Waiting>,
    rows: TokenBucket,
    /// Refused and allowed decisions above the row limit.
    more: [Sum; 2],
    told_more: Option<Instant>,
}

/// The decisions of one sandbox's proxy.
pub(super) struct DecisionQueue {
    me: Weak<DecisionQueue>,
    pub(super) sandbox: SandboxId,
    store: Arc<dyn Store>,
    running: Arc<Running>,
    guest: Guest,
    redactor: Redactor,
    lookups: Arc<Semaphore>,
    turns: Arc<Semaphore>,
    state: Mutex<State>,
    wake: Arc<Notify>,
    /// The proxy has ended.
    ended: AtomicBool,
}

/// A row to be written.
pub(super) type Row = (Option<OperationId>, Millis, Egress);

impl DecisionQueue {
    pub(super) fn new(
        sandbox: SandboxId,
        store: Arc<dyn Store>,
        running: Arc<Running>,
        guest: Guest,
        redactor: Redactor,
        wake: Arc<Notify>,
    ) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            me: me.clone(),
            sandbox,
            store,
            running,
            guest,
            redactor,
            lookups: Arc::new(Semaphore::new(LOOKUPS)),
            turns: Arc::new(Semaphore::new(AT_ONCE)),
            state: Mutex::new(State::new()),
            wake,
            ended: AtomicBool::new(false),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The proxy has ended.
    pub(super) fn end(&self) {
        self.ended.store(true, Ordering::Release);
        self.wake.notify_one();
    }

    /// Whether everything was taken.
    pub(super) fn is_empty(&self) -> bool {
        let state = self.state();
        state.queue.is_empty() && state.more.iter().all(|sum| sum.count == 0)
    }

    /// Whether nothing is left and nothing will come.
    pub(super) fn is_over(&self) -> bool {
        self.ended.load(Ordering::Acquire) && self.is_empty()
    }

    /// Takes the rows that can be written now.
    pub(super) fn take(&self, most: usize) -> Vec<Row> {
        let hurry = self.ended.load(Ordering::Acquire);
        let mut state = self.state();
        let (mut taken, mut later) = (Vec::new(), VecDeque::new());
        while taken.len() < most
            && let Some(waiting) = state.queue.pop_front()
        {
            match state.askers.get(&waiting.asker) {
                Some(Whose::Looking(since, _)) if since.elapsed() < PATIENCE => later.push_back(waiting),
                Some(Whose::Looking(_, only)) => taken.push((*only, waiting)),
                Some(Whose::Known(operation)) => taken.push((*operation, waiting)),
                None => taken.push((None, waiting)),
            }
        }
        while let Some(waiting) = later.pop_back() {
            state.queue.push_front(waiting);
        }
        let due = hurry || state.told_more.is_none_or(|at| at.elapsed() >= PAUSE);
        let mut sums = Vec::new();
        if due && state.queue.len() < QUEUE && state.more.iter().any(|sum| sum.count > 0) {
            state.told_more = Some(Instant::now());
            sums = std::mem::take(&mut state.more).into_iter().zip([false, true]).collect();
        }
        drop(state);
        let redactors = self.running.redactors(self.sandbox);
        let rows = taken.into_iter().map(|(operation, waiting)| self.row(operation, waiting, &redactors));
        let sums = sums.into_iter().filter(|(sum, _)| sum.count > 0);
        rows.chain(sums.map(|(sum, allowed)| self.sum_row(&sum, allowed))).collect()
    }

    fn row(&self, operation: Option<OperationId>, waiting: Waiting, redactors: &[Redactor]) -> Row {
        let Waiting { asker: _, at, decision } = waiting;
        let Decision {
            via,
            host,
            port,
            address,
            request,
            allowed,
            rule,
            error,
            sent,
            received,
            duration,
            count,
        } = decision;
        let clean = |text: String| {
            redactors.iter().fold(self.redactor.text(&text), |text, redactor| redactor.text(&text))
        };
        // The path is left out where a restart lost the secrets that it could contain.
        let seen = request.filter(|_| !self.running.is_blind(self.sandbox, operation));
        let (method, path) = seen.unzip();
        let facts = Egress {
            sandbox: self.sandbox,
            via: via.as_str().to_owned(),
            host: clean(host),
            port: (port != 0).then_some(port),
            address: address.map(|address| address.to_string()),
            method: method.map(clean),
            path: path.map(clean),
            allowed,
            rule: clean(rule),
            error: error.map(clean),
            sent,
            received,
            duration_us: u64::try_from(duration.as_micros()).unwrap_or(u64::MAX),
            count: u64::from(count.max(1)),
        };
        (operation, at, facts)
    }

    fn sum_row(&self, sum: &Sum, allowed: bool) -> Row {
        let &Sum { count, sent, received } = sum;
        let facts = Egress {
            sandbox: self.sandbox,
            via: "several".into(),
            host: String::new(),
            port: None,
            address: None,
            method: None,
            path: None,
            allowed,
            rule: "too many to be told one by one".into(),
            error: None,
            sent,
            received,
            duration_us: 0,
            count,
        };
        (None, now_ms(), facts)
    }

    /// Finds out which operation has the socket with this address.
    async fn look(&self, from: SocketAddr) -> Option<OperationId> {
        let turn = self.turns.acquire().await.ok()?;
        let found = tokio::time::timeout(PATIENCE, self.guest.socket_owner(from)).await;
        drop(turn);
        let exec = match found {
            Ok(Ok(found)) => found?,
            Ok(Err(error)) => {
                tracing::debug!(sandbox = %self.sandbox, %error, "cannot find out whose a socket is");
                return None;
            }
            Err(_) => return None,
        };
        // PID 1 is not trusted: its answer only selects among the commands that this server knows.
        match self.running.operation(self.sandbox, exec) {
            Some(operation) => Some(operation),
            None => self.of_a_former_server(exec).await,
        }
    }

    async fn of_a_former_server(&self, exec: ExecId) -> Option<OperationId> {
        for kind in [Operation::Exec, Operation::Terminal, Operation::DependenciesInstall] {
            let query = OperationQuery {
                sandbox: Some(self.sandbox),
                kind: Some(kind.name().into()),
                limit: LOOKED_THROUGH,
                ..OperationQuery::default()
            };
            let page = self.store.audit_operations(&query).await.ok()?;
            let named = |id: &String| id.parse() == Ok(exec);
            if let Some(found) = page.iter().find(|o| o.begin.extra.get("exec_id").is_some_and(named)) {
                return Some(found.id);
            }
        }
        None
    }
}

impl State {
    fn new() -> Self {
        Self {
            next: 0,
            askers: HashMap::new(),
            order: VecDeque::new(),
            queue: VecDeque::new(),
            rows: TokenBucket::default(),
            more: Default::default(),
            told_more: None,
        }
    }

    fn remember(&mut self, whose: Whose) -> u64 {
        let id = self.next;
        self.next += 1;
        self.askers.insert(id, whose);
        self.order.push_back(id);
        while self.order.len() > ASKERS {
            if let Some(oldest) = self.order.pop_front() {
                self.askers.remove(&oldest);
            }
        }
        id
    }

    fn add(&mut self, waiting: Waiting) {
        if self.queue.len() < QUEUE && self.rows.take(1.0, ROWS, Instant::now()).is_ok() {
            self.queue.push_back(waiting);
            return;
        }
        let Decision { allowed, sent, received, count, .. } = waiting.decision;
        let sum = &mut self.more[usize::from(allowed)];
        sum.count += u64::from(count.max(1));
        sum.sent = sum.sent.saturating_add(sent);
        sum.received = sum.received.saturating_add(received);
    }
}

impl DecisionQueue {
    /// A connection from outside, which has no socket in the sandbox.
    pub(super) fn asked_from_afar(&self) -> u64 {
        let only = self.running.only(self.sandbox);
        self.state().remember(Whose::Known(only))
    }
}

impl Recorder for DecisionQueue {
    fn asked(&self, from: SocketAddr) -> u64 {
        let only = self.running.only(self.sandbox);
        let Ok(room) = Arc::clone(&self.lookups).try_acquire_owned() else {
            return self.state().remember(Whose::Known(only));
        };
        let id = self.state().remember(Whose::Looking(Instant::now(), only));
        let Some(me) = self.me.upgrade() else { return id };
        tokio::spawn(async move {
            let found = me.look(from).await.or(only);
            if let Some(whose) = me.state().askers.get_mut(&id) {
                *whose = Whose::Known(found);
            }
            me.wake.notify_one();
            drop(room);
        });
        id
    }

    fn decided(&self, asker: u64, decision: Decision) {
        self.state().add(Waiting { asker, at: now_ms(), decision });
        self.wake.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use atoll_egress::Via;

    fn waiting(allowed: bool) -> Waiting {
        let decision = Decision {
            via: Via::Connect,
            host: "a.example".into(),
            port: 443,
            address: None,
            request: None,
            allowed,
            rule: "not listed".into(),
            error: None,
            sent: 2,
            received: 3,
            duration: Duration::ZERO,
            count: 2,
        };
        Waiting { asker: 0, at: 0, decision }
    }

    #[test]
    fn too_many_are_added_up_and_never_lost() {
        let mut state = State::new();
        let many = 5 * QUEUE;
        (0..many).for_each(|n| state.add(waiting(n % 2 == 0)));
        assert!(state.queue.len() <= QUEUE, "it has a bound");
        let told: u64 = state.queue.iter().map(|w| u64::from(w.decision.count)).sum();
        let summed: u64 = state.more.iter().map(|sum| sum.count).sum();
        assert_eq!(told + summed, 2 * many as u64);
        assert_eq!(
            (state.more[1].sent, state.more[1].received),
            (state.more[1].count, state.more[1].count / 2 * 3)
        );
    }

    #[test]
    fn askers_have_a_bound() {
        let mut state = State::new();
        let first = state.remember(Whose::Known(None));
        for _ in 0..ASKERS {
            state.remember(Whose::Known(None));
        }
        assert_eq!(state.askers.len(), ASKERS);
        assert!(!state.askers.contains_key(&first));
    }
}
