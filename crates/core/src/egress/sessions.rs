//! The one owner of every egress session. A session serves the egress sockets of a container from when this
//! server knows the container until it ends; connections through it end with it. The policy is in a channel
//! that the proxy watches, so a change is obeyed at once, by open connections too.

use super::{
    EgressParts, decision_queue::DecisionQueue, decision_writer::DecisionWriter, policy::FIELD,
    running::Running,
};
use atoll_audit::{Ledger, Redactor};
use atoll_egress::{Mode, Policy, Rules, Serving, Sockets, Usage, presets::AptSources};
use atoll_provider::{Container, EgressSockets};
use atoll_store::{EgressTotals, SandboxId, SandboxRecord, Store};
use atoll_types::{ContainerId, Error, ErrorCode, Result};
use futures_util::future::{BoxFuture, join_all};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::{Duration, Instant},
};
use tokio::sync::watch;

/// How long adding up a sandbox's earlier decisions may take.
const ADDING_UP: Duration = Duration::from_secs(2);
/// How long a proxy may take to end.
const ENDING: Duration = Duration::from_secs(5);
/// How long a reader of decisions waits for connections that may be ending, and for rows that are being written: PID 1 may take
/// two seconds to say whose a socket is.
const CLOSING: Duration = Duration::from_millis(100);
const WRITING: Duration = Duration::from_secs(3);
const BETWEEN_LOOKS: Duration = Duration::from_millis(2);

/// An egress session at work.
pub(super) struct Served {
    container: ContainerId,
    image: String,
    policy: Policy,
    /// Why the policy cannot be obeyed, so that nothing is reachable.
    problem: Option<String>,
    pub(super) rules: watch::Sender<Arc<Rules>>,
    serving: Option<Serving>,
    pub(super) decision_queue: Arc<DecisionQueue>,
    transparent: bool,
    before: EgressTotals,
}

/// The public state of an egress session.
pub(super) struct Seen {
    pub(super) usage: Usage,
    pub(super) before: EgressTotals,
    pub(super) transparent: bool,
    pub(super) problem: Option<String>,
}

/// Every egress session.
pub(crate) struct EgressSessions {
    me: Weak<EgressSessions>,
    pub(super) parts: EgressParts,
    store: Arc<dyn Store>,
    running: Arc<Running>,
    decision_writer: Arc<DecisionWriter>,
    served: Mutex<HashMap<SandboxId, Served>>,
}

/// The egress policy in a record.
pub(crate) fn policy_of(record: &SandboxRecord) -> Result<Policy> {
    serde_json::from_str(&record.egress)
        .map_err(|e| Error::internal(format!("what the sandbox may reach cannot be read: {e}")))
}

fn sockets(egress_sockets: EgressSockets) -> Sockets {
    let EgressSockets { proxy, redirected, names, names_tcp } = egress_sockets;
    Sockets { proxy, redirected, names, names_tcp }
}

impl EgressSessions {
    pub(crate) fn new(
        parts: EgressParts,
        store: Arc<dyn Store>,
        running: Arc<Running>,
        ledger: Ledger,
    ) -> Arc<Self> {
        let decision_writer = DecisionWriter::start(ledger);
        let egress_sessions = Arc::new_cyclic(|me| {
            let (me, served) = (me.clone(), Mutex::default());
            Self { me, parts, store, running, decision_writer, served }
        });
        tokio::spawn(keep(Arc::downgrade(&egress_sessions)));
        egress_sessions
    }

    pub(super) fn served(&self) -> MutexGuard<'_, HashMap<SandboxId, Served>> {
        self.served.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The variables that every command starts with.
    pub(crate) fn variables(&self) -> impl Iterator<Item = (String, String)> + use<> {
        self.parts.variables.clone().into_iter()
    }

    /// The policy of builds of images that name none.
    pub(crate) fn of_builds(&self) -> Policy {
        self.parts.of_builds()
    }

    /// The archives of the machine's own release.
    pub(crate) fn apt_sources(&self) -> Option<&AptSources> {
        self.parts.presets.apt_sources()
    }

    /// Serves the egress sockets of a container, unless they are served. An error only where the sandbox
    /// should reach something and cannot.
    pub(crate) async fn open(
        &self,
        record: &SandboxRecord,
        container: &Arc<dyn Container>,
        secrets: Vec<String>,
        new: bool,
    ) -> Result<()> {
        if self.served().get(&record.id).is_some_and(|served| served.container == container.id()) {
            return Ok(());
        }
        let policy = policy_of(record)?;
        let mode = policy.mode;
        match self.serve(record, policy, container, secrets, new).await {
            Ok(()) => Ok(()),
            Err(error) if mode == Mode::None => {
                tracing::warn!(sandbox = %record.id, %error, "egress sockets are not served; the sandbox has no egress");
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    async fn serve(
        &self,
        record: &SandboxRecord,
        policy: Policy,
        container: &Arc<dyn Container>,
        secrets: Vec<String>,
        new: bool,
    ) -> Result<()> {
        let lacking = || {
            let message = "sandboxes of this provider have no way out; only egress.mode \"none\" is possible";
            Error::new(ErrorCode::Unsupported, message).at(FIELD)
        };
        let (way, id) = (container.egress_endpoint(), record.id);
        let way = match way {
            Some(way) => way,
            None if policy.mode == Mode::None => return Ok(()),
            None => return Err(lacking()),
        };
        let (egress_sockets, closed) = (way.egress_sockets().await?, way.closed());
        let transparent = egress_sockets.redirected.is_some();
        let before = if new { EgressTotals::default() } else { self.before(id).await };
        // Another container of the same sandbox is gone by now, or about to be.
        self.close(id).await;
        let decision_queue = DecisionQueue::new(
            id,
            Arc::clone(&self.store),
            Arc::clone(&self.running),
            container.guest().clone(),
            Redactor::new(&secrets),
            Arc::clone(&self.decision_writer.wake),
        );
        let (rules, problem) = self.effective(&policy, record.profile.image.as_str());
        let rules = watch::Sender::new(rules);
        let serving =
            self.parts.engine.serve(sockets(egress_sockets), rules.subscribe(), decision_queue.clone());
        let serving =
            serving.map_err(|e| Error::internal(format!("the sandbox's way out cannot be served: {e}")))?;
        self.decision_writer.add(decision_queue.clone());
        self.running.keep(id);
        let served = Served {
            container: container.id(),
            image: record.profile.image.to_string(),
            policy,
            problem,
            rules,
            serving: Some(serving),
            decision_queue,
            transparent,
            before,
        };
        let mut all = self.served();
        let served = all.entry(id).insert_entry(served).into_mut();
        // The audit trail may have failed since the rules were made.
        if *self.decision_writer.failing().borrow() && served.problem.is_none() {
            self.apply(served);
        }
        drop(all);
        self.watch(id, container.id(), closed);
        Ok(())
    }

    async fn before(&self, id: SandboxId) -> EgressTotals {
        match tokio::time::timeout(ADDING_UP, self.store.egress_totals(id)).await {
            Ok(Ok(totals)) => totals,
            Ok(Err(error)) => {
                tracing::warn!(sandbox = %id, %error, "what it did before cannot be added up");
                EgressTotals::default()
            }
            Err(_) => EgressTotals::default(),
        }
    }

    /// The rules in force, and why there are none where there should be.
    fn effective(&self, policy: &Policy, image: &str) -> (Arc<Rules>, Option<String>) {
        if *self.decision_writer.failing().borrow() {
            let problem = "decisions cannot be written to the audit trail, and so nothing gets out";
            return (Arc::new(Rules::none()), Some(problem.into()));
        }
        match self.rules(policy, image) {
            Ok(rules) => (Arc::new(rules), None),
            Err(error) => (Arc::new(Rules::none()), Some(error.message)),
        }
    }

    /// Closes the session when its container is being destroyed, by this server or by another process.
    fn watch(&self, id: SandboxId, container: ContainerId, closed: BoxFuture<'static, ()>) {
        // Weak, or the last of these would keep the rest alive.
        let egress_sessions = self.me.clone();
        tokio::spawn(async move {
            closed.await;
            if let Some(egress_sessions) = egress_sessions.upgrade() {
                egress_sessions.close_one(id, Some(container)).await;
            }
        });
    }

    /// Closes a sandbox's session, before its container is destroyed. Returns when its connections have
    /// ended.
    pub(crate) async fn close(&self, id: SandboxId) {
        self.close_one(id, None).await;
    }

    async fn close_one(&self, id: SandboxId, container: Option<ContainerId>) {
        let served = {
            let mut all = self.served();
            match all.get(&id) {
                Some(served) if container.is_none_or(|c| c == served.container) => all.remove(&id),
                _ => None,
            }
        };
        if let Some(served) = served {
            end(served).await;
            self.running.forget(id);
        }
    }

    /// Puts another policy in force.
    pub(crate) fn change(&self, id: SandboxId, policy: &Policy) {
        let mut all = self.served();
        if let Some(served) = all.get_mut(&id) {
            served.policy = policy.clone();
            self.apply(served);
        }
    }

    fn apply(&self, served: &mut Served) {
        let (rules, problem) = self.effective(&served.policy, &served.image);
        if let Some(problem) = problem.as_ref().filter(|_| served.problem != problem) {
            tracing::error!(problem, "a sandbox's policy cannot be obeyed; nothing gets out");
        }
        served.problem = problem;
        served.rules.send_replace(rules);
    }

    /// The state of a sandbox's session; none where it is not served.
    pub(super) fn seen(&self, id: SandboxId) -> Option<Seen> {
        let all = self.served();
        let Served { problem, serving, transparent, before, .. } = all.get(&id)?;
        Some(Seen {
            usage: serving.as_ref().map(Serving::usage).unwrap_or_default(),
            before: *before,
            transparent: *transparent,
            problem: problem.clone(),
        })
    }

    /// Has the decisions about what a sandbox did so far written to the audit trail, for a reader who looks for them there. Returns at
    /// once where it asked for nothing. A connection that stays open is decided about later.
    pub(crate) async fn settle(&self, id: SandboxId) {
        let began = Instant::now();
        loop {
            let (open, decision_queue) = {
                let all = self.served();
                let Some(Served { serving: Some(serving), decision_queue, .. }) = all.get(&id) else {
                    return;
                };
                let usage = serving.usage();
                if usage == Usage::default() {
                    return;
                }
                serving.flush();
                (usage.open > 0, Arc::clone(decision_queue))
            };
            let waits = !decision_queue.is_empty() || self.decision_writer.is_writing();
            let (closing, writing) = (began.elapsed() < CLOSING, began.elapsed() < WRITING);
            if !(open && closing || waits && writing) {
                return;
            }
            self.decision_writer.wake.notify_one();
            tokio::time::sleep(BETWEEN_LOOKS).await;
        }
    }

    /// Closes all sessions and writes the remaining decisions: the server shuts down. Sandboxes live on,
    /// without egress until the next server.
    pub(crate) async fn end(&self) {
        let all: Vec<Served> = self.served().drain().map(|(_, served)| served).collect();
        join_all(all.into_iter().map(end)).await;
        self.decision_writer.finish().await;
    }
}

async fn end(mut served: Served) {
    if let Some(serving) = served.serving.take()
        && tokio::time::timeout(ENDING, serving.end()).await.is_err()
    {
        tracing::error!(container = %served.container, "a proxy does not end");
    }
    served.decision_queue.end();
}

/// Updates the rules when the presets change, and refuses all connections while the audit trail cannot be
/// written.
async fn keep(egress_sessions: Weak<EgressSessions>) {
    let (mut failing, mut presets) = match egress_sessions.upgrade() {
        Some(egress_sessions) => {
            (egress_sessions.decision_writer.failing(), egress_sessions.parts.presets.changes())
        }
        None => return,
    };
    loop {
        let changed = tokio::select! {
            changed = failing.changed() => changed,
            changed = presets.changed() => changed,
        };
        let (Ok(()), Some(egress_sessions)) = (changed, egress_sessions.upgrade()) else { return };
        let mut all = egress_sessions.served();
        all.values_mut().for_each(|served| egress_sessions.apply(served));
    }
}
