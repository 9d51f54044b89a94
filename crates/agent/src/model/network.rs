//! Where models are: the operator's base URL may be anywhere, an owner's only at public addresses and at those that the
//! operator lists. A name is resolved here and the very address that was checked is connected to; redirects are not
//! followed, so no answer leads a key elsewhere.

use super::{ModelFailure, ModelTarget, forward::Forwarder};
use atoll_egress::Reach;
use atoll_types::{Error, Result};
use reqwest::{
    Client, Url,
    dns::{Addrs, Name, Resolve, Resolving},
    redirect::Policy,
};
use rustls::{ClientConfig, RootCertStore, crypto::ring};
use std::{net::IpAddr, sync::Arc, time::Duration};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// A base URL leads to an address that owners may not use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Forbidden(String);

impl std::fmt::Display for Forbidden {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "the base URL leads to {}, which is a private address; use a public one, or let the operator list it",
            self.0
        )
    }
}

impl std::error::Error for Forbidden {}

/// Resolves names to addresses that owners may use.
struct Guarded(Arc<Reach>);

impl Resolve for Guarded {
    fn resolve(&self, name: Name) -> Resolving {
        let reach = Arc::clone(&self.0);
        Box::pin(async move {
            let found: Vec<_> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            match found.iter().find(|address| reach.is_denied(address.ip())) {
                Some(denied) => Err(Forbidden(format!("{} ({})", name.as_str(), denied.ip())).into()),
                None => Ok(Box::new(found.into_iter()) as Addrs),
            }
        })
    }
}

/// One client for the operator's base URL and one for owners'.
pub(super) struct Clients {
    trusted: Client,
    guarded: Client,
    reach: Arc<Reach>,
    tls: ClientConfig,
}

/// TLS with the machine's certificates.
fn tls() -> Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let config = config.with_safe_default_protocol_versions().map_err(|e| Error::internal(e.to_string()))?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}

impl Clients {
    pub(super) fn new(reach: Reach) -> Result<Self> {
        let reach = Arc::new(reach);
        let tls = tls()?;
        let client = || {
            Client::builder()
                .tls_backend_preconfigured(tls.clone())
                .redirect(Policy::none())
                .connect_timeout(CONNECT_TIMEOUT)
                .no_proxy()
        };
        let failed =
            |error: reqwest::Error| Error::internal(format!("no client for models can be made: {error}"));
        let trusted = client().build().map_err(failed)?;
        let guarded = client().dns_resolver(Guarded(Arc::clone(&reach))).build().map_err(failed)?;
        Ok(Self { trusted, guarded, reach, tls })
    }

    /// A client for the library, which speaks to a forwarder alone.
    pub(super) fn to(&self, forwarder: &Forwarder) -> reqwest::Result<Client> {
        let client = Client::builder().tls_backend_preconfigured(self.tls.clone()).redirect(Policy::none());
        client.unix_socket(forwarder.socket()).pool_max_idle_per_host(0).build()
    }

    /// The client for a model.
    pub(super) fn of(&self, target: &ModelTarget) -> Result<Client, ModelFailure> {
        if target.trusted {
            return Ok(self.trusted.clone());
        }
        // An address is connected to without being resolved.
        let host = Url::parse(&target.endpoint).ok().and_then(|url| url.host_str().map(str::to_owned));
        let host = host.unwrap_or_default();
        let literal = host.trim_matches(['[', ']']).parse::<IpAddr>();
        match literal {
            Ok(address) if self.reach.is_denied(address) => {
                Err(ModelFailure::Forbidden(Forbidden(address.to_string()).to_string()))
            }
            _ => Ok(self.guarded.clone()),
        }
    }
}

/// How long the name of a picture's host may take to be resolved.
const LOOKUP: Duration = Duration::from_secs(5);

/// Whether a provider may be told to fetch a picture from a URL of a client's. The operator's own model may stand where
/// addresses lead that its clients may not reach: so only HTTPS, and only public addresses.
pub(super) async fn may_fetch(url: &str) -> bool {
    let Ok(url) = Url::parse(url) else { return false };
    if url.scheme() != "https" || !url.username().is_empty() || url.password().is_some() {
        return false;
    }
    let (reach, host) = (Reach::default(), url.host_str().unwrap_or_default().trim_matches(['[', ']']));
    if let Ok(address) = host.parse::<IpAddr>() {
        return !reach.is_denied(address);
    }
    let found = tokio::time::timeout(LOOKUP, tokio::net::lookup_host((host, 0))).await;
    let Ok(Ok(found)) = found else { return false };
    let mut found = found.peekable();
    found.peek().is_some() && found.all(|address| !reach.is_denied(address.ip()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ModelSettings;

    #[test]
    fn an_owners_base_url_is_not_private_and_the_operators_may_be() {
        let clients = Clients::new(Reach::default()).unwrap();
        let target = |base: &str, trusted| {
            let settings = ModelSettings {
                model: Some("m".into()),
                provider: Some("openai".into()),
                base_url: Some(base.to_owned()),
                ..ModelSettings::default()
            };
            ModelTarget::of(&settings, trusted).unwrap()
        };
        for base in [
            "http://127.0.0.1:1",
            "http://169.254.169.254",
            "http://[::1]:9/v1",
            "http://10.0.0.1",
            "http://2130706433/",
            "http://0x7f.1/",
            "http://[::ffff:127.0.0.1]/",
        ] {
            assert!(matches!(clients.of(&target(base, false)), Err(ModelFailure::Forbidden(_))), "{base}");
            assert!(clients.of(&target(base, true)).is_ok(), "{base}");
        }
        assert!(clients.of(&target("https://8.8.8.8/", false)).is_ok());
        let opened = Reach::default().with_opened(vec!["127.0.0.1".parse().unwrap()]);
        assert!(Clients::new(opened).unwrap().of(&target("http://127.0.0.1:1", false)).is_ok());
    }

    #[tokio::test]
    async fn a_picture_is_fetched_from_public_addresses_over_https_alone() {
        for url in [
            "http://8.8.8.8/a.png",
            "https://10.0.0.1/a.png",
            "https://127.0.0.1/",
            "https://[::1]/a.png",
            "https://169.254.169.254/latest/meta-data",
            "https://2130706433/a.png",
            "https://localhost/a.png",
            "https://name:word@8.8.8.8/a.png",
            "file:///etc/passwd",
            "gopher://8.8.8.8/",
            "a.png",
            "",
        ] {
            assert!(!may_fetch(url).await, "{url}");
        }
        assert!(may_fetch("https://8.8.8.8/a.png").await);
    }

    #[tokio::test]
    async fn a_name_that_leads_to_a_private_address_is_refused() {
        let guarded = Guarded(Arc::new(Reach::default()));
        let refused = guarded.resolve("localhost".parse().unwrap()).await;
        assert!(refused.is_err_and(|error| error.is::<Forbidden>()));
    }
}
