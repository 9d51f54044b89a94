//! The layers that pulls fetched: a folder of blobs, shared by all pulls, from which nothing is removed while one runs.

use crate::CoreSettings;
use atoll_egress::Reach;
use atoll_oci::{Blobs, Credentials, Network, Reference, Registries};
use atoll_types::{Error, ErrorCode, Result};
use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Arc, OnceLock},
    time::Duration,
};
use tokio::sync::{OwnedRwLockReadGuard, RwLock};

/// What the operator says about registries.
#[derive(Debug, Clone, Default)]
pub struct RegistrySettings {
    /// Hosts (`host:port`) that are spoken to without TLS, at any address.
    pub insecure: Vec<String>,
    /// Hosts that are spoken to by HTTPS, also at an address that is not public.
    pub private: Vec<String>,
    /// Of those, the others of those that one may lead to: its storage, or the service of its tokens.
    pub companions: BTreeMap<String, Vec<String>>,
    /// The file of passwords, as `docker login` writes it.
    pub auth_file: Option<PathBuf>,
}

/// Registries, and what was fetched from them.
pub(crate) struct Layers {
    settings: Arc<CoreSettings>,
    reach: Arc<Reach>,
    opened: OnceLock<(Arc<Blobs>, Registries)>,
    /// Read by pulls, written by what removes layers.
    used: Arc<RwLock<()>>,
}

/// The layers while a pull uses them: none is removed.
pub(super) struct UsedLayers {
    pub(super) blobs: Arc<Blobs>,
    pub(super) registries: Registries,
    _used: OwnedRwLockReadGuard<()>,
}

impl Layers {
    pub(crate) fn new(settings: Arc<CoreSettings>, reach: Arc<Reach>) -> Self {
        Self { settings, reach, opened: OnceLock::new(), used: Arc::default() }
    }

    fn open(&self) -> Result<&(Arc<Blobs>, Registries)> {
        if let Some(opened) = self.opened.get() {
            return Ok(opened);
        }
        let folder = &self.settings.layers_dir;
        if folder.as_os_str().is_empty() {
            return Err(Error::new(ErrorCode::Unsupported, "this server has no folder for layers of images"));
        }
        let RegistrySettings { insecure, private, companions, auth_file: _ } = &self.settings.registries;
        let reach = Arc::clone(&self.reach);
        let mut network = Network::new(move |address| reach.is_denied(address))
            .with_insecure(insecure.iter().cloned())
            .with_private(private.iter().cloned());
        for (registry, hosts) in companions {
            network = network.with_companions(registry, hosts.iter().cloned());
        }
        let opened = (Arc::new(Blobs::open(folder)?), Registries::new(network)?);
        Ok(self.opened.get_or_init(|| opened))
    }

    /// For a pull.
    pub(super) async fn acquire(&self) -> Result<UsedLayers> {
        let _used = Arc::clone(&self.used).read_owned().await;
        let (blobs, registries) = self.open()?.clone();
        Ok(UsedLayers { blobs, registries, _used })
    }

    /// What the operator's file has for a registry.
    pub(super) async fn credentials(&self, reference: &Reference) -> Result<Credentials> {
        match &self.settings.registries.auth_file {
            Some(path) => Credentials::from_file(path, reference.registry()).await,
            None => Ok(Credentials::Anonymous),
        }
    }

    /// Removes what pulls left half-fetched, but for what one fetches now.
    pub(super) async fn drop_partial(&self) -> Result<()> {
        self.open()?.0.sweep(Duration::ZERO).await
    }

    /// Removes layers that no pull used for so long, whole and half-fetched ones, unless a pull runs.
    pub(crate) async fn collect(&self, unused: Duration) -> Result<()> {
        // Where nothing was ever fetched there is nothing to open.
        if !self.settings.layers_dir.is_dir() {
            return Ok(());
        }
        let Ok(_alone) = self.used.try_write() else { return Ok(()) };
        let (blobs, _) = self.open()?;
        for blob in blobs.list().await? {
            if blob.modified.elapsed().is_ok_and(|age| age >= unused) {
                blobs.remove(&blob.digest).await?;
            }
        }
        blobs.sweep(unused).await
    }
}
