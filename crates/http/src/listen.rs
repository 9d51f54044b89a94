//! Accepting connections, with a bound on everything that a client could draw out: the head of a request, its
//! size, the body of a command, an answer that is not read, a connection without requests, and the number of connections, of all and of one
//! peer.
//!
//! Every connection holds a permit, a WebSocket or an upgraded one for as long as it lives; the server has
//! ended when all permits are free.

use crate::{
    Failure, Tls,
    body::holding,
    linger::{Lingering, TrackedBody, Unread},
    peers::{PeerConnection, Peers, Reserve},
    stalled::{StreamExecutor, timed},
    watched::Watched,
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
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::conn::auto,
};
use std::{convert::Infallible, future::Future, net::SocketAddr, sync::Arc, time::Duration};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::{Notify, OwnedSemaphorePermit, Semaphore, watch},
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
/// Requests of one HTTP/2 connection at a time.
const STREAMS: u32 = 128;
/// How often a client that speaks HTTP/2 is asked whether it is there, and how long it may take to say so.
const PING: Duration = Duration::from_secs(30);
const PONG: Duration = Duration::from_secs(20);
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
    /// Whether it has TLS.
    tls: bool,
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

/// Among the extensions of a request that came to a listener with TLS.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OverTls;

/// What a listener speaks.
#[derive(Clone, Default)]
pub struct Transport {
    /// HTTP/2 beside HTTP/1.1.
    pub http2: bool,
    /// TLS, and nothing without it.
    pub tls: Option<Tls>,
}

/// Serves HTTP/1.1 without TLS, as [`serve_over`] does.
pub async fn serve(
    listener: TcpListener,
    app: Router,
    limits: impl Fn() -> ConnectionLimits,
    end: impl Future<Output = ()>,
) {
    serve_over(Transport::default(), listener, app, limits, end).await;
}

/// Serves until `end` comes about, and then lets requests that have begun finish, within limits. `limits`
/// says what a new connection may do.
pub async fn serve_over(
    transport: Transport,
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
                    let life = Life { _place: Arc::new(place), ending: Ending(ending.clone()), tls: false };
                    tokio::spawn(connection(transport.clone(), stream, peer, app.clone(), life, limits));
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

/// Serves one connection, after its handshake where it has TLS.
async fn connection(
    transport: Transport,
    stream: TcpStream,
    peer: SocketAddr,
    app: Router,
    life: Life,
    limits: ConnectionLimits,
) {
    let _ = stream.set_nodelay(true);
    let stream = Watched::new(stream, limits.write_timeout);
    let Some(tls) = &transport.tls else {
        return speak(transport.http2, stream, peer, app, life, limits).await;
    };
    match tokio::time::timeout(limits.head_timeout, tls.accept(stream)).await {
        Ok(Ok(stream)) => {
            speak(transport.http2, stream, peer, app, Life { tls: true, ..life }, limits).await;
        }
        Ok(Err(error)) => tracing::debug!(%error, %peer, "a handshake failed"),
        Err(_) => tracing::debug!(%peer, "a handshake took too long"),
    }
}

/// How many requests of a connection are not answered yet.
#[derive(Clone)]
struct InFlight(watch::Sender<usize>);

/// One of them, until its answer is sent.
struct Entered(watch::Sender<usize>);

impl InFlight {
    fn new() -> (Self, watch::Receiver<usize>) {
        let (count, seen) = watch::channel(0);
        (Self(count), seen)
    }

    fn enter(&self) -> Entered {
        self.0.send_modify(|count| *count += 1);
        Entered(self.0.clone())
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

/// Returns when a connection has had no request for so long that it is closed.
async fn idle(mut busy: watch::Receiver<usize>) {
    while busy.wait_for(|count| *count == 0).await.is_ok() {
        if tokio::time::timeout(IDLE, busy.wait_for(|count| *count > 0)).await.is_err() {
            return;
        }
    }
    std::future::pending::<()>().await;
}

/// Serves one connection until it closes, or has become a WebSocket, which holds its life from then on.
async fn speak<S>(http2: bool, stream: S, peer: SocketAddr, app: Router, life: Life, limits: ConnectionLimits)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let unread = Unread::default();
    let (held, told) = (life.clone(), unread.clone());
    let asked = Arc::new(Notify::new());
    let first = Arc::clone(&asked);
    let (requests, busy) = InFlight::new();
    let service = service_fn(move |request: Request<Incoming>| {
        first.notify_one();
        let in_flight = requests.enter();
        let (app, life) = (app.clone(), held.clone());
        let mut request = request.map(|body| Body::new(TrackedBody::new(body, &told)));
        async move {
            request.extensions_mut().insert(ConnectInfo(peer));
            if life.tls {
                request.extensions_mut().insert(OverTls);
            }
            request.extensions_mut().insert(life);
            match app.oneshot(request).await {
                Ok(response) => Ok::<_, Infallible>(timed(holding(response, in_flight))),
                Err(never) => match never {},
            }
        }
    });
    let io = TokioIo::new(Lingering::new(stream, unread));
    let silent = async {
        if tokio::time::timeout(limits.head_timeout, asked.notified()).await.is_ok() {
            std::future::pending::<()>().await;
        }
    };
    // HTTP/1.1 has its own limit between two requests.
    let finished = async {
        tokio::select! {
            () = life.ending() => {}
            () = idle(busy), if http2 => {}
        }
    };
    // On shutdown, requests that have begun may end. A connection that has asked for nothing has nothing to be answered.
    // One that was idle may still have the end of an answer that its client takes no more: it does not wait for that.
    macro_rules! drive {
        ($connection:expr) => {{
            let mut connection = std::pin::pin!($connection);
            tokio::select! {
                served = connection.as_mut() => served.map_err(|error| error.to_string()),
                () = silent => return,
                () = finished => {
                    connection.as_mut().graceful_shutdown();
                    let ended = tokio::time::timeout(IDLE, connection).await;
                    ended.map_or(Ok(()), |served| served.map_err(|error| error.to_string()))
                }
            }
        }};
    }
    let served = if http2 {
        let mut builder = auto::Builder::new(StreamExecutor { write_timeout: limits.write_timeout });
        let mut first = builder.http1();
        first
            .timer(TokioTimer::new())
            .header_read_timeout(IDLE)
            .max_buf_size(HEAD_BYTES)
            .max_headers(HEAD_LINES);
        let mut second = builder.http2();
        second
            .timer(TokioTimer::new())
            .max_concurrent_streams(STREAMS)
            .max_header_list_size(HEAD_BYTES as u32);
        second.keep_alive_interval(PING).keep_alive_timeout(PONG);
        drive!(builder.serve_connection(io, service))
    } else {
        let mut builder = http1::Builder::new();
        builder
            .timer(TokioTimer::new())
            .header_read_timeout(IDLE)
            .max_buf_size(HEAD_BYTES)
            .max_headers(HEAD_LINES);
        drive!(builder.serve_connection(io, service).with_upgrades())
    };
    // A client that breaks off is no fault of ours.
    if let Err(error) = served {
        tracing::debug!(error, %peer, "a connection broke");
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

#[cfg(test)]
mod tests;
