//! One sandbox's sockets on loopback, and the world that it may or may not reach.

mod client;
mod world;

pub(crate) use client::*;
pub(crate) use world::*;

use atoll_egress::{
    Authority, Decision, Egress, EgressSettings, Policy, Presets, Recorder, Rules, Serving, Sockets,
};
use std::{
    net::{SocketAddr, TcpListener, UdpSocket},
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::sync::{Notify, watch};

/// Longer than anything here takes; only a failure waits for it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Waits, and fails by name instead of hanging.
pub(crate) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.unwrap_or_else(|_| panic!("{what} never came"))
}

#[derive(Default)]
pub(crate) struct Told {
    decisions: Mutex<Vec<Decision>>,
    more: Notify,
    pub(crate) askers: Mutex<Vec<SocketAddr>>,
}

impl Recorder for Told {
    fn asked(&self, from: SocketAddr) -> u64 {
        let mut askers = self.askers.lock().unwrap();
        askers.push(from);
        askers.len() as u64
    }

    fn decided(&self, asker: u64, decision: Decision) {
        assert!(asker > 0, "a decision about nobody");
        self.decisions.lock().unwrap().push(decision);
        self.more.notify_waiters();
    }
}

impl Told {
    pub(crate) fn all(&self) -> Vec<Decision> {
        self.decisions.lock().unwrap().clone()
    }

    /// The first decision that fits, as soon as there is one.
    pub(crate) async fn of(&self, fits: impl Fn(&Decision) -> bool) -> Decision {
        let waiting = async {
            loop {
                let more = self.more.notified();
                tokio::pin!(more);
                more.as_mut().enable();
                if let Some(found) = self.all().into_iter().find(&fits) {
                    return found;
                }
                more.await;
            }
        };
        match tokio::time::timeout(PATIENCE, waiting).await {
            Ok(found) => found,
            Err(_) => panic!("no such decision among {:#?}", self.all()),
        }
    }

    pub(crate) async fn about(&self, host: &str) -> Decision {
        self.of(|d| d.host == host).await
    }
}

pub(crate) fn rules(json: &str) -> Arc<Rules> {
    let policy: Policy = serde_json::from_str(json).unwrap_or_else(|e| panic!("{json}: {e}"));
    Arc::new(Rules::new("egress", &policy, &Presets::default(), &Arc::default()).unwrap())
}

/// An allowlist with these entries.
pub(crate) fn allow(entries: &[&str]) -> String {
    serde_json::json!({"mode": "allowlist", "allow": entries}).to_string()
}

pub(crate) struct Sandbox {
    pub(crate) proxy: SocketAddr,
    pub(crate) names: SocketAddr,
    pub(crate) names_tcp: SocketAddr,
    pub(crate) redirected: SocketAddr,
    pub(crate) told: Arc<Told>,
    pub(crate) rules: watch::Sender<Arc<Rules>>,
    pub(crate) serving: Serving,
}

/// A proxy that asks this world's name server and believes its authority.
pub(crate) fn egress(world: &World, authority: Option<Authority>) -> Egress {
    let settings = EgressSettings {
        nameservers: vec![world.nameserver],
        roots: vec![world.root.clone()],
        authority,
        ..EgressSettings::default()
    };
    Egress::new(settings).unwrap()
}

impl Sandbox {
    pub(crate) fn new(world: &World, policy: &str) -> Self {
        Self::with(egress(world, None), policy)
    }

    pub(crate) fn with(egress: Egress, policy: &str) -> Self {
        let listen = || TcpListener::bind("127.0.0.1:0").unwrap();
        let (proxy, redirected, names_tcp) = (listen(), listen(), listen());
        let names = UdpSocket::bind("127.0.0.1:0").unwrap();
        let addresses = [&proxy, &redirected, &names_tcp].map(|listener| listener.local_addr().unwrap());
        let names_at = names.local_addr().unwrap();
        let sockets = Sockets {
            proxy: proxy.into(),
            redirected: Some(redirected.into()),
            names: names.into(),
            names_tcp: names_tcp.into(),
        };
        let (sender, receiver) = watch::channel(rules(policy));
        let told = Arc::new(Told::default());
        let serving = egress.serve(sockets, receiver, told.clone()).unwrap();
        let [proxy, redirected, names_tcp] = addresses;
        Self { proxy, names: names_at, names_tcp, redirected, told, rules: sender, serving }
    }

    pub(crate) fn set(&self, policy: &str) {
        self.rules.send(rules(policy)).unwrap();
    }
}
