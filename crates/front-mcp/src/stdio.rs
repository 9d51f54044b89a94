//! The server over stdin and stdout, for a client that starts it. Nothing but messages of the protocol is
//! ever written to stdout.

use crate::server::{Face, Server};
use atoll_sessions::{CancellationToken, Who};
use atoll_types::{Error, ErrorCode, Result};
use rmcp::{
    RoleServer,
    service::{ServerInitializeError, serve_server_with_ct},
    transport::async_rw::AsyncRwTransport,
};
use std::sync::Arc;

/// The longest message; a file of the largest size that a tool takes, in base64, fits.
const LONGEST_LINE: usize = 16 << 20;

/// Serves one client until it closes its end, or `end` comes about. Whatever runs then is interrupted.
pub async fn serve(face: Arc<Face>, who: Who, end: CancellationToken) -> Result<()> {
    let transport = AsyncRwTransport::<RoleServer, _, _>::new(tokio::io::stdin(), tokio::io::stdout())
        .with_max_line_length(LONGEST_LINE);
    match serve_server_with_ct(Server::new(face, Some(who)), transport, end).await {
        Ok(running) => match running.waiting().await {
            Ok(_) => Ok(()),
            Err(error) => Err(Error::internal(format!("the MCP server broke off: {error}"))),
        },
        Err(ServerInitializeError::ConnectionClosed(_) | ServerInitializeError::Cancelled) => Ok(()),
        Err(error) => {
            let message = format!("whoever is on stdin does not speak MCP: {error}");
            Err(Error::new(ErrorCode::InvalidArgument, message))
        }
    }
}
