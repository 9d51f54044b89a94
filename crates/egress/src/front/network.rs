//! Sandboxes that reach the proxy over a network. No socket identifies the sandbox, so every request must carry a
//! token. A client without a valid one is refused.

use super::connect;
use crate::{
    Entry, Lookup, Tokens,
    engine::Shared,
    http::{Badge, Client, Front, HttpConnection, ProxyReply, Unread, linger},
    session::{Caller, EgressSession},
};
use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    task::JoinSet,
    time::timeout,
};

/// Connections that are not authenticated yet.
const MOST_UNKNOWN: usize = 256;
/// How long they may take to authenticate.
const FIRST: Duration = Duration::from_secs(10);

struct Network {
    shared: Arc<Shared>,
    tokens: Tokens,
    lookup: Arc<Lookup>,
    gates: Mutex<HashMap<String, Arc<EgressSession>>>,
}

impl Network {
    /// The egress session of a sandbox, as long as it is open.
    fn session(&self, connection: &str) -> Option<Arc<EgressSession>> {
        let found = (self.lookup)(connection);
        let mut gates = self.gates.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((rules, recorder)) = found else {
            gates.remove(connection);
            return None;
        };
        match gates.get(connection) {
            Some(session) if session.is_of(&rules) => Some(Arc::clone(session)),
            _ => {
                let session = EgressSession::new(Arc::clone(&self.shared), rules, recorder);
                gates.insert(connection.to_owned(), Arc::clone(&session));
                Some(session)
            }
        }
    }

    fn tidy(&self) {
        let mut gates = self.gates.lock().unwrap_or_else(PoisonError::into_inner);
        gates.retain(|_, session| !session.is_over());
        gates.values().for_each(|session| session.flush());
    }

    async fn serve(&self, stream: TcpStream, from: SocketAddr, unknown: OwnedSemaphorePermit) {
        let mut client = Client::new(stream, Vec::new());
        let head = match timeout(FIRST, client.head()).await {
            Ok(Ok(head)) => head,
            Ok(Err(Unread::End)) | Err(_) => return,
            Ok(Err(Unread::Malformed(why))) => return say(client, ProxyReply::malformed(why)).await,
        };
        let shown = head.only("proxy-authorization").ok().flatten();
        let claims = match self.tokens.verify_header(shown) {
            Ok(claims) => claims,
            Err(why) => return say(client, ProxyReply::token(why)).await,
        };
        let Some(session) = self.session(&claims.session_id) else {
            return say(client, ProxyReply::stranger()).await;
        };
        drop(unknown);
        let all = claims.allowed_hosts == ["*"];
        let hosts = claims.allowed_hosts.iter().filter_map(|host| host.parse::<Entry>().ok()).collect();
        let caller = Caller::new(&session, session.asked(from), if all { None } else { Some(hosts) });
        let _slot = match session.admit() {
            Ok(slot) => slot,
            Err(limit) => {
                caller.malformed(crate::Via::Connect, "", &format!("limit: {limit}"));
                return say(client, ProxyReply::limit(limit)).await;
            }
        };
        let badge = Badge { tokens: self.tokens.clone(), connection: claims.session_id };
        let mut connection = HttpConnection::new(&caller, Front::Proxy, false).with_badge(badge);
        if let Some((client, head)) = connection.serve(client, Some(head)).await {
            connect(&caller, client, &head).await;
        }
    }
}

async fn say(mut client: Client, reply: ProxyReply) {
    reply.send(&mut client.writer, false, false).await;
    linger(client).await;
}

pub(crate) async fn serve(shared: Arc<Shared>, listener: TcpListener, tokens: Tokens, lookup: Arc<Lookup>) {
    let network = Arc::new(Network { shared, tokens, lookup, gates: Mutex::default() });
    let unknown = Arc::new(Semaphore::new(MOST_UNKNOWN));
    let mut connections = JoinSet::new();
    let mut ticks = tokio::time::interval(Duration::from_millis(500));
    loop {
        tokio::select! {
            accepted = listener.accept() => match (accepted, Arc::clone(&unknown).try_acquire_owned()) {
                (Ok((stream, from)), Ok(permit)) => {
                    let network = Arc::clone(&network);
                    connections.spawn(async move { network.serve(stream, from, permit).await });
                }
                // Too many unauthenticated connections: this one is closed.
                (Ok(_), Err(_)) => {}
                (Err(_), _) => tokio::time::sleep(Duration::from_millis(50)).await,
            },
            Some(done) = connections.join_next() => {
                if let Err(error) = done {
                    tracing::error!(%error, "a connection of the proxy ended badly");
                }
            }
            _ = ticks.tick() => network.tidy(),
        }
    }
}
