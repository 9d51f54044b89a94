//! Assembles egress: the operator's settings, the certificate authority of the data folder, the settings of
//! the machine's package managers, and this machine's own addresses, which are out of reach unless an entry
//! names them.

use crate::config::EgressConfig;
use atoll_core::{Core, EgressParts};
use atoll_egress::{
    Authority, Egress, EgressSettings, Net, Reach, Rules,
    presets::{self, Findings, PresetRegistry, ToolLocation},
};
use atoll_provider::Provider;
use atoll_types::{Error, Result, Tiers};
use std::{
    collections::BTreeSet,
    fs,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::Path,
    sync::Arc,
};
use tokio::{net::TcpListener, task::JoinHandle};

/// The variable in which root passes what it found to the ordinary user that it becomes.
pub(crate) const FOUND: &str = "ATOLL_EGRESS_FOUND";
/// More does not fit into a variable.
const LARGEST: usize = 100 << 10;

/// The settings of the machine's package managers, for [`FOUND`]: not every user may read them.
pub(crate) fn find() -> Option<String> {
    let found = ToolLocation::machine().ok().map(|place| presets::learn(&place))?;
    serde_json::to_string(&found).ok().filter(|text| text.len() <= LARGEST)
}

/// The settings of the machine's package managers, as far as this process may read them.
pub(crate) fn found() -> Findings {
    let passed = std::env::var(FOUND).ok().and_then(|text| serde_json::from_str(&text).ok());
    let look = || match ToolLocation::machine() {
        Ok(place) => presets::learn(&place),
        Err(error) => {
            tracing::warn!(%error, "package managers of the machine cannot be looked at");
            Findings { machine: true, ..Findings::default() }
        }
    };
    passed.unwrap_or_else(look)
}

/// The proxy and its rules.
pub(super) async fn parts(
    config: &EgressConfig,
    ceilings: Tiers,
    folder: &Path,
    listen: SocketAddr,
    provider: &dyn Provider,
) -> Result<EgressParts> {
    let reach = reach(config, [listen.ip()]);
    let authority = Authority::load_or_create(folder)?;
    let trust = tell(provider, authority.certificate_pem()).await?;
    let findings = tokio::task::spawn_blocking(found).await.map_err(|e| Error::internal(e.to_string()))?;
    let mut variables = atoll_egress::variables(trust);
    variables.extend(presets::mirrors(&findings).variables);
    let shared = Arc::new(reach.clone());
    let remembered = folder.join("egress-links.json");
    let presets =
        PresetRegistry::new(findings, config.presets.clone(), Arc::clone(&shared), Some(remembered));
    check_tiers(config, &presets, &shared)?;
    let settings = EgressSettings {
        reach,
        nameservers: config.nameservers.clone(),
        authority: Some(authority),
        roots: config.roots.clone(),
        connections: super::descriptors::for_connections(),
    };
    Ok(EgressParts {
        engine: Egress::new(settings)?,
        presets: Arc::new(presets),
        reach: shared,
        ceilings,
        tiers: config.tiers.clone(),
        variables,
    })
}

/// What sandboxes may reach at all: neither the operator's denied addresses, nor this machine's.
pub(crate) fn reach(config: &EgressConfig, more: impl IntoIterator<Item = IpAddr>) -> Reach {
    let own = own_addresses().into_iter().chain(more);
    own.fold(config.reach(), |reach, address| match address.to_string().parse::<Net>() {
        Ok(net) => reach.without(net),
        Err(_) => reach,
    })
}

/// Serves the proxy to sandboxes that reach it over a network, where the operator wants that.
pub(super) async fn listen(core: &Core, address: Option<SocketAddr>) -> Result<JoinHandle<()>> {
    let Some(address) = address else { return Ok(tokio::spawn(async {})) };
    let listener = TcpListener::bind(address)
        .await
        .map_err(|e| Error::internal(format!("egress.listen: cannot listen on {address}: {e}")))?;
    let core = core.clone();
    Ok(tokio::spawn(async move {
        if let Err(error) = core.egress.serve(listener).await {
            tracing::error!(%error, "the proxy is not served over the network");
        }
    }))
}

/// Installs the proxy's certificate in new containers, and returns whether the provider can.
async fn tell(provider: &dyn Provider, certificate: &str) -> Result<bool> {
    match provider.trust() {
        Some(power) => power.trust(certificate).await.map(|()| true),
        None => Ok(false),
    }
}

/// A tier whose policy can never be obeyed is an error of the configuration.
fn check_tiers(config: &EgressConfig, presets: &PresetRegistry, reach: &Arc<Reach>) -> Result<()> {
    let known = presets.presets(None);
    for (name, policy) in &config.tiers {
        let mut policy = policy.clone();
        // A preset that is empty on this machine is not the operator's mistake.
        let empty = |preset: &String| known.0.get(preset).is_some_and(Vec::is_empty);
        let named = policy.presets.len();
        policy.presets.retain(|preset| !empty(preset));
        if policy.presets.is_empty() && named > 0 && policy.allow.is_empty() {
            continue;
        }
        Rules::new(&format!("egress.tiers.{name}"), &policy, &known, reach).map_err(|e| {
            let message = format!("{}: {}", e.field.as_deref().unwrap_or_default(), e.message);
            Error { message, ..e }
        })?;
    }
    Ok(())
}

/// The addresses of this machine.
fn own_addresses() -> BTreeSet<IpAddr> {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    let v4 = local_v4(&read("/proc/net/fib_trie"));
    let v6 = read("/proc/net/if_inet6");
    let v6 = v6.lines().filter_map(|line| {
        let bits = u128::from_str_radix(line.split_whitespace().next()?, 16).ok()?;
        Some(IpAddr::from(Ipv6Addr::from(bits)))
    });
    v4.into_iter().map(IpAddr::from).chain(v6).collect()
}

/// From `|-- 192.0.2.7` followed by `/32 host LOCAL`.
fn local_v4(trie: &str) -> Vec<Ipv4Addr> {
    let mut last: Option<Ipv4Addr> = None;
    let mut found = Vec::new();
    for line in trie.lines().map(str::trim) {
        if let Some(address) = line.strip_prefix("|-- ") {
            last = address.parse().ok();
        } else if line.ends_with("host LOCAL") {
            found.extend(last);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machines_addresses_are_known() {
        let trie = "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 0.0.0.0\n        /0 universe UNICAST\n     |-- 192.0.2.0\n        \
                    /24 link UNICAST\n     |-- 192.0.2.7\n        /32 host LOCAL\n";
        assert_eq!(local_v4(trie), ["192.0.2.7".parse::<Ipv4Addr>().unwrap()]);
        assert!(own_addresses().contains(&IpAddr::from(Ipv4Addr::LOCALHOST)));
    }
}
