//! Names to addresses, resolved once for each connection. Names are absolute: a search list of this machine must
//! not turn an allowed name into another one.

use atoll_types::{Error, ErrorCode, Result};
use hickory_resolver::{
    ResolverBuilder, TokioResolver,
    config::{ConnectionConfig, LookupIpStrategy, NameServerConfig, ResolverConfig, ServerOrderingStrategy},
    net::runtime::TokioRuntimeProvider,
    proto::rr::Name,
};
use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    time::Duration,
};

/// Addresses of a name that are tried.
const MOST_ADDRESSES: usize = 16;
const TIME: Duration = Duration::from_secs(8);
const LONGEST_KEPT: Duration = Duration::from_secs(300);

#[derive(Clone)]
pub(super) struct Names(TokioResolver);

impl fmt::Debug for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Names")
    }
}

/// Why there are no addresses.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unresolved {
    #[error("the name cannot be resolved: {0}")]
    Failed(String),
    #[error("the name was not resolved in time")]
    Late,
}

fn server(address: SocketAddr) -> NameServerConfig {
    let connections = [ConnectionConfig::udp(), ConnectionConfig::tcp()];
    let at = |mut connection: ConnectionConfig| {
        connection.port = address.port();
        connection
    };
    NameServerConfig::new(address.ip(), true, connections.map(at).into())
}

fn with(servers: &[SocketAddr]) -> ResolverBuilder<TokioRuntimeProvider> {
    let servers = servers.iter().copied().map(server).collect();
    let config = ResolverConfig::from_parts(None, Vec::new(), servers);
    TokioResolver::builder_with_config(config, TokioRuntimeProvider::default())
}

impl Names {
    pub(super) fn new(servers: &[SocketAddr]) -> Result<Self> {
        let mut builder = match servers {
            [] => TokioResolver::builder_tokio().unwrap_or_else(|error| {
                tracing::warn!(%error, "no resolver configuration; asking 127.0.0.1, as libc would");
                with(&[SocketAddr::from((Ipv4Addr::LOCALHOST, 53))])
            }),
            servers => with(servers),
        };
        let options = builder.options_mut();
        options.ip_strategy = LookupIpStrategy::Ipv4AndIpv6;
        options.server_ordering_strategy = ServerOrderingStrategy::UserProvidedOrder;
        options.positive_max_ttl = Some(LONGEST_KEPT);
        options.negative_max_ttl = Some(Duration::from_secs(10));
        options.timeout = Duration::from_secs(3);
        options.max_active_requests = 1024;
        let failed = |e| Error::new(ErrorCode::Internal, format!("cannot set up the resolver: {e}"));
        Ok(Self(builder.build().map_err(failed)?))
    }

    pub(super) async fn addresses(&self, name: &str) -> Result<Vec<IpAddr>, Unresolved> {
        let failed = |e: &dyn fmt::Display| Unresolved::Failed(e.to_string());
        let mut absolute = Name::from_ascii(name).map_err(|e| failed(&e))?;
        absolute.set_fqdn(true);
        let found = tokio::time::timeout(TIME, self.0.lookup_ip(absolute)).await;
        let found = found.map_err(|_| Unresolved::Late)?.map_err(|e| failed(&e))?;
        Ok(found.iter().take(MOST_ADDRESSES).collect())
    }
}
