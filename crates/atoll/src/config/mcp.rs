//! `[mcp]`: tools for agents, over HTTP. In variables, lists are separated by commas.

use super::{variable, wrong};
use atoll_front_mcp::{IDLE_SECONDS, McpSettings, SESSIONS_PER_KEY, VANISHED_SECONDS};
use atoll_http::Origin;
use atoll_types::Result;
use serde::Deserialize;

/// As it is written.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct File {
    extra_tools: Option<bool>,
    allowed_origins: Option<Vec<String>>,
    allowed_hosts: Option<Vec<String>>,
    sessions_per_key: Option<usize>,
    vanished_seconds: Option<u32>,
    idle_seconds: Option<u32>,
}

pub(super) fn list(name: &str, file: Option<Vec<String>>) -> Vec<String> {
    let split = |text: String| {
        text.split(',').map(|part| part.trim().to_owned()).filter(|part| !part.is_empty()).collect()
    };
    variable(name).map(split).or(file).unwrap_or_default()
}

pub(super) fn value<T: std::str::FromStr>(name: &str, file: Option<T>) -> Result<Option<T>>
where
    T::Err: std::fmt::Display,
{
    match variable(name) {
        Some(text) => text.parse().map(Some).map_err(|e| wrong(name, e)),
        None => Ok(file),
    }
}

/// A name, with or without a port.
pub(super) fn is_host(text: &str) -> bool {
    let (name, port) = match text.rsplit_once(':') {
        Some((name, port)) if !text.ends_with(']') => (name, Some(port)),
        _ => (text, None),
    };
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._[]:".contains(&b);
    !name.is_empty() && name.bytes().all(plain) && port.is_none_or(|port| port.parse::<u16>().is_ok())
}

impl File {
    pub(super) fn settings(self) -> Result<McpSettings> {
        let Self {
            extra_tools,
            allowed_origins,
            allowed_hosts,
            sessions_per_key,
            vanished_seconds,
            idle_seconds,
        } = self;
        let origin = |text: &String| Origin::parse(text).map_err(|e| wrong("mcp.allowed_origins", e.message));
        let allowed_origins =
            list("ATOLL_MCP_ALLOWED_ORIGINS", allowed_origins).iter().map(origin).collect::<Result<_>>()?;
        let allowed_hosts = list("ATOLL_MCP_ALLOWED_HOSTS", allowed_hosts);
        if let Some(bad) = allowed_hosts.iter().find(|host| !is_host(host)) {
            return Err(wrong(
                "mcp.allowed_hosts",
                format_args!("{bad:?} is no name, with or without a port"),
            ));
        }
        let per_key = value("ATOLL_MCP_SESSIONS_PER_KEY", sessions_per_key)?.unwrap_or(SESSIONS_PER_KEY);
        if !(1..=4096).contains(&per_key) {
            return Err(wrong("mcp.sessions_per_key", "must be between 1 and 4096"));
        }
        let extra_tools = value("ATOLL_MCP_EXTRA_TOOLS", extra_tools)?.unwrap_or(false);
        let seconds = |name: &str, variable: &str, file, usual| {
            let seconds = value(variable, file)?.unwrap_or(usual);
            match seconds {
                1..=86_400 => Ok(seconds),
                _ => Err(wrong(name, "must be between 1 and 86400")),
            }
        };
        Ok(McpSettings {
            extra_tools,
            allowed_origins,
            allowed_hosts,
            sessions_per_key: per_key,
            vanished_seconds: seconds(
                "mcp.vanished_seconds",
                "ATOLL_MCP_VANISHED_SECONDS",
                vanished_seconds,
                VANISHED_SECONDS,
            )?,
            idle_seconds: seconds("mcp.idle_seconds", "ATOLL_MCP_IDLE_SECONDS", idle_seconds, IDLE_SECONDS)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(text: &str) -> Result<McpSettings> {
        toml::from_str::<File>(text).map_err(|e| wrong("mcp", e))?.settings()
    }

    #[test]
    fn the_default_is_six_tools_for_this_machine() {
        assert_eq!(settings("").unwrap(), McpSettings::default());
        let set = settings("extra_tools = true\nallowed_origins = [\"https://app.example.com\"]\nallowed_hosts = [\"atoll.example.com\", \"[::1]:80\"]\nsessions_per_key = 2\n").unwrap();
        assert!(set.extra_tools && set.sessions_per_key == 2 && set.allowed_hosts.len() == 2);
        assert_eq!(set.allowed_origins, [Origin::parse("https://app.example.com").unwrap()]);
    }

    #[test]
    fn mistakes_are_named() {
        for (text, named) in [
            ("allowed_origins = [\"app.example.com\"]", "mcp.allowed_origins"),
            ("allowed_origins = [\"*\"]", "mcp.allowed_origins"),
            ("allowed_hosts = [\"https://atoll.example.com\"]", "mcp.allowed_hosts"),
            ("allowed_hosts = [\"*\"]", "mcp.allowed_hosts"),
            ("sessions_per_key = 0", "mcp.sessions_per_key"),
            ("vanished_seconds = 0", "mcp.vanished_seconds"),
            ("idle_seconds = 86401", "mcp.idle_seconds"),
            ("extra = true", "extra"),
        ] {
            let error = settings(text).unwrap_err();
            assert!(error.message.contains(named), "{text}: {error}");
        }
    }
}
