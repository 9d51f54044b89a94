//! The pool as an admin sees and changes it.

use super::{Pool, PoolKey, shelf::ProfilePool};
use crate::{
    Caller, PoolSize, RuntimeSettings,
    images::Catalogue,
    operation::{OperationSpec, Operations},
    runtime_settings::LiveSettings,
};
use atoll_kernels::Language;
use atoll_store::Store;
use atoll_types::{Operation, Result};
use serde_json::{Map, Value, json};
use std::{collections::BTreeMap, sync::Arc};

/// The state of the pool.
#[derive(Debug, Clone, PartialEq)]
pub struct PoolView {
    /// Whether any container is kept ready.
    pub enabled: bool,
    /// By image.
    pub keys: Vec<PoolKey>,
    /// The languages whose interpreters are started in each.
    pub kernels: Vec<Language>,
}

/// What to change; what is left out stays.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PoolChange {
    /// Whether any container is kept ready.
    pub enabled: Option<bool>,
    /// The bounds by image; null removes those that were set for it.
    pub images: BTreeMap<String, Option<PoolBounds>>,
}

/// The smallest and the largest number of an image; an absent one stays.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PoolBounds {
    pub min: Option<u32>,
    pub max: Option<u32>,
}

impl PoolChange {
    /// The same, as settings.
    pub(crate) fn settings(self, runtime_settings: &RuntimeSettings) -> Map<String, Value> {
        let Self { enabled, images } = self;
        let mut changes = Map::new();
        changes.extend(enabled.map(|enabled| ("warm_pool_enabled".to_owned(), enabled.into())));
        if images.is_empty() {
            return changes;
        }
        let mut sizes = runtime_settings.pool_images.clone();
        for (image, bounds) in images {
            let usual = PoolSize { min: runtime_settings.pool_min, max: runtime_settings.pool_max };
            let old = sizes.get(&image).copied().unwrap_or(usual);
            match bounds {
                None => drop(sizes.remove(&image)),
                Some(PoolBounds { min, max }) => {
                    let size = PoolSize { min: min.unwrap_or(old.min), max: max.unwrap_or(old.max) };
                    sizes.insert(image, size);
                }
            }
        }
        changes.insert("pool.images".into(), json!(sizes));
        changes
    }
}

impl Pool {
    pub(crate) fn view(&self) -> PoolView {
        let (wanted, runtime_settings) = (self.0.wanted(), self.0.live_settings.now());
        let mut state = self.0.state();
        let of = |(image, key)| {
            let shelf = state.shelves.entry(key).or_insert_with_key(|_| ProfilePool::new(image));
            let size = runtime_settings.pool_size(&shelf.image);
            let (image, image_id, display_name) = self.0.catalogue.shown(&shelf.image);
            PoolKey { image, image_id, display_name, ..shelf.key("default", size) }
        };
        PoolView {
            enabled: runtime_settings.warm_pool_enabled,
            keys: wanted.into_iter().map(of).collect(),
            kernels: runtime_settings.pool_kernels.clone(),
        }
    }
}

/// The pool as an admin sees and changes it.
#[derive(Clone)]
pub struct PoolControl {
    pub(crate) operations: Operations,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) catalogue: Arc<Catalogue>,
    pub(crate) live_settings: Arc<LiveSettings>,
    pub(crate) pool: Pool,
}

impl PoolControl {
    /// The state of the pool, for the metrics.
    #[must_use]
    pub fn figures(&self) -> PoolView {
        self.pool.view()
    }

    /// The state of the pool, for an admin.
    pub fn view(&self, caller: &Caller) -> Result<PoolView> {
        caller.must_administer()?;
        Ok(self.pool.view())
    }

    /// Destroys every ready container, and returns how many there were. The pool is refilled, unless it is to
    /// stop, which is the setting `warm_pool_enabled`.
    pub async fn drain(&self, caller: &Caller, stop: bool) -> Result<usize> {
        let what = OperationSpec::new(Operation::PoolDrain).with(if stop { "stop" } else { "" });
        let audited = self.operations.audited(caller, what).await?;
        let result = self.drain_as(stop).await;
        audited.done(result).await
    }

    async fn drain_as(&self, stop: bool) -> Result<usize> {
        if stop {
            let off = [("warm_pool_enabled".to_owned(), Value::from(false))].into_iter().collect();
            self.live_settings.change_by(&*self.store, |_| off).await?;
        }
        let all = self.pool.take_all();
        let count = all.len();
        drop(all);
        self.pool.clear().await;
        Ok(count)
    }

    /// Changes how many are kept ready. It applies at once and survives a restart.
    pub async fn resize(&self, caller: &Caller, change: PoolChange) -> Result<PoolView> {
        let mut what = OperationSpec::new(Operation::PoolResize);
        for (image, size) in change.images.iter().take(16) {
            what = what.and(image, format!("{size:?}"));
        }
        if let Some(enabled) = change.enabled {
            what = what.and("enabled", enabled.to_string());
        }
        let audited = self.operations.audited(caller, what).await?;
        let result = self.resize_as(change).await;
        audited.done(result).await?;
        self.view(caller)
    }

    async fn resize_as(&self, change: PoolChange) -> Result<()> {
        let mut images = BTreeMap::new();
        for (image, bounds) in change.images {
            let found = self.catalogue.resolve(&image).map_err(|e| e.at("images"))?;
            images.insert(found.name.to_string(), bounds);
        }
        let change = PoolChange { images, ..change };
        let settings = |runtime_settings: &RuntimeSettings| change.settings(runtime_settings);
        self.live_settings.change_by(&*self.store, settings).await.map_err(|e| match e.field.as_deref() {
            Some("pool.images") => e.at("images"),
            _ => e,
        })?;
        Ok(())
    }

    /// Keeps the pool filled, until the future is dropped.
    pub async fn keep_filled(&self) {
        self.pool.keep_up().await;
    }

    /// Destroys the ready containers, at shutdown.
    pub async fn end(&self) {
        self.pool.end().await;
    }
}
