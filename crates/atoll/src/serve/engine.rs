//! The parts of a server behind its fronts, assembled: the database, the audit trail, egress, the core, and
//! its background tasks. Both `atoll serve` and `atoll mcp` use it.

use super::{audit_head, claim, egress, folder, secret, secret_key};
use crate::{
    config::{Config, DatabaseConfig},
    database::{self, Database},
};
use atoll_agent::Agents;
use atoll_audit::{AuditKey, Ledger};
use atoll_core::{Core, CoreSettings, IssuedKey, Providers};
use atoll_front_grpc::SESSION_LABEL;
use atoll_provider::Provider;
use atoll_tool_sessions::{SessionSettings, Sessions};
use atoll_types::{Error, ProviderName, Result};
use std::{fs, net::SocketAddr, path::Path, sync::Arc};
use tokio::task::JoinHandle;

/// The opened data folder; no other process has it open.
pub(crate) struct Ground {
    store: Database,
    ledger: Ledger,
    secret: [u8; 32],
    _only: fs::File,
}

/// A running core.
pub(crate) struct Engine {
    pub(crate) core: Core,
    pub(crate) sessions: Sessions,
    pub(crate) agents: Agents,
    /// Sandboxes that were found alive.
    pub(crate) alive: usize,
    ledger: Ledger,
    store: Database,
    helpers: Vec<JoinHandle<()>>,
    _only: fs::File,
}

impl Ground {
    /// Opens it, unless another process has.
    pub(crate) async fn open(data_dir: &Path, config: &DatabaseConfig) -> Result<Self> {
        let own = folder(data_dir);
        fs::create_dir_all(&own).map_err(|e| {
            let message =
                format!("{} cannot be made: {e}; choose another data folder with --data-dir", own.display());
            Error::internal(message)
        })?;
        let only = claim(&own)?;
        let store = database::open(data_dir, config).await?;
        let secret = secret::load_or_make(&secret_key(data_dir), secret::passphrase().as_deref())?;
        let key = AuditKey::from_secret(&secret);
        let head = audit_head(data_dir);
        let (ledger, opened) = Ledger::open(store.store() as _, key, &head).await?;
        for fault in &opened.evidence {
            tracing::error!(
                row = fault.seq,
                "the audit trail is not sound: {}; see atoll audit verify",
                fault.text
            );
        }
        Ok(Self { store, ledger, secret, _only: only })
    }

    /// Makes an admin key without a server, and closes the data folder.
    pub(crate) async fn recover_admin(self) -> Result<IssuedKey> {
        let issued = atoll_core::recover_admin(&*self.store.store(), &self.ledger).await;
        self.ledger.close().await;
        self.store.close().await;
        issued
    }

    /// Assembles the parts. `address` is where the API listens.
    pub(crate) async fn build(
        self,
        config: &Config,
        provider: Arc<dyn Provider>,
        address: SocketAddr,
    ) -> Result<Engine> {
        let providers = Providers::new(ProviderName::native(), Arc::clone(&provider));
        self.build_with(config, providers, &*provider, address).await
    }

    /// The same with several providers; `provider` is the one of new sandboxes.
    pub(crate) async fn build_with(
        self,
        config: &Config,
        providers: Providers,
        provider: &dyn Provider,
        address: SocketAddr,
    ) -> Result<Engine> {
        let Self { store, ledger, secret, _only } = self;
        let own = folder(&config.data_dir);
        let egress =
            egress::parts(&config.egress, config.core.tiers.clone(), &own, address, provider).await?;
        let (presets, dialer) = (Arc::clone(&egress.presets), egress.engine.dialer());
        let vault = secret::vault(&secret_key(&config.data_dir), &secret, secret::passphrase().as_deref())?;
        let settings = CoreSettings {
            skills_dir: own.join("skills"),
            builds_dir: own.join("builds"),
            layers_dir: own.join("layers"),
            process_api_label: config.grpc.process_api.then(|| SESSION_LABEL.to_owned()),
            ..config.core.clone()
        };
        let core = Core::new(store.store(), providers, vault, settings, ledger.clone(), egress);
        let alive = core.lifecycle.reconcile().await?;
        let settings = SessionSettings {
            timeout_seconds: config.tools.timeout_seconds,
            output: config.tools.output,
            server_url: config.tools.server_url.clone(),
            import_dirs: config.tools.import_dirs.clone(),
            storage_dir: own.join("uploads"),
            execute_as_root: config.tools.execute_as_root,
        };
        let sessions = Sessions::new(core.clone(), store.store() as _, settings);
        sessions.reconcile().await?;
        let agents = Agents::new(core.clone(), sessions.clone(), store.store() as _, config.agent.clone())?;
        let asked = config.egress.ask_indexes;
        let fresh = tokio::spawn(async move {
            let failed = |error: Error| tracing::warn!(%error, "the links of indexes cannot be remembered");
            if asked {
                presets.keep_fresh(&dialer, failed).await;
            }
        });
        Ok(Engine { core, sessions, agents, alive, ledger, store, helpers: vec![fresh], _only })
    }
}

impl Engine {
    /// Starts the core's background tasks.
    pub(crate) async fn run(&mut self, config: &Config) -> Result<()> {
        let core = self.core.clone();
        self.helpers.push(tokio::spawn(async move { core.usage.keep_sampling().await }));
        let core = self.core.clone();
        self.helpers.push(tokio::spawn(async move { core.pool.keep_filled().await }));
        let core = self.core.clone();
        self.helpers.push(tokio::spawn(async move { core.lifecycle.run_reconcilers().await }));
        let sessions = self.sessions.clone();
        self.helpers.push(tokio::spawn(async move { sessions.keep().await }));
        self.helpers.push(egress::listen(&self.core, config.egress.listen).await?);
        let resumed = self.agents.resume_runs().await?;
        if resumed > 0 {
            tracing::info!(resumed, "runs of the agent go on");
        }
        Ok(())
    }

    /// Shuts it down. Sandboxes live on, unless the settings stop them.
    pub(crate) async fn end(self) {
        for helper in &self.helpers {
            helper.abort();
        }
        self.core.pool.end().await;
        match self.core.lifecycle.wind_down().await {
            Ok(0) => {}
            Ok(stopped) => tracing::info!(stopped, "sandboxes were stopped, as is set"),
            Err(error) => tracing::error!(%error, "sandboxes cannot be stopped"),
        }
        self.core.egress.close_sessions().await;
        self.ledger.close().await;
        self.store.close().await;
    }
}
