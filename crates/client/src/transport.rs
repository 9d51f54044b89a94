//! Connections: plain HTTP, or TLS by rustls with the machine's own roots. Bodies are streams.

use crate::{Error, Result};
use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::http::{Uri, uri::Scheme};
use hyper_rustls::{ConfigBuilderExt, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{self, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use rustls::{ClientConfig, RootCertStore, crypto::ring};
use std::{sync::Arc, time::Duration};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// A command may be silent for hours; TCP keep-alive distinguishes a dead peer from a quiet one.
const KEEPALIVE: Duration = Duration::from_secs(30);

pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;
pub(crate) type Body = UnsyncBoxBody<Bytes, BoxError>;
pub(crate) type Http = legacy::Client<HttpsConnector<HttpConnector>, Body>;

/// The server's URL, without a slash at the end.
pub(crate) fn base(url: &str) -> Result<(String, bool)> {
    let wrong = |why: &str| Error::Url(format!("{url:?} is not the URL of a server: {why}"));
    let uri: Uri = url.parse().map_err(|_| wrong("expected something like http://127.0.0.1:7300"))?;
    let tls = match uri.scheme() {
        Some(scheme) if *scheme == Scheme::HTTP => false,
        Some(scheme) if *scheme == Scheme::HTTPS => true,
        _ => return Err(wrong("it must start with http:// or https://")),
    };
    let authority = uri.authority().ok_or_else(|| wrong("it names no host"))?;
    if authority.as_str().contains('@') {
        return Err(Error::Url("the URL of a server holds no password; give a key instead".into()));
    }
    if uri.query().is_some() {
        return Err(wrong("it must end before the ?"));
    }
    let scheme = if tls { "https" } else { "http" };
    Ok((format!("{scheme}://{authority}{}", uri.path().trim_end_matches('/')), tls))
}

fn tls_config(tls: bool) -> Result<ClientConfig> {
    let failed = |why: String| Error::Url(format!("TLS cannot be used on this machine: {why}"));
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|e| failed(e.to_string()))?;
    let builder = if tls {
        builder.with_native_roots().map_err(|e| failed(e.to_string()))?
    } else {
        // A plain URL stays plain, so no machine needs certificates for it.
        builder.with_root_certificates(RootCertStore::empty())
    };
    Ok(builder.with_no_client_auth())
}

/// A pool of connections.
pub(crate) fn http(tls: bool) -> Result<Http> {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
    tcp.set_keepalive(Some(KEEPALIVE));
    let config = tls_config(tls)?;
    let connector = HttpsConnectorBuilder::new().with_tls_config(config);
    let connector = if tls { connector.https_only() } else { connector.https_or_http() };
    let connector = connector.enable_http1().wrap_connector(tcp);
    let mut builder = legacy::Client::builder(TokioExecutor::new());
    builder.pool_timer(TokioTimer::new());
    Ok(builder.build(connector))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_checked_before_anything_is_sent() {
        assert_eq!(base("http://h:7300/").unwrap(), ("http://h:7300".into(), false));
        assert_eq!(base("https://h/atoll/").unwrap(), ("https://h/atoll".into(), true));
        for bad in ["", "127.0.0.1:7300", "h", "ftp://h", "http://", "http://u:p@h", "http://h/?x=1", "/x"] {
            assert!(matches!(base(bad), Err(Error::Url(_))), "{bad:?}");
        }
    }
}
