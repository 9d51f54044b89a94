//! Addresses that are out of reach unless an entry names them: loopback, link-local and metadata services,
//! private ranges. The check is made on the address that is connected to, after every name was resolved, so a
//! name that resolves differently later (DNS rebinding) gains nothing.

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    str::FromStr,
};

/// Why a text is not a range of addresses.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not an address or a range such as 10.1.2.0/24")]
pub struct BadNet;

/// A range of addresses, or one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Net(IpNet);

impl Net {
    /// Whether it holds an address. A mapped IPv4 address is the IPv4 address.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        self.0.contains(&address.to_canonical())
    }

    /// Whether it holds every address of another one.
    #[must_use]
    pub fn covers(&self, other: &Net) -> bool {
        self.0.contains(&other.0)
    }

    /// Whether some address is in both.
    #[must_use]
    pub fn meets(&self, other: &Net) -> bool {
        self.covers(other) || other.covers(self)
    }
}

impl FromStr for Net {
    type Err = BadNet;
    fn from_str(text: &str) -> Result<Self, BadNet> {
        let net = match text.parse::<IpAddr>() {
            Ok(address) => IpNet::from(address.to_canonical()),
            Err(_) => text.parse::<IpNet>().map_err(|_| BadNet)?.trunc(),
        };
        match net {
            // A range of mapped addresses would never match: addresses are unmapped before the comparison.
            IpNet::V6(net) if net.network().to_ipv4_mapped().is_some() => Err(BadNet),
            net => Ok(Self(net)),
        }
    }
}

impl TryFrom<String> for Net {
    type Error = BadNet;
    fn try_from(text: String) -> Result<Self, BadNet> {
        text.parse()
    }
}

impl From<Net> for String {
    fn from(net: Net) -> String {
        net.to_string()
    }
}

impl fmt::Display for Net {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.prefix_len() == self.0.max_prefix_len() {
            return self.0.addr().fmt(f);
        }
        self.0.fmt(f)
    }
}

/// Out of reach unless an entry names them. Documentation ranges are not here: no host has such an address.
const USUAL: &[&str] = &[
    "0.0.0.0/8",
    "10.0.0.0/8",
    "100.64.0.0/10",
    "127.0.0.0/8",
    "168.63.129.16",
    "169.254.0.0/16",
    "172.16.0.0/12",
    "192.0.0.0/24",
    "192.168.0.0/16",
    "198.18.0.0/15",
    "224.0.0.0/4",
    "240.0.0.0/4",
    "::",
    "::1",
    // Local-use NAT64: it is not known here where in it an operator's translator reads the IPv4 address.
    "64:ff9b:1::/48",
    "100::/64",
    "fc00::/7",
    "fe80::/10",
    "fec0::/10",
    "ff00::/8",
];

/// Which addresses are out of reach unless an entry names them, and which the operator opened to all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reach {
    denied: Vec<Net>,
    opened: Vec<Net>,
}

impl Default for Reach {
    fn default() -> Self {
        Self { denied: USUAL.iter().filter_map(|net| net.parse().ok()).collect(), opened: Vec::new() }
    }
}

impl Reach {
    /// The usual ranges with more of the operator's, or the operator's in their place.
    #[must_use]
    pub fn new(denied: Vec<Net>, opened: Vec<Net>) -> Self {
        Self { denied, opened }
    }

    /// The same, with these opened to all.
    #[must_use]
    pub fn with_opened(mut self, opened: Vec<Net>) -> Self {
        self.opened.extend(opened);
        self
    }

    /// The same, with one more range out of reach: the server's own addresses.
    #[must_use]
    pub fn without(mut self, net: Net) -> Self {
        self.denied.push(net);
        self
    }

    /// Whether an address needs an entry that names it.
    #[must_use]
    pub fn is_denied(&self, address: IpAddr) -> bool {
        let denied = |a: IpAddr| {
            self.denied.iter().any(|n| n.contains(a)) && !self.opened.iter().any(|n| n.contains(a))
        };
        denied(address.to_canonical()) || embedded(address).is_some_and(|v4| denied(v4.into()))
    }

    /// Whether the operator opened an address to all.
    #[must_use]
    pub fn is_opened(&self, address: IpAddr) -> bool {
        self.opened.iter().any(|net| net.contains(address))
    }

    /// The first range out of reach that a range touches and the operator did not open.
    #[must_use]
    pub fn denied_part(&self, net: &Net) -> Option<Net> {
        if self.opened.iter().any(|open| open.covers(net)) {
            return None;
        }
        let carriers = CARRIERS.iter().filter_map(|carrier| carrier.parse().ok());
        self.denied.iter().copied().chain(carriers).find(|denied| denied.meets(net))
    }
}

/// Addresses that carry others: a range of them touches every range that is out of reach.
const CARRIERS: &[&str] =
    &["::/96", "::ffff:0:0:0/96", "64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32"];

/// The IPv4 address that an IPv6 address carries: a gateway on the way would connect there.
fn embedded(address: IpAddr) -> Option<Ipv4Addr> {
    let IpAddr::V6(address) = address else { return None };
    let [a, b, c, d, e, f, g, h] = address.segments();
    let v4 = |high: u16, low: u16| Ipv4Addr::from((u32::from(high) << 16) | u32::from(low));
    match [a, b, c, d, e, f] {
        // Mapped, compatible, translated.
        [0, 0, 0, 0, 0, 0xffff | 0] | [0, 0, 0, 0, 0xffff, 0] if address != Ipv6Addr::LOCALHOST => {
            Some(v4(g, h))
        }
        // NAT64 by the well-known prefix.
        [0x64, 0xff9b, 0, 0, 0, 0] => Some(v4(g, h)),
        // 6to4.
        [0x2002, high, low, ..] => Some(v4(high, low)),
        // Teredo carries it inverted.
        [0x2001, 0, ..] => Some(v4(!g, !h)),
        // ISATAP, in any prefix.
        [.., 0 | 0x200, 0x5efe] => Some(v4(g, h)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn denied(text: &str) -> bool {
        Reach::default().is_denied(text.parse().unwrap())
    }

    #[test]
    fn every_usual_range_is_one() {
        assert_eq!(Reach::default().denied.len(), USUAL.len());
    }

    #[test]
    fn private_loopback_and_metadata_addresses_are_out_of_reach() {
        for address in [
            "127.0.0.1",
            "127.255.0.9",
            "10.0.0.1",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "169.254.169.254",
            "100.100.100.200",
            "168.63.129.16",
            "0.0.0.0",
            "0.1.2.3",
            "255.255.255.255",
            "224.0.0.1",
            "198.18.0.1",
            "::",
            "::1",
            "fe80::1",
            "fd00:ec2::254",
            "ff02::1",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "::127.0.0.1",
            "64:ff9b::a9fe:a9fe",
            "64:ff9b:1::7f00:1",
            "64:ff9b:1:7f00:0:100::",
            "64:ff9b:1:a9:fe:a9fe::",
            "64:ff9b:1::808:808",
            "2001:db8::5efe:7f00:1",
            "2001:db8::200:5efe:a9fe:a9fe",
            "2002:7f00:1::",
            "2001:0:1:2:3:4:80ff:fffe",
            "::ffff:0:10.0.0.1",
        ] {
            assert!(denied(address), "{address}");
        }
    }

    #[test]
    fn the_rest_of_the_world_is_not() {
        for address in [
            "1.1.1.1",
            "172.32.0.1",
            "192.0.2.10",
            "198.51.100.7",
            "203.0.113.1",
            "2001:db8::1",
            "2606:4700::1",
            "64:ff9b::808:808",
            "2002:808:808::1",
            "::ffff:1.1.1.1",
        ] {
            assert!(!denied(address), "{address}");
        }
    }

    #[test]
    fn the_operator_opens_and_closes() {
        let net = |text: &str| text.parse::<Net>().unwrap();
        let Reach { denied, .. } = Reach::default();
        let reach = Reach::new(denied, vec![net("10.1.0.0/16")]).without(net("203.0.113.9"));
        assert!(!reach.is_denied("10.1.2.3".parse().unwrap()));
        assert!(reach.is_denied("10.2.2.3".parse().unwrap()));
        assert!(reach.is_denied("203.0.113.9".parse().unwrap()));
        assert_eq!(reach.denied_part(&net("10.1.2.0/24")), None);
        assert_eq!(reach.denied_part(&net("10.0.0.0/15")), Some(net("10.0.0.0/8")));
        assert_eq!(reach.denied_part(&net("0.0.0.0/0")), Some(net("0.0.0.0/8")));
        assert_eq!(reach.denied_part(&net("1.1.1.0/24")), None);
        assert_eq!(reach.denied_part(&net("64:ff9b::/96")), Some(net("64:ff9b::/96")));
        assert_eq!(reach.denied_part(&net("2002:7f00:1::/48")), Some(net("2002::/16")));
        assert_eq!(reach.denied_part(&net("2001:db8::/32")), None);
    }

    #[test]
    fn ranges_read_and_write() {
        for text in ["10.0.0.0/8", "10.1.2.3", "fd00::/8", "2001:db8::1"] {
            assert_eq!(text.parse::<Net>().unwrap().to_string(), text);
        }
        assert_eq!("10.1.2.3/8".parse::<Net>().unwrap().to_string(), "10.0.0.0/8");
        assert_eq!("::ffff:10.1.2.3".parse::<Net>().unwrap().to_string(), "10.1.2.3");
        for text in ["", "10.0.0.0/33", "10.0.0/8", "::ffff:10.0.0.0/104", "x", "10.0.0.0/8/8"] {
            assert_eq!(text.parse::<Net>(), Err(BadNet), "{text}");
        }
    }
}
