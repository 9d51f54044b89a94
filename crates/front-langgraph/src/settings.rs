//! The caller's model settings, as the chat pages of the reference system read and write them. The key never comes back:
//! its field is empty, and a hint says which one it is.

use crate::App;
use atoll_agent::{ModelSettings, ModelSettingsView};
use atoll_http::{Failure, Raw, Who, required_json};
use atoll_types::Error;
use axum::{
    Json, Router,
    extract::State,
    routing::{delete, get},
};
use serde::Deserialize;
use serde_json::{Value, json};

pub(crate) fn routes() -> Router<App> {
    Router::new().route("/settings", get(read).put(write)).route("/settings/api-key", delete(forget_key))
}

fn view(settings: ModelSettingsView) -> Json<Value> {
    let ModelSettingsView {
        model,
        provider,
        base_url,
        supports_vision,
        context_tokens,
        has_api_key,
        api_key_hint,
        own,
    } = settings;
    Json(json!({
        "model": model, "provider": provider, "base_url": base_url, "supports_vision": supports_vision,
        "context_tokens": context_tokens,
        "api_key": "", "has_api_key": has_api_key, "api_key_hint": api_key_hint,
        "own": own,
    }))
}

async fn forget_key(State(app): State<App>, Who(caller): Who) -> Result<Json<Value>, Failure> {
    Ok(view(app.agents.forget_model_key(&caller).await?))
}

async fn read(State(app): State<App>, Who(caller): Who) -> Result<Json<Value>, Failure> {
    Ok(view(app.agents.model_settings(&caller).await?))
}

/// An empty text is the same as none: pages send what their form has.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct SettingsBody {
    model: Option<String>,
    provider: Option<String>,
    api_key: Option<String>,
    base_url: Option<String>,
    supports_vision: Option<Value>,
    context_tokens: Option<u32>,
}

impl SettingsBody {
    fn settings(self) -> Result<ModelSettings, Error> {
        let filled =
            |text: Option<String>| text.map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
        let supports_vision = match self.supports_vision {
            None | Some(Value::Null) => None,
            Some(Value::Bool(sees)) => Some(sees),
            Some(Value::String(text)) => match text.as_str() {
                "" => None,
                "true" => Some(true),
                "false" => Some(false),
                _ => return Err(Error::invalid("supports_vision", "expected true, false or nothing")),
            },
            Some(_) => return Err(Error::invalid("supports_vision", "expected true, false or nothing")),
        };
        Ok(ModelSettings {
            model: filled(self.model),
            provider: filled(self.provider),
            api_key: filled(self.api_key),
            base_url: filled(self.base_url),
            supports_vision,
            context_tokens: self.context_tokens.filter(|tokens| *tokens > 0),
        })
    }
}

async fn write(State(app): State<App>, Who(caller): Who, Raw(body): Raw) -> Result<Json<Value>, Failure> {
    let settings = required_json::<SettingsBody>(&body)?.settings()?;
    Ok(view(app.agents.put_model_settings(&caller, settings).await?))
}
