//! The proxy's own responses. One plain line that names the host, in the status line too: that is the only part
//! that pip and npm show.

use crate::{Host, dial::Failed, session::Stop};
use tokio::io::{AsyncWrite, AsyncWriteExt};

pub(crate) struct ProxyReply {
    status: u16,
    /// The reason phrase.
    reason: String,
    /// The rest of the body after it.
    more: String,
    challenge: bool,
}

impl ProxyReply {
    fn new(status: u16, reason: impl Into<String>, more: impl Into<String>) -> Self {
        Self { status, reason: reason.into(), more: more.into(), challenge: false }
    }

    pub(crate) fn not_allowed(host: &Host, rule: &str) -> Self {
        Self::new(403, format!("Host not allowed: {host}"), format!(" ({rule})"))
    }

    pub(crate) fn malformed(why: impl std::fmt::Display) -> Self {
        Self::new(400, "Bad Request", format!(": {why}"))
    }

    pub(crate) fn limit(name: &str) -> Self {
        Self::new(503, format!("Egress limit reached: {name}"), "")
    }

    pub(crate) fn token(why: impl std::fmt::Display) -> Self {
        Self { challenge: true, ..Self::new(407, "Proxy Authentication Required", format!(": {why}")) }
    }

    pub(crate) fn stranger() -> Self {
        Self::new(403, "Forbidden", ": the token is for no sandbox that is served here")
    }

    pub(crate) fn late(host: &Host, why: impl std::fmt::Display) -> Self {
        Self::new(504, format!("Gateway Timeout: {host}"), format!(": {why}"))
    }

    pub(crate) fn upstream(host: &Host, why: impl std::fmt::Display) -> Self {
        Self::new(502, format!("Bad Gateway: {host}"), format!(": {why}"))
    }

    /// Why there is no connection to a host.
    pub(crate) fn failed(host: &Host, failed: &Failed) -> Self {
        match failed {
            Failed::Denied(_, rule) => Self::not_allowed(host, rule),
            Failed::Name(_) | Failed::Connect(_) => Self::upstream(host, failed),
            Failed::Late(_) => Self::late(host, failed),
        }
    }

    /// Why a request was ended before its response.
    pub(crate) fn stopped(host: &Host, stop: &Stop) -> Self {
        match stop {
            Stop::Denied(rule) => Self::not_allowed(host, rule),
            Stop::Limit(name) => Self::limit(name),
            Stop::Broken(why) => Self::upstream(host, why),
        }
    }

    /// The same as a SOCKS5 code.
    pub(crate) fn socks_code(&self) -> u8 {
        match self.status {
            403 | 503 => 2,
            502 => 5,
            504 => 6,
            _ => 1,
        }
    }

    fn bytes(&self, keep: bool) -> Vec<u8> {
        let Self { status, reason, more, challenge } = self;
        // Causes come from other servers: one line of them, and not a long one.
        let line: String = format!("{reason}{more}").chars().filter(|c| !c.is_control()).take(1000).collect();
        let length = line.len() + 1;
        let connection = if keep { "keep-alive" } else { "close" };
        let challenge = if *challenge { "Proxy-Authenticate: Basic realm=\"atoll\"\r\n" } else { "" };
        format!(
            "HTTP/1.1 {status} {reason}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {length}\r\n\
             {challenge}Connection: {connection}\r\nX-Content-Type-Options: nosniff\r\n\r\n{line}\n"
        )
        .into_bytes()
    }

    /// Sends the response; a failure to do so is ignored.
    pub(crate) async fn send(&self, to: &mut (impl AsyncWrite + Unpin + ?Sized), keep: bool, head: bool) {
        let mut bytes = self.bytes(keep);
        if head && let Some(at) = bytes.windows(4).position(|w| w == b"\r\n\r\n") {
            bytes.truncate(at + 4);
        }
        let _ = to.write_all(&bytes).await;
        let _ = to.flush().await;
    }
}
