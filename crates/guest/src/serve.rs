//! Listening and speaking HTTP/2. A Unix socket, which only the host can reach, needs no authentication, and a
//! connection there may be one of descriptors instead; over TCP every call must carry the token.

use crate::{descriptors, files::Files, reserve, service::GuestService, setup};
use atoll_guest_proto::{
    FEATURE_DESCRIPTORS, FEATURE_KERNELS, FEATURE_SOCKETS, FEATURE_TERMINAL, FEATURE_TOOLS, Listen,
    to_status, v1::guest_server::GuestServer,
};
use atoll_types::{Error, ErrorCode};
use futures_util::future::BoxFuture;
use hyper::{
    Request, Response,
    body::{Body, Frame, Incoming},
    header,
    server::conn::http2,
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::{
    convert::Infallible,
    net::SocketAddr,
    os::fd::FromRawFd,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};
use tokio::io::{AsyncRead, AsyncWrite};
use tonic::codegen::Service;

/// How much may be under way in one direction of one stream, and of a whole connection.
const STREAM_WINDOW: u32 = 512 * 1024;
/// The latter is effectively unlimited: a command that does not read its input must not use up the window of the
/// others.
const CONNECTION_WINDOW: u32 = 1 << 30;
const SEND_BUFFER: usize = 256 * 1024;
const FRAME: u32 = 64 * 1024;
const MOST_STREAMS: u32 = 4096;
/// A pause after a failed accept (too many descriptors), so that it is not retried in a tight loop.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Where calls come from; not yet part of a runtime.
pub(crate) enum Listener {
    Unix(std::os::unix::net::UnixListener),
    Tcp(std::net::TcpListener, Arc<str>),
}

impl Listener {
    /// The features of this listener that not every release, or not every transport, has.
    pub(crate) fn features(&self) -> Vec<String> {
        let mut features = vec![FEATURE_TERMINAL, FEATURE_TOOLS, FEATURE_SOCKETS, FEATURE_KERNELS];
        if matches!(self, Self::Unix(_)) {
            features.push(FEATURE_DESCRIPTORS);
        }
        features.into_iter().map(str::to_owned).collect()
    }

    pub(crate) fn open(listen: &Listen) -> Result<Self, String> {
        match listen {
            Listen::Inherited(fd) => Ok(Self::Unix(inherited(*fd)?)),
            Listen::Tcp { token, .. } if token.is_empty() => Err("the token must not be empty".into()),
            Listen::Tcp { address, token } => {
                let address: SocketAddr =
                    address.parse().map_err(|_| "the address must be IP:port".to_string())?;
                let listener = std::net::TcpListener::bind(address)
                    .and_then(|l| l.set_nonblocking(true).map(|()| l))
                    .map_err(|e| format!("cannot listen on {address}: {e}"))?;
                Ok(Self::Tcp(listener, format!("Bearer {token}").into()))
            }
        }
    }
}

fn inherited(fd: i32) -> Result<std::os::unix::net::UnixListener, String> {
    let (mut value, mut length) = (0i32, 4u32);
    // SAFETY: queries a socket option by descriptor; the kernel writes at most `length` bytes to `value`.
    let result = unsafe {
        libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_ACCEPTCONN, (&raw mut value).cast(), &raw mut length)
    };
    if result != 0 || value != 1 {
        return Err(format!("descriptor {fd} is not a listening socket"));
    }
    // SAFETY: it is a socket, and each number of the configuration is taken once.
    let listener = unsafe { std::os::unix::net::UnixListener::from_raw_fd(fd) };
    listener.set_nonblocking(true).map_err(|e| format!("descriptor {fd}: {e}"))?;
    Ok(listener)
}

/// Serves until the process ends.
pub(crate) async fn serve(listener: Listener, guest: GuestService, files: Files) -> Result<(), String> {
    let server = GuestServer::new(guest);
    match listener {
        Listener::Unix(listener) => {
            let listener = tokio::net::UnixListener::from_std(listener).map_err(|e| e.to_string())?;
            loop {
                match listener.accept().await {
                    Ok((stream, _)) if reserve::check(&stream, reserve::CONNECTION).is_ok() => {
                        connect_unix(stream, server.clone(), files.clone());
                    }
                    Ok(_) | Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
                }
            }
        }
        Listener::Tcp(listener, token) => {
            let listener = tokio::net::TcpListener::from_std(listener).map_err(|e| e.to_string())?;
            loop {
                match listener.accept().await {
                    Ok((stream, _)) if reserve::check(&stream, reserve::CONNECTION).is_ok() => {
                        let _ = stream.set_nodelay(true);
                        tokio::spawn(calls(stream, server.clone(), Some(token.clone())));
                    }
                    Ok(_) | Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
                }
            }
        }
    }
}

fn connect_unix(stream: tokio::net::UnixStream, server: GuestServer<GuestService>, files: Files) {
    tokio::spawn(async move {
        match descriptors::wanted(&stream).await {
            Ok(true) => descriptors::serve(stream, files).await,
            Ok(false) => calls(stream, server, None).await,
            Err(_) => {}
        }
    });
}

async fn calls<S>(stream: S, server: GuestServer<GuestService>, token: Option<Arc<str>>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut http = http2::Builder::new(TokioExecutor::new());
    http.initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buf_size(SEND_BUFFER)
        .max_frame_size(FRAME)
        .max_concurrent_streams(MOST_STREAMS);
    // An error means that the client disconnected; there is no peer left to report it to.
    let _ = http.serve_connection(TokioIo::new(stream), Calls { server, token }).await;
    setup::trim_memory();
}

/// One connection's calls.
struct Calls {
    server: GuestServer<GuestService>,
    token: Option<Arc<str>>,
}

impl hyper::service::Service<Request<Incoming>> for Calls {
    type Response = Response<tonic::body::Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        if let Some(wanted) = &self.token {
            let given = request.headers().get(header::AUTHORIZATION).map_or(&b""[..], |v| v.as_bytes());
            if !same(given, wanted.as_bytes()) {
                let error = Error::new(ErrorCode::PermissionDenied, "the token is missing or wrong");
                return Box::pin(async move { Ok(to_status(&error).into_http()) });
            }
        }
        self.server.clone().call(request.map(Whole))
    }
}

/// A request body that reports a broken stream as an error. Without this a client that disconnects would look
/// like one that has sent everything: tonic reads a cancelled stream as an ended one, and half a file would be
/// taken for a whole one.
struct Whole(Incoming);

/// The client disconnected before it had sent everything.
#[derive(Debug)]
struct BrokenOff;

impl std::fmt::Display for BrokenOff {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the client went away before it had sent all")
    }
}

impl std::error::Error for BrokenOff {}

impl Body for Whole {
    type Data = <Incoming as Body>::Data;
    type Error = BrokenOff;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, BrokenOff>>> {
        Pin::new(&mut self.0).poll_frame(context).map_err(|_| BrokenOff)
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }
}

/// Compares in constant time. The length is no secret.
fn same(given: &[u8], wanted: &[u8]) -> bool {
    if given.len() != wanted.len() {
        return false;
    }
    let difference = given.iter().zip(wanted).fold(0, |sum, (a, b)| sum | (a ^ b));
    std::hint::black_box(difference) == 0
}

#[cfg(test)]
mod tests {
    use super::same;

    #[test]
    fn only_the_whole_token_counts() {
        assert!(same(b"Bearer x", b"Bearer x"));
        assert!(!same(b"Bearer y", b"Bearer x"));
        assert!(!same(b"Bearer", b"Bearer x"));
        assert!(!same(b"", b"Bearer x"));
    }
}
