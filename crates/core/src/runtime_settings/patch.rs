//! Viewing and changing the settings. The wire's names that nothing uses yet are shown, and a change of them
//! is refused: a stored value must not look as if it had an effect.

use super::{LiveSettings, RuntimeSettings, Source, unknown};
use crate::{
    Caller, CoreSettings,
    admission::Admission,
    images::Catalogue,
    operation::{OperationSpec, Operations},
};
use atoll_store::Store;
use atoll_types::{Error, ErrorCode, Operation, Result, Tiers};
use serde_json::{Map, Value};
use std::{collections::BTreeMap, sync::Arc};

/// The settings, with their sources and the tiers.
#[derive(Debug, Clone)]
pub struct SettingsView {
    /// The present values.
    pub runtime_settings: Arc<RuntimeSettings>,
    /// Where each comes from.
    pub sources: BTreeMap<&'static str, Source>,
    /// Fields of the wire that cannot be set yet.
    pub fixed: BTreeMap<&'static str, Value>,
    /// The ceilings of the tiers.
    pub tiers: Tiers,
}

/// The settings that apply without a restart, and the ceilings of the tiers.
#[derive(Clone)]
pub struct Settings {
    pub(crate) operations: Operations,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) settings: Arc<CoreSettings>,
    pub(crate) live_settings: Arc<LiveSettings>,
    pub(crate) admission: Admission,
    pub(crate) catalogue: Arc<Catalogue>,
}

impl Settings {
    /// The present settings, for the fronts.
    #[must_use]
    pub fn now(&self) -> Arc<RuntimeSettings> {
        self.live_settings.now()
    }

    /// The ceilings of the tiers, which every caller may know.
    #[must_use]
    pub fn tiers(&self) -> &Tiers {
        &self.settings.tiers
    }

    /// The image of a create that names none.
    #[must_use]
    pub fn default_image(&self) -> String {
        let usual = &self.settings.default_image;
        self.now().db_default_image.as_ref().unwrap_or(usual).clone()
    }

    /// Receives every change of the settings from now on.
    #[must_use]
    pub fn watch(&self) -> tokio::sync::watch::Receiver<Arc<RuntimeSettings>> {
        self.live_settings.watch()
    }

    /// The settings, for an admin.
    pub async fn view(&self, caller: &Caller) -> Result<SettingsView> {
        caller.must_administer()?;
        Ok(SettingsView {
            runtime_settings: self.live_settings.now(),
            sources: self.live_settings.sources().await,
            fixed: self.fixed(),
            tiers: self.settings.tiers.clone(),
        })
    }

    /// Changes some settings, or none where one is invalid. Null removes what such a change stored.
    pub async fn patch(&self, caller: &Caller, changes: Map<String, Value>) -> Result<SettingsView> {
        let before = self.live_settings.now();
        let names: Vec<&str> = changes.keys().map(String::as_str).collect();
        let mut what = OperationSpec::new(Operation::SettingsPatch).with(names.join(", "));
        for (name, value) in changes.iter().take(RuntimeSettings::NAMES.len()) {
            if let Some(old) = before.get(name) {
                what = what.and(name, format!("{old} -> {value}"));
            }
        }
        let audited = self.operations.audited(caller, what).await?;
        let result = self.patch_as(changes).await;
        audited.done(result).await?;
        self.view(caller).await
    }

    async fn patch_as(&self, changes: Map<String, Value>) -> Result<()> {
        let mut real = Map::new();
        for (name, value) in changes {
            if RuntimeSettings::name(&name).is_some() {
                real.insert(name, value);
            } else {
                self.must_stay(&name, &value)?;
            }
        }
        self.name_images(&mut real)?;
        self.live_settings.change(&*self.store, real).await?;
        self.admission.look();
        Ok(())
    }

    /// Refuses names of images that are not there; the sizes of the pool are kept by the images themselves, whatever they are
    /// called later.
    fn name_images(&self, changes: &mut Map<String, Value>) -> Result<()> {
        const DEFAULT: &str = "db_default_image";
        const ACTIVE: &str = "db_active_images";
        const POOL: &str = "pool.images";
        if let Some(image) = changes.get(DEFAULT).and_then(Value::as_str) {
            self.catalogue.resolve(image).map_err(|e| e.at(DEFAULT))?;
        }
        for image in changes.get(ACTIVE).and_then(Value::as_array).into_iter().flatten() {
            image
                .as_str()
                .map_or(Ok(()), |image| self.catalogue.resolve(image).map(drop))
                .map_err(|e| e.at(ACTIVE))?;
        }
        if let Some(Value::Object(images)) = changes.get_mut(POOL) {
            let mut sizes = Map::new();
            for (image, size) in std::mem::take(images) {
                sizes.insert(self.catalogue.resolve(&image).map_err(|e| e.at(POOL))?.name.to_string(), size);
            }
            *images = sizes;
        }
        Ok(())
    }

    /// Fields of the wire that cannot be set yet.
    fn fixed(&self) -> BTreeMap<&'static str, Value> {
        let of = |value: &str| Value::from(value);
        [
            ("provider_type", of("native")),
            ("config_fallback_image", of(&self.settings.default_image)),
            ("k8s_namespace", Value::Null),
        ]
        .into()
    }

    /// Refuses another value for a fixed field.
    fn must_stay(&self, name: &str, value: &Value) -> Result<()> {
        match self.fixed().get(name) {
            None => Err(unknown(name)),
            Some(present) if present == value => Ok(()),
            Some(_) => {
                let why = match name {
                    "config_fallback_image" => "is set in the configuration file, as images.default",
                    _ => "is not supported yet",
                };
                Err(Error::new(ErrorCode::Unsupported, format!("setting {name} {why}")).at(name))
            }
        }
    }
}
