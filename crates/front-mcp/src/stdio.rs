//! The server over stdin and stdout, for a client that starts it. Nothing but messages of the protocol is
//! ever written to stdout.

use crate::server::{Server, ServerContext};
use atoll_tool_sessions::{CancellationToken, ToolCaller};
use atoll_types::{Error, ErrorCode, Result};
use rmcp::{
    RoleServer,
    service::{ServerInitializeError, serve_server_with_ct},
    transport::async_rw::AsyncRwTransport,
};
use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};
use tokio::io::{AsyncRead, ReadBuf, Stdin};

/// The longest message; a file of the largest size that a tool takes, in base64, fits.
const LONGEST_LINE: usize = 16 << 20;

/// Serves one client until it closes its end, or `end` comes about. Whatever runs then is interrupted.
pub async fn serve(face: Arc<ServerContext>, who: ToolCaller, end: CancellationToken) -> Result<()> {
    let gone = end.child_token();
    let stdin = Input { from: tokio::io::stdin(), gone: gone.clone() };
    let transport = AsyncRwTransport::<RoleServer, _, _>::new(stdin, tokio::io::stdout())
        .with_max_line_length(LONGEST_LINE);
    match serve_server_with_ct(Server::for_one(face, who, gone), transport, end).await {
        Ok(running) => match running.waiting().await {
            Ok(_) => Ok(()),
            Err(error) => Err(Error::internal(format!("the MCP server broke off: {error}"))),
        },
        Err(ServerInitializeError::ConnectionClosed(_) | ServerInitializeError::Cancelled) => Ok(()),
        Err(error) => {
            let message = format!("the client on stdin does not speak MCP: {error}");
            Err(Error::new(ErrorCode::InvalidArgument, message))
        }
    }
}

/// Stdin, which reports its end at once: the SDK would first wait for running calls, whose answers the client
/// no longer reads.
struct Input {
    from: Stdin,
    gone: CancellationToken,
}

impl AsyncRead for Input {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        let read = ready!(Pin::new(&mut self.from).poll_read(cx, into));
        if read.is_err() || into.filled().len() == before {
            self.gone.cancel();
        }
        Poll::Ready(read)
    }
}
