//! Whether a request may be looked at at all. A web page in somebody's browser can make that browser ask
//! any server, this machine's own included, under a name of the page's choosing; so the name that was
//! asked for and the page that asks must both be known.

use crate::settings::{McpSettings, Origin, is_local};
use http::{HeaderMap, HeaderValue, Uri, header, uri::Authority};

/// Who may ask.
#[derive(Debug, Clone)]
pub(super) struct OriginCheck {
    origins: Vec<Origin>,
    hosts: Vec<Authority>,
    /// Whether any name is fine, as it is for a server that listens for others and was told of no names.
    any_host: bool,
}

/// The page that asks, where it is one that may.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Page(pub(super) Option<HeaderValue>);

fn single<'a>(headers: &'a HeaderMap, name: &header::HeaderName) -> Result<Option<&'a HeaderValue>, ()> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (first, None) => Ok(first),
        _ => Err(()),
    }
}

impl OriginCheck {
    pub(super) fn new(settings: &McpSettings, loopback: bool) -> Self {
        let hosts: Vec<Authority> =
            settings.allowed_hosts.iter().filter_map(|host| host.parse().ok()).collect();
        let any_host = settings.allowed_hosts.is_empty() && !loopback;
        Self { origins: settings.allowed_origins.clone(), hosts, any_host }
    }

    fn knows(&self, host: &Authority) -> bool {
        let named = |known: &Authority| {
            known.host().eq_ignore_ascii_case(host.host())
                && (known.port().is_none() || known.port_u16() == host.port_u16())
        };
        self.any_host || is_local(host.host()) || self.hosts.iter().any(named)
    }

    /// Says why a request may not pass.
    pub(super) fn check(&self, uri: &Uri, headers: &HeaderMap) -> Result<Page, &'static str> {
        let asked = single(headers, &header::HOST).map_err(|()| "there is more than one Host")?;
        let host = match asked {
            Some(value) => value.to_str().ok().and_then(|text| text.parse::<Authority>().ok()),
            None => uri.authority().cloned(),
        };
        let host = host.filter(|host| self.knows(host));
        let host =
            host.ok_or("this server does not go by that name; the operator adds it to mcp.allowed_hosts")?;
        let page = single(headers, &header::ORIGIN).map_err(|()| "there is more than one Origin")?;
        let Some(page) = page else { return Ok(Page(None)) };
        let origin = page.to_str().ok().and_then(|text| Origin::parse(text).ok());
        let may = |origin: &Origin| origin.is_local() || origin.is_of(&host) || self.origins.contains(origin);
        match origin {
            Some(origin) if may(&origin) => Ok(Page(Some(page.clone()))),
            _ => Err("pages of that origin may not ask; the operator adds it to mcp.allowed_origins"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(origin_check: &OriginCheck, host: &str, origin: Option<&str>) -> bool {
        let mut headers = HeaderMap::new();
        headers.insert("host", host.parse().unwrap());
        if let Some(origin) = origin {
            headers.insert("origin", origin.parse().unwrap());
        }
        origin_check.check(&"/mcp".parse().unwrap(), &headers).is_ok()
    }

    #[test]
    fn a_server_of_this_machine_is_asked_by_its_names_only() {
        let origin_check = OriginCheck::new(&McpSettings::default(), true);
        for host in ["localhost:7300", "127.0.0.1:7300", "[::1]:7300", "localhost"] {
            assert!(asked(&origin_check, host, None), "{host}");
        }
        for host in
            ["evil.example", "localhost.evil.example:7300", "127.0.0.1.evil.example", "192.0.2.7:7300", "a b"]
        {
            assert!(!asked(&origin_check, host, None), "{host}");
        }
    }

    #[test]
    fn a_server_for_others_is_asked_by_any_name_unless_it_was_given_some() {
        assert!(asked(&OriginCheck::new(&McpSettings::default(), false), "atoll.example.com", None));
        let named = McpSettings {
            allowed_hosts: vec!["atoll.example.com".into(), "two.example:81".into()],
            ..McpSettings::default()
        };
        for loopback in [true, false] {
            let origin_check = OriginCheck::new(&named, loopback);
            assert!(
                asked(&origin_check, "Atoll.example.com:7300", None)
                    && asked(&origin_check, "two.example:81", None)
            );
            assert!(
                !asked(&origin_check, "two.example", None) && !asked(&origin_check, "evil.example", None)
            );
        }
    }

    #[test]
    fn pages_of_this_machine_of_this_server_and_of_the_list_may_ask() {
        let origins = vec![Origin::parse("https://app.example.com").unwrap()];
        let origin_check =
            OriginCheck::new(&McpSettings { allowed_origins: origins, ..McpSettings::default() }, false);
        for origin in ["http://localhost:3000", "https://atoll.example.com", "https://app.example.com"] {
            assert!(asked(&origin_check, "atoll.example.com", Some(origin)), "{origin}");
        }
        for origin in [
            "https://evil.example",
            "null",
            "https://app.example.com.evil.example",
            "http://app.example.com",
            "?",
        ] {
            assert!(!asked(&origin_check, "atoll.example.com", Some(origin)), "{origin}");
        }
    }

    #[test]
    fn what_is_said_twice_is_believed_never() {
        let origin_check = OriginCheck::new(&McpSettings::default(), true);
        for name in ["host", "origin"] {
            let mut headers = HeaderMap::new();
            headers.insert("host", HeaderValue::from_static("localhost"));
            headers
                .append(header::HeaderName::from_static(name), HeaderValue::from_static("http://localhost"));
            headers
                .append(header::HeaderName::from_static(name), HeaderValue::from_static("http://localhost"));
            assert!(origin_check.check(&"/mcp".parse().unwrap(), &headers).is_err(), "{name}");
        }
    }
}
