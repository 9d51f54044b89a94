//! Tiers, and the settings that apply without a restart, in the configuration. The file has the sections
//! `[tiers.NAME]` and `[settings]`; a setting may also be a variable, such as
//! `ATOLL_SETTINGS_ADMISSION_WAIT_SECONDS`, or a flag, `--set admission.wait_seconds=5`.

use super::{variable, wrong};
use atoll_core::{Preset, RuntimeSettings, Source};
use atoll_types::{Ceiling, Network, Profile, Profiles, Result, Tier, Tiers};
use serde::Deserialize;
use std::collections::BTreeMap;

/// A tier's figures in place of the table's.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct TierFile {
    cpu_cores: Option<f64>,
    memory_mb: Option<u64>,
    disk_mb: Option<u64>,
    processes: Option<u32>,
    timeout_seconds: Option<u64>,
    network: Option<Network>,
    profiles: Option<Vec<String>>,
}

impl TierFile {
    fn over(self, table: Ceiling) -> Result<Ceiling> {
        let Self { cpu_cores, memory_mb, disk_mb, processes, timeout_seconds, network, profiles } = self;
        let unknown = || wrong("profiles", format!("expected some of {}", Profile::BUILTIN.join(", ")));
        let profiles =
            profiles.map(|names| Profiles::named(names.iter().map(String::as_str)).ok_or_else(unknown));
        Ok(Ceiling {
            cpu_millis: cpu_cores.map_or(table.cpu_millis, |cores| (cores * 1000.0).round() as u32),
            memory_mb: memory_mb.unwrap_or(table.memory_mb),
            disk_mb: disk_mb.unwrap_or(table.disk_mb),
            processes: processes.unwrap_or(table.processes),
            timeout_seconds: timeout_seconds.unwrap_or(table.timeout_seconds),
            network: network.unwrap_or(table.network),
            profiles: profiles.transpose()?.unwrap_or(table.profiles),
        })
    }
}

/// The table of tiers with the file's replacements.
pub(super) fn tiers(file: BTreeMap<String, TierFile>) -> Result<Tiers> {
    let mut tiers = Tiers::default();
    for (name, figures) in file {
        let at = format!("tiers.{name}");
        let tier: Tier = name.parse().map_err(|e| wrong(&at, e))?;
        let ceiling = figures.over(tier.ceiling()).map_err(|e| wrong(&at, e))?;
        ceiling.validate().map_err(|e| wrong(&at, e))?;
        tiers.replace(tier, ceiling);
    }
    Ok(tiers)
}

/// How another system writes a value, as this one does.
type Converter = fn(&str) -> Option<String>;

fn same(text: &str) -> Option<String> {
    Some(text.to_owned())
}

/// `2048m`, `2g` or a number of bytes, in MiB.
fn mebibytes(text: &str) -> Option<String> {
    let text = text.trim().to_ascii_lowercase();
    let text = text.strip_suffix('b').unwrap_or(&text);
    let (digits, unit) = match text.strip_suffix(['k', 'm', 'g']) {
        Some(digits) => (digits, text.chars().last()),
        None => (text, None),
    };
    let number: u64 = digits.parse().ok()?;
    let mebibytes = match unit {
        Some('g') => number.checked_mul(1024)?,
        Some('m') => number,
        Some('k') => number >> 10,
        _ => number >> 20,
    };
    Some(mebibytes.to_string())
}

/// The size of each of three folders, as one of all of them together: of MiB.
fn three_folders(text: &str) -> Option<String> {
    let each: u64 = mebibytes(text)?.parse().ok()?;
    Some(each.checked_mul(3)?.to_string())
}

/// Microseconds of processor time in 100 milliseconds, as cores.
fn cores(text: &str) -> Option<String> {
    Some((text.trim().parse::<f64>().ok()? / 100_000.0).to_string())
}

/// `True` and `False` as Python's settings have them.
pub(super) fn truth(text: &str) -> Option<String> {
    match text.trim().to_ascii_lowercase().as_str() {
        "true" | "1" | "yes" | "on" => Some("true".into()),
        "false" | "0" | "no" | "off" => Some("false".into()),
        _ => None,
    }
}

/// Settings that have a second variable, under which another sandbox server knows them.
const ALIASES: &[(&str, &str, Converter)] = &[
    ("tool_sessions.max", "CONTAINER_MAX_SESSIONS", same),
    ("tool_sessions.max_per_thread", "CONTAINER_MAX_SESSIONS_PER_THREAD", same),
    ("tool_sessions.max_threads", "SESSION_MAX_ACTIVE_THREADS", same),
    ("tool_sessions.idle_seconds", "SESSION_IDLE_TTL_SECONDS", same),
    ("tool_sessions.max_lifetime_seconds", "SESSION_MAX_LIFETIME_SECONDS", same),
    ("tool_sessions.collect_seconds", "SESSION_GC_INTERVAL_SECONDS", same),
    ("tool_sessions.orphan_seconds", "CONTAINER_ORPHAN_MIN_AGE_SECONDS", same),
    ("tool_sessions.network_enabled", "CONTAINER_NETWORK_ENABLED", truth),
    ("tool_sessions.memory_mb", "CONTAINER_MEMORY_LIMIT", mebibytes),
    ("tool_sessions.cpu_cores", "CONTAINER_CPU_QUOTA", cores),
    ("tool_sessions.processes", "CONTAINER_PIDS_LIMIT", same),
    ("tool_sessions.disk_mb", "CONTAINER_TMPFS_SIZE", three_folders),
];

/// A setting's variable and its value: the own one, or another system's.
fn named(name: &str) -> Result<Option<(String, String)>> {
    let own = variable_of(name);
    if let Some(text) = variable(&own) {
        return Ok(Some((own, text)));
    }
    let Some((_, alias, convert)) = ALIASES.iter().find(|(known, ..)| *known == name) else {
        return Ok(None);
    };
    let Some(text) = variable(alias) else { return Ok(None) };
    let converted = convert(&text).ok_or_else(|| wrong(alias, format!("{text:?} cannot be read")))?;
    Ok(Some(((*alias).to_owned(), converted)))
}

/// The variable of a setting.
fn variable_of(name: &str) -> String {
    format!("ATOLL_SETTINGS_{}", name.replace('.', "_").to_uppercase())
}

/// A section of the file as names and values.
fn flat(file: toml::Table) -> Result<Vec<(String, serde_json::Value)>> {
    let json = |name: &str, value| serde_json::to_value(value).map_err(|e| wrong(name, e));
    let mut all = Vec::new();
    for (name, value) in file {
        match value {
            toml::Value::Table(group) if !RuntimeSettings::NAMES.contains(&name.as_str()) => {
                for (below, value) in group {
                    let name = format!("{name}.{below}");
                    all.push((name.clone(), json(&name, value)?));
                }
            }
            value => all.push((name.clone(), json(&name, value)?)),
        }
    }
    Ok(all)
}

/// The settings from the file, the variables and the flags.
pub(super) fn preset(file: toml::Table, flags: &[String]) -> Result<Preset> {
    let mut preset = Preset::default();
    for (name, value) in flat(file)? {
        let at = format!("settings.{name}");
        preset.set(Source::File, &name, value).map_err(|e| wrong(&at, e.message))?;
    }
    for name in RuntimeSettings::NAMES {
        if let Some((at, text)) = named(name)? {
            preset.set_text(Source::Variable, name, &text).map_err(|e| wrong(&at, e.message))?;
        }
    }
    for flag in flags {
        let Some((name, text)) = flag.split_once('=') else {
            return Err(wrong("--set", format_args!("expected NAME=VALUE, not {flag:?}")));
        };
        preset.set_text(Source::Flag, name, text).map_err(|e| wrong("--set", e.message))?;
    }
    preset.validate().map_err(|e| wrong("settings", e.message))?;
    Ok(preset)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tiers_of(text: &str) -> Result<Tiers> {
        tiers(toml::from_str(text).map_err(|e| wrong("tiers", e))?)
    }

    fn preset_of(text: &str, flags: &[&str]) -> Result<Preset> {
        let flags: Vec<String> = flags.iter().map(ToString::to_string).collect();
        preset(text.parse().map_err(|e: toml::de::Error| wrong("settings", e))?, &flags)
    }

    #[test]
    fn a_tier_has_what_the_file_says_and_the_rest_of_the_table() {
        let tiers = tiers_of("[standard]\nmemory_mb = 768\ncpu_cores = 1.5\nnetwork = \"full\"\n").unwrap();
        let table = Tier::Standard.ceiling();
        let wanted = Ceiling { memory_mb: 768, cpu_millis: 1500, network: Network::Full, ..table };
        assert_eq!(tiers.of(Tier::Standard), wanted);
        assert_eq!(tiers.of(Tier::Sandbox), Tier::Sandbox.ceiling());
        for bad in [
            "[god]\nmemory_mb = 1\n",
            "[standard]\nmemory = 768\n",
            "[standard]\nmemory_mb = 1\n",
            "[standard]\nnetwork = \"some\"\n",
            "[standard]\ncpu_cores = nan\n",
        ] {
            assert!(tiers_of(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn settings_come_from_the_file_and_flags_are_stronger() {
        let file = "default_max_per_user = 7\n[admission]\nwait_seconds = 1\n[plans.pro]\nsandboxes = 9\n";
        let preset = preset_of(file, &["admission.wait_seconds=0", "owners={\"ann\":\"pro\"}"]).unwrap();
        let mut wanted = Preset::default();
        wanted.set(Source::File, "default_max_per_user", 7.into()).unwrap();
        wanted.set(Source::File, "plans", serde_json::json!({"pro": {"sandboxes": 9}})).unwrap();
        wanted.set(Source::Flag, "admission.wait_seconds", 0.into()).unwrap();
        wanted.set(Source::Flag, "owners", serde_json::json!({"ann": "pro"})).unwrap();
        assert_eq!(preset, wanted);
        for (file, flags, named) in [
            ("no_such = 1\n", &[][..], "no_such"),
            ("[admission]\nno_such = 1\n", &[], "admission.no_such"),
            ("idle_timeout_seconds = 1\n", &[], "settings.idle_timeout_seconds"),
            ("[owners]\nann = \"pro\"\n", &[], "pro"),
            ("", &["default_max_per_user"], "NAME=VALUE"),
            ("", &["default_max_per_user=x"], "default_max_per_user"),
        ] {
            let error = preset_of(file, flags).unwrap_err();
            assert!(error.message.contains(named), "{error}");
        }
        assert_eq!(variable_of("plan.disk_mb"), "ATOLL_SETTINGS_PLAN_DISK_MB");
    }

    #[test]
    fn another_systems_values_are_converted() {
        let all: Vec<_> = ["2048m", "2g", "2147483648", "512MB", "1048576k"].map(mebibytes).into();
        assert_eq!(all, ["2048", "2048", "2048", "512", "1024"].map(|text| Some(text.to_owned())));
        assert_eq!((mebibytes("much"), mebibytes(""), mebibytes("-1m")), (None, None, None));
        assert_eq!((three_folders("200m").as_deref(), three_folders("x")), (Some("600"), None));
        assert_eq!((cores("150000").as_deref(), cores("x")), (Some("1.5"), None));
        assert_eq!(
            (truth("True").as_deref(), truth("0").as_deref(), truth("maybe")),
            (Some("true"), Some("false"), None)
        );
        for (name, ..) in ALIASES {
            assert!(RuntimeSettings::NAMES.contains(name), "{name}");
        }
    }
}
