//! Accepting connections, with a bound on everything that a client could draw out: the head of a request, its
//! size, the body of a command, an answer that is not read, and the number of connections, of all and of one
//! peer.
//!
//! Every connection holds a permit, a WebSocket or an upgraded one for as long as it lives; the server has
//! ended when all permits are free.

use crate::{
    Failure,
    linger::{Lingering, TrackedBody, Unread},
    peers::{PeerConnection, Peers, Reserve},
};
use atoll_core::ConnectionLimits;
use atoll_types::Error;
use axum::{
    Router,
    body::Body,
    extract::{ConnectInfo, FromRequestParts},
    http::{Request, request::Parts},
    response::IntoResponse,
};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::{convert::Infallible, future::Future, net::SocketAddr, sync::Arc, time::Duration};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{Notify, OwnedSemaphorePermit, Semaphore},
};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

/// How long a connection may be idle between two requests, the head of the second included.
const IDLE: Duration = Duration::from_secs(75);
/// How long a connection beyond the limits may take in all, and how large its head may be.
const RESERVED: Duration = Duration::from_secs(5);
const RESERVED_HEAD_BYTES: usize = 16 * 1024;
/// The largest head, and the most lines in it.
const HEAD_BYTES: usize = 64 * 1024;
const HEAD_LINES: usize = 100;
/// Connections at one time.
const CONNECTIONS: usize = 8192;
/// How long requests may take to end when the server shuts down.
const PATIENCE: Duration = Duration::from_secs(10);
/// A pause after an accept that failed, mostly for want of descriptors.
const PAUSE: Duration = Duration::from_millis(50);

/// The server's shutdown, for answers that have no end of their own.
#[derive(Debug, Clone)]
pub struct Ending(CancellationToken);

impl Ending {
    /// Waits for it.
    pub async fn wait(&self) {
        self.0.cancelled().await;
    }
}

/// What a connection holds beyond its last request, when it has become a WebSocket.
#[derive(Clone)]
pub struct Life {
    /// Its place among all connections, free when the last holder is gone.
    _place: Arc<(OwnedSemaphorePermit, PeerConnection)>,
    ending: Ending,
}

impl Life {
    /// Returns when the server shuts down.
    pub async fn ending(&self) {
        self.ending.wait().await;
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Ending {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Failure> {
        let life: Option<&Life> = parts.extensions.get();
        life.map(|life| life.ending.clone())
            .ok_or_else(|| Error::internal("a request without a connection").into())
    }
}

/// Serves until `end` comes about, and then lets requests that have begun finish, within limits. `limits`
/// says what a new connection may do.
pub async fn serve(
    listener: TcpListener,
    app: Router,
    limits: impl Fn() -> ConnectionLimits,
    end: impl Future<Output = ()>,
) {
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    let (peers, mut reserve) = (Peers::default(), Reserve::default());
    let ending = CancellationToken::new();
    let mut end = std::pin::pin!(end);
    loop {
        tokio::select! {
            () = &mut end => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => {
                    let limits = limits();
                    let place = Arc::clone(&room).try_acquire_owned().ok();
                    let place = place.and_then(|place| Some((place, peers.take(peer, limits.per_peer)?)));
                    let Some(place) = place else {
                        tokio::spawn(reserved(stream, app.clone(), reserve.enter()));
                        continue;
                    };
                    let life = Life { _place: Arc::new(place), ending: Ending(ending.clone()) };
                    tokio::spawn(connection(stream, peer, app.clone(), life, limits));
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(PAUSE).await;
                }
            },
        }
    }
    drop(listener);
    ending.cancel();
    // All permits are free when all connections are gone. A client that never closes does not keep the
    // server.
    let _ = tokio::time::timeout(PATIENCE, room.acquire_many(CONNECTIONS as u32)).await;
}

/// Serves one connection until it closes, or has become a WebSocket, which holds its life from then on.
async fn connection(stream: TcpStream, peer: SocketAddr, app: Router, life: Life, limits: ConnectionLimits) {
    let _ = stream.set_nodelay(true);
    let unread = Unread::default();
    let (held, told) = (life.clone(), unread.clone());
    let asked = Arc::new(Notify::new());
    let first = Arc::clone(&asked);
    let service = service_fn(move |request: Request<Incoming>| {
        first.notify_one();
        let (app, life) = (app.clone(), held.clone());
        let mut request = request.map(|body| Body::new(TrackedBody::new(body, &told)));
        async move {
            request.extensions_mut().insert(ConnectInfo(peer));
            request.extensions_mut().insert(life);
            match app.oneshot(request).await {
                Ok(response) => Ok::<_, Infallible>(response),
                Err(never) => match never {},
            }
        }
    });
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(IDLE)
        .max_buf_size(HEAD_BYTES)
        .max_headers(HEAD_LINES);
    let io = TokioIo::new(Lingering::new(stream, unread, limits.write_timeout));
    let connection = builder.serve_connection(io, service).with_upgrades();
    let mut connection = std::pin::pin!(connection);
    let silent = async {
        if tokio::time::timeout(limits.head_timeout, asked.notified()).await.is_ok() {
            std::future::pending::<()>().await;
        }
    };
    let served = tokio::select! {
        served = connection.as_mut() => served,
        // It has asked for nothing, so there is nothing to answer.
        () = silent => return,
        () = life.ending() => {
            // Requests that have begun may end.
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    // A client that breaks off is no fault of ours.
    if let Err(error) = served {
        tracing::debug!(%error, %peer, "a connection broke");
    }
}

/// Serves one request of a connection beyond the limits: a health check is still answered, and any other
/// request is refused for the moment.
async fn reserved(stream: TcpStream, app: Router, evicted: CancellationToken) {
    let service = service_fn(move |request: Request<Incoming>| {
        let app = app.clone();
        async move {
            if request.uri().path() != "/health" {
                let failure = Failure::too_many_connections();
                return Ok::<_, Infallible>(failure.into_response());
            }
            match app.oneshot(request.map(Body::new)).await {
                Ok(response) => Ok(response),
                Err(never) => match never {},
            }
        }
    });
    let mut builder = http1::Builder::new();
    builder.keep_alive(false).max_buf_size(RESERVED_HEAD_BYTES).max_headers(HEAD_LINES);
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    tokio::select! {
        _ = tokio::time::timeout(RESERVED, connection) => {}
        () = evicted.cancelled() => {}
    }
}
