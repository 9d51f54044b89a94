//! Host and origin of a request: one rule for every front. A web page in a user's browser can make that
//! browser send requests to any server, this machine's own included, under a host name of the page's
//! choosing; so where it matters both must be known. A header that is there twice is refused everywhere: two
//! readers could each believe another one.

use crate::{Access, Failure};
use atoll_types::{Error, Result};
use axum::{
    extract::FromRequestParts,
    http::{HeaderMap, HeaderValue, Uri, header, request::Parts, uri::Authority},
};
use std::net::Ipv4Addr;

/// Where a page comes from: scheme, host and port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    scheme: &'static str,
    host: String,
    port: u16,
}

impl Origin {
    /// Reads one as a browser writes it. `null` is none.
    pub fn parse(text: &str) -> Result<Self> {
        let wrong = || {
            Error::invalid(
                "origin",
                format!("{:.200} is no origin, such as https://app.example.com", text.escape_debug()),
            )
        };
        let (scheme, usual, rest) = match text.split_once("://") {
            Some(("http", rest)) => ("http", 80, rest),
            Some(("https", rest)) => ("https", 443, rest),
            _ => return Err(wrong()),
        };
        let authority: Authority = rest.parse().map_err(|_| wrong())?;
        if authority.as_str().contains('@') || authority.host().is_empty() {
            return Err(wrong());
        }
        let port = authority.port_u16().unwrap_or(usual);
        Ok(Self { scheme, host: authority.host().to_ascii_lowercase(), port })
    }

    /// Whether it is a page of this machine, of whichever program.
    fn is_local(&self) -> bool {
        is_local(&self.host)
    }

    /// Whether it is a page of the server that is asked as `host`. TLS may end at a proxy, so where no port
    /// is named it is that of the page.
    fn is_of(&self, host: &Authority) -> bool {
        let usual = if self.scheme == "https" { 443 } else { 80 };
        self.host.eq_ignore_ascii_case(host.host()) && self.port == host.port_u16().unwrap_or(usual)
    }
}

/// Whether a host is this machine, by a name that no other machine can be given.
fn is_local(host: &str) -> bool {
    matches!(host, "localhost" | "127.0.0.1" | "[::1]")
}

/// The host that a request names, and the origin of its page.
#[derive(Debug, Clone)]
pub struct RequestOrigin {
    host: Option<Authority>,
    page: Page,
}

#[derive(Debug, Clone)]
enum Page {
    /// No browser says that a page asks.
    None,
    Known(Origin),
    /// One without an origin of its own, or with one that cannot be read.
    Opaque,
}

fn single<'a>(headers: &'a HeaderMap, name: &header::HeaderName) -> Result<Option<&'a HeaderValue>, Failure> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (first, None) => Ok(first),
        _ => Err(Failure::repeated(name)),
    }
}

impl RequestOrigin {
    /// Reads it from the head of a request.
    pub fn read(uri: &Uri, headers: &HeaderMap) -> Result<Self, Failure> {
        let host = match single(headers, &header::HOST)? {
            Some(value) => value.to_str().ok().and_then(|text| text.parse().ok()),
            None => uri.authority().cloned(),
        };
        let page = match single(headers, &header::ORIGIN)? {
            None => Page::None,
            Some(value) => {
                let origin = value.to_str().ok().and_then(|text| Origin::parse(text).ok());
                origin.map_or(Page::Opaque, Page::Known)
            }
        };
        Ok(Self { host, page })
    }

    /// The host.
    pub(crate) fn into_host(self) -> Option<Authority> {
        self.host
    }

    /// Whether the server is asked by a name of this machine.
    #[must_use]
    pub fn is_local(&self) -> bool {
        self.host.as_ref().is_some_and(|host| is_local(host.host()))
    }

    /// Whether a page of this server itself sends it, and the browser says so.
    #[must_use]
    pub fn names_own_page(&self) -> bool {
        matches!(self.page, Page::Known(_)) && self.is_own_page()
    }

    /// Whether the page that sends it came over TLS, which may end at a proxy.
    #[must_use]
    pub fn is_tls(&self) -> bool {
        matches!(&self.page, Page::Known(origin) if origin.scheme == "https")
    }

    /// Whether the page that sends it came without TLS.
    pub(crate) fn is_plain(&self) -> bool {
        matches!(&self.page, Page::Known(origin) if origin.scheme == "http")
    }

    /// Whether browsers take the host that is asked for this machine, whatever it is called.
    pub(crate) fn is_loopback(&self) -> bool {
        let loopback = |host: &str| host.parse::<Ipv4Addr>().is_ok_and(|address| address.is_loopback());
        let host = self.host.as_ref().map(Authority::host);
        host.is_some_and(|host| is_local(host) || host.ends_with(".localhost") || loopback(host))
    }

    /// Whether a program sends it, or a page of this server itself. Browsers let any page try to open a
    /// WebSocket, with any key that it has or has been given.
    #[must_use]
    pub fn is_own_page(&self) -> bool {
        match (&self.host, &self.page) {
            (Some(_), Page::None) => true,
            (Some(host), Page::Known(origin)) => origin.is_of(host),
            _ => false,
        }
    }
}

impl<S: Send + Sync> FromRequestParts<S> for RequestOrigin {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Failure> {
        Self::read(&parts.uri, &parts.headers)
    }
}

/// Which hosts requests may name, and which origins may send them.
#[derive(Debug, Clone)]
pub struct OriginCheck {
    access: Access,
    origins: Vec<Origin>,
    hosts: Vec<Authority>,
    /// Whether any host is fine, as it is for a server that listens beyond loopback and was given no hosts.
    any_host: bool,
    /// The section of the configuration that has these lists, for refusals.
    section: &'static str,
}

impl OriginCheck {
    /// `loopback` says whether only this machine can reach the listener. A server without keys takes only
    /// hosts of this machine and its own pages, whatever else is allowed.
    #[must_use]
    pub fn new(access: Access, loopback: bool, hosts: &[String], origins: &[Origin]) -> Self {
        let any_host = hosts.is_empty() && !loopback;
        let hosts = hosts.iter().filter_map(|host| host.parse().ok()).collect();
        Self { access, origins: origins.to_vec(), hosts, any_host, section: "mcp" }
    }

    /// The same, of another section of the configuration.
    #[must_use]
    pub fn of_section(self, section: &'static str) -> Self {
        Self { section, ..self }
    }

    fn knows(&self, host: &Authority) -> bool {
        let named = |known: &Authority| {
            known.host().eq_ignore_ascii_case(host.host())
                && (known.port().is_none() || known.port_u16() == host.port_u16())
        };
        is_local(host.host())
            || (self.access == Access::Keys && (self.any_host || self.hosts.iter().any(named)))
    }

    /// Says why a request may not pass.
    pub fn check(&self, asked: &RequestOrigin) -> Result<(), String> {
        let (open, section) = (self.access == Access::Open, self.section);
        let host = asked.host.as_ref().filter(|host| self.knows(host)).ok_or_else(|| match self.access {
            Access::Open => {
                "without keys only this machine may ask, by the name localhost or 127.0.0.1".into()
            }
            Access::Keys => {
                format!(
                    "this server does not go by that name; the operator adds it to {section}.allowed_hosts"
                )
            }
        })?;
        let may = |origin: &Origin| {
            origin.is_of(host) || (!open && (origin.is_local() || self.origins.contains(origin)))
        };
        match &asked.page {
            Page::None => Ok(()),
            Page::Known(origin) if may(origin) => Ok(()),
            _ if open => Err("without keys only pages of this server itself may ask".into()),
            _ => Err(format!(
                "pages of that origin may not ask; the operator adds it to {section}.allowed_origins"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(host: &str, origin: Option<&str>) -> RequestOrigin {
        let mut headers = HeaderMap::new();
        headers.insert("host", host.parse().unwrap());
        if let Some(origin) = origin {
            headers.insert("origin", origin.parse().unwrap());
        }
        RequestOrigin::read(&"/mcp".parse().unwrap(), &headers).unwrap()
    }

    fn may(check: &OriginCheck, host: &str, origin: Option<&str>) -> bool {
        check.check(&asked(host, origin)).is_ok()
    }

    fn keys(loopback: bool) -> OriginCheck {
        OriginCheck::new(Access::Keys, loopback, &[], &[])
    }

    #[test]
    fn a_server_of_this_machine_is_asked_by_its_names_only() {
        for host in ["localhost:7300", "127.0.0.1:7300", "[::1]:7300", "localhost"] {
            assert!(may(&keys(true), host, None), "{host}");
        }
        for host in
            ["evil.example", "localhost.evil.example:7300", "127.0.0.1.evil.example", "192.0.2.7:7300", "a b"]
        {
            assert!(!may(&keys(true), host, None), "{host}");
        }
    }

    #[test]
    fn a_server_for_others_is_asked_by_any_name_unless_it_was_given_some() {
        assert!(may(&keys(false), "atoll.example.com", None));
        let named = ["atoll.example.com".to_owned(), "two.example:81".to_owned()];
        for loopback in [true, false] {
            let check = OriginCheck::new(Access::Keys, loopback, &named, &[]);
            assert!(may(&check, "Atoll.example.com:7300", None) && may(&check, "two.example:81", None));
            assert!(!may(&check, "two.example", None) && !may(&check, "evil.example", None));
        }
    }

    #[test]
    fn pages_of_this_machine_of_this_server_and_of_the_list_may_ask() {
        let listed = [Origin::parse("https://app.example.com").unwrap()];
        let check = OriginCheck::new(Access::Keys, false, &[], &listed);
        for origin in ["http://localhost:3000", "https://atoll.example.com", "https://app.example.com"] {
            assert!(may(&check, "atoll.example.com", Some(origin)), "{origin}");
        }
        for origin in [
            "https://evil.example",
            "null",
            "https://app.example.com.evil.example",
            "http://app.example.com",
            "?",
        ] {
            assert!(!may(&check, "atoll.example.com", Some(origin)), "{origin}");
        }
    }

    #[test]
    fn without_keys_only_this_machine_by_its_own_names_and_pages() {
        let listed = [Origin::parse("https://app.example.com").unwrap()];
        let open = OriginCheck::new(Access::Open, false, &["app.example.com".into()], &listed);
        assert!(may(&open, "127.0.0.1:7300", None) && may(&open, "[::1]:7300", None));
        assert!(may(&open, "localhost:7300", Some("http://localhost:7300")));
        for (host, origin) in [
            ("attacker.example", None),
            ("app.example.com", None),
            ("127.0.0.1.attacker.example:7300", None),
            ("localhost:7300", Some("https://attacker.example")),
            ("localhost:7300", Some("https://app.example.com")),
            ("localhost:7300", Some("null")),
            // Another server of this machine.
            ("localhost:7300", Some("http://localhost:8080")),
            ("localhost:7300", Some("http://127.0.0.1:7300")),
            ("", None),
        ] {
            assert!(!may(&open, host, origin), "{host} {origin:?}");
        }
    }

    #[test]
    fn a_page_of_this_server_may_open_a_socket() {
        let own = |host, origin| asked(host, Some(origin)).is_own_page();
        assert!(own("atoll.example", "https://atoll.example"));
        assert!(own("atoll.example", "http://atoll.example:80"));
        assert!(own("10.0.0.7:7300", "http://10.0.0.7:7300"));
        assert!(own("Atoll.example:443", "https://atoll.example"));
        assert!(asked("atoll.example", None).is_own_page());
        for (host, origin) in [
            ("atoll.example", "https://attacker.example"),
            ("atoll.example", "https://atoll.example.attacker.example"),
            ("atoll.example", "https://atoll.example:8443"),
            ("127.0.0.1:7300", "http://127.0.0.1:3000"),
            ("atoll.example", "null"),
            ("atoll.example", "file://"),
            ("atoll.example", ""),
            ("", "https://atoll.example"),
        ] {
            assert!(!own(host, origin), "{host} {origin}");
        }
    }

    #[test]
    fn what_is_said_twice_is_believed_never() {
        for name in [header::HOST, header::ORIGIN] {
            let mut headers = HeaderMap::new();
            headers.append(&name, HeaderValue::from_static("http://localhost"));
            assert!(RequestOrigin::read(&"/mcp".parse().unwrap(), &headers).is_ok(), "{name}");
            headers.append(&name, HeaderValue::from_static("http://localhost"));
            assert!(RequestOrigin::read(&"/mcp".parse().unwrap(), &headers).is_err(), "{name}");
        }
    }

    #[test]
    fn origins_are_compared_by_scheme_host_and_port() {
        let same = |a, b| Origin::parse(a).unwrap() == Origin::parse(b).unwrap();
        assert!(same("https://App.example.com", "https://app.example.com:443"));
        assert!(!same("https://app.example.com", "http://app.example.com"));
        assert!(!same("https://app.example.com", "https://app.example.com:8443"));
        for bad in [
            "null",
            "",
            "app.example.com",
            "file:///x",
            "https://",
            "https://u@app.example.com",
            "https://a b",
        ] {
            assert!(Origin::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn only_names_of_this_machine_are_local() {
        for local in ["http://localhost:3000", "http://127.0.0.1", "https://[::1]:7300"] {
            assert!(Origin::parse(local).unwrap().is_local(), "{local}");
        }
        for other in
            ["http://localhost.example.com", "http://127.0.0.1.example.com", "http://0.0.0.0", "http://[::2]"]
        {
            assert!(!Origin::parse(other).unwrap().is_local(), "{other}");
        }
    }

    #[test]
    fn a_page_of_the_server_itself() {
        let of = |origin, host: &str| Origin::parse(origin).unwrap().is_of(&host.parse().unwrap());
        assert!(
            of("https://atoll.example.com", "atoll.example.com")
                && of("http://192.0.2.7:7300", "192.0.2.7:7300")
        );
        assert!(
            !of("https://atoll.example.com", "atoll.example.com:8443")
                && !of("http://evil.example", "atoll.example.com")
        );
    }
}
