//! Just enough HTTP/1.1 for the figures: one connection that stays open, a client at one end of it, and the
//! plain file server at the other. A client library would add work of its own to every measurement.

use crate::Result;
use bytes::{Buf, BytesMut};
use std::{io, net::SocketAddr};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// The most that is read at once.
const ROOM: usize = 256 << 10;
/// No head is longer.
const LONGEST_HEAD: usize = 64 << 10;

/// One end of a connection, and bytes that were read ahead.
pub(crate) struct Wire {
    stream: TcpStream,
    buffer: BytesMut,
}

/// The head of a request or a response.
pub(crate) struct Head(String);

/// How the end of a body is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Length {
    Known(u64),
    Chunked,
}

impl Head {
    /// This word of the first line.
    pub(crate) fn word(&self, place: usize) -> &str {
        self.0.lines().next().and_then(|line| line.split(' ').nth(place)).unwrap_or_default()
    }

    fn header(&self, name: &str) -> Option<&str> {
        let headers = self.0.lines().skip(1).filter_map(|line| line.split_once(':'));
        headers.into_iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
    }

    /// The `Content-Length`.
    pub(crate) fn length(&self) -> Result<u64> {
        Ok(self.header("content-length").map_or(Ok(0), str::parse)?)
    }

    fn body(&self) -> Result<Length> {
        match self.header("transfer-encoding") {
            Some(coding) if coding.eq_ignore_ascii_case("chunked") => Ok(Length::Chunked),
            Some(coding) => Err(format!("there is a body in {coding}").into()),
            None => Ok(Length::Known(self.length()?)),
        }
    }
}

fn find(text: &[u8], wanted: &[u8]) -> Option<usize> {
    text.windows(wanted.len()).position(|window| window == wanted)
}

impl Wire {
    pub(crate) fn new(stream: TcpStream) -> Result<Self> {
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: BytesMut::with_capacity(ROOM) })
    }

    pub(crate) async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes).await
    }

    /// Reads more; returns whether there was more.
    async fn fill(&mut self) -> io::Result<bool> {
        self.buffer.reserve(if self.buffer.is_empty() { ROOM } else { 1 });
        Ok(self.stream.read_buf(&mut self.buffer).await? > 0)
    }

    /// The bytes up to a mark, which is skipped. None where the other end has closed before.
    async fn until(&mut self, mark: &[u8]) -> Result<Option<String>> {
        loop {
            if let Some(end) = find(&self.buffer, mark) {
                let text = String::from_utf8(self.buffer.split_to(end).to_vec())?;
                self.buffer.advance(mark.len());
                return Ok(Some(text));
            }
            if self.buffer.len() > LONGEST_HEAD {
                return Err("a head without an end".into());
            }
            if !self.fill().await? {
                return Ok(None);
            }
        }
    }

    /// The next head; none where the other end has closed.
    pub(crate) async fn head(&mut self) -> Result<Option<Head>> {
        Ok(self.until(b"\r\n\r\n").await?.map(Head))
    }

    /// Passes so many bytes on as they come.
    pub(crate) async fn pass(
        &mut self,
        mut left: u64,
        sink: &mut impl FnMut(&[u8]) -> io::Result<()>,
    ) -> Result<()> {
        while left > 0 {
            if self.buffer.is_empty() && !self.fill().await? {
                return Err(format!("the connection closed {left} bytes too early").into());
            }
            let length = usize::try_from(left).map_or(self.buffer.len(), |left| left.min(self.buffer.len()));
            sink(&self.buffer[..length])?;
            self.buffer.advance(length);
            left -= length as u64;
        }
        Ok(())
    }

    /// The next so many bytes.
    pub(crate) async fn take(&mut self, length: usize) -> Result<BytesMut> {
        while self.buffer.len() < length {
            if !self.fill().await? {
                return Err("the connection closed in the middle of something".into());
            }
        }
        Ok(self.buffer.split_to(length))
    }

    async fn line(&mut self) -> Result<String> {
        self.until(b"\r\n").await?.ok_or_else(|| "the connection closed in a body".into())
    }

    async fn pass_body(
        &mut self,
        length: Length,
        mut sink: impl FnMut(&[u8]) -> io::Result<()>,
    ) -> Result<()> {
        let Length::Known(length) = length else {
            loop {
                let size = u64::from_str_radix(&self.line().await?, 16)?;
                self.pass(size, &mut sink).await?;
                self.line().await?;
                if size == 0 {
                    return Ok(());
                }
            }
        };
        self.pass(length, &mut sink).await
    }
}

/// A small response.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
    /// The MCP session that it starts.
    pub(crate) session: Option<String>,
}

impl Answer {
    /// The body of a response with this status.
    pub(crate) fn expect(self, status: u16) -> Result<Vec<u8>> {
        if self.status == status {
            return Ok(self.body);
        }
        Err(format!("the server answered {}: {}", self.status, String::from_utf8_lossy(&self.body)).into())
    }
}

/// A client's end.
pub(crate) struct Client {
    wire: Wire,
    /// The headers of every request.
    headers: String,
}

impl Client {
    /// Connects. The key, if any, is sent with every request.
    pub(crate) async fn connect(address: SocketAddr, key: Option<&str>) -> Result<Self> {
        let key = key.map_or_else(String::new, |key| format!("Authorization: Bearer {key}\r\n"));
        let headers = format!("Host: {address}\r\n{key}");
        Ok(Self { wire: Wire::new(TcpStream::connect(address).await?)?, headers })
    }

    fn head(&self, method: &str, path: &str, length: u64) -> String {
        format!("{method} {path} HTTP/1.1\r\n{}Content-Length: {length}\r\n\r\n", self.headers)
    }

    /// Adds a header to every request from now on.
    pub(crate) fn say(&mut self, header: &str) {
        self.headers.push_str(header);
        self.headers.push_str("\r\n");
    }

    async fn answer_head(&mut self) -> Result<(u16, Length, Head)> {
        let head = self.wire.head().await?.ok_or("the server closed the connection")?;
        let status = head.word(1).parse().map_err(|_| format!("not an answer: {}", head.0))?;
        Ok((status, head.body()?, head))
    }

    async fn answer(&mut self) -> Result<(u16, Length)> {
        self.answer_head().await.map(|(status, length, _)| (status, length))
    }

    async fn small_answer(&mut self) -> Result<Answer> {
        let (status, length, head) = self.answer_head().await?;
        let session = head.header("mcp-session-id").map(str::to_owned);
        let mut body = Vec::new();
        self.wire
            .pass_body(length, |piece| {
                body.extend_from_slice(piece);
                Ok(())
            })
            .await?;
        Ok(Answer { status, body, session })
    }

    /// A request and its response, both small.
    pub(crate) async fn ask(&mut self, method: &str, path: &str, body: &str) -> Result<Answer> {
        let request = self.head(method, path, body.len() as u64) + body;
        self.wire.send(request.as_bytes()).await?;
        self.small_answer().await
    }

    /// A request whose body is bytes.
    pub(crate) async fn post(&mut self, path: &str, body: &[u8]) -> Result<Answer> {
        let head = self.head("POST", path, body.len() as u64);
        self.wire.send(head.as_bytes()).await?;
        self.wire.send(body).await?;
        self.small_answer().await
    }

    /// A request whose response is passed on as it comes.
    pub(crate) async fn follow(
        &mut self,
        (path, body): (&str, &str),
        sink: impl FnMut(&[u8]) -> io::Result<()>,
    ) -> Result<()> {
        let request = self.head("POST", path, body.len() as u64) + body;
        self.wire.send(request.as_bytes()).await?;
        let (status, length) = self.answer().await?;
        self.wire.pass_body(length, sink).await?;
        if status == 200 { Ok(()) } else { Err(format!("the server answered {status}").into()) }
    }

    /// A request of whose response only the beginning is read.
    pub(crate) async fn open(&mut self, path: &str) -> Result<()> {
        self.open_by("GET", path, "").await
    }

    /// The same by POST.
    pub(crate) async fn begin(&mut self, path: &str, body: &str) -> Result<()> {
        self.open_by("POST", path, body).await
    }

    async fn open_by(&mut self, method: &str, path: &str, body: &str) -> Result<()> {
        let request = self.head(method, path, body.len() as u64) + body;
        self.wire.send(request.as_bytes()).await?;
        match self.answer().await? {
            (200, _) => Ok(()),
            (status, _) => Err(format!("the server answered {status}").into()),
        }
    }

    /// Upgrades to another protocol, and leaves the connection to it.
    pub(crate) async fn upgrade(mut self, path: &str, headers: &str) -> Result<Wire> {
        let request = format!("GET {path} HTTP/1.1\r\n{}{headers}\r\n", self.headers);
        self.wire.send(request.as_bytes()).await?;
        match self.answer().await? {
            (101, _) => Ok(self.wire),
            (status, _) => Err(format!("the server answered {status}").into()),
        }
    }

    /// Sends a piece over and over, as one file.
    pub(crate) async fn put(&mut self, path: &str, piece: &[u8], size: u64) -> Result<Answer> {
        let head = self.head("PUT", path, size);
        self.wire.send(head.as_bytes()).await?;
        for _ in 0..size / piece.len() as u64 {
            self.wire.send(piece).await?;
        }
        self.small_answer().await
    }

    /// Fetches a file and returns its length.
    pub(crate) async fn get(&mut self, path: &str) -> Result<u64> {
        let head = self.head("GET", path, 0);
        self.wire.send(head.as_bytes()).await?;
        let (status, length) = self.answer().await?;
        let mut bytes = 0;
        self.wire
            .pass_body(length, |piece| {
                bytes += piece.len() as u64;
                Ok(())
            })
            .await?;
        if status == 200 { Ok(bytes) } else { Err(format!("the server answered {status}").into()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;

    /// How a client parses a response that comes in two parts.
    fn told(first: &'static [u8], second: &'static [u8]) -> Result<Answer> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await?;
            let mut client = Client::connect(listener.local_addr()?, None).await?;
            let mut server = Wire::new(listener.accept().await?.0)?;
            let serve = async {
                server.head().await?;
                server.send(first).await?;
                tokio::task::yield_now().await;
                server.send(second).await?;
                drop(server);
                Ok(())
            };
            Ok(tokio::try_join!(client.ask("GET", "/", ""), serve)?.0)
        })
    }

    #[test]
    fn bodies_of_either_kind_are_read_to_their_end() {
        let answer = told(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhe", b"llo").unwrap();
        assert_eq!((answer.status, answer.body.as_slice()), (200, &b"hello"[..]));
        let chunks = told(
            b"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhe",
            b"l\r\n2\r\nlo\r\n0\r\n\r\n",
        );
        assert_eq!(chunks.unwrap().expect(201).unwrap(), b"hello");
        assert!(told(b"HTTP/1.1 404 Not Found\r\n\r\n", b"").unwrap().expect(200).is_err());
    }

    #[test]
    fn what_breaks_off_is_an_error() {
        assert!(told(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhe", b"l").is_err());
        assert!(told(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n", b"").is_err());
        assert!(told(b"HTTP/1.1 200 OK\r\n", b"").is_err());
    }
}
