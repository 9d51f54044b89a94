//! Settings that apply without a restart. Code that needs one reads [`LiveSettings::now`] each time and keeps
//! no copy. A value comes from what an administrator stored, else from a flag, a variable, the file, or the
//! default; the first that has it wins. Settings that need a restart are in [`crate::CoreSettings`].
//!
//! A change is stored before it applies, and a PATCH applies as a whole or not at all.

mod patch;
mod plan;
mod pool;
mod value;
mod values;

pub use patch::{Settings, SettingsView};
pub use plan::Plan;
pub(crate) use plan::Quota;
pub use pool::PoolSize;
pub use values::{OnShutdown, RuntimeSettings};

use atoll_store::Store;
use atoll_types::{Error, Result};
use serde_json::{Map, Value};
use std::{collections::BTreeMap, sync::Arc};
use tokio::sync::{Mutex, watch};

/// Where a value comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    Default,
    File,
    Variable,
    Flag,
    Stored,
}

impl Source {
    /// The name on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::File => "file",
            Self::Variable => "environment",
            Self::Flag => "flag",
            Self::Stored => "stored",
        }
    }
}

/// What the operator set before the server started, by name.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Preset(BTreeMap<&'static str, (Source, Value)>);

impl Preset {
    /// Takes a value, unless a stronger source has given one. Refuses unknown settings and invalid values.
    pub fn set(&mut self, source: Source, name: &str, value: Value) -> Result<()> {
        let name = RuntimeSettings::name(name).ok_or_else(|| unknown(name))?;
        RuntimeSettings::default().set(name, &value)?;
        let slot = self.0.entry(name).or_insert((source, Value::Null));
        if slot.0 <= source {
            *slot = (source, value);
        }
        Ok(())
    }

    /// The same, from a text: JSON, or else the text itself.
    pub fn set_text(&mut self, source: Source, name: &str, text: &str) -> Result<()> {
        self.set(source, name, value::of_text(text))
    }

    /// Whether the values are consistent.
    pub fn validate(&self) -> Result<()> {
        self.runtime_settings(&Map::new()).and_then(|runtime_settings| runtime_settings.validate())
    }

    /// All settings, with the stored values on top.
    fn runtime_settings(&self, stored: &Map<String, Value>) -> Result<RuntimeSettings> {
        let mut runtime_settings = RuntimeSettings::default();
        for (name, (_, value)) in &self.0 {
            runtime_settings.set(name, value)?;
        }
        for (name, value) in stored {
            runtime_settings.set(name, value)?;
        }
        Ok(runtime_settings)
    }
}

fn unknown(name: &str) -> Error {
    Error::invalid(name, format!("there is no setting {name:?}"))
}

/// The name of the entry in the store.
const STORED: &str = "sandbox";

/// The present settings.
pub(crate) struct LiveSettings {
    preset: Preset,
    /// The stored values. Locked during a change, so that of two changes neither is lost.
    stored: Mutex<Map<String, Value>>,
    now: watch::Sender<Arc<RuntimeSettings>>,
}

impl LiveSettings {
    pub(crate) fn new(preset: Preset) -> Self {
        // Each value was validated when it was set.
        let runtime_settings = preset.runtime_settings(&Map::new()).unwrap_or_default();
        Self { preset, stored: Mutex::default(), now: watch::Sender::new(Arc::new(runtime_settings)) }
    }

    /// The settings at this moment.
    pub(crate) fn now(&self) -> Arc<RuntimeSettings> {
        Arc::clone(&self.now.borrow())
    }

    /// Receives every change from now on.
    pub(crate) fn watch(&self) -> watch::Receiver<Arc<RuntimeSettings>> {
        self.now.subscribe()
    }

    /// Reads what an earlier server stored. Values that this release does not know, or would refuse, are
    /// ignored and logged.
    pub(crate) async fn load(&self, store: &dyn Store) -> Result<()> {
        let mut stored = self.stored.lock().await;
        let Some(Value::Object(kept)) = store.get_setting(STORED).await? else { return Ok(()) };
        let mut usable = Map::new();
        for (name, value) in kept {
            match RuntimeSettings::default().set(&name, &value) {
                Ok(()) => drop(usable.insert(name, value)),
                Err(error) => tracing::warn!(name, %error, "a stored setting is left aside"),
            }
        }
        let runtime_settings = self.preset.runtime_settings(&usable)?;
        if let Err(error) = runtime_settings.validate() {
            tracing::warn!(%error, "the stored settings do not go together and are left aside");
            return Ok(());
        }
        *stored = usable;
        self.now.send_replace(Arc::new(runtime_settings));
        Ok(())
    }

    /// Applies all changes, or none: null removes a stored value. Returns the settings after it.
    async fn change(&self, store: &dyn Store, changes: Map<String, Value>) -> Result<Arc<RuntimeSettings>> {
        self.change_by(store, |_| changes).await
    }

    /// The same, computed from the present values: of two such changes the second sees the first.
    pub(crate) async fn change_by(
        &self,
        store: &dyn Store,
        changes: impl FnOnce(&RuntimeSettings) -> Map<String, Value>,
    ) -> Result<Arc<RuntimeSettings>> {
        let mut stored = self.stored.lock().await;
        let mut next = stored.clone();
        for (name, value) in changes(&self.now()) {
            match value {
                Value::Null => drop(next.remove(&name)),
                value => drop(next.insert(name, value)),
            }
        }
        let runtime_settings = self.preset.runtime_settings(&next)?;
        runtime_settings.validate()?;
        let runtime_settings = Arc::new(runtime_settings);
        store.put_setting(STORED, Value::Object(next.clone())).await?;
        *stored = next;
        self.now.send_replace(Arc::clone(&runtime_settings));
        Ok(runtime_settings)
    }

    /// Where each value comes from.
    async fn sources(&self) -> BTreeMap<&'static str, Source> {
        let stored = self.stored.lock().await;
        let of = |name: &&'static str| {
            let preset = self.preset.0.get(name).map_or(Source::Default, |(source, _)| *source);
            (*name, if stored.contains_key(*name) { Source::Stored } else { preset })
        };
        RuntimeSettings::NAMES.iter().map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_stronger_source_wins_in_whatever_order_it_comes() {
        let mut preset = Preset::default();
        preset.set_text(Source::Flag, "idle_timeout_seconds", "60").unwrap();
        preset.set(Source::File, "idle_timeout_seconds", json!(50)).unwrap();
        preset.set(Source::File, "default_max_per_user", json!(7)).unwrap();
        preset.set_text(Source::Variable, "default_max_per_user", "8").unwrap();
        let runtime_settings = preset.runtime_settings(&Map::new()).unwrap();
        assert_eq!((runtime_settings.idle_timeout_seconds, runtime_settings.default_max_per_user), (60, 8));
        let stored = [("idle_timeout_seconds".to_owned(), json!(70))].into_iter().collect();
        assert_eq!(preset.runtime_settings(&stored).unwrap().idle_timeout_seconds, 70);
    }

    #[test]
    fn what_is_wrong_is_named() {
        let mut preset = Preset::default();
        for (name, text) in [
            ("no_such", "1"),
            ("default_max_per_user", "-1"),
            ("default_max_per_user", "many"),
            ("idle_timeout_seconds", "9"),
            ("admission.memory_ratio", "0"),
            ("admission.wait_seconds", "601"),
            ("plans", "{\"pro\":{\"no_such\":1}}"),
            ("tool_sessions.max", "0"),
        ] {
            let error = preset.set_text(Source::Flag, name, text).unwrap_err();
            assert_eq!(error.field.as_deref(), Some(name), "{text}");
        }
        assert_eq!(preset, Preset::default());
        preset.set_text(Source::Flag, "owners", "{\"ann\":\"pro\"}").unwrap();
        assert_eq!(preset.validate().unwrap_err().field.as_deref(), Some("owners"), "there is no such plan");
    }
}
