//! The server's own fetches: small pages over http and https. Every address on the way is checked, that of a
//! redirect too.

use super::Dialer;
use crate::{
    Host,
    http::{self, Buffered, Coding, Cut, Framing, ResponseHead, Sink, Tcp},
};
use atoll_types::{Error, ErrorCode, Result};
use rustls::pki_types::ServerName;
use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};
use tokio::{
    io::{AsyncWrite, AsyncWriteExt},
    time::timeout,
};
use tokio_rustls::TlsConnector;
use url::Url;

/// What a fetch may cost.
#[derive(Debug, Clone, Copy)]
pub struct FetchLimits {
    /// The largest body.
    pub bytes: usize,
    /// In all, redirects included.
    pub time: Duration,
    /// How many of them.
    pub redirects: u32,
}

impl Default for FetchLimits {
    fn default() -> Self {
        Self { bytes: 16 << 20, time: Duration::from_secs(30), redirects: 5 }
    }
}

/// What was fetched.
#[derive(Debug, Clone)]
pub struct Fetched {
    /// The address after every redirect.
    pub url: Url,
    /// The status of the answer.
    pub status: u16,
    /// Its headers, names in lower case.
    pub headers: Vec<(String, String)>,
    /// Its body, as it was sent.
    pub body: Vec<u8>,
}

impl Fetched {
    /// A header, if it is there.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }
}

fn bad(url: &Url, why: impl std::fmt::Display) -> Error {
    let host = url.host_str().unwrap_or_default();
    Error::new(ErrorCode::BadGateway, format!("cannot fetch from {host}: {why}"))
}

impl Dialer {
    /// Fetches a page over http or https. Each redirect is checked like the first address, and none leads
    /// from https to http.
    pub async fn get(&self, url: &str, limits: FetchLimits) -> Result<Fetched> {
        let late = || Error::new(ErrorCode::Timeout, "the fetch took too long");
        timeout(limits.time, self.follow(url, limits)).await.map_err(|_| late())?
    }

    async fn follow(&self, url: &str, limits: FetchLimits) -> Result<Fetched> {
        let mut url = Url::parse(url).map_err(|e| Error::invalid("url", e.to_string()))?;
        for _ in 0..=limits.redirects {
            let fetched = self.fetch(&url, limits.bytes).await?;
            let moved = matches!(fetched.status, 301 | 302 | 303 | 307 | 308);
            let Some(next) = fetched.header("location").filter(|_| moved) else { return Ok(fetched) };
            let next = url.join(next).map_err(|e| bad(&url, e))?;
            if url.scheme() == "https" && next.scheme() != "https" {
                return Err(bad(&url, "a redirect leads away from https"));
            }
            url = next;
        }
        Err(bad(&url, "too many redirects"))
    }

    /// One request, without following a redirect.
    pub(crate) async fn fetch(&self, url: &Url, most: usize) -> Result<Fetched> {
        let tls = match url.scheme() {
            "https" => true,
            "http" => false,
            _ => return Err(Error::invalid("url", "only http and https are fetched")),
        };
        if !url.username().is_empty() || url.password().is_some() {
            return Err(Error::invalid("url", "a user name does not belong here"));
        }
        let (Some(name), Some(port)) = (url.host_str(), url.port_or_known_default()) else {
            return Err(Error::invalid("url", "there is no host in it"));
        };
        let stream = self.connect(name, port).await?;
        let (mut reader, mut writer): (Buffered, Sink) = if tls {
            let host = Host::parse(name).map_err(|e| bad(url, e))?;
            let name = match &host {
                Host::Name(name) => ServerName::try_from(name.clone()).map_err(|e| bad(url, e))?,
                Host::Address(address) => ServerName::IpAddress((*address).into()),
            };
            let stream = TlsConnector::from(Arc::clone(&self.tls)).connect(name, stream).await;
            let (reader, writer) = tokio::io::split(stream.map_err(|e| bad(url, e))?);
            (Buffered::new(reader, Vec::new()), Box::new(writer))
        } else {
            let stream = Tcp::new(stream);
            (Buffered::new(stream.clone(), Vec::new()), Box::new(stream))
        };
        let authority = url.port().map_or(name.to_owned(), |port| format!("{name}:{port}"));
        let path = url.query().map_or(url.path().to_owned(), |query| format!("{}?{query}", url.path()));
        let head = format!(
            "GET {path} HTTP/1.1\r\nHost: {authority}\r\nUser-Agent: atoll\r\nAccept: */*\r\n\
             Accept-Encoding: identity\r\nConnection: close\r\n\r\n"
        );
        writer.write_all(head.as_bytes()).await.map_err(|e| bad(url, e))?;
        writer.flush().await.map_err(|e| bad(url, e))?;
        let head = read_head(&mut reader, url).await?;
        let framing = head.framing("GET").map_err(|e| bad(url, e))?;
        let body = read_body(&mut reader, framing, most, url).await?;
        let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
        let headers = head.headers.iter().map(|h| (h.name.to_ascii_lowercase(), text(&h.value))).collect();
        Ok(Fetched { url: url.clone(), status: head.status, headers, body })
    }
}

async fn read_head(reader: &mut Buffered, url: &Url) -> Result<ResponseHead> {
    loop {
        if let Some((head, length)) = http::response(reader.data()).map_err(|e| bad(url, e))? {
            reader.consume(length);
            if head.status >= 200 {
                return Ok(head);
            }
        } else if reader.fill(16 * 1024).await.map_err(|e| bad(url, e))? == 0 {
            return Err(bad(url, "it closed the connection without an answer"));
        }
    }
}

/// A page in memory, up to a size.
struct Page {
    bytes: Vec<u8>,
    most: usize,
}

impl AsyncWrite for Page {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.bytes.len() + bytes.len() > self.most {
            return Poll::Ready(Err(io::ErrorKind::FileTooLarge.into()));
        }
        self.bytes.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

async fn read_body(reader: &mut Buffered, framing: Framing, most: usize, url: &Url) -> Result<Vec<u8>> {
    let mut page = Page { bytes: Vec::new(), most };
    match http::relay(reader, framing, &mut page, Coding::Raw, None).await {
        Ok(()) => Ok(page.bytes),
        Err(Cut::To(_)) => Err(Error::new(ErrorCode::TooLarge, format!("a page has more than {most} bytes"))),
        Err(Cut::From(error)) => Err(bad(url, error)),
        Err(Cut::Stop(stop)) => Err(bad(url, stop)),
    }
}
