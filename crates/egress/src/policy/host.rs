//! A host, as a client may write it and as it is compared.

use serde::{Deserialize, Serialize};
use std::{
    fmt,
    net::{IpAddr, Ipv4Addr},
};

/// A name in lower case without a dot at its end, or an address however it was spelled.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Host {
    /// A name: ASCII, checked.
    Name(String),
    /// An address; a mapped IPv4 address is the IPv4 address.
    Address(IpAddr),
}

/// Why a text is not a host.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a host name or an address")]
pub struct BadHost;

/// The longest name.
pub(super) const LONGEST_NAME: usize = 253;

fn is_label(label: &str) -> bool {
    // The underscore is in no host name of the standard, and in many that are in use.
    (1..=63).contains(&label.len())
        && label.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
        && !label.starts_with('-')
        && !label.ends_with('-')
}

impl Host {
    /// Reads a host as a browser does: `0x7f.1`, `017700000001` and `2130706433` are 127.0.0.1, and an
    /// IPv6 address may have its brackets.
    pub fn parse(text: &str) -> Result<Self, BadHost> {
        let bare = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')).unwrap_or(text);
        // A zone names an interface, and the proxy has none to choose from.
        if let Ok(address) = bare.parse::<IpAddr>() {
            return Ok(Self::Address(address.to_canonical()));
        }
        if text.contains(['%', '[', ']']) || text.len() > 1024 {
            return Err(BadHost);
        }
        match url::Host::parse(text.strip_suffix('.').unwrap_or(text)) {
            Ok(url::Host::Ipv4(address)) => Ok(Self::Address(address.into())),
            Ok(url::Host::Ipv6(address)) => Ok(Self::Address(IpAddr::V6(address).to_canonical())),
            Ok(url::Host::Domain(name)) => Self::name(&name),
            Err(_) => Err(BadHost),
        }
    }

    fn name(name: &str) -> Result<Self, BadHost> {
        // A text that other programs would read as an address must not pass as a name.
        let number = |label: &str| {
            label.bytes().all(|b| b.is_ascii_digit()) || label.starts_with("0x") && label.len() <= 10
        };
        let last = name.rsplit('.').next().unwrap_or_default();
        if name.len() > LONGEST_NAME || !name.split('.').all(is_label) || number(last) {
            return Err(BadHost);
        }
        Ok(Self::Name(name.to_ascii_lowercase()))
    }

    /// The address that it is, if it is one.
    #[must_use]
    pub fn address(&self) -> Option<IpAddr> {
        match self {
            Self::Address(address) => Some(*address),
            Self::Name(_) => None,
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Address(address) => address.fmt(f),
        }
    }
}

impl From<Ipv4Addr> for Host {
    fn from(address: Ipv4Addr) -> Self {
        Self::Address(address.into())
    }
}

impl TryFrom<String> for Host {
    type Error = BadHost;
    fn try_from(text: String) -> Result<Self, BadHost> {
        Self::parse(&text)
    }
}

impl From<Host> for String {
    fn from(host: Host) -> String {
        host.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn text(host: &str) -> String {
        Host::parse(host).map_or_else(|e| e.to_string(), |h| h.to_string())
    }

    #[test]
    fn names_are_compared_in_one_form() {
        assert_eq!(text("Example.COM."), "example.com");
        assert_eq!(text("bücher.example"), "xn--bcher-kva.example");
        assert_eq!(text("_dmarc.example.com"), "_dmarc.example.com");
        assert_eq!(text("localhost"), "localhost");
    }

    #[test]
    fn every_spelling_of_an_address_is_the_address() {
        for odd in [
            "127.0.0.1",
            "127.1",
            "0x7f.1",
            "0x7f000001",
            "2130706433",
            "017700000001",
            "0177.0.0.1",
            "127.0.1",
            "127.0.0.1.",
            "::ffff:127.0.0.1",
            "[::ffff:7f00:1]",
            "１２７.0.0.1",
        ] {
            assert_eq!(Host::parse(odd), Ok(Host::from(Ipv4Addr::LOCALHOST)), "{odd}");
        }
        assert_eq!(text("[::1]"), "::1");
        assert_eq!(text("2001:DB8::1"), "2001:db8::1");
    }

    #[test]
    fn what_is_neither_is_refused() {
        for odd in [
            "",
            ".",
            "..",
            "a..b",
            "-a.example",
            "a b",
            "a/b",
            "a@b",
            "a:80",
            "[::1",
            "::1]",
            "fe80::1%eth0",
            "[fe80::1%25eth0]",
            "1.2.3.4.5",
            "256.256.256.256",
            "999999999999",
            "example.123",
            "a\0b",
            "a\nb",
            "%31%32%37.1",
            "*.x",
            "0x7f.example.0x1",
        ] {
            assert_eq!(Host::parse(odd), Err(BadHost), "{odd:?}");
        }
        assert_eq!(Host::parse(&"a.".repeat(200)), Err(BadHost));
        assert_eq!(Host::parse(&format!("{}.example", "a".repeat(64))), Err(BadHost));
    }

    proptest! {
        #[test]
        fn whatever_is_read_reads_the_same_again(text in "\\PC{0,40}|[a-zA-Z0-9.:x\\[\\]-]{0,40}") {
            if let Ok(host) = Host::parse(&text) {
                prop_assert_eq!(Host::parse(&host.to_string()), Ok(host));
            }
        }
    }
}
