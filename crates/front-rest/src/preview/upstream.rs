//! Connections to servers inside sandboxes: made when needed, kept for a little while, and closed when the
//! sandbox's container ends. What comes back over them is hostile: heads are bounded in size, in lines and in
//! time.

use atoll_core::Port;
use atoll_types::{ContainerId, Error, ErrorCode, Result};
use axum::body::Body;
use axum::http::{Method, Request, Response, StatusCode};
use bytes::Bytes;
use hyper::{
    body::{Body as _, Frame, Incoming, SizeHint},
    client::conn::http1::{self, SendRequest},
};
use hyper_util::rt::TokioIo;
use std::{
    collections::HashMap,
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};
use tokio::time::Instant;

/// The largest head of an answer, and the most lines in it.
const HEAD_BYTES: usize = 64 * 1024;
const HEAD_LINES: usize = 128;
/// Connections to one port that wait for the next request, and for how long.
const MOST_IDLE: usize = 8;
const IDLE: Duration = Duration::from_secs(30);

type Key = (ContainerId, u16);
type Sender = SendRequest<Watched>;

/// Every connection that waits for its next request.
#[derive(Default)]
struct Pool {
    idle: Mutex<HashMap<Key, Vec<(u64, Sender)>>>,
    next: AtomicU64,
}

/// The way to servers inside.
pub(crate) struct Upstream {
    pool: Arc<Pool>,
    patience: Duration,
}

impl Pool {
    /// One that may still be open.
    fn take(&self, key: Key) -> Option<Sender> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let waiting = idle.get_mut(&key)?;
        let found = std::iter::from_fn(|| waiting.pop()).map(|(_, sender)| sender).find(Sender::is_ready);
        if waiting.is_empty() {
            idle.remove(&key);
        }
        found
    }

    fn put(&self, key: Key, sender: Sender) -> u64 {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let waiting = idle.entry(key).or_default();
        if waiting.len() >= MOST_IDLE {
            waiting.remove(0);
        }
        waiting.push((number, sender));
        number
    }

    fn forget(&self, key: Key, number: u64) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(waiting) = idle.get_mut(&key) {
            waiting.retain(|(n, _)| *n != number);
            if waiting.is_empty() {
                idle.remove(&key);
            }
        }
    }
}

/// A body that notes when it last moved: an app need not answer before it has been sent everything.
pub(crate) struct Watched {
    body: Body,
    moved: Arc<Mutex<Instant>>,
}

impl hyper::body::Body for Watched {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        if polled.is_ready() {
            *self.moved.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Why there is no answer.
enum UpstreamFailure {
    /// The connection was not what it seemed; another may do.
    Stale(Error),
    Final(Error),
}

impl Upstream {
    pub(crate) fn new(patience: Duration) -> Self {
        Self { pool: Arc::default(), patience }
    }

    /// Sends a request to a port and returns its answer, whose body is still to come.
    pub(crate) async fn send(
        &self,
        port: &Port,
        request: Request<Body>,
        upgrade: bool,
    ) -> Result<Response<Incoming>> {
        let (parts, body) = request.into_parts();
        // A connection that has waited may be closed by the time it is used. Only what may be sent twice
        // takes that risk.
        let harmless = matches!(parts.method, Method::GET | Method::HEAD | Method::OPTIONS);
        let kept =
            if harmless && body.is_end_stream() && !upgrade { self.pool.take(port.key()) } else { None };
        if let Some(sender) = kept {
            let first = Request::from_parts(parts.clone(), Body::empty());
            match self.exchange(port, sender, first, upgrade).await {
                Ok(response) => return Ok(response),
                Err(UpstreamFailure::Stale(_)) => {}
                Err(UpstreamFailure::Final(error)) => return Err(error),
            }
        }
        let sender = open(port).await?;
        match self.exchange(port, sender, Request::from_parts(parts, body), upgrade).await {
            Ok(response) => Ok(response),
            Err(UpstreamFailure::Stale(error) | UpstreamFailure::Final(error)) => Err(error),
        }
    }

    async fn exchange(
        &self,
        port: &Port,
        mut sender: Sender,
        request: Request<Body>,
        upgrade: bool,
    ) -> Result<Response<Incoming>, UpstreamFailure> {
        let moved = Arc::new(Mutex::new(Instant::now()));
        let request = request.map(|body| Watched { body, moved: Arc::clone(&moved) });
        let number = port.number;
        let mut sending = std::pin::pin!(sender.send_request(request));
        let answered = loop {
            let end = *moved.lock().unwrap_or_else(PoisonError::into_inner) + self.patience;
            tokio::select! {
                answered = &mut sending => break answered,
                () = tokio::time::sleep_until(end) => {
                    if *moved.lock().unwrap_or_else(PoisonError::into_inner) + self.patience <= Instant::now() {
                        let message = format!("the server on port {number} in the sandbox takes too long to answer");
                        return Err(UpstreamFailure::Final(Error::new(ErrorCode::Timeout, message)));
                    }
                }
            }
        };
        let response = answered.map_err(|error| silence(&error, number))?;
        match (response.status() == StatusCode::SWITCHING_PROTOCOLS, upgrade) {
            (true, true) => Ok(response),
            (true, false) => {
                Err(UpstreamFailure::Final(wrong(number, "switched to another protocol unasked")))
            }
            (false, _) => {
                self.keep(port, sender);
                Ok(response)
            }
        }
    }

    /// Keeps a connection for the next request, when this one's answer has been read.
    fn keep(&self, port: &Port, mut sender: Sender) {
        let (pool, key) = (Arc::clone(&self.pool), port.key());
        tokio::spawn(async move {
            if sender.ready().await.is_ok() {
                let number = pool.put(key, sender);
                tokio::time::sleep(IDLE).await;
                pool.forget(key, number);
            }
        });
    }
}

/// Connects, and carries the connection for as long as it and the container last.
async fn open(port: &Port) -> Result<Sender> {
    let (stream, closed) = (port.connect().await?, port.closed()?);
    let mut builder = http1::Builder::new();
    builder.max_buf_size(HEAD_BYTES).max_headers(HEAD_LINES);
    let (sender, connection) =
        builder.handshake(TokioIo::new(stream)).await.map_err(|e| wrong(port.number, &e.to_string()))?;
    tokio::spawn(async move {
        tokio::select! {
            ended = connection.with_upgrades() => if let Err(error) = ended {
                tracing::debug!(%error, "a connection into a sandbox broke");
            },
            () = closed => {}
        }
    });
    Ok(sender)
}

fn wrong(port: u16, what: &str) -> Error {
    Error::new(ErrorCode::BadGateway, format!("the server on port {port} in the sandbox {what}"))
}

fn silence(error: &hyper::Error, port: u16) -> UpstreamFailure {
    if error.is_parse_too_large() {
        return UpstreamFailure::Final(wrong(port, "answered with a head that is too large"));
    }
    if error.is_parse() {
        return UpstreamFailure::Final(wrong(port, "answered what is no HTTP"));
    }
    if error.is_body_write_aborted() || error.is_user() {
        return UpstreamFailure::Final(Error::new(ErrorCode::Unavailable, "the request broke off"));
    }
    UpstreamFailure::Stale(wrong(port, "closed the connection before it answered"))
}
