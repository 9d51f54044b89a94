//! Where a registry may lead: by HTTPS to any public address, and to what the operator named. A name is resolved here and
//! the very address that was checked is connected to, for the registry, for the service that gives tokens, and for every
//! redirect, so that no registry makes the server a way into a private network.
//!
//! What the operator named counts for requests that name that very host and port. The answer of another registry leads
//! there only where the operator said so of the two.

use atoll_types::{Error, ErrorCode, Result};
use hyper::Uri;
use hyper_util::rt::TokioIo;
use std::{
    fmt,
    future::Future,
    net::{IpAddr, SocketAddr},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};
use tokio::net::TcpStream;
use url::{Host, Url};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

type Denied = dyn Fn(IpAddr) -> bool + Send + Sync;

/// What the operator lets registries lead to.
#[derive(Clone)]
pub struct Network {
    denied: Arc<Denied>,
    insecure: Vec<String>,
    private: Vec<String>,
    /// Registries, and the hosts beside their own that they lead to.
    companions: Vec<(String, String)>,
}

impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Network").field("insecure", &self.insecure).field("private", &self.private).finish()
    }
}

fn refused(message: impl Into<String>) -> Error {
    Error::new(ErrorCode::PermissionDenied, message)
}

impl Network {
    /// A network of which some addresses are out of reach.
    pub fn new(denied: impl Fn(IpAddr) -> bool + Send + Sync + 'static) -> Self {
        Self { denied: Arc::new(denied), insecure: Vec::new(), private: Vec::new(), companions: Vec::new() }
    }

    /// The same, with hosts (`host:port`, or `host` for port 80) that are spoken to without TLS and at any address.
    #[must_use]
    pub fn with_insecure(mut self, hosts: impl IntoIterator<Item = String>) -> Self {
        self.insecure.extend(hosts.into_iter().map(|host| with_port(&host, 80)));
        self
    }

    /// The same, with hosts (`host:port`, or `host` for port 443) that are spoken to by HTTPS and at any address.
    #[must_use]
    pub fn with_private(mut self, hosts: impl IntoIterator<Item = String>) -> Self {
        self.private.extend(hosts.into_iter().map(|host| with_port(&host, 443)));
        self
    }

    /// The same, where one of these registries also leads to other hosts that were named: its storage, or the service that gives
    /// its tokens. Both with their ports.
    #[must_use]
    pub fn with_companions(mut self, registry: &str, hosts: impl IntoIterator<Item = String>) -> Self {
        let own = registry.to_ascii_lowercase();
        self.companions.extend(hosts.into_iter().map(|host| (own.clone(), host.to_ascii_lowercase())));
        self
    }

    /// The address of a registry's API.
    pub(crate) fn base(&self, host: &str) -> Result<Url> {
        let scheme = if self.insecure.contains(&with_port(host, 80)) { "http" } else { "https" };
        Url::parse(&format!("{scheme}://{host}/v2/")).map_err(|e| {
            Error::invalid("reference", format!("{host:?} cannot be the host of a registry: {e}"))
        })
    }

    /// Refuses an address that the registry at `base` may not lead to, before it is resolved. Before every request, because
    /// connections are kept and used again.
    pub(crate) fn check(&self, url: &Url, base: &Url) -> Result<()> {
        let (authority, own) = (authority_of(url)?, authority_of(base)?);
        let is_pair = |(of, to): &(String, String)| *of == own && *to == authority;
        if authority != own && self.is_named(&authority) && !self.companions.iter().any(is_pair) {
            return Err(refused(format!(
                "the registry {own} leads to {authority}, which the operator's configuration names for itself alone"
            )));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(refused(format!(
                "the registry leads to an address of {authority} with a password in it"
            )));
        }
        match url.scheme() {
            "https" => Ok(()),
            "http" if self.insecure.contains(&authority) => Ok(()),
            "http" => Err(refused(format!(
                "the registry leads to {authority} without TLS, and the operator's configuration does not name it as insecure"
            ))),
            _ => Err(refused(format!("the registry leads to {authority} by an unknown protocol"))),
        }
    }

    fn is_named(&self, authority: &str) -> bool {
        self.insecure.iter().chain(&self.private).any(|named| named == authority)
    }

    /// Connects to a host and port, at an address that is allowed.
    async fn connect(&self, host: &str, port: u16) -> Result<TcpStream> {
        let authority = with_port(host, port);
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let unreachable = |why: &dyn fmt::Display| {
            Error::new(
                ErrorCode::Unavailable,
                format!("the registry's host {authority} cannot be reached: {why}"),
            )
        };
        let found: Vec<SocketAddr> = match bare.parse::<IpAddr>() {
            Ok(address) => vec![SocketAddr::new(address, port)],
            Err(_) => {
                tokio::net::lookup_host((bare, port)).await.map_err(|e| unreachable(&e.kind()))?.collect()
            }
        };
        let allowed: Vec<SocketAddr> =
            found.into_iter().filter(|a| self.is_named(&authority) || !(self.denied)(a.ip())).collect();
        if allowed.is_empty() {
            return Err(refused(format!(
                "{authority} has no public address, and the operator's configuration does not name it as a registry"
            )));
        }
        let mut last = None;
        for address in allowed.into_iter().take(4) {
            match tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => return Ok(stream),
                Ok(Err(error)) => last = Some(error.kind().to_string()),
                Err(_) => last = Some("it does not answer".into()),
            }
        }
        Err(unreachable(&last.unwrap_or_default()))
    }
}

/// A host with a port, in lower case.
fn with_port(host: &str, port: u16) -> String {
    let host = host.to_ascii_lowercase();
    let tail = host.rsplit_once(']').map_or(host.as_str(), |(_, tail)| tail);
    if tail.contains(':') { host } else { format!("{host}:{port}") }
}

/// The host and port of an address.
pub(crate) fn authority_of(url: &Url) -> Result<String> {
    let host = url.host().map(|host: Host<&str>| host.to_string());
    match (host, url.port_or_known_default()) {
        (Some(host), Some(port)) => Ok(with_port(&host, port)),
        _ => Err(refused("the registry leads to an address without a host")),
    }
}

/// Connections for the HTTP client.
#[derive(Clone, Debug)]
pub(crate) struct Connector(pub(crate) Arc<Network>);

impl tower::Service<Uri> for Connector {
    type Response = TokioIo<TcpStream>;
    type Error = Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let network = Arc::clone(&self.0);
        Box::pin(async move {
            let host = uri.host().ok_or_else(|| refused("an address has no host"))?;
            let port = uri.port_u16().unwrap_or(if uri.scheme_str() == Some("http") { 80 } else { 443 });
            network.connect(host, port).await.map(TokioIo::new)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network() -> Network {
        Network::new(|address| address.is_loopback())
            .with_insecure(["127.0.0.1:5000".into(), "[::1]:5000".into(), "Plain.Example".into()])
            .with_private(["inner.example".into(), "storage.example".into()])
            .with_companions("inner.example:443", ["storage.example:443".into()])
    }

    #[test]
    fn http_is_for_what_the_operator_named() {
        let network = network();
        for (host, scheme) in [
            ("127.0.0.1:5000", "http"),
            ("127.0.0.1:5001", "https"),
            ("plain.example", "http"),
            ("plain.example:8080", "https"),
            ("[::1]:5000", "http"),
        ] {
            assert_eq!(network.base(host).unwrap().scheme(), scheme, "{host}");
        }
        let from =
            |base: &str, url: &str| network.check(&Url::parse(url).unwrap(), &network.base(base).unwrap());
        for (base, good) in [
            ("any.example", "https://any.example/x"),
            ("any.example", "https://other.example/x"),
            ("127.0.0.1:5000", "http://127.0.0.1:5000/v2/"),
            ("plain.example", "http://plain.example/x"),
            // Every spelling of an address is that address.
            ("127.0.0.1:5000", "http://0x7f.1:5000/"),
            ("inner.example", "https://storage.example/"),
        ] {
            assert!(from(base, good).is_ok(), "{good}");
        }
        // What was named is for requests that name it.
        for (base, bad) in [
            ("any.example", "http://127.0.0.1:5000/v2/"),
            ("any.example", "https://127.0.0.1:5000/v2/"),
            ("any.example", "https://inner.example/"),
            ("any.example", "https://INNER.example:443/"),
            ("any.example", "https://storage.example/"),
            ("127.0.0.1:5000", "http://[::1]:5000/"),
            ("storage.example", "https://inner.example/"),
        ] {
            assert!(from(base, bad).is_err(), "{base} {bad}");
        }
        let check = |url: &str| from("plain.example", url);
        for bad in [
            "http://any.example/",
            "http://127.0.0.1:80/",
            "http://169.254.169.254/",
            "ftp://plain.example/",
            "https://user:secret@any.example/",
            "http://plain.example:443/",
        ] {
            assert!(check(bad).is_err(), "{bad}");
        }
    }

    #[tokio::test]
    async fn an_address_is_checked_whatever_its_name() {
        let network = network();
        for host in ["localhost", "127.0.0.1", "[::1]"] {
            let error = network.connect(host, 1).await.unwrap_err();
            assert_eq!(error.code, ErrorCode::PermissionDenied, "{host}: {error}");
        }
        let error = network.with_insecure(["localhost:1".into()]).connect("localhost", 1).await.unwrap_err();
        assert_eq!(error.code, ErrorCode::Unavailable, "{error}");
    }
}
