//! Accepting connections, with an end to everything that a client could draw out: the head of a request,
//! its size, the body of a command, and the number of connections.

use axum::{Router, body::Body, extract::ConnectInfo, http::Request};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::{convert::Infallible, future::Future, net::SocketAddr, sync::Arc, time::Duration};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

/// How long a client may take to send the head of a request, an idle connection included.
const HEAD: Duration = Duration::from_secs(75);
/// The largest head, and the most lines in it.
const HEAD_BYTES: usize = 64 * 1024;
const HEAD_LINES: usize = 100;
/// Connections at one time.
const CONNECTIONS: u32 = 8192;
/// How long requests may take to end when the server is told to.
const PATIENCE: Duration = Duration::from_secs(10);
/// A pause after an accept that failed, mostly for want of descriptors.
const PAUSE: Duration = Duration::from_millis(50);

/// A connection's place among all, and word of the server's end. Whoever takes a connection over (an
/// upgrade) keeps it for as long as the connection lasts.
#[derive(Debug, Clone)]
pub(crate) struct Hold {
    _place: Arc<OwnedSemaphorePermit>,
    pub(crate) ending: CancellationToken,
}

/// Serves until `end` comes about, and then lets what has begun finish, within limits.
pub async fn serve(listener: TcpListener, app: Router, end: impl Future<Output = ()>) {
    let room = Arc::new(Semaphore::new(CONNECTIONS as usize));
    let ending = CancellationToken::new();
    let mut end = std::pin::pin!(end);
    loop {
        let Ok(place) = Arc::clone(&room).acquire_owned().await else { return };
        let hold = Hold { _place: Arc::new(place), ending: ending.clone() };
        tokio::select! {
            () = &mut end => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => {
                    let connection = connection(stream, peer, app.clone(), hold);
                    tokio::spawn(async move {
                        // A client that breaks off is no fault of ours.
                        if let Err(error) = connection.await {
                            tracing::debug!(%error, %peer, "a connection broke");
                        }
                    });
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
    // When every place is free again, all have ended. A client that never lets go does not keep the server.
    let _ = tokio::time::timeout(PATIENCE, room.acquire_many(CONNECTIONS)).await;
}

async fn connection(stream: TcpStream, peer: SocketAddr, app: Router, hold: Hold) -> hyper::Result<()> {
    let _ = stream.set_nodelay(true);
    let ending = hold.ending.clone();
    let service = service_fn(move |request: Request<Incoming>| {
        let (app, hold) = (app.clone(), hold.clone());
        async move {
            let mut request = request.map(Body::new);
            request.extensions_mut().insert(ConnectInfo(peer));
            request.extensions_mut().insert(hold);
            match app.oneshot(request).await {
                Ok(response) => Ok::<_, Infallible>(response),
                Err(never) => match never {},
            }
        }
    });
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .max_buf_size(HEAD_BYTES)
        .max_headers(HEAD_LINES);
    let connection = builder.serve_connection(TokioIo::new(stream), service).with_upgrades();
    let mut connection = std::pin::pin!(connection);
    tokio::select! {
        ended = &mut connection => ended,
        () = ending.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    }
}
