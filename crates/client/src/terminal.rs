//! Terminals: a WebSocket over the same connections, TLS and errors as every other request.

use crate::{ApiError, Client, Error, Result, client::empty, encode, sandboxes::at};
use atoll_types::TerminalSize;
use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use futures_util::{
    SinkExt, StreamExt,
    stream::{SplitSink, SplitStream},
};
use hyper::{
    Method, StatusCode,
    header::{
        CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION,
        UPGRADE,
    },
    upgrade::Upgraded,
};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use serde_json::json;
use std::{collections::BTreeMap, time::Duration};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        Message,
        handshake::{client::generate_key, derive_accept_key},
        protocol::{Role, WebSocketConfig},
    },
};
use uuid::Uuid;

/// The server sends pings more often than this.
const SILENCE: Duration = Duration::from_secs(75);
/// More than a message of the server's needs.
const LARGEST_MESSAGE: usize = 8 << 20;
/// The size of one message; the server takes no more than a megabyte.
const PIECE: usize = 256 << 10;

/// The header with what a terminal is opened with: JSON in Base64.
const OPENING: &str = "atoll-terminal";

type Socket = WebSocketStream<TokioIo<Upgraded>>;

/// A request for a terminal.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OpenTerminal {
    /// A line for the shell, instead of the image's login shell.
    pub command: Option<String>,
    /// The working directory: absolute, or relative to /workspace.
    pub working_directory: Option<String>,
    /// Variables on top of the sandbox's own.
    pub env_vars: BTreeMap<String, String>,
    /// The user: a name, UID or UID:GID.
    pub user: Option<String>,
    /// Its size.
    pub size: Option<TerminalSize>,
}

/// An attached terminal. Dropping it leaves the terminal running.
pub struct Terminal {
    /// The id for attaching again.
    pub exec_id: String,
    /// The offset of the first byte of output to come.
    pub offset: u64,
    /// Its output.
    pub output: TerminalOutput,
    /// Its input.
    pub input: TerminalInput,
}

/// An event of a terminal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TerminalEvent {
    /// It printed something.
    Output(Bytes),
    /// Output that is not kept any more.
    Dropped(u64),
    /// Its command ended. Nothing comes after this.
    Exit {
        /// As a shell shows it.
        exit_code: i32,
        /// What ended it, if a signal did.
        signal: Option<i32>,
    },
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Frame {
    Ready {
        exec_id: String,
        offset: u64,
    },
    Dropped {
        bytes: u64,
    },
    Exit {
        exit_code: i32,
        signal: Option<i32>,
    },
    Error {
        #[serde(default)]
        code: String,
        message: String,
    },
    /// Of a newer server.
    #[serde(other)]
    Unknown,
}

/// The receiving half.
pub struct TerminalOutput(SplitStream<Socket>);

enum Received {
    Bytes(Bytes),
    Frame(Frame),
}

impl TerminalOutput {
    async fn receive(&mut self) -> Result<Received> {
        let broken = |why: &str| Error::Unexpected(format!("the connection broke ({why})"));
        loop {
            let message = tokio::time::timeout(SILENCE, self.0.next()).await;
            match message.map_err(|_| broken("no sign of life"))? {
                Some(Ok(Message::Binary(bytes))) => return Ok(Received::Bytes(bytes)),
                Some(Ok(Message::Text(text))) => match serde_json::from_str(text.as_str()) {
                    Ok(frame) => return Ok(Received::Frame(frame)),
                    Err(e) => {
                        return Err(Error::Unexpected(format!("it sent what is no message of Atoll ({e})")));
                    }
                },
                Some(Ok(Message::Close(_))) | None => return Err(broken("closed")),
                // The library answers pings.
                Some(Ok(_)) => {}
                Some(Err(e)) => return Err(broken(&e.to_string())),
            }
        }
    }

    /// The next event. An error that is none of the server's means that the connection is gone, and that
    /// attaching again may help.
    pub async fn next(&mut self) -> Result<TerminalEvent> {
        loop {
            match self.receive().await? {
                Received::Bytes(bytes) => return Ok(TerminalEvent::Output(bytes)),
                Received::Frame(Frame::Dropped { bytes }) => return Ok(TerminalEvent::Dropped(bytes)),
                Received::Frame(Frame::Exit { exit_code, signal }) => {
                    return Ok(TerminalEvent::Exit { exit_code, signal });
                }
                Received::Frame(Frame::Error { code, message }) => {
                    let error = ApiError { code, message, ..ApiError::default() };
                    return Err(Error::Api(Box::new(error)));
                }
                Received::Frame(Frame::Ready { .. } | Frame::Unknown) => {}
            }
        }
    }
}

/// The sending half.
pub struct TerminalInput(SplitSink<Socket, Message>);

impl TerminalInput {
    async fn send(&mut self, message: Message) -> Result<()> {
        self.0.send(message).await.map_err(|e| Error::Unexpected(format!("the connection broke ({e})")))
    }

    /// Sends input.
    pub async fn write(&mut self, bytes: Bytes) -> Result<()> {
        for at in (0..bytes.len()).step_by(PIECE) {
            self.send(Message::Binary(bytes.slice(at..bytes.len().min(at + PIECE)))).await?;
        }
        Ok(())
    }

    /// Sends the end of input.
    pub async fn end(&mut self) -> Result<()> {
        self.send(Message::text(json!({ "type": "eof" }).to_string())).await
    }

    /// Sets the terminal's size.
    pub async fn resize(&mut self, size: TerminalSize) -> Result<()> {
        let TerminalSize { rows, columns } = size;
        self.send(Message::text(json!({ "type": "resize", "rows": rows, "cols": columns }).to_string())).await
    }

    /// Detaches. Input that was sent before arrives.
    pub async fn close(&mut self) -> Result<()> {
        self.send(Message::Close(None)).await
    }
}

fn sides(size: Option<TerminalSize>) -> [(&'static str, Option<String>); 2] {
    [("rows", size.map(|s| s.rows.to_string())), ("cols", size.map(|s| s.columns.to_string()))]
}

impl Client {
    /// Opens a terminal.
    pub async fn open_terminal(&self, id: Uuid, request: &OpenTerminal) -> Result<Terminal> {
        let OpenTerminal { command, working_directory, env_vars, user, size } = request.clone();
        let [rows, columns] = sides(size);
        let query = [rows, columns, ("cwd", working_directory), ("user", user)];
        // What may hold a secret or be long is in no address, which logs and lists of processes show.
        let opening = json!({ "command": command, "env_vars": env_vars });
        self.terminal(id, &query, Some(STANDARD.encode(opening.to_string()))).await
    }

    /// Attaches to an existing terminal, at an offset of its output or at the oldest that is kept.
    pub async fn attach_terminal(
        &self,
        id: Uuid,
        exec_id: &str,
        from: Option<u64>,
        size: Option<TerminalSize>,
    ) -> Result<Terminal> {
        let [rows, columns] = sides(size);
        let from = ("from", from.map(|from| from.to_string()));
        self.terminal(id, &[rows, columns, ("exec_id", Some(exec_id.to_owned())), from], None).await
    }

    async fn terminal(
        &self,
        id: Uuid,
        query: &[(&str, Option<String>)],
        opening: Option<String>,
    ) -> Result<Terminal> {
        let key = generate_key();
        let path = format!("{}{}", at(id, "/terminal"), encode::query(query));
        let builder = self
            .request(Method::GET, &path)
            .header(CONNECTION, "upgrade")
            .header(UPGRADE, "websocket")
            .header(SEC_WEBSOCKET_VERSION, "13")
            .header(SEC_WEBSOCKET_PROTOCOL, "atoll.terminal.v1")
            .header(SEC_WEBSOCKET_KEY, &key);
        let builder = opening.iter().fold(builder, |builder, opening| builder.header(OPENING, opening));
        let response = self.answer(builder, empty()).await?;
        if response.status() != StatusCode::SWITCHING_PROTOCOLS {
            return Err(self.refused(response).await);
        }
        let accepted = response.headers().get(SEC_WEBSOCKET_ACCEPT).map(|v| v.as_bytes().to_owned());
        if accepted != Some(derive_accept_key(key.as_bytes()).into_bytes()) {
            return Err(Error::Unexpected("it speaks no WebSocket".into()));
        }
        let upgraded = hyper::upgrade::on(response)
            .await
            .map_err(|e| Error::Unexpected(format!("the connection broke ({e})")))?;
        let limits = WebSocketConfig::default()
            .max_message_size(Some(LARGEST_MESSAGE))
            .max_frame_size(Some(LARGEST_MESSAGE));
        let socket = Socket::from_raw_socket(TokioIo::new(upgraded), Role::Client, Some(limits)).await;
        let (input, output) = socket.split();
        let mut output = TerminalOutput(output);
        match output.receive().await? {
            Received::Frame(Frame::Ready { exec_id, offset }) => {
                Ok(Terminal { exec_id, offset, output, input: TerminalInput(input) })
            }
            _ => Err(Error::Unexpected("it did not say which terminal this is".into())),
        }
    }
}
