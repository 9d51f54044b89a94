//! Which model a run uses: the server's settings, the owner's over them, and the run's own over both. An owner's settings are
//! sealed in the store.
//!
//! A key goes with the place that it was given for, which is the base URL, or the usual one of the provider that the settings or
//! the model's name tell: a layer that leads to another place brings its own key or has none. Only the operator's own place may be
//! a private address.

use crate::{
    Agents, ModelSettings, ModelSettingsView,
    model::{ModelTarget, endpoint_of, provider_of, stated},
};
use atoll_core::{Caller, ExtensionOperation};
use atoll_types::{
    Error, Operation, Result, Sealed,
    conversation::{Metadata, StoreItem},
    text::{hex, unhex},
    time::now_ms,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Settings with what is known of their place.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ResolvedModel {
    pub(crate) settings: ModelSettings,
    /// Whether the operator named the place.
    pub(crate) trusted: bool,
}

impl ResolvedModel {
    /// The server's settings.
    pub(crate) fn of_server(settings: &ModelSettings) -> Self {
        Self { settings: settings.clone(), trusted: true }
    }

    /// The same with another layer over it.
    pub(crate) fn with(&self, layer: &ModelSettings) -> Self {
        let base = &self.settings;
        let keeps = |own: &Option<String>, base: &Option<String>| {
            stated(own).or_else(|| stated(base)).map(str::to_owned)
        };
        let same_model = stated(&layer.model).is_none() || layer.model == base.model;
        let mut settings = ModelSettings {
            model: keeps(&layer.model, &base.model),
            provider: keeps(&layer.provider, &base.provider),
            api_key: None,
            base_url: keeps(&layer.base_url, &base.base_url),
            supports_vision: layer.supports_vision.or(base.supports_vision.filter(|_| same_model)),
            context_tokens: layer.context_tokens.or(base.context_tokens.filter(|_| same_model)),
        };
        // A provider that is named is not asked at another one's base URL.
        if stated(&layer.base_url).is_none()
            && stated(&layer.provider).is_some()
            && provider_of(&settings) != provider_of(base)
        {
            settings.base_url = None;
        }
        // The places themselves are compared, not what was said of them: without a provider a model's name tells it.
        let moves = endpoint_of(&settings) != endpoint_of(base);
        settings.api_key = keeps(&layer.api_key, if moves { &None } else { &base.api_key });
        Self { settings, trusted: self.trusted && !moves }
    }
}

/// The owner of the items that hold owners' settings: no key's owner has a control character in its name.
fn place(owner: &str) -> String {
    format!("\u{1}agent-settings:{owner}")
}

const NAMESPACE: &str = "settings";
const KEY: &str = "model";

/// The last characters of a key, as people recognise it.
fn hint(key: &str) -> Option<String> {
    let last: String = key.chars().rev().take(4).collect::<Vec<_>>().into_iter().rev().collect();
    (key.chars().count() >= 12).then(|| format!("…{last}"))
}

impl Agents {
    fn context(owner: &str) -> String {
        format!("agent-settings:{owner}")
    }

    /// The owner's own settings.
    pub(crate) async fn own_settings(&self, owner: &str) -> Result<ModelSettings> {
        let found = self.store.item(&place(owner), &[NAMESPACE.to_owned()], KEY).await?;
        let sealed = found.as_ref().and_then(|item| unhex(item.value.get("sealed")?.as_str()?));
        let Some(sealed) = sealed else { return Ok(ModelSettings::default()) };
        let plain = self.core.operations.unseal(&Self::context(owner), &Sealed(sealed))?;
        serde_json::from_slice(&plain)
            .map_err(|_| Error::internal("an owner's model settings cannot be read"))
    }

    fn shown(&self, own: &ModelSettings) -> ModelSettingsView {
        let all = ResolvedModel::of_server(&self.settings.model).with(own).settings;
        ModelSettingsView {
            has_api_key: all.api_key.is_some(),
            api_key_hint: own.api_key.as_deref().and_then(hint),
            model: all.model,
            provider: all.provider,
            base_url: all.base_url,
            supports_vision: all.supports_vision,
            own: own.into(),
            context_tokens: all.context_tokens,
        }
    }

    /// The owner's model settings merged over the server's; the key is a hint only.
    pub async fn model_settings(&self, caller: &Caller) -> Result<ModelSettingsView> {
        Ok(self.shown(&self.own_settings(&caller.owner).await?))
    }

    /// The key of an owner's new settings: their own, or the old one where it still goes to the same place.
    fn kept_key(&self, old: ModelSettings, new: &ModelSettings) -> Option<String> {
        let server = ResolvedModel::of_server(&self.settings.model);
        let same_place = endpoint_of(&server.with(&old).settings) == endpoint_of(&server.with(new).settings);
        new.api_key.clone().or(old.api_key.filter(|_| same_place))
    }

    /// Replaces the owner's model settings. A key that is left out stays, unless the place changes: a key is sent only to
    /// the place that it was stored for.
    pub async fn put_model_settings(
        &self,
        caller: &Caller,
        mut settings: ModelSettings,
    ) -> Result<ModelSettingsView> {
        let old = self.own_settings(&caller.owner).await?;
        settings.api_key = self.kept_key(old, &settings);
        let resolved = ResolvedModel::of_server(&self.settings.model).with(&settings);
        // A base URL is checked also where the model is set later.
        if stated(&resolved.settings.model).or(stated(&settings.base_url)).is_some() {
            let told =
                |failure: crate::model::ModelFailure| Error::invalid("base_url", failure.told(None).message);
            let mut checked = resolved.settings;
            checked.model =
                checked.model.filter(|model| !model.trim().is_empty()).or(Some("unset".to_owned()));
            let target = ModelTarget::of(&checked, resolved.trusted).map_err(told)?;
            self.models.may_ask(&target).map_err(told)?;
        }
        self.keep_model_settings(caller, settings).await
    }

    /// Forgets the owner's key to its model; what else it set stays.
    pub async fn forget_model_key(&self, caller: &Caller) -> Result<ModelSettingsView> {
        let own = self.own_settings(&caller.owner).await?;
        self.keep_model_settings(caller, ModelSettings { api_key: None, ..own }).await
    }

    async fn keep_model_settings(
        &self,
        caller: &Caller,
        settings: ModelSettings,
    ) -> Result<ModelSettingsView> {
        let plain = serde_json::to_vec(&settings).map_err(|error| Error::internal(error.to_string()))?;
        let operation = ExtensionOperation::new(Operation::ModelSettings)
            .with(settings.model.clone().unwrap_or_default())
            .and("base_url", settings.base_url.clone().unwrap_or_default());
        let put = async {
            let sealed = self.core.operations.seal(&Self::context(&caller.owner), &plain)?;
            let value: Metadata = [("sealed".to_owned(), Value::from(hex(&sealed.0)))].into_iter().collect();
            let now = now_ms();
            let item = StoreItem {
                namespace: vec![NAMESPACE.to_owned()],
                key: KEY.to_owned(),
                value,
                created_at: now,
                updated_at: now,
            };
            Ok(self.store.put_item(&place(&caller.owner), item).await?)
        };
        self.core.operations.carry_out(caller, operation, put).await?;
        Ok(self.shown(&settings))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(model: &str, base_url: Option<&str>, key: Option<&str>) -> ModelSettings {
        ModelSettings {
            model: Some(model.to_owned()).filter(|model| !model.is_empty()),
            base_url: base_url.map(str::to_owned),
            api_key: key.map(str::to_owned),
            ..ModelSettings::default()
        }
    }

    #[test]
    fn a_key_stays_with_its_place() {
        let server = ResolvedModel::of_server(&settings("a", Some("http://10.0.0.1/v1"), Some("server")));
        let model = server.with(&settings("b", None, None));
        assert_eq!(model.settings.api_key.as_deref(), Some("server"));
        assert!(model.trusted);
        let moved = server.with(&settings("", Some("https://evil.example/v1"), None));
        assert_eq!(
            (moved.settings.api_key, moved.trusted),
            (None, false),
            "the server's key is not sent there"
        );
        let own = server.with(&settings("", Some("https://own.example/v1"), Some("own")));
        assert_eq!(own.settings.api_key.as_deref(), Some("own"));
        let provider = ModelSettings { provider: Some("anthropic".into()), ..ModelSettings::default() };
        let other = server.with(&provider);
        assert_eq!((other.settings.base_url, other.settings.api_key, other.trusted), (None, None, false));
        let twice = own.with(&settings("c", Some("https://third.example/v1"), None));
        assert_eq!(twice.settings.api_key, None, "nor is an owner's key sent where a run says");
    }

    #[test]
    fn a_models_name_leads_no_key_to_another_provider() {
        let server = ResolvedModel::of_server(&settings("gpt-4o", None, Some("server")));
        let key = |layer: &ModelSettings| {
            let model = server.with(layer);
            (model.settings.api_key, model.trusted)
        };
        for other in ["groq:llama", "claude-sonnet-4", "gemini-2", "anthropic:claude-x"] {
            assert_eq!(key(&settings(other, None, None)), (None, false), "{other}");
        }
        let local = server.with(&settings("ollama:llama3", None, None));
        assert!(!local.trusted, "nor to this machine");
        let same = (Some("server".to_owned()), true);
        assert_eq!(key(&settings("gpt-4o-mini", None, None)), same);
        assert_eq!(key(&settings("openai:o3", Some("https://api.openai.com/v1/"), None)), same);
        let named = ModelSettings { provider: Some("openai".into()), ..ModelSettings::default() };
        assert_eq!(key(&named), same, "what the name told, said in words");
        // An owner's key, and a run's over it.
        let own = server.with(&settings("claude-sonnet-4", None, Some("own")));
        assert_eq!(own.with(&settings("gpt-4o", None, None)).settings.api_key, None);
        assert_eq!(own.with(&settings("claude-x", None, None)).settings.api_key.as_deref(), Some("own"));
        // One gateway for all models keeps its key.
        let gateway = ResolvedModel::of_server(&settings("gpt-4o", Some("http://10.0.0.1/v1"), Some("g")));
        let other = gateway.with(&settings("claude-x", None, None));
        assert_eq!((other.settings.api_key.as_deref(), other.trusted), (Some("g"), true));
    }

    #[test]
    fn a_hint_shows_four_characters_of_a_long_key() {
        assert_eq!(hint("sk-0123456789wxyz").as_deref(), Some("…wxyz"));
        assert_eq!(hint("short"), None);
    }
}
