//! `[egress]`: the operator's egress settings. In variables, lists are separated by commas, and the tables
//! `presets` and `tiers` are JSON.

use super::{variable, wrong};
use atoll_egress::{Entry, Net, Policy, Reach};
use atoll_types::{Result, Tier};
use serde::{Deserialize, de::DeserializeOwned};
use std::{
    collections::BTreeMap,
    fs,
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    str::FromStr,
};

/// The port of the reference system's proxy.
const PROXY_PORT: u16 = 15004;

/// As it is written.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct File {
    nameservers: Option<Vec<String>>,
    deny: Option<Vec<Net>>,
    deny_more: Option<Vec<Net>>,
    open: Option<Vec<Net>>,
    roots: Option<Vec<PathBuf>>,
    presets: Option<BTreeMap<String, Vec<Entry>>>,
    tiers: Option<BTreeMap<Tier, Policy>>,
    ask_indexes: Option<bool>,
    listen: Option<SocketAddr>,
}

/// The operator's egress settings.
#[derive(Debug, Clone, Default)]
pub(crate) struct EgressConfig {
    /// The resolvers; the machine's own where there are none.
    pub(crate) nameservers: Vec<SocketAddr>,
    /// Addresses out of reach, in place of the default ones.
    deny: Option<Vec<Net>>,
    deny_more: Vec<Net>,
    open: Vec<Net>,
    /// PEM certificates that the proxy trusts beside the machine's own.
    pub(crate) roots: Vec<String>,
    /// Presets in place of those found on the machine, or beside them.
    pub(crate) presets: BTreeMap<String, Vec<Entry>>,
    /// The policy ceilings of tiers.
    pub(crate) tiers: BTreeMap<Tier, Policy>,
    /// Whether the server queries package indexes for the hosts of their files. Without it the server makes
    /// no connection of its own.
    pub(crate) ask_indexes: bool,
    /// Where the proxy listens for sandboxes that reach it over a network, with tokens.
    pub(crate) listen: Option<SocketAddr>,
}

/// A list in a variable, under that of the file.
fn list<T: FromStr>(name: &str, file: Option<Vec<T>>) -> Result<Option<Vec<T>>>
where
    T::Err: std::fmt::Display,
{
    let Some(text) = variable(name) else { return Ok(file) };
    let read = |part: &str| part.parse().map_err(|e| wrong(name, format!("{part:?}: {e}")));
    text.split(',').map(str::trim).filter(|part| !part.is_empty()).map(read).collect::<Result<_>>().map(Some)
}

fn table<T: DeserializeOwned>(name: &str, file: Option<T>) -> Result<Option<T>> {
    match variable(name) {
        Some(text) => serde_json::from_str(&text).map(Some).map_err(|e| wrong(name, e)),
        None => Ok(file),
    }
}

/// Where the reference system's variables have the proxy listen.
fn proxy() -> Result<Option<SocketAddr>> {
    let Some(host) = variable("PROXY_HOST") else { return Ok(None) };
    let text = if host == "localhost" { "127.0.0.1" } else { &host };
    // There it names a host of a container network, where the proxy is another program.
    let Ok(address) = text.parse::<IpAddr>() else {
        eprintln!(
            "atoll: PROXY_HOST {host:?} is no address of this machine: sandboxes have the proxy, other machines do not"
        );
        return Ok(None);
    };
    let port = variable("PROXY_PORT").map_or(Ok(PROXY_PORT), |text| text.parse());
    let port = port.map_err(|_| wrong("PROXY_PORT", "expected the number of a port"))?;
    Ok(Some(SocketAddr::new(address, port)))
}

fn nameserver(text: &str) -> Result<SocketAddr> {
    let bare = |text: &str| text.parse::<IpAddr>().map(|address| SocketAddr::new(address, 53));
    let read = text.parse().or_else(|_| bare(text));
    read.map_err(|_| wrong("egress.nameservers", format!("{text:?} is no address, with or without a port")))
}

impl File {
    pub(super) fn settings(self) -> Result<EgressConfig> {
        let Self { nameservers, deny, deny_more, open, roots, presets, tiers, ask_indexes, listen } = self;
        let nameservers = list("ATOLL_EGRESS_NAMESERVERS", nameservers)?.unwrap_or_default();
        let roots = list("ATOLL_EGRESS_ROOTS", roots)?.unwrap_or_default();
        let pem = |path: &PathBuf| {
            fs::read_to_string(path).map_err(|e| wrong("egress.roots", format!("{}: {e}", path.display())))
        };
        Ok(EgressConfig {
            nameservers: nameservers.iter().map(|text| nameserver(text)).collect::<Result<_>>()?,
            deny: list("ATOLL_EGRESS_DENY", deny)?,
            deny_more: list("ATOLL_EGRESS_DENY_MORE", deny_more)?.unwrap_or_default(),
            open: list("ATOLL_EGRESS_OPEN", open)?.unwrap_or_default(),
            roots: roots.iter().map(pem).collect::<Result<_>>()?,
            presets: table("ATOLL_EGRESS_PRESETS", presets)?.unwrap_or_default(),
            tiers: table("ATOLL_EGRESS_TIERS", tiers)?.unwrap_or_default(),
            ask_indexes: table("ATOLL_EGRESS_ASK_INDEXES", ask_indexes)?.unwrap_or(true),
            listen: match variable("ATOLL_EGRESS_LISTEN") {
                Some(text) => Some(text.parse().map_err(|e| wrong("ATOLL_EGRESS_LISTEN", e))?),
                None => proxy()?.or(listen),
            },
        })
    }
}

impl EgressConfig {
    /// The addresses that are out of reach unless an entry names them.
    pub(crate) fn reach(&self) -> Reach {
        let reach = match &self.deny {
            Some(deny) => Reach::new(deny.clone(), self.open.clone()),
            None => Reach::default().with_opened(self.open.clone()),
        };
        self.deny_more.iter().fold(reach, |reach, net| reach.without(*net))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> std::result::Result<EgressConfig, String> {
        let file: File = toml::from_str(text).map_err(|e| e.to_string())?;
        file.settings().map_err(|e| e.message)
    }

    #[test]
    fn all_of_it_is_read() {
        let config = read(
            "nameservers = [\"192.0.2.1\", \"[2001:db8::1]:5353\"]\ndeny_more = [\"203.0.113.0/24\"]\n\
             open = [\"10.1.0.0/16\"]\npresets.python = [\"index.example\", { to = \"a.example\", methods = [\"GET\"] }]\n\
             [tiers.elevated]\nmode = \"allowlist\"\npresets = [\"python\"]\nlimits.connections = 5\n",
        )
        .unwrap();
        assert_eq!(config.nameservers[0].to_string(), "192.0.2.1:53");
        assert_eq!(config.nameservers[1].port(), 5353);
        assert_eq!(
            (config.presets["python"].len(), config.tiers[&Tier::Elevated].limits.connections),
            (2, Some(5))
        );
        assert!(config.ask_indexes && !read("ask_indexes = false").unwrap().ask_indexes);
        let reach = config.reach();
        let denied = |text: &str| reach.is_denied(text.parse().unwrap());
        assert!(denied("203.0.113.9") && denied("10.2.0.1") && denied("127.0.0.1") && !denied("10.1.0.1"));
        let bare = read("deny = [\"203.0.113.9\"]").unwrap().reach();
        assert!(!bare.is_denied("10.0.0.1".parse().unwrap()));
    }

    #[test]
    fn mistakes_are_named() {
        for (text, word) in [
            ("nameservers = [\"example.com\"]", "nameservers"),
            ("deny = [\"10.0.0.0/99\"]", "range"),
            ("presets.x = [\"*\"]", "full"),
            ("tiers.x.mode = \"some\"", "some"),
            ("roots = [\"/no/such/file\"]", "roots"),
            ("lisen = 3", "lisen"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(word), "{text}: {error}");
        }
    }
}
