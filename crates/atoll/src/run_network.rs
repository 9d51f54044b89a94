//! Egress of a throw-away sandbox. There is no server that would serve it, so `atoll run` does, as long as
//! the command runs; decisions are not audited, because nothing of the sandbox outlives it. Without an option
//! there is no egress.

use crate::{cli, config::Config, serve::egress};
use atoll_egress::{
    Decision, Egress, EgressSettings, Mode, Policy, Recorder, Rules, Serving, Sockets, presets,
    presets::PresetRegistry,
};
use atoll_provider::{Container, EgressSockets};
use atoll_types::{Error, ErrorCode, Result};
use std::{net::SocketAddr, sync::Arc, time::Duration};
use tokio::sync::watch;

/// How long package indexes may take to name the hosts of their files.
const ASKING: Duration = Duration::from_secs(10);

/// The egress policy of the sandbox.
pub(crate) struct Network {
    engine: Egress,
    rules: Arc<Rules>,
    /// Variables for the tools inside.
    pub(crate) variables: Vec<(String, String)>,
}

/// An egress session at work.
pub(crate) struct Served {
    _rules: watch::Sender<Arc<Rules>>,
    _serving: Serving,
}

/// Records nothing: the caller sees failures in the command's own output.
struct Unrecorded;

impl Recorder for Unrecorded {
    fn asked(&self, _: SocketAddr) -> u64 {
        0
    }
    fn decided(&self, _: u64, _: Decision) {}
}

impl Network {
    /// The policy of the options; none where they allow nothing.
    pub(crate) async fn prepare(options: &cli::Run) -> Result<Option<Self>> {
        if !options.network && options.preset.is_empty() {
            return Ok(None);
        }
        let config = Config::load(&options.as_serve())?.egress;
        let reach = egress::reach(&config, []);
        let mode = if options.network { Mode::Full } else { Mode::Allowlist };
        let policy = Policy { mode, presets: options.preset.clone(), ..Policy::default() };
        let findings =
            tokio::task::spawn_blocking(egress::found).await.map_err(|e| Error::internal(e.to_string()))?;
        let mut variables = atoll_egress::variables(false);
        variables.extend(presets::mirrors(&findings).variables);
        let shared = Arc::new(reach.clone());
        let presets = PresetRegistry::new(findings, config.presets.clone(), Arc::clone(&shared), None);
        let engine = Egress::new(EgressSettings {
            reach,
            nameservers: config.nameservers.clone(),
            authority: None,
            roots: config.roots.clone(),
            connections: None,
        })?;
        if mode == Mode::Allowlist && config.ask_indexes {
            // Hosts that an index does not name in time stay out of reach, and the tool's own error names
            // them.
            let _ = tokio::time::timeout(ASKING, presets.refresh(&engine.dialer())).await;
        }
        let rules = Rules::new("network", &policy, &presets.presets(None), &shared)?;
        Ok(Some(Self { engine, rules: Arc::new(rules), variables }))
    }

    /// Serves the egress sockets of a container until the result is dropped.
    pub(crate) async fn serve(&self, container: &Arc<dyn Container>) -> Result<Served> {
        let lacking = || Error::new(ErrorCode::Unsupported, "this sandbox has no way out");
        let way = container.egress_endpoint().ok_or_else(lacking)?;
        let EgressSockets { proxy, redirected, names, names_tcp } = way.egress_sockets().await?;
        let sockets = Sockets { proxy, redirected, names, names_tcp };
        let rules = watch::Sender::new(Arc::clone(&self.rules));
        let serving = self
            .engine
            .serve(sockets, rules.subscribe(), Arc::new(Unrecorded))
            .map_err(|e| Error::internal(format!("the sandbox's way out cannot be served: {e}")))?;
        Ok(Served { _rules: rules, _serving: serving })
    }
}
