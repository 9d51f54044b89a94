//! Accepting connections, with an end to everything that a client could draw out: the head of a request,
//! its size, the body of a command, and the number of connections.

use axum::{
    Router,
    body::Body,
    extract::{ConnectInfo, FromRequestParts},
    http::{Request, request::Parts},
};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::GracefulShutdown,
};
use std::{convert::Infallible, future::Future, net::SocketAddr, sync::Arc, time::Duration};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{Semaphore, watch},
};
use tower::ServiceExt;

/// How long a client may take to send the head of a request, an idle connection included.
const HEAD: Duration = Duration::from_secs(75);
/// The largest head, and the most lines in it.
const HEAD_BYTES: usize = 64 * 1024;
const HEAD_LINES: usize = 100;
/// Connections at one time.
const CONNECTIONS: usize = 8192;
/// How long requests may take to end when the server is told to.
const PATIENCE: Duration = Duration::from_secs(10);
/// A pause after an accept that failed, mostly for want of descriptors.
const PAUSE: Duration = Duration::from_millis(50);

/// Tells answers without an end that the server's has come.
#[derive(Debug, Clone)]
pub(crate) struct Ending(Option<watch::Receiver<bool>>);

impl Ending {
    /// Of a server that does not say.
    pub(crate) fn never() -> Self {
        Self(None)
    }

    /// Waits for it.
    pub(crate) async fn wait(&mut self) {
        if let Some(receiver) = &mut self.0
            && receiver.wait_for(|ends| *ends).await.is_ok()
        {
            return;
        }
        std::future::pending::<()>().await;
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Ending {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(parts.extensions.get().cloned().unwrap_or_else(Self::never))
    }
}

/// Serves until `end` comes about, and then lets what has begun finish, within limits.
pub async fn serve(listener: TcpListener, app: Router, end: impl Future<Output = ()>) {
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    let graceful = GracefulShutdown::new();
    let (ends, ending) = watch::channel(false);
    let mut end = std::pin::pin!(end);
    loop {
        let Ok(place) = Arc::clone(&room).acquire_owned().await else { return };
        tokio::select! {
            () = &mut end => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => {
                    let connection = graceful.watch(connection(stream, peer, app.clone(), Ending(Some(ending.clone()))));
                    tokio::spawn(async move {
                        // A client that breaks off is no fault of ours.
                        if let Err(error) = connection.await {
                            tracing::debug!(%error, %peer, "a connection broke");
                        }
                        drop(place);
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
    ends.send_replace(true);
    // A client that never lets go does not keep the server.
    let _ = tokio::time::timeout(PATIENCE, graceful.shutdown()).await;
}

fn connection(
    stream: TcpStream,
    peer: SocketAddr,
    app: Router,
    ending: Ending,
) -> impl hyper_util::server::graceful::GracefulConnection<Error = hyper::Error> {
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request: Request<Incoming>| {
        let (app, ending) = (app.clone(), ending.clone());
        async move {
            let mut request = request.map(Body::new);
            request.extensions_mut().insert(ConnectInfo(peer));
            request.extensions_mut().insert(ending);
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
    builder.serve_connection(TokioIo::new(stream), service)
}
