//! Which model a run uses and where it is.

use super::ModelFailure;
use crate::ModelSettings;
use genai::adapter::AdapterKind;
use reqwest::Url;

/// Providers by the names that clients use, with the adapter and the usual place.
const PROVIDERS: &[(&str, AdapterKind, &str)] = &[
    ("openai", AdapterKind::OpenAI, "https://api.openai.com/v1/"),
    ("openai_responses", AdapterKind::OpenAIResp, "https://api.openai.com/v1/"),
    ("anthropic", AdapterKind::Anthropic, "https://api.anthropic.com/v1/"),
    ("google_genai", AdapterKind::Gemini, "https://generativelanguage.googleapis.com/v1beta/"),
    ("gemini", AdapterKind::Gemini, "https://generativelanguage.googleapis.com/v1beta/"),
    ("google", AdapterKind::Gemini, "https://generativelanguage.googleapis.com/v1beta/"),
    ("ollama", AdapterKind::Ollama, "http://localhost:11434/"),
    ("groq", AdapterKind::OpenAI, "https://api.groq.com/openai/v1/"),
    ("deepseek", AdapterKind::OpenAI, "https://api.deepseek.com/v1/"),
    ("mistralai", AdapterKind::OpenAI, "https://api.mistral.ai/v1/"),
    ("openrouter", AdapterKind::OpenAI, "https://openrouter.ai/api/v1/"),
    ("together", AdapterKind::OpenAI, "https://api.together.xyz/v1/"),
    ("xai", AdapterKind::OpenAI, "https://api.x.ai/v1/"),
];

/// Beginnings of models' names that tell their provider.
const FAMILIES: &[(&str, &str)] = &[
    ("gpt", "openai"),
    ("chatgpt", "openai"),
    ("o1", "openai"),
    ("o3", "openai"),
    ("o4", "openai"),
    ("claude", "anthropic"),
    ("gemini", "google_genai"),
];

/// Parts of the names of models that see pictures.
const SEEING: &[&str] = &[
    "gpt-4o",
    "gpt-4.1",
    "gpt-4.5",
    "gpt-4-turbo",
    "gpt-5",
    "chatgpt",
    "o1",
    "o3",
    "o4",
    "claude",
    "gemini",
    "gemma3",
    "gemma-3",
    "llava",
    "pixtral",
    "vision",
    "-vl",
    "vl-",
    "qwen2.5vl",
    "minicpm-v",
    "llama4",
    "llama-4",
    "mistral-small3",
];
/// Parts of the names of those that do not although another part says so.
const BLIND: &[&str] = &["o1-mini", "o1-preview", "o3-mini", "claude-2", "claude-instant"];

/// Windows in tokens, by parts of models' names; the first that fits counts.
const WINDOWS: &[(&str, usize)] = &[
    ("gpt-4.1", 1_000_000),
    ("gpt-5", 400_000),
    ("gpt-4o", 128_000),
    ("gpt-4-turbo", 128_000),
    ("gpt-3.5", 16_000),
    ("gpt-4", 8_000),
    ("o1", 128_000),
    ("o3", 200_000),
    ("o4", 200_000),
    ("claude", 200_000),
    ("gemini", 1_000_000),
];
/// The window of a model that is not known.
const USUAL_WINDOW: usize = 128_000;
/// The window that Ollama gives every model unless `OLLAMA_CONTEXT_LENGTH` says another; what is more it drops from the
/// beginning, and says nothing.
const OLLAMA_WINDOW: usize = 4096;

/// A model that can be asked.
#[derive(Clone)]
pub(crate) struct ModelTarget {
    pub(crate) adapter: AdapterKind,
    pub(crate) provider: String,
    pub(crate) model: String,
    /// Ends with a slash.
    pub(crate) endpoint: String,
    pub(crate) key: Option<String>,
    /// Whether it sees pictures.
    pub(crate) sees: bool,
    /// Its window in tokens.
    pub(crate) window: usize,
    /// Whether the operator named the place; an owner's may not be private.
    pub(crate) trusted: bool,
}

impl ModelTarget {
    /// The model of settings whose key belongs to their base URL.
    pub(crate) fn of(settings: &ModelSettings, trusted: bool) -> Result<Self, ModelFailure> {
        let missing = || ModelFailure::NotSet("no model is set".to_owned());
        let full = stated(&settings.model).ok_or_else(missing)?;
        let (provider, model) = named(settings, full);
        let known = PROVIDERS.iter().find(|(name, ..)| *name == provider);
        let given = stated(&settings.base_url);
        let (mut adapter, usual) = match (known, given) {
            (Some((_, adapter, usual)), _) => (*adapter, Some(*usual)),
            (None, Some(_)) => (AdapterKind::OpenAI, None),
            (None, None) => {
                let message =
                    format!("the provider {provider:?} is not known, and no base URL is set for it");
                return Err(ModelFailure::NotSet(message));
            }
        };
        let endpoint = match (given, usual) {
            (Some(given), _) => endpoint(given, &mut adapter)?,
            (None, Some(usual)) => usual.to_owned(),
            (None, None) => return Err(missing()),
        };
        let lower = model.to_lowercase();
        let has = |parts: &[&str]| parts.iter().any(|part| lower.contains(part));
        let sees = settings.supports_vision.unwrap_or_else(|| has(SEEING) && !has(BLIND));
        let known = WINDOWS.iter().find(|(part, _)| lower.contains(part)).map(|(_, size)| *size);
        let said = settings.context_tokens.and_then(|tokens| usize::try_from(tokens).ok());
        let known = if provider == "ollama" { Some(OLLAMA_WINDOW) } else { known };
        let window = said.or(known).unwrap_or(USUAL_WINDOW);
        let key = settings.api_key.clone().filter(|key| !key.is_empty());
        Ok(Self { adapter, provider, model, endpoint, key, sees, window, trusted })
    }

    /// Whether deltas of calls name the number of their call.
    pub(crate) fn has_numbered_calls(&self) -> bool {
        self.adapter == AdapterKind::OpenAI
    }

    /// A text without the key.
    pub(crate) fn redacted(&self, text: &str) -> String {
        match &self.key {
            Some(key) if key.len() >= 6 => text.replace(key.as_str(), "[key]"),
            _ => text.to_owned(),
        }
    }
}

/// What a setting says; an empty one says nothing.
pub(crate) fn stated(value: &Option<String>) -> Option<&str> {
    value.as_deref().map(str::trim).filter(|text| !text.is_empty())
}

/// The provider of settings: as they name it, or as the model's name tells.
pub(crate) fn provider_of(settings: &ModelSettings) -> String {
    named(settings, stated(&settings.model).unwrap_or_default()).0
}

/// The place that the key of settings goes to: the base URL, or the usual place of the provider. None where there is no such
/// place, and so no request.
pub(crate) fn endpoint_of(settings: &ModelSettings) -> Option<String> {
    let usual = || {
        let provider = provider_of(settings);
        PROVIDERS.iter().find(|(name, ..)| *name == provider).map(|(.., usual)| *usual)
    };
    stated(&settings.base_url).or_else(usual).map(|place| place.trim_end_matches('/').to_owned())
}

/// The provider and the model's own name.
fn named(settings: &ModelSettings, full: &str) -> (String, String) {
    let provider = stated(&settings.provider).map(|name| name.to_lowercase().replace('-', "_"));
    if let Some(provider) = provider {
        let own = full.strip_prefix(&format!("{provider}:")).unwrap_or(full);
        return (provider, own.to_owned());
    }
    if let Some((provider, own)) = full.split_once(':')
        && PROVIDERS.iter().any(|(name, ..)| *name == provider)
    {
        return (provider.to_owned(), own.to_owned());
    }
    let lower = full.to_lowercase();
    let family = FAMILIES.iter().find(|(begin, _)| lower.starts_with(begin));
    let provider = family.map_or("openai", |(_, provider)| provider);
    (provider.to_owned(), full.to_owned())
}

/// A base URL as the adapter wants it: clients leave the version out where their own library adds it.
fn endpoint(given: &str, adapter: &mut AdapterKind) -> Result<String, ModelFailure> {
    let wrong = |why: &str| ModelFailure::NotSet(format!("the base URL cannot be used: {why}"));
    let mut url = Url::parse(given).map_err(|e| wrong(&e.to_string()))?;
    if !matches!(url.scheme(), "http" | "https") || url.host().is_none() {
        return Err(wrong("it must begin with http:// or https:// and name a host"));
    }
    if !url.username().is_empty()
        || url.password().is_some()
        || url.query().is_some()
        || url.fragment().is_some()
    {
        return Err(wrong("it may not have a user, a query or a fragment"));
    }
    let path = url.path().trim_end_matches('/').to_owned();
    if *adapter == AdapterKind::Ollama && path.ends_with("/v1") {
        *adapter = AdapterKind::OpenAI;
    }
    let version = match *adapter {
        AdapterKind::Gemini => "/v1beta",
        AdapterKind::Ollama => "",
        _ => "/v1",
    };
    url.set_path(&if path.is_empty() { format!("{version}/") } else { format!("{path}/") });
    Ok(url.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(
        model: &str,
        provider: Option<&str>,
        base_url: Option<&str>,
    ) -> Result<ModelTarget, ModelFailure> {
        let text = |text: &str| text.to_owned();
        let settings = ModelSettings {
            model: Some(model.to_owned()),
            provider: provider.map(text),
            base_url: base_url.map(text),
            ..ModelSettings::default()
        };
        ModelTarget::of(&settings, false)
    }

    #[test]
    fn a_name_leads_to_its_provider_and_place() {
        for (model, provider, base, wanted) in [
            ("gpt-4o", None, None, "openai gpt-4o https://api.openai.com/v1/"),
            ("claude-sonnet-4", None, None, "anthropic claude-sonnet-4 https://api.anthropic.com/v1/"),
            ("anthropic:claude-x", None, None, "anthropic claude-x https://api.anthropic.com/v1/"),
            ("llama3:8b", Some("ollama"), None, "ollama llama3:8b http://localhost:11434/"),
            ("m", Some("vllm"), Some("http://h:1"), "vllm m http://h:1/v1/"),
            ("m", Some("openai"), Some("http://h:1/api/"), "openai m http://h:1/api/"),
            ("gemini-2", None, Some("http://h:1"), "google_genai gemini-2 http://h:1/v1beta/"),
            ("m", Some("ollama"), Some("http://h:1/v1"), "ollama m http://h:1/v1/"),
        ] {
            let found = target(model, provider, base).unwrap();
            assert_eq!(format!("{} {} {}", found.provider, found.model, found.endpoint), wanted);
        }
        for (model, provider, base) in [
            ("", None, None),
            ("m", Some("nobody"), None),
            ("m", Some("openai"), Some("file:///etc/passwd")),
            ("m", Some("openai"), Some("http://user:word@h/")),
        ] {
            assert!(
                matches!(target(model, provider, base), Err(ModelFailure::NotSet(_))),
                "{model} {base:?}"
            );
        }
    }

    #[test]
    fn a_window_is_the_models_and_ollamas_is_its_servers() {
        let window =
            |model: &str, provider| target(model, Some(provider), Some("http://h:1/v1")).unwrap().window;
        assert_eq!((window("gpt-4o", "openai"), window("unknown", "vllm")), (128_000, USUAL_WINDOW));
        assert_eq!(window("claude-like", "ollama"), OLLAMA_WINDOW);
    }

    #[test]
    fn sight_follows_from_the_name_unless_it_is_said() {
        let sees = |model: &str| target(model, Some("openai"), None).unwrap().sees;
        assert!(sees("gpt-4o-mini") && sees("claude-3-haiku") && sees("llama3.2-vision"));
        assert!(!sees("gpt-3.5-turbo") && !sees("o3-mini") && !sees("mistral-7b"));
    }
}
