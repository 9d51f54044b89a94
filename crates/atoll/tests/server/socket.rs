//! A WebSocket client for tests, as plain as one can be.

use super::fixture::{KEY, Server};
use serde_json::Value;
use std::{net::TcpStream, time::Duration};
use tungstenite::{
    HandshakeError, Message, WebSocket,
    client::IntoClientRequest,
    http::{HeaderName, HeaderValue},
    protocol::frame::coding::CloseCode,
};

/// One client at a terminal.
pub(crate) struct Socket {
    pub(crate) raw: WebSocket<TcpStream>,
    /// The head of the answer that made it a WebSocket.
    pub(crate) head: String,
    pub(crate) exec_id: String,
    /// Where the output began, and where it is now.
    pub(crate) start: u64,
    pub(crate) offset: u64,
    pub(crate) output: Vec<u8>,
    pub(crate) texts: Vec<Value>,
    pub(crate) pings: usize,
}

/// Opens a socket on a connection that is there; the status and body where the server says no.
pub(crate) fn connect_over(
    stream: TcpStream,
    path: &str,
    headers: &[(&str, &str)],
) -> Result<Socket, (u16, String)> {
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut request = format!("ws://{}{path}", stream.peer_addr().unwrap()).into_client_request().unwrap();
    for (name, value) in headers {
        let name: HeaderName = name.parse().unwrap();
        request.headers_mut().insert(name, HeaderValue::from_str(value).unwrap());
    }
    match tungstenite::client(request, stream) {
        Ok((raw, response)) => {
            let head = format!("{:?} {:?}", response.status(), response.headers());
            let (exec_id, output, texts) = (String::new(), Vec::new(), Vec::new());
            let mut socket = Socket { raw, head, exec_id, start: 0, offset: 0, output, texts, pings: 0 };
            let ready = loop {
                match socket.raw.read().unwrap() {
                    Message::Text(text) => break serde_json::from_str::<Value>(text.as_str()).unwrap(),
                    Message::Ping(_) => socket.pings += 1,
                    other => panic!("not ready: {other:?}"),
                }
            };
            assert_eq!(ready["type"], "ready");
            socket.exec_id = ready["exec_id"].as_str().unwrap().to_owned();
            (socket.start, socket.offset) =
                (ready["offset"].as_u64().unwrap(), ready["offset"].as_u64().unwrap());
            Ok(socket)
        }
        Err(HandshakeError::Failure(tungstenite::Error::Http(response))) => {
            let body = response.body().clone().unwrap_or_default();
            Err((response.status().as_u16(), String::from_utf8_lossy(&body).into_owned()))
        }
        Err(other) => panic!("{other}"),
    }
}

pub(crate) fn connect(
    server: &Server,
    path: &str,
    headers: &[(&str, &str)],
) -> Result<Socket, (u16, String)> {
    connect_over(TcpStream::connect(server.address).unwrap(), path, headers)
}

impl Socket {
    /// With the first key. The query has its question mark.
    pub(crate) fn open(server: &Server, sandbox: &str, query: &str) -> Self {
        let authorization = format!("Bearer {KEY}");
        connect(server, &format!("{sandbox}/terminal{query}"), &[("authorization", &authorization)]).unwrap()
    }

    pub(crate) fn screen(&self) -> String {
        String::from_utf8_lossy(&self.output).into_owned()
    }

    /// Reads one message; the code where it is a close, and 0 where the connection just broke.
    pub(crate) fn read(&mut self) -> Option<u16> {
        match self.raw.read() {
            Ok(Message::Binary(bytes)) => {
                self.offset += bytes.len() as u64;
                self.output.extend_from_slice(&bytes);
            }
            Ok(Message::Text(text)) => {
                let value: Value = serde_json::from_str(text.as_str()).unwrap();
                self.offset += value["bytes"].as_u64().unwrap_or(0);
                self.texts.push(value);
            }
            Ok(Message::Close(frame)) => {
                let code = frame.map_or(1005, |frame| u16::from(frame.code));
                // Answers, so that the server need not wait.
                while self.raw.read().is_ok() {}
                return Some(code);
            }
            Ok(Message::Ping(_)) => self.pings += 1,
            Ok(_) => {}
            Err(error) => {
                assert!(
                    !matches!(&error, tungstenite::Error::Io(e) if e.kind() == std::io::ErrorKind::WouldBlock),
                    "silence: {:?}",
                    self.screen()
                );
                return Some(0);
            }
        }
        None
    }

    pub(crate) fn until(&mut self, text: &str) {
        while !self.screen().contains(text) {
            let closed = self.read();
            assert_eq!(closed, None, "closed without {text:?}: {:?} {:?}", self.screen(), self.texts);
        }
    }

    /// Reads to the close: its code and the last text.
    pub(crate) fn end(&mut self) -> (u16, Value) {
        loop {
            if let Some(code) = self.read() {
                return (code, self.texts.last().cloned().unwrap_or_default());
            }
        }
    }

    pub(crate) fn types(&mut self, text: &str) {
        self.raw.send(Message::binary(text.as_bytes().to_vec())).unwrap();
    }

    pub(crate) fn says(&mut self, text: &str) {
        self.raw.send(Message::text(text)).unwrap();
    }

    /// Leaves politely.
    pub(crate) fn leave(mut self) {
        let frame = tungstenite::protocol::CloseFrame { code: CloseCode::Normal, reason: "".into() };
        self.raw.close(Some(frame)).unwrap();
        while self.raw.read().is_ok() {}
    }
}
