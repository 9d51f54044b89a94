//! The proxy over a network, for sandboxes that no socket tells apart: a token says whose a connection is. It
//! opens nothing by itself: what its sandbox may reach is what its policy says, and only while it runs.

use super::{decision_queue::DecisionQueue, sessions::EgressSessions};
use crate::{Caller, Core, operation::OperationSpec, ports::must_exist};
use atoll_egress::{Decision, LIFETIME, Recorder, Tokens};
use atoll_store::SandboxId;
use atoll_types::{Error, Operation, Result, time::now_ms};
use std::{net::SocketAddr, sync::Arc, time::Duration};
use tokio::net::TcpListener;

/// How long a token may live at most.
const LONGEST_SECONDS: u32 = 7 * 24 * 3600;

/// A token that was just made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EgressToken {
    /// The token itself; clients send it as the password `jwt_<token>` of the user `sandbox`.
    pub token: String,
    /// From when on it is worth nothing, in milliseconds since 1970.
    pub expires_at: i64,
}

/// Tells like the sandbox's own gate, without asking the sandbox whose a socket is that it does not have.
struct RemoteRecorder(Arc<DecisionQueue>);

impl Recorder for RemoteRecorder {
    fn asked(&self, _: SocketAddr) -> u64 {
        self.0.asked_from_afar()
    }

    fn decided(&self, asker: u64, decision: Decision) {
        self.0.decided(asker, decision);
    }
}

impl Core {
    /// Makes a token for a sandbox.
    pub async fn egress_token(
        &self,
        caller: &Caller,
        id: SandboxId,
        ttl_seconds: Option<u32>,
    ) -> Result<EgressToken> {
        let ttl = ttl_seconds.unwrap_or(u32::try_from(LIFETIME.as_secs()).unwrap_or(LONGEST_SECONDS));
        if !(1..=LONGEST_SECONDS).contains(&ttl) {
            let message = format!("ttl_seconds must be between 1 and {LONGEST_SECONDS} (7 days)");
            return Err(Error::invalid("ttl_seconds", message));
        }
        let audited = self
            .audited(caller, OperationSpec::to(Operation::EgressToken, id).and("ttl_seconds", ttl))
            .await?;
        let result = async {
            let record = audited.record()?;
            must_exist(record)?;
            let (session, owner) = (id.uuid().to_string(), record.owner.as_str());
            // The policy alone decides, as it is at that time.
            let all = ["*".to_owned()];
            let token = self.tokens()?.sign(&session, Some(owner), &all, Duration::from_secs(ttl.into()))?;
            Ok(EgressToken { token, expires_at: now_ms() + i64::from(ttl) * 1000 })
        }
        .await;
        audited.done(result).await
    }

    fn tokens(&self) -> Result<Tokens> {
        Tokens::new(self.vault.egress())
    }

    /// Serves the proxy to whoever has a token, until the future is dropped.
    pub async fn serve_egress(&self, listener: TcpListener) -> Result<()> {
        let egress_sessions = Arc::downgrade(&self.egress_sessions);
        let lookup = move |session: &str| {
            let id = SandboxId::from_uuid(uuid::Uuid::try_parse(session).ok()?);
            let (rules, decision_queue) = egress_sessions.upgrade()?.lookup(id)?;
            Some((rules, Arc::new(RemoteRecorder(decision_queue)) as Arc<dyn Recorder>))
        };
        let engine = self.egress_sessions.parts.engine.clone();
        engine.serve_network(listener, self.tokens()?, Arc::new(lookup)).await;
        Ok(())
    }
}

impl EgressSessions {
    /// What a sandbox's gate goes by, and whom it tells; none where it is not served.
    fn lookup(
        &self,
        id: SandboxId,
    ) -> Option<(tokio::sync::watch::Receiver<Arc<atoll_egress::Rules>>, Arc<DecisionQueue>)> {
        self.served().get(&id).map(|served| (served.rules.subscribe(), Arc::clone(&served.decision_queue)))
    }
}
