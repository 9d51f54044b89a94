//! `atoll settings`. The server defines the settings; here is only how they are typed and shown.

use crate::{Failure, server::Server, table, terminal};
use clap::{Args, Subcommand};
use serde_json::{Map, Value};

/// The object of Atoll's own settings on the wire.
const OWN: &str = "atoll";

/// `settings`.
#[derive(Debug, Args)]
pub struct Settings {
    #[command(subcommand)]
    pub(crate) command: SettingsCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SettingsCommand {
    /// Shows every setting, and where its value comes from
    Show(Show),
    /// Changes settings at once, all of them or none; they outlive the server
    Set(Set),
}

#[derive(Debug, Args)]
pub(crate) struct Show {
    #[command(flatten)]
    pub(crate) server: Server,
}

#[derive(Debug, Args)]
pub(crate) struct Set {
    /// Such as default_max_per_user=5 or admission.wait_seconds=0; null takes back what was set so
    #[arg(required = true, value_name = "NAME=VALUE", value_parser = pair)]
    pub(crate) changes: Vec<(String, Value)>,
    #[command(flatten)]
    pub(crate) server: Server,
}

impl Settings {
    pub(crate) fn json(&self) -> bool {
        match &self.command {
            SettingsCommand::Show(Show { server }) | SettingsCommand::Set(Set { server, .. }) => server.json,
        }
    }
}

/// A value is JSON, or else the text itself.
fn pair(text: &str) -> Result<(String, Value), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => {
            let value = serde_json::from_str(value).unwrap_or_else(|_| Value::String(value.to_owned()));
            Ok((name.to_owned(), value))
        }
        _ => Err("expected NAME=VALUE".into()),
    }
}

/// The path of a setting on the wire.
fn path(name: &str) -> Vec<&str> {
    match name.split_once('.') {
        Some((group, last)) => vec![OWN, group, last],
        None if matches!(name, "plans" | "owners") => vec![OWN, name],
        None => vec![name],
    }
}

/// The changes as JSON, in their places on the wire.
fn placed(changes: Vec<(String, Value)>) -> Map<String, Value> {
    let mut all = Value::Object(Map::new());
    for (name, value) in changes {
        let mut at = &mut all;
        for step in path(&name) {
            // An earlier change may be in the way; the last one counts.
            if !at.is_object() {
                *at = Value::Object(Map::new());
            }
            at = &mut at[step];
        }
        *at = value;
    }
    match all {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

/// Every setting with its source; what has none cannot be set.
fn rendered(settings: &Map<String, Value>) -> String {
    let none = Map::new();
    let sources = settings.get(OWN).and_then(|own| own.get("sources")?.as_object()).unwrap_or(&none);
    let shown = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let mut rows: Vec<[String; 3]> = Vec::new();
    for (name, value) in settings.iter().filter(|(name, _)| *name != OWN) {
        let source = sources.get(name).map_or_else(|| "fixed".to_owned(), shown);
        rows.push([name.clone(), shown(value), source]);
    }
    // Names without a dot first.
    rows.sort();
    let mut sources: Vec<_> = sources.iter().collect();
    sources.sort_by_key(|(name, _)| *name);
    for (name, source) in sources {
        let steps = path(name);
        let top = settings.get(steps[0]);
        let value = top.and_then(|top| steps[1..].iter().try_fold(top, |at, step| at.get(step)));
        if let (true, Some(value)) = (steps.len() > 1, value) {
            rows.push([name.clone(), shown(value), shown(source)]);
        }
    }
    table::render(["NAME", "VALUE", "SOURCE"], &rows)
}

pub(crate) async fn run(command: SettingsCommand) -> Result<u8, Failure> {
    let (server, reply) = match command {
        SettingsCommand::Show(Show { server }) => {
            let reply = server.client()?.settings().await?;
            (server, reply)
        }
        SettingsCommand::Set(Set { changes, server }) => {
            let reply = server.client()?.patch_settings(&placed(changes)).await?;
            (server, reply)
        }
    };
    if server.json {
        terminal::print_json(&reply.json)?;
    } else {
        terminal::print(&rendered(&reply))?;
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn names_are_typed_flat_and_sent_in_their_places() {
        let pairs = ["default_max_per_user=5", "admission.wait_seconds=0", "admission.cpu_ratio=null"];
        let more = ["owners={\"ann\":\"pro\"}", "db_default_image=host"];
        let changes = pairs.iter().chain(&more).map(|text| pair(text).unwrap()).collect();
        assert_eq!(
            Value::Object(placed(changes)),
            json!({"default_max_per_user": 5, "db_default_image": "host",
                "atoll": {"admission": {"wait_seconds": 0, "cpu_ratio": null}, "owners": {"ann": "pro"}}})
        );
        assert!(pair("x").is_err() && pair("=1").is_err());
    }

    #[test]
    fn settings_for_people() {
        let settings = json!({"provider_type": "native", "default_max_per_user": 3,
            "atoll": {"admission": {"wait_seconds": 10}, "plans": {}, "tiers": {},
                "sources": {"default_max_per_user": "stored", "admission.wait_seconds": "default", "plans": "file"}}});
        insta::assert_snapshot!(rendered(settings.as_object().unwrap()), @r"
        NAME                    VALUE   SOURCE
        default_max_per_user    3       stored
        provider_type           native  fixed
        admission.wait_seconds  10      default
        plans                   {}      file
        ");
    }
}
