//! The address that a client reached this server by. It makes the links in that client's own answers and
//! decides nothing else: the client can name any host.

use crate::{Failure, RequestOrigin, session::is_over_tls};
use atoll_types::Error;
use axum::{
    extract::{FromRequestParts, OptionalFromRequestParts},
    http::{request::Parts, uri::Authority},
};
use std::convert::Infallible;

/// The scheme and the host, with its port, of the server's URL as the client sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerAddress {
    /// `https` where TLS ends here or, as far as the request tells, at a proxy.
    pub scheme: &'static str,
    /// The host and the port.
    pub host: String,
}

impl ServerAddress {
    /// Reads it from the head of a request; none where that names no valid host.
    #[must_use]
    pub fn read(parts: &Parts) -> Option<Self> {
        let host = RequestOrigin::read(&parts.uri, &parts.headers).ok()?.into_host()?;
        let scheme = if is_over_tls(parts) { "https" } else { "http" };
        is_plain(&host).then(|| Self { scheme, host: host.as_str().to_owned() })
    }

    /// The URL, without a slash at its end.
    #[must_use]
    pub fn url(&self) -> String {
        format!("{}://{}", self.scheme, self.host)
    }
}

/// Whether it is a host and a port alone: links are read by models and in terminals.
fn is_plain(host: &Authority) -> bool {
    host.as_str().bytes().all(|b| b.is_ascii_alphanumeric() || b"-._:[]".contains(&b))
}

impl<S: Sync> FromRequestParts<S> for ServerAddress {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Failure> {
        let none = || Failure::in_header(Error::invalid("Host", "the request names no valid host"));
        Self::read(parts).ok_or_else(none)
    }
}

impl<S: Sync> OptionalFromRequestParts<S> for ServerAddress {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<Self>, Infallible> {
        Ok(Self::read(parts))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::Request;

    fn read(uri: &str, headers: &[(&str, &str)]) -> Option<String> {
        let request =
            headers.iter().fold(Request::get(uri), |request, (name, value)| request.header(*name, *value));
        ServerAddress::read(&request.body(()).unwrap().into_parts().0).map(|address| address.url())
    }

    #[test]
    fn an_address_is_made_of_a_host_alone() {
        assert_eq!(read("/", &[("host", "[::1]:7300")]).as_deref(), Some("http://[::1]:7300"));
        // HTTP/2 names the host in the address.
        assert_eq!(read("http://a.example:81/x", &[]).as_deref(), Some("http://a.example:81"));
        for host in ["", "a/b", "a b", "u@a", "a?x", "a<b>"] {
            assert_eq!(read("/", &[("host", host)]), None, "{host}");
        }
        assert_eq!(read("/", &[]), None);
        assert_eq!(read("/", &[("host", "a"), ("host", "b")]), None);
    }

    #[test]
    fn tls_may_end_at_a_proxy() {
        let proxied = [("host", "a.example"), ("x-forwarded-proto", "https")];
        assert_eq!(read("/", &proxied).as_deref(), Some("https://a.example"));
        let page = [("host", "a.example"), ("sec-fetch-site", "same-origin")];
        assert_eq!(read("/", &page).as_deref(), Some("https://a.example"));
    }
}
