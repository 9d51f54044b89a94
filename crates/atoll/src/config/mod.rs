//! The configuration: a TOML file, overridden by variables, overridden by flags. Every key of the file has a
//! variable of its name: `listen` is `ATOLL_LISTEN`, `images.aliases` is `ATOLL_IMAGES_ALIASES` (as
//! `name=image`, separated by commas).

mod egress;
mod limits;
mod mcp;
mod tools;

use crate::cli;
use atoll_core::CoreSettings;
use atoll_front_mcp::McpSettings;
use atoll_front_rest::PreviewSettings;
use atoll_types::{Error, Result};
pub(crate) use egress::EgressConfig;
use serde::Deserialize;
use std::{
    collections::BTreeMap,
    fs,
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    time::Duration,
};
pub(crate) use tools::ToolsConfig;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct File {
    listen: Option<SocketAddr>,
    data_dir: Option<PathBuf>,
    user: Option<String>,
    no_auth: Option<bool>,
    images: Images,
    preview: Preview,
    metrics: Metrics,
    launcher: Launcher,
    egress: egress::File,
    mcp: mcp::File,
    tools: tools::File,
    tiers: BTreeMap<String, limits::TierFile>,
    settings: toml::Table,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Images {
    default: Option<String>,
    aliases: BTreeMap<String, String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Preview {
    domain: Option<String>,
    head_timeout_seconds: Option<u32>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Metrics {
    interval_seconds: Option<u32>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Launcher {
    patience_seconds: Option<u32>,
}

impl Launcher {
    /// How long the launcher may take to answer; none for the default.
    fn patience(self) -> Result<Option<Duration>> {
        let named = variable("ATOLL_LAUNCHER_PATIENCE_SECONDS").map(|text| {
            text.parse().map_err(|_| wrong("ATOLL_LAUNCHER_PATIENCE_SECONDS", "expected a number"))
        });
        match named.transpose()?.or(self.patience_seconds) {
            Some(seconds) if !(1..=3600).contains(&seconds) => {
                Err(wrong("launcher.patience_seconds", "must be between 1 and 3600"))
            }
            seconds => Ok(seconds.map(|seconds| Duration::from_secs(seconds.into()))),
        }
    }
}

impl Metrics {
    /// How often to sample; none for the default.
    fn interval(self) -> Result<Option<u32>> {
        let named = variable("ATOLL_METRICS_INTERVAL_SECONDS").map(|text| {
            text.parse().map_err(|_| wrong("ATOLL_METRICS_INTERVAL_SECONDS", "expected a number"))
        });
        match named.transpose()?.or(self.interval_seconds) {
            Some(seconds) if !(1..=3600).contains(&seconds) => {
                Err(wrong("metrics.interval_seconds", "must be between 1 and 3600"))
            }
            interval => Ok(interval),
        }
    }
}

impl Preview {
    /// Browsers resolve every name below `localhost` to their own machine, so a server that only this machine
    /// reaches has names for previews without a setting. An empty domain switches them off.
    fn settings(self, listen: SocketAddr) -> Result<PreviewSettings> {
        let mut settings = PreviewSettings::default();
        let named = std::env::var("ATOLL_PREVIEW_DOMAIN").ok().or(self.domain);
        let usual = || listen.ip().is_loopback().then(|| "localhost".to_owned());
        if let Some(domain) = named.or_else(usual).filter(|domain| !domain.is_empty()) {
            settings = settings.with_domain(&domain).map_err(|e| wrong("preview.domain", e.message))?;
        }
        let named = variable("ATOLL_PREVIEW_HEAD_TIMEOUT_SECONDS").map(|text| {
            text.parse().map_err(|_| wrong("ATOLL_PREVIEW_HEAD_TIMEOUT_SECONDS", "expected a number"))
        });
        match named.transpose()?.or(self.head_timeout_seconds) {
            Some(0) => Err(wrong("preview.head_timeout_seconds", "must be above zero")),
            Some(seconds) => {
                Ok(PreviewSettings { head_timeout: Duration::from_secs(seconds.into()), ..settings })
            }
            None => Ok(settings),
        }
    }
}

/// The server's configuration.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    pub(crate) listen: SocketAddr,
    pub(crate) data_dir: PathBuf,
    pub(crate) user: Option<String>,
    pub(crate) no_auth: bool,
    /// How long the launcher may take to answer.
    pub(crate) launcher_patience: Option<Duration>,
    pub(crate) core: CoreSettings,
    pub(crate) preview: PreviewSettings,
    pub(crate) egress: EgressConfig,
    pub(crate) mcp: McpSettings,
    pub(crate) tools: ToolsConfig,
}

fn wrong(what: &str, why: impl std::fmt::Display) -> Error {
    Error::invalid(what, format!("{what}: {why}"))
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|v| !v.is_empty())
}

fn alias_pairs(text: &str) -> Result<Vec<(String, String)>> {
    let pair = |part: &str| match part.split_once('=') {
        Some((name, image)) => Ok((name.trim().to_owned(), image.trim().to_owned())),
        None => Err(wrong("ATOLL_IMAGES_ALIASES", "expected name=image, separated by commas")),
    };
    text.split(',').filter(|p| !p.trim().is_empty()).map(pair).collect()
}

impl Config {
    /// Reads the file, the variables and the flags.
    pub(crate) fn load(options: &cli::Serve) -> Result<Self> {
        let file = match &options.config {
            None => File::default(),
            Some(path) => {
                let text = fs::read_to_string(path).map_err(|e| wrong(&path.display().to_string(), e))?;
                toml::from_str(&text).map_err(|e| wrong(&path.display().to_string(), e))?
            }
        };
        let File {
            listen,
            data_dir,
            user,
            no_auth,
            images: Images { default, aliases },
            preview,
            metrics,
            launcher,
            egress,
            mcp,
            tools,
            tiers,
            settings,
        } = file;
        let mut core = CoreSettings {
            tiers: limits::tiers(tiers)?,
            preset: limits::preset(settings, &options.set)?,
            ..CoreSettings::default()
        };
        core.aliases.extend(aliases);
        core.aliases.extend(alias_pairs(&variable("ATOLL_IMAGES_ALIASES").unwrap_or_default())?);
        if let Some(image) = variable("ATOLL_IMAGES_DEFAULT").or(default) {
            core.default_image = image;
        }
        core.metrics_interval_seconds = metrics.interval()?.unwrap_or(core.metrics_interval_seconds);
        let usual = SocketAddr::from((Ipv4Addr::LOCALHOST, 7300));
        let listen = options.listen.or(listen).unwrap_or(usual);
        let config = Self {
            listen,
            data_dir: options.data.named().or(data_dir).unwrap_or_else(cli::default_data_dir),
            user: options.user.clone().or(user),
            no_auth: options.no_auth || no_auth.unwrap_or(false),
            launcher_patience: launcher.patience()?,
            core,
            preview: preview.settings(listen)?,
            egress: egress.settings()?,
            mcp: mcp.settings()?,
            tools: tools.settings()?,
        };
        if config.no_auth && !config.listen.ip().is_loopback() {
            return Err(wrong("no_auth", "without keys the server listens on a loopback address only"));
        }
        Ok(config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    fn load(arguments: &[&str]) -> Result<Config> {
        let cli = cli::Cli::parse_from(["atoll", "serve"].iter().chain(arguments));
        match cli.command {
            cli::Command::Serve(options) => Config::load(&options),
            _ => unreachable!(),
        }
    }

    #[test]
    fn flags_win_over_the_file_and_the_file_over_defaults() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(
            file.path(),
            "listen = \"127.0.0.1:1\"\nuser = \"x\"\n[images.aliases]\n\"a/b:c\" = \"host\"\n",
        )
        .unwrap();
        let path = file.path().to_str().unwrap();
        let config = load(&["--config", path]).unwrap();
        assert_eq!((config.listen.port(), config.user.as_deref()), (1, Some("x")));
        assert_eq!(config.core.aliases["a/b:c"], "host");
        assert!(config.core.aliases.contains_key("mcpgateway/sandbox-runtime:latest"), "what ships stays");
        assert_eq!(load(&["--config", path, "--listen", "127.0.0.1:2"]).unwrap().listen.port(), 2);
        assert_eq!(load(&[]).unwrap().listen.to_string(), "127.0.0.1:7300");
    }

    #[test]
    fn mistakes_are_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "lisen = \"127.0.0.1:1\"\n").unwrap();
        let error = load(&["--config", file.path().to_str().unwrap()]).unwrap_err();
        assert!(error.message.contains("lisen"), "{error}");
        for spoiled in ["[preview]\ndomain = \"a b\"\n", "[preview]\nhead_timeout_seconds = 0\n"] {
            fs::write(file.path(), spoiled).unwrap();
            let error = load(&["--config", file.path().to_str().unwrap()]).unwrap_err();
            assert!(error.message.contains("preview."), "{error}");
        }
        for spoiled in ["0", "3601", "-1", "\"often\""] {
            fs::write(file.path(), format!("[metrics]\ninterval_seconds = {spoiled}\n")).unwrap();
            let error = load(&["--config", file.path().to_str().unwrap()]).unwrap_err();
            assert!(error.message.contains("interval_seconds"), "{error}");
        }
        for spoiled in ["0", "3601"] {
            fs::write(file.path(), format!("[launcher]\npatience_seconds = {spoiled}\n")).unwrap();
            let error = load(&["--config", file.path().to_str().unwrap()]).unwrap_err();
            assert!(error.message.contains("launcher.patience_seconds"), "{error}");
        }
        fs::write(file.path(), "[metrics]\ninterval_seconds = 3600\n").unwrap();
        let config = load(&["--config", file.path().to_str().unwrap()]).unwrap();
        assert_eq!(config.core.metrics_interval_seconds, 3600);
        fs::write(file.path(), "[preview]\ndomain = \"Preview.example.com\"\n").unwrap();
        let domain = load(&["--config", file.path().to_str().unwrap()]).unwrap().preview.domain.unwrap();
        assert_eq!(domain.to_string(), "preview.example.com");
        let domain = |arguments: &[&str]| load(arguments).unwrap().preview.domain.map(|d| d.to_string());
        assert_eq!(domain(&[]).as_deref(), Some("localhost"), "only this machine reaches it");
        assert_eq!(domain(&["--listen", "[::1]:80"]).as_deref(), Some("localhost"));
        assert_eq!(domain(&["--listen", "0.0.0.0:80"]), None);
        fs::write(file.path(), "[preview]\ndomain = \"\"\n").unwrap();
        assert_eq!(domain(&["--config", file.path().to_str().unwrap()]), None, "switched off");
        let error = load(&["--no-auth", "--listen", "0.0.0.0:80"]).unwrap_err();
        assert!(error.message.contains("loopback"), "{error}");
        assert!(load(&["--config", "/no/such/file"]).is_err());
    }
}
