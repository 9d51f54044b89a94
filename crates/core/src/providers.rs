//! The providers, by name. Each sandbox's record names the one that runs it, for all of the sandbox's life,
//! and so does each container of the pool.
//!
//! A record whose provider this server does not have is left as it is: its container may be alive, so the
//! server neither calls it dead nor removes anything of it.

use atoll_provider::Provider;
use atoll_store::SandboxRecord;
use atoll_types::{Error, ErrorCode, ProviderName, Result};
use std::{collections::BTreeMap, sync::Arc};

/// The providers. Cheap to clone.
#[derive(Clone)]
pub struct Providers {
    by_name: Arc<BTreeMap<ProviderName, Arc<dyn Provider>>>,
    default: ProviderName,
}

impl Providers {
    /// One provider, which runs every new sandbox.
    #[must_use]
    pub fn new(name: ProviderName, provider: Arc<dyn Provider>) -> Self {
        Self { by_name: Arc::new([(name.clone(), provider)].into()), default: name }
    }

    /// One more beside it, for the sandboxes that name it.
    #[must_use]
    pub fn with(mut self, name: ProviderName, provider: Arc<dyn Provider>) -> Self {
        Arc::make_mut(&mut self.by_name).insert(name, provider);
        self
    }

    /// The name of the one that runs new sandboxes.
    pub(crate) fn default_name(&self) -> &ProviderName {
        &self.default
    }

    /// The one of this name.
    pub(crate) fn get(&self, name: &ProviderName) -> Result<&Arc<dyn Provider>> {
        self.by_name.get(name).ok_or_else(|| {
            let message =
                format!("this server does not have the provider {name}, which the sandbox is run by");
            Error::new(ErrorCode::Unavailable, message)
        })
    }

    /// The one that runs a sandbox.
    pub(crate) fn of(&self, record: &SandboxRecord) -> Result<&Arc<dyn Provider>> {
        self.get(&record.provider)
    }

    /// All of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&ProviderName, &Arc<dyn Provider>)> {
        self.by_name.iter()
    }
}
