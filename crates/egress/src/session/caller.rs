//! A client in a sandbox, and what it requests.

use super::{Account, EgressSession, IDLE, Stop};
use crate::{Asked, Decision, Entry, Host, Request, Verdict, Via};
use std::{net::IpAddr, sync::Arc, time::Duration};

/// What a client wants to reach.
#[derive(Debug, Clone)]
pub(crate) struct Claim {
    pub(crate) via: Via,
    pub(crate) host: Host,
    pub(crate) port: u16,
    pub(crate) address: Option<IpAddr>,
    /// Method and path without its query.
    pub(crate) request: Option<(String, String)>,
    /// Whether each request on the connection is inspected.
    pub(crate) inspected: bool,
}

impl Claim {
    pub(crate) fn new(via: Via, host: Host, port: u16) -> Self {
        Self { via, host, port, address: None, request: None, inspected: false }
    }
}

/// A client in a sandbox.
pub(crate) struct Caller {
    session: Arc<EgressSession>,
    asker: u64,
    /// The hosts that its token is valid for, where there is one.
    hosts: Option<Vec<Entry>>,
}

impl Caller {
    pub(crate) fn new(session: &Arc<EgressSession>, asker: u64, hosts: Option<Vec<Entry>>) -> Arc<Self> {
        Arc::new(Self { session: Arc::clone(session), asker, hosts })
    }

    pub(crate) fn session(&self) -> &Arc<EgressSession> {
        &self.session
    }

    pub(crate) fn asker(&self) -> u64 {
        self.asker
    }

    /// The host behind an address of the reserved block: some tools query the resolver and then use the proxy.
    pub(crate) fn named(&self, host: Host) -> Host {
        match host {
            Host::Address(IpAddr::V4(address)) => {
                self.session.names.name(address).map_or(Host::Address(address.into()), Host::Name)
            }
            host => host,
        }
    }

    pub(crate) fn decide(&self, host: &Host, port: u16, request: Option<Request<'_>>) -> Verdict {
        if let Some(hosts) = &self.hosts
            && !hosts.iter().any(|entry| entry.fits(host, port))
        {
            return Verdict::Deny("token".into());
        }
        self.session.rules.borrow().decide(&Asked { host, port, request })
    }

    /// Records a refusal.
    pub(crate) fn refuse(&self, claim: &Claim, rule: &str) {
        self.session.record(self.asker, decision(claim, false, rule, None));
    }

    /// Records a malformed request.
    pub(crate) fn malformed(&self, via: Via, host: &str, rule: &str) {
        let claim = Claim::new(via, Host::Name(shown(host)), 0);
        self.session.record(self.asker, decision(&claim, false, rule, None));
    }

    /// Records a DNS query.
    pub(crate) fn question(&self, host: &str, verdict: &Verdict) {
        let claim = Claim::new(Via::Name, Host::Name(shown(host)), 0);
        let allowed = matches!(verdict, Verdict::Allow(_));
        self.session.record(self.asker, decision(&claim, allowed, verdict.rule(), None));
    }

    /// Whether a connection or request that was allowed still is.
    fn check(&self, claim: &Claim) -> Result<(), Stop> {
        let denied = |verdict: &Verdict| Err(Stop::Denied(verdict.rule().to_string()));
        let request = claim.request.as_ref().map(|(method, path)| Request { method, path });
        let verdict = self.decide(&claim.host, claim.port, request);
        match &verdict {
            Verdict::Deny(_) => return denied(&verdict),
            Verdict::Inspect(_) if !claim.inspected => return denied(&verdict),
            _ => {}
        }
        match claim.address.map(|address| self.session.decide_address(address, claim.port)) {
            Some(verdict @ Verdict::Deny(_)) => denied(&verdict),
            _ => Ok(()),
        }
    }

    /// Returns when an allowed connection has to end: the rules changed, or a limit was reached.
    pub(crate) async fn guard(&self, account: &Account) -> Stop {
        let mut rules = self.session.watch();
        if let Err(stop) = self.check(account.claim()) {
            return stop;
        }
        loop {
            let limit = rules.borrow().limits().connection_seconds;
            let left = limit.map(|s| Duration::from_secs(s.into()).saturating_sub(account.age()));
            let idle = IDLE.saturating_sub(account.idle());
            if left.is_some_and(|left| left.is_zero()) {
                return Stop::Limit("connection_seconds");
            }
            if idle.is_zero() {
                return Stop::Broken("nothing moved for too long".to_owned());
            }
            tokio::select! {
                changed = rules.changed() => {
                    if changed.is_err() {
                        return Stop::Denied("the sandbox is gone".to_owned());
                    }
                    if let Err(stop) = self.check(account.claim()) {
                        return stop;
                    }
                    if self.session.shed() {
                        account.shed();
                        return Stop::Limit("connections");
                    }
                }
                () = tokio::time::sleep(left.map_or(idle, |left| left.min(idle))) => {}
            }
        }
    }
}

pub(super) fn decision(claim: &Claim, allowed: bool, rule: &str, error: Option<String>) -> Decision {
    let Claim { via, host, port, address, request, inspected: _ } = claim;
    Decision {
        via: *via,
        host: host.to_string(),
        port: *port,
        address: *address,
        request: request.as_ref().map(|(method, path)| (method.clone(), path.chars().take(1024).collect())),
        allowed,
        rule: rule.to_owned(),
        error,
        sent: 0,
        received: 0,
        duration: Duration::ZERO,
        count: 1,
    }
}

/// A host as it may be shown: short and without control characters.
pub(crate) fn shown(text: &str) -> String {
    let mut shown: String = text.chars().filter(|c| !c.is_control()).take(255).collect();
    while shown.len() > 255 {
        shown.pop();
    }
    shown
}
