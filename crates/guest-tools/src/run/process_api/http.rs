//! One request of HTTP/1.1, read and answered within bounds. The connection is closed after its answer.

use serde_json::{Value, json};
use std::{
    io::{ErrorKind, Read, Write},
    net::{Shutdown, TcpStream},
    time::{Duration, Instant},
};

/// The longest head of a request.
const LONGEST_HEAD: usize = 16 << 10;
const MOST_HEADERS: usize = 64;
/// The largest body of a request.
pub(super) const LARGEST_BODY: usize = 16 << 20;
/// How long a request may take to arrive, and an answer to be read.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);
/// How long what a refused caller still sends is taken, so that it can read why.
const FAREWELL: Duration = Duration::from_secs(1);
const PIECE: usize = 16 << 10;

/// A request as it was sent.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) method: String,
    /// Without a query.
    pub(super) path: String,
    pub(super) body: Vec<u8>,
}

/// Why a request is not carried out.
#[derive(Debug)]
pub(super) enum Refusal {
    /// The caller is gone, or too slow.
    Gone,
    Status(u16, String),
}

impl Refusal {
    pub(super) fn status(status: u16, message: impl Into<String>) -> Self {
        Self::Status(status, message.into())
    }
}

/// What the head of a request says.
struct Head {
    method: String,
    path: String,
    /// Bytes of the head, and of the body.
    length: usize,
    body: usize,
    /// Whether the caller waits until its body is asked for.
    waits: bool,
}

/// A caller's connection.
pub(super) struct Connection<'a>(&'a TcpStream);

impl<'a> Connection<'a> {
    pub(super) fn new(stream: &'a TcpStream) -> Self {
        Self(stream)
    }

    pub(super) fn stream(&self) -> &'a TcpStream {
        self.0
    }

    /// Reads the request.
    pub(super) fn request(&mut self) -> Result<Request, Refusal> {
        let until = Instant::now() + PATIENCE;
        let mut bytes = Vec::new();
        let head = loop {
            self.fill(&mut bytes, until)?;
            if let Some(head) = parse(&bytes)? {
                break head;
            }
        };
        let Head { method, path, length, body, waits } = head;
        let mut rest = bytes.split_off(length);
        if waits && rest.len() < body {
            self.send(b"HTTP/1.1 100 Continue\r\n\r\n", until)?;
        }
        while rest.len() < body {
            self.fill(&mut rest, until)?;
        }
        rest.truncate(body);
        Ok(Request { method, path, body: rest })
    }

    fn fill(&mut self, bytes: &mut Vec<u8>, until: Instant) -> Result<(), Refusal> {
        let mut piece = [0; PIECE];
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Refusal::status(408, "the request did not arrive in time"));
            }
            let _ = self.0.set_read_timeout(Some(left));
            match self.0.read(&mut piece) {
                Ok(0) => return Err(Refusal::Gone),
                Ok(length) => {
                    bytes.extend_from_slice(piece.get(..length).unwrap_or_default());
                    return Ok(());
                }
                Err(e) if is_passing(&e) => {}
                Err(_) => return Err(Refusal::Gone),
            }
        }
    }

    /// Sends all of it, or finds that the caller does not take it in time.
    pub(super) fn send(&mut self, bytes: &[u8], until: Instant) -> Result<(), Refusal> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Refusal::Gone);
            }
            let _ = self.0.set_write_timeout(Some(left));
            match self.0.write(rest) {
                Ok(length) => rest = rest.get(length..).unwrap_or_default(),
                Err(e) if is_passing(&e) => {}
                Err(_) => return Err(Refusal::Gone),
            }
        }
        Ok(())
    }

    /// Answers with a document.
    pub(super) fn answer(&mut self, status: u16, told: &Value) {
        let body = told.to_string();
        let head = format!(
            "HTTP/1.1 {status} {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
            reason(status),
            body.len()
        );
        // A caller that does not read its answer has none.
        let _ = self.send(&[head.as_bytes(), body.as_bytes()].concat(), Instant::now() + PATIENCE);
    }

    /// Says why a request is refused. What the caller still sends is read, or the kernel would discard the answer.
    pub(super) fn refuse(&mut self, refusal: &Refusal) {
        let Refusal::Status(status, message) = refusal else { return };
        self.answer(*status, &json!({"error": message}));
        let _ = self.0.shutdown(Shutdown::Write);
        let (until, mut bytes) = (Instant::now() + FAREWELL, Vec::new());
        while self.fill(&mut bytes, until).is_ok() {
            bytes.clear();
        }
    }
}

fn is_passing(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

/// The head, if it is complete.
fn parse(bytes: &[u8]) -> Result<Option<Head>, Refusal> {
    let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    let length = match request.parse(bytes) {
        Ok(httparse::Status::Complete(length)) if length <= LONGEST_HEAD => length,
        Ok(httparse::Status::Partial) if bytes.len() < LONGEST_HEAD => return Ok(None),
        Ok(_) | Err(httparse::Error::TooManyHeaders) => {
            return Err(Refusal::status(431, "the head of the request is too long"));
        }
        Err(_) => return Err(Refusal::status(400, "this is no request of HTTP/1.1")),
    };
    let target = request.path.unwrap_or_default();
    let mut head = Head {
        method: request.method.unwrap_or_default().to_owned(),
        path: target.split('?').next().unwrap_or_default().to_owned(),
        length,
        body: 0,
        waits: false,
    };
    let mut host = None;
    let mut body = None;
    for header in request.headers.iter() {
        let value = std::str::from_utf8(header.value)
            .map_err(|_| Refusal::status(400, "a header is not UTF-8"))?
            .trim();
        let twice = || Refusal::status(400, format!("{} is there twice", header.name));
        match header.name.to_ascii_lowercase().as_str() {
            "origin" => return Err(Refusal::status(403, "web pages may not call this port")),
            "transfer-encoding" => {
                return Err(Refusal::status(411, "content-length must say how long the body is"));
            }
            "host" if host.replace(value.to_owned()).is_some() => return Err(twice()),
            "content-length" if body.replace(length_of(value)?).is_some() => return Err(twice()),
            "expect" => head.waits = value.eq_ignore_ascii_case("100-continue"),
            _ => {}
        }
    }
    if !host.is_some_and(|host| is_loopback(&host)) {
        return Err(Refusal::status(403, "the host must be 127.0.0.1 or localhost"));
    }
    head.body = body.unwrap_or(0);
    Ok(Some(head))
}

fn length_of(value: &str) -> Result<usize, Refusal> {
    let digits = !value.is_empty() && value.bytes().all(|b| b.is_ascii_digit());
    match value.parse() {
        Ok(length) if digits && length <= LARGEST_BODY => Ok(length),
        _ if digits => Err(Refusal::status(413, format!("a request has at most {LARGEST_BODY} bytes"))),
        _ => Err(Refusal::status(400, "content-length is no number")),
    }
}

/// Whether a request names this machine, with or without a port. A page whose name was made to point here names another.
fn is_loopback(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => host,
    };
    name == "127.0.0.1" || name.eq_ignore_ascii_case("localhost")
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        411 => "Length Required",
        413 => "Content Too Large",
        431 => "Request Header Fields Too Large",
        503 => "Service Unavailable",
        _ => "Bad Request",
    }
}
