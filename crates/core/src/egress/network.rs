//! The proxy over a network, for sandboxes without egress sockets: a token says which sandbox a connection
//! belongs to. It grants nothing by itself: the sandbox's policy applies, and only while it runs.

use super::{decision_queue::DecisionQueue, sessions::EgressSessions};
use crate::{Caller, EgressControl, SigningKey, bounds::TOKEN_SECONDS, operation::OperationSpec};
use atoll_egress::{Decision, LIFETIME, Recorder, Tokens};
use atoll_store::SandboxId;
use atoll_types::{Error, Operation, Result, time::now_ms};
use std::{net::SocketAddr, sync::Arc, time::Duration};
use tokio::net::TcpListener;

/// A token that was just made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EgressToken {
    /// The token itself; clients send it as the password `jwt_<token>` of the user `sandbox`.
    pub token: String,
    /// When it expires, in milliseconds since 1970.
    pub expires_at: i64,
}

/// Records like the sandbox's own egress session, without the lookup at PID 1: the socket is not in the
/// sandbox.
struct RemoteRecorder(Arc<DecisionQueue>);

impl Recorder for RemoteRecorder {
    fn asked(&self, _: SocketAddr) -> u64 {
        self.0.asked_from_afar()
    }

    fn decided(&self, asker: u64, decision: Decision) {
        self.0.decided(asker, decision);
    }
}

impl EgressControl {
    /// Makes a token for a sandbox.
    pub async fn issue_token(
        &self,
        caller: &Caller,
        id: SandboxId,
        ttl_seconds: Option<u32>,
    ) -> Result<EgressToken> {
        let ttl = ttl_seconds.unwrap_or(u32::try_from(LIFETIME.as_secs()).unwrap_or(*TOKEN_SECONDS.end()));
        if !TOKEN_SECONDS.contains(&ttl) {
            let message = format!("ttl_seconds must be between 1 and {} (7 days)", TOKEN_SECONDS.end());
            return Err(Error::invalid("ttl_seconds", message));
        }
        let audited = self
            .operations
            .audited(caller, OperationSpec::to(Operation::EgressToken, id).and("ttl_seconds", ttl))
            .await?;
        let result = async {
            let record = audited.record()?;
            self.registry.check_state(id, audited.kind()).await?;
            let (session, owner) = (id.uuid().to_string(), record.owner.as_str());
            // Only the policy at the time of the connection decides.
            let all = ["*".to_owned()];
            let token = self.tokens()?.sign(&session, Some(owner), &all, Duration::from_secs(ttl.into()))?;
            Ok(EgressToken { token, expires_at: now_ms() + i64::from(ttl) * 1000 })
        }
        .await;
        audited.done(result).await
    }

    fn tokens(&self) -> Result<Tokens> {
        let set = self.settings.egress_signing_key.as_ref();
        Tokens::new(set.map_or(&self.vault.egress()[..], SigningKey::bytes))
    }

    /// Serves the proxy to clients with a token, until the future is dropped.
    pub async fn serve(&self, listener: TcpListener) -> Result<()> {
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
    /// The rules and the recorder of a sandbox's egress session; none where it is not served.
    fn lookup(
        &self,
        id: SandboxId,
    ) -> Option<(tokio::sync::watch::Receiver<Arc<atoll_egress::Rules>>, Arc<DecisionQueue>)> {
        self.served().get(&id).map(|served| (served.rules.subscribe(), Arc::clone(&served.decision_queue)))
    }
}
