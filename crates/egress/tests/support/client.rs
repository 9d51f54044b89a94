//! Clients that say exactly what a test wants said.

use super::soon;
use std::net::SocketAddr;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

pub(crate) struct Answer {
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn status(&self) -> u16 {
        self.head.split(' ').nth(1).and_then(|s| s.parse().ok()).unwrap_or_else(|| panic!("{:?}", self.head))
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// Everything up to an empty line.
pub(crate) async fn read_head(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let mut head = Vec::new();
    let reading = async {
        while !head.ends_with(b"\r\n\r\n") {
            match stream.read_u8().await {
                Ok(byte) => head.push(byte),
                Err(_) => break,
            }
        }
    };
    soon("a head", reading).await;
    String::from_utf8(head).unwrap()
}

pub(crate) async fn read_answer(stream: &mut (impl AsyncRead + Unpin)) -> Answer {
    let head = read_head(stream).await;
    let lower = head.to_ascii_lowercase();
    let mut body = Vec::new();
    if let Some(length) = lower.lines().find_map(|line| line.strip_prefix("content-length: ")) {
        body = vec![0; length.parse().unwrap()];
        soon("a body", stream.read_exact(&mut body)).await.unwrap();
    } else if lower.contains("transfer-encoding: chunked") {
        loop {
            let mut line = Vec::new();
            while !line.ends_with(b"\r\n") {
                line.push(soon("a chunk", stream.read_u8()).await.unwrap());
            }
            let size = String::from_utf8(line).unwrap();
            let size = usize::from_str_radix(size.trim(), 16).unwrap();
            let mut chunk = vec![0; size + 2];
            soon("a chunk", stream.read_exact(&mut chunk)).await.unwrap();
            body.extend_from_slice(&chunk[..size]);
            if size == 0 {
                break;
            }
        }
    }
    Answer { head, body }
}

/// Sends bytes and reads one answer.
pub(crate) async fn ask(proxy: SocketAddr, bytes: impl AsRef<[u8]>) -> Answer {
    let mut stream = TcpStream::connect(proxy).await.unwrap();
    stream.write_all(bytes.as_ref()).await.unwrap();
    read_answer(&mut stream).await
}

/// A GET of an absolute URL.
pub(crate) async fn get(proxy: SocketAddr, host: &str, path: &str) -> Answer {
    ask(proxy, format!("GET http://{host}{path} HTTP/1.1\r\nHost: {host}\r\n\r\n")).await
}

/// A tunnel, or what was answered instead.
pub(crate) async fn connect(proxy: SocketAddr, to: &str) -> Result<TcpStream, Answer> {
    let mut stream = TcpStream::connect(proxy).await.unwrap();
    stream.write_all(format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n").as_bytes()).await.unwrap();
    let answer = read_answer(&mut stream).await;
    if answer.status() == 200 { Ok(stream) } else { Err(answer) }
}

/// Everything until a connection ends, however it ends.
pub(crate) async fn rest(stream: &mut (impl AsyncRead + Unpin)) -> Vec<u8> {
    let mut rest = Vec::new();
    let _ = soon("the end", stream.read_to_end(&mut rest)).await;
    rest
}

/// What comes back for what is sent.
pub(crate) async fn echo(stream: &mut TcpStream, text: &str) -> String {
    stream.write_all(text.as_bytes()).await.unwrap();
    let mut back = vec![0; text.len()];
    soon("the echo", stream.read_exact(&mut back)).await.unwrap();
    String::from_utf8(back).unwrap()
}
