//! Heads of requests and responses, parsed strictly: a head that two servers could read in two ways is refused.
//! The forwarded head is written anew from the parsed one, so that the next server reads the same.

use super::body::Framing;

/// Bytes of a head, and lines in it.
pub(crate) const MOST_BYTES: usize = 64 * 1024;
const MOST_HEADERS: usize = 100;

/// Why a head cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Malformed {
    #[error("the head is longer than 64 KiB or has more than 100 headers")]
    TooLarge,
    #[error("a line does not end with CR LF, or begins with a space")]
    Lines,
    #[error("it is not HTTP/1.0 or HTTP/1.1")]
    Syntax,
    #[error("the length of the message is ambiguous")]
    Framing,
    #[error("the request must name its host once, and the same host everywhere")]
    Host,
    #[error("the target is not a plain http:// URL")]
    Target,
}

/// One header, its name as it was sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) name: String,
    pub(crate) value: Vec<u8>,
}

impl Header {
    fn is(&self, name: &str) -> bool {
        self.name.eq_ignore_ascii_case(name)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RequestHead {
    pub(crate) method: String,
    pub(crate) target: String,
    /// HTTP/1.0 or HTTP/1.1.
    pub(crate) minor: u8,
    pub(crate) headers: Vec<Header>,
    pub(crate) framing: Framing,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ResponseHead {
    pub(crate) status: u16,
    pub(crate) reason: String,
    pub(crate) minor: u8,
    pub(crate) headers: Vec<Header>,
}

/// Finds the end of a head as it comes, looking at each byte once. Every line ends with CR LF and begins with no
/// space.
#[derive(Debug, Default)]
pub(crate) struct Scan {
    /// How far it has looked.
    at: usize,
    /// Where the current line begins.
    line: usize,
    lines: usize,
}

impl Scan {
    /// Where the head ends, if it is complete. Earlier bytes must be passed again, with more.
    pub(crate) fn end(&mut self, bytes: &[u8]) -> Result<Option<usize>, Malformed> {
        let whole = bytes.get(..bytes.len().min(MOST_BYTES)).unwrap_or_default();
        for (at, byte) in whole.iter().enumerate().skip(self.at) {
            let before = at.checked_sub(1).and_then(|at| whole.get(at)).copied();
            match byte {
                b'\n' if before != Some(b'\r') => return Err(Malformed::Lines),
                b'\n' if at == self.line + 1 => return Ok(Some(at + 1)),
                b'\n' => (self.line, self.lines) = (at + 1, self.lines + 1),
                _ if before == Some(b'\r') => return Err(Malformed::Lines),
                b' ' | b'\t' if at == self.line => return Err(Malformed::Lines),
                0 => return Err(Malformed::Syntax),
                _ => {}
            }
            if self.lines > MOST_HEADERS + 1 {
                return Err(Malformed::TooLarge);
            }
        }
        self.at = whole.len();
        if bytes.len() >= MOST_BYTES { Err(Malformed::TooLarge) } else { Ok(None) }
    }
}

fn owned(headers: &[httparse::Header<'_>]) -> Vec<Header> {
    headers.iter().map(|h| Header { name: h.name.to_owned(), value: h.value.to_vec() }).collect()
}

fn malformed(error: httparse::Error) -> Malformed {
    match error {
        httparse::Error::TooManyHeaders => Malformed::TooLarge,
        _ => Malformed::Syntax,
    }
}

/// Parses a request's head, and returns its length. None: more bytes are needed.
pub(crate) fn request(bytes: &[u8]) -> Result<Option<(RequestHead, usize)>, Malformed> {
    let Some(end) = Scan::default().end(bytes)? else { return Ok(None) };
    // Empty lines before the first are refused, although more lenient servers skip them.
    if end <= 2 {
        return Err(Malformed::Lines);
    }
    let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
    let mut parsed = httparse::Request::new(&mut headers);
    let head = bytes.get(..end).unwrap_or_default();
    match parsed.parse(head).map_err(malformed)? {
        httparse::Status::Complete(length) if length == end => {}
        _ => return Err(Malformed::Syntax),
    }
    let (Some(method), Some(target), Some(minor)) = (parsed.method, parsed.path, parsed.version) else {
        return Err(Malformed::Syntax);
    };
    let plain = method.len() <= 32 && !target.is_empty() && target.bytes().all(|b| b.is_ascii_graphic());
    if !plain {
        return Err(Malformed::Syntax);
    }
    let headers = owned(parsed.headers);
    let framing = match framing(&headers, minor)? {
        Some(framing) => framing,
        None => Framing::None,
    };
    let (method, target) = (method.to_owned(), target.to_owned());
    Ok(Some((RequestHead { method, target, minor, headers, framing }, end)))
}

/// Parses a response's head.
pub(crate) fn response(bytes: &[u8]) -> Result<Option<(ResponseHead, usize)>, Malformed> {
    let Some(end) = Scan::default().end(bytes)? else { return Ok(None) };
    let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
    let mut parsed = httparse::Response::new(&mut headers);
    let head = bytes.get(..end).unwrap_or_default();
    match parsed.parse(head).map_err(malformed)? {
        httparse::Status::Complete(length) if length == end => {}
        _ => return Err(Malformed::Syntax),
    }
    let (Some(status), Some(minor)) = (parsed.code, parsed.version) else { return Err(Malformed::Syntax) };
    if !(100..=599).contains(&status) {
        return Err(Malformed::Syntax);
    }
    let reason = parsed.reason.unwrap_or_default().to_owned();
    Ok(Some((ResponseHead { status, reason, minor, headers: owned(parsed.headers) }, end)))
}

/// The length that the headers give: one, or none.
fn framing(headers: &[Header], minor: u8) -> Result<Option<Framing>, Malformed> {
    let mut codings = headers.iter().filter(|h| h.is("transfer-encoding"));
    let mut lengths = headers.iter().filter(|h| h.is("content-length"));
    match (codings.next(), codings.next(), lengths.next(), lengths.next()) {
        (None, _, None, _) => Ok(None),
        (None, _, Some(length), None) => {
            let digits = |v: &[u8]| (1..=18).contains(&v.len()) && v.iter().all(u8::is_ascii_digit);
            let text = Some(length.value.as_slice()).filter(|v| digits(v));
            let number = text.and_then(|v| std::str::from_utf8(v).ok()).and_then(|v| v.parse().ok());
            number.map(|n| Some(Framing::Length(n))).ok_or(Malformed::Framing)
        }
        (Some(coding), None, None, _) if minor == 1 && coding.value.eq_ignore_ascii_case(b"chunked") => {
            Ok(Some(Framing::Chunked))
        }
        _ => Err(Malformed::Framing),
    }
}

impl ResponseHead {
    /// Where the response to a request with this method ends.
    pub(crate) fn framing(&self, method: &str) -> Result<Framing, Malformed> {
        if method == "HEAD" || matches!(self.status, 100..=199 | 204 | 304) {
            return Ok(Framing::None);
        }
        Ok(framing(&self.headers, self.minor)?.unwrap_or(Framing::Close))
    }

    pub(crate) fn keeps_open(&self) -> bool {
        keeps_open(&self.headers, self.minor)
    }
}

/// The tokens of all `Connection` headers, in lower case.
fn connection_words(headers: &[Header]) -> Vec<String> {
    let values = headers.iter().filter(|h| h.is("connection") || h.is("proxy-connection"));
    let text = |h: &Header| String::from_utf8_lossy(&h.value).to_ascii_lowercase();
    values.flat_map(|h| text(h).split(',').map(|w| w.trim().to_owned()).collect::<Vec<_>>()).collect()
}

fn keeps_open(headers: &[Header], minor: u8) -> bool {
    let words = connection_words(headers);
    let says = |word: &str| words.iter().any(|w| w == word);
    !says("close") && (minor == 1 || says("keep-alive"))
}

/// Hop-by-hop headers.
const HOP: &[&str] = &[
    "connection",
    "host",
    "http2-settings",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authentication-info",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "content-length",
    "upgrade",
];

/// The headers that are passed on. Framing and `Host` are written anew.
pub(crate) fn passed_on(headers: &[Header]) -> impl Iterator<Item = &Header> {
    let named = connection_words(headers);
    let kept = move |h: &&Header| {
        let name = h.name.to_ascii_lowercase();
        !HOP.contains(&name.as_str()) && !named.contains(&name)
    };
    headers.iter().filter(kept)
}

impl RequestHead {
    pub(crate) fn keeps_open(&self) -> bool {
        keeps_open(&self.headers, self.minor)
    }

    /// The only header with this name, in text.
    pub(crate) fn only(&self, name: &str) -> Result<Option<&str>, Malformed> {
        let mut found = self.headers.iter().filter(|h| h.is(name));
        match (found.next(), found.next()) {
            (None, _) => Ok(None),
            (Some(header), None) => {
                std::str::from_utf8(&header.value).map(Some).map_err(|_| Malformed::Syntax)
            }
            _ => Err(Malformed::Host),
        }
    }

    /// Whether it requests an upgrade to WebSocket. No other upgrade is passed on.
    pub(crate) fn is_websocket(&self) -> bool {
        self.method == "GET"
            && self.minor == 1
            && self.framing == Framing::None
            && connection_words(&self.headers).iter().any(|w| w == "upgrade")
            && self.only("upgrade").is_ok_and(|u| u.is_some_and(|u| u.eq_ignore_ascii_case("websocket")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Option<(RequestHead, usize)>, Malformed> {
        request(text.as_bytes())
    }

    #[test]
    fn a_head_is_read_whole_or_not_at_all() {
        let text = "GET http://a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\nrest";
        let (head, length) = read(text).unwrap().unwrap();
        assert_eq!((head.method.as_str(), head.target.as_str()), ("GET", "http://a.example/"));
        assert_eq!(&text[length..], "rest");
        for end in 0..length {
            assert_eq!(read(&text[..end]), Ok(None), "{end}");
        }
    }

    #[test]
    fn what_smuggling_needs_is_refused() {
        let with = |lines: &str| read(&format!("POST / HTTP/1.1\r\n{lines}\r\n"));
        for (lines, why) in [
            ("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", Malformed::Framing),
            ("Content-Length: 5\r\nContent-Length: 6\r\n", Malformed::Framing),
            ("Content-Length: 5\r\nContent-Length: 5\r\n", Malformed::Framing),
            ("Content-Length: 5, 5\r\n", Malformed::Framing),
            ("Content-Length: +5\r\n", Malformed::Framing),
            ("Content-Length: 0x5\r\n", Malformed::Framing),
            ("Content-Length:\r\n", Malformed::Framing),
            ("Transfer-Encoding: gzip, chunked\r\n", Malformed::Framing),
            ("Transfer-Encoding: xchunked\r\n", Malformed::Framing),
            ("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n", Malformed::Framing),
            ("Transfer-Encoding:\x0bchunked\r\n", Malformed::Syntax),
            ("Transfer-Encoding : chunked\r\n", Malformed::Syntax),
            ("X: a\n", Malformed::Lines),
            ("X: a\rb\r\n", Malformed::Lines),
            ("X: a\r\n b\r\n", Malformed::Lines),
            (" X: a\r\n", Malformed::Lines),
            ("X: \0\r\n", Malformed::Syntax),
            (": a\r\n", Malformed::Syntax),
            ("X a\r\n", Malformed::Syntax),
        ] {
            assert_eq!(with(lines).unwrap_err(), why, "{lines:?}");
        }
        for text in [
            "GET  / HTTP/1.1\r\n\r\n",
            "GET /\tHTTP/1.1\r\n\r\n",
            "GET / HTTP/2.0\r\n\r\n",
            "GET / HTTP/0.9\r\n\r\n",
            "GET /\r\n\r\n",
            "G\x7fT / HTTP/1.1\r\n\r\n",
            "GET /\u{e9} HTTP/1.1\r\n\r\n",
            "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        ] {
            assert!(read(text).is_err(), "{text:?}");
        }
        assert_eq!(read("\r\nGET / HTTP/1.1\r\n\r\n").unwrap_err(), Malformed::Lines);
        let old = "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n";
        assert_eq!(read(old).unwrap_err(), Malformed::Framing, "1.0 knows no chunks");
    }

    #[test]
    fn heads_are_bounded() {
        let many = "X: y\r\n".repeat(101);
        assert_eq!(read(&format!("GET / HTTP/1.1\r\n{many}\r\n")).unwrap_err(), Malformed::TooLarge);
        let long = format!("GET / HTTP/1.1\r\nX: {}", "y".repeat(MOST_BYTES));
        assert_eq!(read(&long).unwrap_err(), Malformed::TooLarge);
    }

    #[test]
    fn what_is_about_the_connection_stays() {
        let text = "GET / HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, X-Secret\r\nX-Secret: 1\r\n\
                    Proxy-Authorization: Basic x\r\nTE: trailers\r\nUpgrade: h2c\r\nAccept: */*\r\n\r\n";
        let (head, _) = read(text).unwrap().unwrap();
        let names: Vec<&str> = passed_on(&head.headers).map(|h| h.name.as_str()).collect();
        assert_eq!(names, ["Accept"]);
        assert!(head.keeps_open() && !head.is_websocket());
    }

    #[test]
    fn answers_end_where_they_say() {
        let read = |text: &str| response(text.as_bytes()).unwrap().unwrap().0;
        let framing = |text: &str, method: &str| read(text).framing(method);
        assert_eq!(framing("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n", "GET"), Ok(Framing::Length(3)));
        assert_eq!(framing("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n", "HEAD"), Ok(Framing::None));
        assert_eq!(framing("HTTP/1.1 204 No\r\n\r\n", "GET"), Ok(Framing::None));
        assert_eq!(framing("HTTP/1.1 200\r\n\r\n", "GET"), Ok(Framing::Close));
        let both = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n";
        assert_eq!(framing(both, "GET"), Err(Malformed::Framing));
    }
}
