//! From a name to a connection: resolve it once, check every address, connect to one that was checked. There is
//! no second lookup, so a name that resolves differently in between changes nothing.

mod fetch;
mod own;
mod resolve;

pub use fetch::{FetchLimits, Fetched};
pub(crate) use own::is_ours;

use crate::{Host, Reach, Verdict};
use atoll_types::{Error, ErrorCode, Result};
use resolve::{Names, Unresolved};
use rustls::ClientConfig;
use std::{
    io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};
use tokio::{net::TcpStream, time::timeout};

/// For one address, and for all of a host's together.
const CONNECT: Duration = Duration::from_secs(6);
const CONNECT_ALL: Duration = Duration::from_secs(20);

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failed {
    /// No address may be connected to; the rule of the first.
    #[error("{1}")]
    Denied(IpAddr, Arc<str>),
    /// The name has no address.
    #[error("{0}")]
    Name(String),
    /// No address answered.
    #[error("cannot connect: {0}")]
    Connect(io::Error),
    /// It took too long.
    #[error("{0}")]
    Late(String),
}

/// Connects, and never to an address that is out of reach. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Dialer {
    names: Names,
    reach: Arc<Reach>,
    tls: Arc<ClientConfig>,
}

impl Dialer {
    pub(crate) fn new(reach: Reach, nameservers: &[SocketAddr], tls: Arc<ClientConfig>) -> Result<Self> {
        Ok(Self { names: Names::new(nameservers)?, reach: Arc::new(reach), tls })
    }

    /// Connects to the first address that may be connected to and answers.
    pub(crate) async fn dial(
        &self,
        host: &Host,
        port: u16,
        decide: impl Fn(IpAddr) -> Verdict,
    ) -> Result<(TcpStream, IpAddr), Failed> {
        let addresses = match host {
            Host::Address(address) => vec![*address],
            Host::Name(name) => self.names.addresses(name).await.map_err(|e| match e {
                Unresolved::Failed(_) => Failed::Name(e.to_string()),
                Unresolved::Late => Failed::Late(e.to_string()),
            })?,
        };
        let mut checked = Vec::with_capacity(addresses.len());
        let mut denied = None;
        for address in addresses {
            match decide(address) {
                Verdict::Allow(_) => checked.push(address),
                Verdict::Deny(rule) | Verdict::Inspect(rule) => {
                    denied.get_or_insert(Failed::Denied(address, rule));
                }
            }
        }
        if checked.is_empty() {
            return Err(denied.unwrap_or_else(|| Failed::Name("the name has no address".to_owned())));
        }
        match timeout(CONNECT_ALL, first(&checked, port)).await {
            Ok(done) => done,
            Err(_) => Err(Failed::Late("no address answered in time".to_owned())),
        }
    }

    /// A connection to a host that is not out of reach.
    pub async fn connect(&self, host: &str, port: u16) -> Result<TcpStream> {
        let parsed = Host::parse(host).map_err(|e| Error::invalid("host", format!("{host:?}: {e}")))?;
        let decide = |address| {
            let ours = || is_ours(address) && !self.reach.is_opened(address);
            match self.reach.is_denied(address) || ours() {
                true => Verdict::Deny("address out of reach".into()),
                false => Verdict::Allow("public address".into()),
            }
        };
        let (stream, _) = self.dial(&parsed, port, decide).await.map_err(|failed| {
            let code = match &failed {
                Failed::Denied(..) => ErrorCode::PermissionDenied,
                Failed::Name(_) | Failed::Connect(_) => ErrorCode::Unavailable,
                Failed::Late(_) => ErrorCode::Timeout,
            };
            Error::new(code, format!("{parsed}:{port}: {failed}"))
        })?;
        Ok(stream)
    }
}

async fn first(addresses: &[IpAddr], port: u16) -> Result<(TcpStream, IpAddr), Failed> {
    let mut failed = Failed::Late("no address answered in time".to_owned());
    for address in addresses {
        match timeout(CONNECT, TcpStream::connect(SocketAddr::new(*address, port))).await {
            Ok(Ok(stream)) => {
                // The data was already gathered by its sender, so Nagle's algorithm only delays it.
                let _ = stream.set_nodelay(true);
                return Ok((stream, *address));
            }
            Ok(Err(error)) => failed = Failed::Connect(error),
            Err(_) => {}
        }
    }
    Err(failed)
}
