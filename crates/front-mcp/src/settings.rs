//! What the operator decides about MCP.

use atoll_types::{Error, Result};
use http::uri::Authority;

/// How many MCP sessions one key may have open at once.
pub const SESSIONS_PER_KEY: usize = 64;

/// When a client that left without a word is taken for gone: long enough for a laptop that sleeps for a moment.
pub const VANISHED_SECONDS: u32 = 300;

/// What the operator decides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct McpSettings {
    /// Whether there are tools beyond the six.
    pub extra_tools: bool,
    /// Pages that may ask, beside those of this machine and of this server itself.
    pub allowed_origins: Vec<Origin>,
    /// Names by which this server may be asked, beside this machine's own. Where there is none, a server
    /// that listens for others is asked by any.
    pub allowed_hosts: Vec<String>,
    /// MCP sessions that one key may have open at once.
    pub sessions_per_key: usize,
    /// After how many seconds without a stream or a request a client that listened before has vanished.
    pub vanished_seconds: u32,
}

impl Default for McpSettings {
    fn default() -> Self {
        Self {
            extra_tools: false,
            allowed_origins: Vec::new(),
            allowed_hosts: Vec::new(),
            sessions_per_key: SESSIONS_PER_KEY,
            vanished_seconds: VANISHED_SECONDS,
        }
    }
}

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
    #[must_use]
    pub fn is_local(&self) -> bool {
        is_local(&self.host)
    }

    /// Whether it is a page of the server that is asked as `host`. TLS may end at a proxy, so where no port
    /// is named it is that of the page.
    #[must_use]
    pub fn is_of(&self, host: &Authority) -> bool {
        let usual = if self.scheme == "https" { 443 } else { 80 };
        self.host.eq_ignore_ascii_case(host.host()) && self.port == host.port_u16().unwrap_or(usual)
    }
}

/// Whether a host is this machine, by a name that nobody else can give to something.
pub(crate) fn is_local(host: &str) -> bool {
    matches!(host, "localhost" | "127.0.0.1" | "[::1]")
}

#[cfg(test)]
mod tests {
    use super::*;

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
