//! `[agent]`: the model that conversations use unless their owner names another, and what a run may use. The names that
//! the reference system gives its variables are read as well: `CHAT_MODEL` and its kin, `MAX_ITERATIONS`.

use super::{
    mcp::{list, value},
    variable, wrong,
};
use atoll_agent::{AgentSettings, ModelSettings};
use atoll_types::{Result, conversation::RunBudget};
use serde::Deserialize;
use std::{fs, path::PathBuf};

/// As it is written.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct File {
    model: Option<String>,
    provider: Option<String>,
    api_key_file: Option<PathBuf>,
    base_url: Option<String>,
    supports_vision: Option<bool>,
    context_tokens: Option<u32>,
    max_iterations: Option<u32>,
    max_tokens: Option<u64>,
    max_seconds: Option<u64>,
    allowed_addresses: Option<Vec<String>>,
    system_prompt: Option<String>,
    runs_at_once: Option<usize>,
}

/// The seed's limit of iterations.
const ITERATIONS: u32 = 25;
/// A run that takes longer has lost its way.
const SECONDS: u64 = 3600;
const RUNS_AT_ONCE: usize = 64;

/// The own variable, the reference system's, or the file.
fn named(own: &str, reference: &str, file: Option<String>) -> Option<String> {
    variable(own).or_else(|| variable(reference)).or(file).filter(|text| !text.is_empty())
}

/// The key: of a variable, or of a file that only the server reads. Both own variables are stronger than the reference
/// system's.
fn key(file: Option<PathBuf>) -> Result<Option<String>> {
    let own_file = variable("ATOLL_AGENT_API_KEY_FILE").map(PathBuf::from);
    let reference = || variable("CHAT_MODEL_API_KEY").filter(|_| own_file.is_none());
    let named = variable("ATOLL_AGENT_API_KEY").or_else(reference);
    let (None, Some(path)) = (&named, own_file.or(file)) else { return Ok(named) };
    let text = fs::read_to_string(&path)
        .map_err(|e| wrong("agent.api_key_file", format!("{}: {e}", path.display())))?;
    Ok(Some(text.trim().to_owned()).filter(|key| !key.is_empty()))
}

fn vision(file: Option<bool>) -> Result<Option<bool>> {
    const NAMES: (&str, &str) = ("ATOLL_AGENT_SUPPORTS_VISION", "CHAT_MODEL_SUPPORTS_VISION");
    let Some(text) = variable(NAMES.0).or_else(|| variable(NAMES.1)) else { return Ok(file) };
    match text.to_ascii_lowercase().as_str() {
        "true" | "1" => Ok(Some(true)),
        "false" | "0" => Ok(Some(false)),
        _ => Err(wrong(NAMES.1, "expected true, false or nothing")),
    }
}

fn above_zero<T: PartialEq + From<u8>>(name: &str, number: T) -> Result<T> {
    if number == T::from(0) { Err(wrong(name, "must be above zero")) } else { Ok(number) }
}

impl File {
    pub(super) fn settings(self, server_url: Option<String>) -> Result<AgentSettings> {
        let iterations = match variable("MAX_ITERATIONS") {
            Some(text) if variable("ATOLL_AGENT_MAX_ITERATIONS").is_none() => {
                Some(text.parse().map_err(|_| wrong("MAX_ITERATIONS", "expected a number"))?)
            }
            _ => value("ATOLL_AGENT_MAX_ITERATIONS", self.max_iterations)?,
        };
        let iterations = above_zero("agent.max_iterations", iterations.unwrap_or(ITERATIONS))?;
        let seconds = value("ATOLL_AGENT_MAX_SECONDS", self.max_seconds)?.unwrap_or(SECONDS);
        let tokens = value("ATOLL_AGENT_MAX_TOKENS", self.max_tokens)?;
        let tokens = tokens.map(|tokens| above_zero("agent.max_tokens", tokens)).transpose()?;
        let runs = value("ATOLL_AGENT_RUNS_AT_ONCE", self.runs_at_once)?.unwrap_or(RUNS_AT_ONCE);
        if runs == 0 {
            return Err(wrong("agent.runs_at_once", "must be above zero"));
        }
        let address = |text: &String| text.parse().map_err(|e| wrong("agent.allowed_addresses", e));
        let allowed = list("ATOLL_AGENT_ALLOWED_ADDRESSES", self.allowed_addresses);
        Ok(AgentSettings {
            model: ModelSettings {
                model: named("ATOLL_AGENT_MODEL", "CHAT_MODEL", self.model),
                provider: named("ATOLL_AGENT_PROVIDER", "CHAT_MODEL_PROVIDER", self.provider),
                api_key: key(self.api_key_file)?,
                base_url: named("ATOLL_AGENT_BASE_URL", "CHAT_MODEL_BASE_URL", self.base_url),
                supports_vision: vision(self.supports_vision)?,
                context_tokens: value("ATOLL_AGENT_CONTEXT_TOKENS", self.context_tokens)?
                    .map(|tokens| above_zero("agent.context_tokens", tokens))
                    .transpose()?,
            },
            budget: RunBudget {
                iterations: Some(iterations),
                tokens,
                seconds: Some(above_zero("agent.max_seconds", seconds)?),
            },
            allowed_addresses: allowed.iter().map(address).collect::<Result<_>>()?,
            system_prompt: variable("ATOLL_AGENT_SYSTEM_PROMPT").or(self.system_prompt),
            server_url,
            runs_at_once: runs,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<AgentSettings> {
        toml::from_str::<File>(text).map_err(|e| wrong("agent", e))?.settings(None)
    }

    #[test]
    fn the_defaults_are_those_of_the_reference_system() {
        let usual = read("").unwrap();
        assert_eq!((usual.budget.iterations, usual.budget.tokens), (Some(25), None));
        assert_eq!(usual.model, ModelSettings::default());
        assert!(usual.allowed_addresses.is_empty());
    }

    #[test]
    fn a_key_comes_from_a_file_and_is_not_shown() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "sk-secret\n").unwrap();
        let read = read(&format!("model = \"gpt-4o\"\napi_key_file = {:?}", file.path())).unwrap();
        assert_eq!(read.model.api_key.as_deref(), Some("sk-secret"));
        assert!(!format!("{read:?}").contains("sk-secret"));
    }

    #[test]
    fn mistakes_are_named() {
        for (text, named) in [
            ("api_key_file = \"/no/such/file\"", "agent.api_key_file"),
            ("max_iterations = 0", "agent.max_iterations"),
            ("max_tokens = 0", "agent.max_tokens"),
            ("context_tokens = 0", "agent.context_tokens"),
            ("max_seconds = 0", "agent.max_seconds"),
            ("runs_at_once = 0", "agent.runs_at_once"),
            ("allowed_addresses = [\"here\"]", "agent.allowed_addresses"),
            ("api_key = \"x\"", "api_key"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.message.contains(named), "{text}: {error}");
        }
    }
}
