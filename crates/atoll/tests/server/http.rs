//! Just enough HTTP to say exactly what a test wants to say, and nothing that a client library would
//! mend on the way.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

/// An answer.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|e| panic!("{e}: {} {}", self.status, String::from_utf8_lossy(&self.body)))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }
}

/// Sends bytes as they are and reads whatever comes back until the connection closes.
pub(crate) fn send(address: SocketAddr, bytes: &[u8]) -> std::io::Result<Answer> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    stream.write_all(bytes)?;
    let mut all = Vec::new();
    stream.read_to_end(&mut all)?;
    let end = all.windows(4).position(|w| w == b"\r\n\r\n").ok_or(std::io::ErrorKind::UnexpectedEof)?;
    let head = String::from_utf8_lossy(&all[..end]).into_owned();
    let status =
        head.split(' ').nth(1).and_then(|s| s.parse().ok()).ok_or(std::io::ErrorKind::InvalidData)?;
    let body = all.split_off(end + 4);
    let answer = Answer { status, head, body };
    let chunked = answer.header("transfer-encoding").is_some_and(|v| v.contains("chunked"));
    Ok(if chunked { Answer { body: unchunk(&answer.body)?, ..answer } } else { answer })
}

fn unchunk(mut rest: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let end = rest.windows(2).position(|w| w == b"\r\n").ok_or(std::io::ErrorKind::UnexpectedEof)?;
        let size = std::str::from_utf8(&rest[..end]).ok().and_then(|t| usize::from_str_radix(t, 16).ok());
        let size = size.ok_or(std::io::ErrorKind::InvalidData)?;
        rest = &rest[end + 2..];
        if size == 0 {
            return Ok(body);
        }
        body.extend_from_slice(rest.get(..size).ok_or(std::io::ErrorKind::UnexpectedEof)?);
        rest = rest.get(size + 2..).ok_or(std::io::ErrorKind::UnexpectedEof)?;
    }
}

/// An ordinary request.
pub(crate) fn request(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> std::io::Result<Answer> {
    let mut text = format!("{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n");
    for (name, value) in headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    text.push_str(&format!("Content-Length: {}\r\n\r\n", body.len()));
    send(address, &[text.as_bytes(), body].concat())
}

/// An answer that is read as it comes.
pub(crate) struct Coming {
    pub(crate) status: u16,
    pub(crate) head: String,
    stream: std::io::BufReader<TcpStream>,
    /// Bytes left of the present chunk; none at the end of all.
    left: Option<usize>,
}

impl Coming {
    /// Whether the answer came to its own end, and not to that of the connection.
    pub(crate) fn is_whole(&self) -> bool {
        self.left.is_none()
    }
}

/// Sends a request and returns when the head of its answer is there. The answer must be chunked.
pub(crate) fn open(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> std::io::Result<Coming> {
    use std::io::BufRead;
    let stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(100)))?;
    let mut text = format!("{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n");
    headers.iter().for_each(|(name, value)| text.push_str(&format!("{name}: {value}\r\n")));
    text.push_str(&format!("Content-Length: {}\r\n\r\n", body.len()));
    (&stream).write_all(&[text.as_bytes(), body].concat())?;
    let mut stream = std::io::BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if stream.read_line(&mut head)? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
    }
    let status =
        head.split(' ').nth(1).and_then(|s| s.parse().ok()).ok_or(std::io::ErrorKind::InvalidData)?;
    assert!(head.to_ascii_lowercase().contains("transfer-encoding: chunked"), "{head}");
    Ok(Coming { status, head, stream, left: Some(0) })
}

impl Read for Coming {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        use std::io::BufRead;
        let Some(mut left) = self.left else { return Ok(0) };
        if left == 0 {
            let mut line = String::new();
            while line.trim().is_empty() {
                line.clear();
                if self.stream.read_line(&mut line)? == 0 {
                    return Err(std::io::ErrorKind::UnexpectedEof.into());
                }
            }
            left = usize::from_str_radix(line.trim(), 16).map_err(std::io::Error::other)?;
            if left == 0 {
                self.left = None;
                return Ok(0);
            }
        }
        let most = buffer.len().min(left);
        let read = self.stream.read(&mut buffer[..most])?;
        if read == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        self.left = Some(left - read);
        Ok(read)
    }
}
