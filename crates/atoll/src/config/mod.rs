//! The configuration: a TOML file, overridden by variables, overridden by flags. Every key of the file has a
//! variable of its name: `listen` is `ATOLL_LISTEN`, `images.aliases` is `ATOLL_IMAGES_ALIASES` (as
//! `name=image`, separated by commas).

mod agent;
pub(crate) mod database;
mod egress;
pub(crate) mod env_file;
mod grpc;
mod langgraph;
mod limits;
mod mcp;
mod tools;

use crate::cli;
use atoll_agent::AgentSettings;
use atoll_core::{CoreSettings, RegistrySettings, SigningKey};
use atoll_front_mcp::McpSettings;
use atoll_front_rest::PreviewSettings;
use atoll_types::{Error, Result};
pub(crate) use database::DatabaseConfig;
pub(crate) use egress::EgressConfig;
pub(crate) use grpc::{GrpcConfig, GrpcListen};
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
    database_url: Option<HiddenUrl>,
    database_password_file: Option<PathBuf>,
    images: Images,
    preview: Preview,
    metrics: Metrics,
    launcher: Launcher,
    agent: agent::File,
    egress: egress::File,
    grpc: grpc::File,
    langgraph: langgraph::File,
    mcp: mcp::File,
    tools: tools::File,
    tiers: BTreeMap<String, limits::TierFile>,
    settings: toml::Table,
}

/// It may hold a password.
#[derive(Deserialize)]
struct HiddenUrl(String);

impl std::fmt::Debug for HiddenUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("HiddenUrl(..)")
    }
}

/// The line and the key of what stands at this byte of the configuration. Not its value, which may be a password.
fn place(text: &str, at: usize) -> String {
    let before = text.get(..at).unwrap_or(text);
    let number = before.matches('\n').count();
    let plain = |key: &&str| key.bytes().all(|b| b.is_ascii_alphanumeric() || b"_.-".contains(&b));
    let key = text.lines().nth(number).and_then(|line| line.split_once('=')).map(|(key, _)| key.trim());
    let key = key.filter(plain).map(|key| format!(" ({key})")).unwrap_or_default();
    format!("line {}{key}: ", number + 1)
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Images {
    default: Option<String>,
    aliases: BTreeMap<String, String>,
    insecure_registries: Vec<String>,
    private_registries: Vec<String>,
    registry_companions: BTreeMap<String, Vec<String>>,
    registry_auth_file: Option<PathBuf>,
}

/// Hosts separated by commas, or those of the file.
fn hosts(name: &str, file: Vec<String>) -> Vec<String> {
    let named = variable(name).map(|text| text.split(',').map(|host| host.trim().to_owned()).collect());
    named.unwrap_or(file)
}

impl Images {
    fn registries(self) -> Result<RegistrySettings> {
        const COMPANIONS: &str = "ATOLL_IMAGES_REGISTRY_COMPANIONS";
        let companions =
            variable(COMPANIONS).map(|text| serde_json::from_str(&text).map_err(|e| wrong(COMPANIONS, e)));
        let settings = RegistrySettings {
            insecure: hosts("ATOLL_IMAGES_INSECURE_REGISTRIES", self.insecure_registries),
            private: hosts("ATOLL_IMAGES_PRIVATE_REGISTRIES", self.private_registries),
            companions: companions.transpose()?.unwrap_or(self.registry_companions),
            auth_file: variable("ATOLL_IMAGES_REGISTRY_AUTH_FILE")
                .map(PathBuf::from)
                .or(self.registry_auth_file),
        };
        let pairs = settings.companions.iter().flat_map(|(of, to)| to.iter().chain([of]));
        if let Some(host) = pairs.into_iter().find(|host| !host.contains(':')) {
            let why = format!("{host:?} needs its port, such as {host}:443");
            return Err(wrong("images.registry_companions", why));
        }
        Ok(settings)
    }
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
    pub(crate) database: DatabaseConfig,
    /// How long the launcher may take to answer.
    pub(crate) launcher_patience: Option<Duration>,
    pub(crate) core: CoreSettings,
    pub(crate) preview: PreviewSettings,
    pub(crate) agent: AgentSettings,
    pub(crate) egress: EgressConfig,
    pub(crate) grpc: GrpcConfig,
    /// A second address for clients of the LangGraph API.
    pub(crate) langgraph_listen: Option<SocketAddr>,
    pub(crate) mcp: McpSettings,
    pub(crate) tools: ToolsConfig,
}

fn wrong(what: &str, why: impl std::fmt::Display) -> Error {
    Error::invalid(what, format!("{what}: {why}"))
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().or_else(|| env_file::variable(name)).filter(|v| !v.is_empty())
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
                toml::from_str(&text).map_err(|e: toml::de::Error| {
                    let at = e.span().map(|span| place(&text, span.start)).unwrap_or_default();
                    wrong(&path.display().to_string(), format!("{at}{}", e.message()))
                })?
            }
        };
        let File {
            listen,
            data_dir,
            user,
            no_auth,
            database_url,
            database_password_file,
            images,
            preview,
            metrics,
            launcher,
            agent,
            egress,
            grpc,
            langgraph,
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
        core.aliases.extend(images.aliases.clone());
        core.aliases.extend(alias_pairs(&variable("ATOLL_IMAGES_ALIASES").unwrap_or_default())?);
        if let Some(image) = variable("ATOLL_IMAGES_DEFAULT").or(images.default.clone()) {
            core.default_image = image;
        }
        core.registries = images.registries()?;
        core.metrics_interval_seconds = metrics.interval()?.unwrap_or(core.metrics_interval_seconds);
        core.egress_signing_key = variable("SIGNING_KEY")
            .map(|key| SigningKey::new(key.into_bytes()).map_err(|e| wrong("SIGNING_KEY", e.message)))
            .transpose()?;
        let usual = SocketAddr::from((Ipv4Addr::LOCALHOST, 7300));
        let listen = options.listen.or(listen).unwrap_or(usual);
        let tools = tools.settings()?;
        let config = Self {
            listen,
            data_dir: options
                .data
                .named()
                .or_else(|| variable("STORAGE_PATH").or_else(|| variable("STORAGE_DIR")).map(PathBuf::from))
                .or(data_dir)
                .unwrap_or_else(cli::default_data_dir),
            user: options.user.clone().or(user),
            no_auth: options.no_auth || no_auth.unwrap_or(false),
            database: database::File { url: database_url, password_file: database_password_file }
                .settings()?,
            launcher_patience: launcher.patience()?,
            core,
            preview: preview.settings(listen)?,
            agent: agent.settings(tools.server_url.clone())?,
            egress: egress.settings()?,
            grpc: grpc.settings()?,
            langgraph_listen: langgraph.listen()?,
            mcp: mcp.settings()?,
            tools,
        };
        if config.no_auth && !config.listen.ip().is_loopback() {
            return Err(wrong("no_auth", "without keys the server listens on a loopback address only"));
        }
        if config.no_auth && config.grpc.listen.is_some_and(|grpc| !grpc.address.ip().is_loopback()) {
            return Err(wrong("grpc.listen", "without keys the server listens on a loopback address only"));
        }
        if config.no_auth && config.langgraph_listen.is_some_and(|address| !address.ip().is_loopback()) {
            let why = "without keys the server listens on a loopback address only";
            return Err(wrong("langgraph.listen", why));
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
    fn a_mistake_names_its_line_and_its_key_and_shows_no_value() {
        let text = "user = \"x\"\ndatabase_url = 7\n[egress]\ndeny = [\n  \"secret=1\",\n]\n";
        let told = |of: &str| place(text, text.find(of).unwrap());
        assert_eq!(told("7"), "line 2 (database_url): ");
        assert_eq!(told("[\n"), "line 4 (deny): ");
        assert_eq!(told("\"secret"), "line 5: ");
        assert_eq!(place(text, text.len() + 1), "line 7: ");
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
