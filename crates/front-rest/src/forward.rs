//! One TCP connection to a port of a sandbox, over a WebSocket, for programs. Each binary message is
//! bytes; an empty one says that no more come from that side. The close of the WebSocket is the end of
//! the connection.

use crate::{
    App,
    parse::{Params, sandbox_id},
};
use atoll_core::Port;
use atoll_http::{Failure, Life, RequestOrigin, Who};
use atoll_types::{Error, ErrorCode};
use axum::{
    Extension,
    extract::{
        Path, State,
        ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade, close_code},
    },
    response::Response,
};
use bytes::{Bytes, BytesMut};
use futures_util::{SinkExt, StreamExt, stream::SplitSink, stream::SplitStream};
use serde::Deserialize;
use std::time::Duration;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    sync::oneshot,
};
use utoipa::IntoParams;

/// The largest message.
const LARGEST: usize = 1 << 20;
/// How long a client may take to agree to the end.
const FAREWELL: Duration = Duration::from_secs(5);
/// What is read of the connection at a time.
const PIECE: usize = 64 * 1024;

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ForwardParams {
    #[param(minimum = 1, maximum = 65535)]
    port: u16,
}

/// A TCP connection to a port of the sandbox, over a WebSocket. Binary messages are bytes; an empty one
/// is the end of that direction; the close is the end.
#[utoipa::path(get, path = "/api/v1/sandboxes/{id}/forward", tag = "preview", params(("id" = uuid::Uuid, Path), ForwardParams),
    responses((status = 101, description = "The connection is there"), (status = 404), (status = 409),
        (status = 502, description = "Nothing listens on the port")))]
pub(crate) async fn forward(
    State(app): State<App>,
    Who(caller): Who,
    Path(id): Path<String>,
    Params(params): Params<ForwardParams>,
    hold: Option<Extension<Life>>,
    asked: RequestOrigin,
    socket: Result<WebSocketUpgrade, axum::extract::ws::rejection::WebSocketUpgradeRejection>,
) -> Result<Response, Failure> {
    // A browser names the origin of the page, and opens a WebSocket for any page.
    if !asked.is_own_page() {
        let message = "this is for programs; a page of another origin may not open it";
        return Err(Error::new(ErrorCode::PermissionDenied, message).into());
    }
    let id = sandbox_id(&id)?;
    let socket = match socket {
        Ok(socket) => socket,
        Err(error) => {
            // A caller that may not use the port gets that error first.
            app.core.ports.get(&caller, id, params.port).await.map_err(Failure::in_query)?;
            return Err(Failure::no_socket(format!("expected a WebSocket: {error}")));
        }
    };
    let (port, stream) = app.core.ports.forward(&caller, id, params.port).await.map_err(Failure::in_query)?;
    let socket = socket.max_message_size(LARGEST).max_frame_size(LARGEST);
    Ok(socket.on_upgrade(move |socket| carry(socket, stream, port, hold.map(|h| h.0))))
}

/// Carries bytes until both directions are done, or the sandbox or the server ends.
async fn carry(socket: WebSocket, stream: impl AsyncRead + AsyncWrite, port: Port, hold: Option<Life>) {
    let Ok(closed) = port.closed() else { return };
    drop(port);
    let (mut to_client, mut from_client) = socket.split();
    let (from_port, to_port) = tokio::io::split(stream);
    let ending = async {
        match &hold {
            Some(hold) => hold.ending().await,
            None => std::future::pending().await,
        }
    };
    let (code, reason) = tokio::select! {
        ended = both(&mut to_client, &mut from_client, from_port, to_port) => ended,
        () = closed => (close_code::AWAY, "the sandbox has ended"),
        () = ending => (close_code::RESTART, "the server is ending"),
    };
    // A client that has gone needs no farewell.
    let _ = to_client.send(Message::Close(Some(CloseFrame { code, reason: reason.into() }))).await;
    // Closing with something unread would take back what is still on its way to the client.
    let _ =
        tokio::time::timeout(FAREWELL, async { while let Some(Ok(_)) = from_client.next().await {} }).await;
}

type CloseReason = (u16, &'static str);

async fn both(
    to_client: &mut SplitSink<WebSocket, Message>,
    from_client: &mut SplitStream<WebSocket>,
    from_port: impl AsyncRead + Unpin,
    to_port: impl AsyncWrite + Unpin,
) -> CloseReason {
    let (said, client_is_done) = oneshot::channel();
    let out = async {
        let sent = outward(to_client, from_port).await;
        // The client may send more; one that has gone does not say that it is done.
        if sent.is_ok() && client_is_done.await.is_err() {
            return std::future::pending().await;
        }
        sent.err().unwrap_or((close_code::NORMAL, "done"))
    };
    tokio::select! {
        farewell = inward(from_client, to_port, said) => farewell,
        farewell = out => farewell,
    }
}

/// Reads the client until it closes: after the end of what it sends, too, for it may go.
async fn inward(
    client: &mut SplitStream<WebSocket>,
    mut port: impl AsyncWrite + Unpin,
    done: oneshot::Sender<()>,
) -> CloseReason {
    let mut done = Some(done);
    let mut finish = || _ = done.take().map(|done| done.send(()));
    let mut writable = true;
    while let Some(message) = client.next().await {
        match message {
            Ok(Message::Binary(bytes)) => {
                let written = match (writable, bytes.is_empty()) {
                    (true, true) => port.shutdown().await,
                    (true, false) => port.write_all(&bytes).await,
                    // The program on the port reads no more. What it answered before is still on its way.
                    (false, _) => continue,
                };
                writable = written.is_ok() && !bytes.is_empty();
                if !writable {
                    finish();
                }
            }
            Ok(Message::Text(_)) => return (close_code::UNSUPPORTED, "expected binary messages"),
            Ok(Message::Ping(_) | Message::Pong(_)) => {}
            Ok(Message::Close(_)) | Err(_) => break,
        }
    }
    (close_code::NORMAL, "done")
}

async fn outward(
    client: &mut SplitSink<WebSocket, Message>,
    mut port: impl AsyncRead + Unpin,
) -> Result<(), CloseReason> {
    let mut buffer = BytesMut::with_capacity(PIECE);
    loop {
        let read =
            port.read_buf(&mut buffer).await.map_err(|_| (close_code::NORMAL, "the connection broke"))?;
        let bytes = if read == 0 { Bytes::new() } else { buffer.split().freeze() };
        client.send(Message::Binary(bytes)).await.map_err(|_| (close_code::NORMAL, "the client has gone"))?;
        if read == 0 {
            return Ok(());
        }
        buffer.reserve(PIECE);
    }
}
