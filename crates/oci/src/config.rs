//! An image's configuration: what a command in it begins with. Values come from an image's author and are checked
//! before the server keeps them.

use crate::{Digest, LARGEST_DOCUMENT, MOST_LAYERS, Platform};
use atoll_types::{Error, ErrorCode, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Most variables, arguments, labels, ports or volumes.
const MOST: usize = 1024;
/// The longest of their texts.
const LONGEST: usize = 64 << 10;
const LONGEST_PATH: usize = 4095;

/// What an image says about itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ImageConfig {
    /// What it is for.
    pub platform: Platform,
    /// When it was made, as its author wrote it.
    #[serde(default)]
    pub created: Option<String>,
    /// The user of its commands: a name or an id, with or without a group; empty is root.
    #[serde(default)]
    pub user: String,
    /// Variables.
    #[serde(default)]
    pub env: Vec<(String, String)>,
    /// What comes before the arguments.
    #[serde(default)]
    pub entrypoint: Vec<String>,
    /// The arguments where none are given.
    #[serde(default)]
    pub cmd: Vec<String>,
    /// The folder of its commands, absolute; empty is `/`.
    #[serde(default)]
    pub working_dir: String,
    /// Labels.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Ports: `8080/tcp`.
    #[serde(default)]
    pub exposed_ports: Vec<String>,
    /// Folders whose files are not the image's.
    #[serde(default)]
    pub volumes: Vec<String>,
    /// The signal that ends it.
    #[serde(default)]
    pub stop_signal: Option<String>,
    /// Digests of its uncompressed layers, the lowest first.
    #[serde(default)]
    pub diff_ids: Vec<Digest>,
}

impl Default for ImageConfig {
    fn default() -> Self {
        Self {
            platform: Platform::this(),
            created: None,
            user: String::new(),
            env: Vec::new(),
            entrypoint: Vec::new(),
            cmd: Vec::new(),
            working_dir: String::new(),
            labels: BTreeMap::new(),
            exposed_ports: Vec::new(),
            volumes: Vec::new(),
            stop_signal: None,
            diff_ids: Vec::new(),
        }
    }
}

/// The document. Docker writes `null` in the place of what is empty.
#[derive(Serialize, Deserialize)]
struct Document {
    architecture: String,
    os: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    variant: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    created: Option<String>,
    #[serde(default)]
    config: Option<Inner>,
    rootfs: RootFs,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Inner {
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    env: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    entrypoint: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cmd: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    working_dir: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    labels: Option<BTreeMap<String, String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    exposed_ports: Option<BTreeMap<String, serde_json::Value>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    volumes: Option<BTreeMap<String, serde_json::Value>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stop_signal: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct RootFs {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    diff_ids: Option<Vec<Digest>>,
}

fn wrong(message: impl Into<String>) -> Error {
    Error::invalid("config", message)
}

fn checked(what: &str, text: &str) -> Result<()> {
    if text.len() > LONGEST || text.contains('\0') {
        return Err(wrong(format!("the image's {what} has a NUL or more than {LONGEST} bytes")));
    }
    Ok(())
}

fn checked_all<'a>(what: &str, texts: impl ExactSizeIterator<Item = &'a String>) -> Result<()> {
    if texts.len() > MOST {
        return Err(wrong(format!("the image's {what} has more than {MOST} values")));
    }
    texts.into_iter().try_for_each(|text| checked(what, text))
}

impl ImageConfig {
    /// Reads the document of a registry or an archive.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        if bytes.len() as u64 > LARGEST_DOCUMENT {
            return Err(wrong(format!("the image's configuration has more than {LARGEST_DOCUMENT} bytes")));
        }
        let document: Document = serde_json::from_slice(bytes)
            .map_err(|e| wrong(format!("the image's configuration cannot be read: {e}")))?;
        let Document { architecture, os, variant, created, config, rootfs } = document;
        if rootfs.kind != "layers" {
            let message =
                format!("the image's root filesystem is of type {:?}, and only layers are read", rootfs.kind);
            return Err(Error::new(ErrorCode::Unsupported, message));
        }
        let inner = config.unwrap_or_default();
        let env = inner.env.unwrap_or_default().into_iter().map(|variable| match variable.split_once('=') {
            Some((name, value)) => (name.to_owned(), value.to_owned()),
            None => (variable, String::new()),
        });
        let config = Self {
            platform: Platform { architecture, os, variant: variant.filter(|v| !v.is_empty()) },
            created,
            user: inner.user.unwrap_or_default(),
            env: env.collect(),
            entrypoint: inner.entrypoint.unwrap_or_default(),
            cmd: inner.cmd.unwrap_or_default(),
            working_dir: inner.working_dir.unwrap_or_default(),
            labels: inner.labels.unwrap_or_default(),
            exposed_ports: inner.exposed_ports.unwrap_or_default().into_keys().collect(),
            volumes: inner.volumes.unwrap_or_default().into_keys().collect(),
            stop_signal: inner.stop_signal.filter(|signal| !signal.is_empty()),
            diff_ids: rootfs.diff_ids.unwrap_or_default(),
        };
        config.check()?;
        Ok(config)
    }

    /// Refuses values that no command could begin with.
    pub fn check(&self) -> Result<()> {
        checked_all("user", [&self.user].into_iter())?;
        if self.user.contains(['\n', '/']) || self.user.len() > 256 {
            return Err(wrong("the image's user is no name and no id"));
        }
        let names: Vec<&String> = self.env.iter().map(|(name, _)| name).collect();
        checked_all("environment", names.iter().copied())?;
        checked_all("environment", self.env.iter().map(|(_, value)| value))?;
        if names.iter().any(|name| name.is_empty() || name.contains('=')) {
            return Err(wrong("the image's environment has a variable without a name"));
        }
        checked_all("entry point", self.entrypoint.iter())?;
        checked_all("command", self.cmd.iter())?;
        checked_all("labels", self.labels.keys())?;
        checked_all("labels", self.labels.values())?;
        checked_all("ports", self.exposed_ports.iter())?;
        checked_all("volumes", self.volumes.iter())?;
        checked_all("stop signal", self.stop_signal.iter().collect::<Vec<_>>().into_iter())?;
        checked("working directory", &self.working_dir)?;
        let folder = self.working_dir.as_str();
        let climbs = folder.split('/').any(|part| part == "..");
        if !folder.is_empty() && (!folder.starts_with('/') || climbs || folder.len() > LONGEST_PATH) {
            return Err(wrong("the image's working directory must be absolute and without '..'"));
        }
        if self.diff_ids.len() > MOST_LAYERS {
            return Err(wrong(format!("the image has more than {MOST_LAYERS} layers")));
        }
        Ok(())
    }

    /// The document, always the same of the same values.
    pub fn to_document(&self) -> Result<Vec<u8>> {
        fn some<T>(values: Vec<T>) -> Option<Vec<T>> {
            (!values.is_empty()).then_some(values)
        }
        fn keys(names: &[String]) -> Option<BTreeMap<String, serde_json::Value>> {
            let empty = || serde_json::Value::Object(serde_json::Map::new());
            (!names.is_empty()).then(|| names.iter().map(|name| (name.clone(), empty())).collect())
        }
        let text = |text: &String| (!text.is_empty()).then(|| text.clone());
        let Self {
            platform,
            created,
            user,
            env,
            entrypoint,
            cmd,
            working_dir,
            labels,
            exposed_ports,
            volumes,
            stop_signal,
            diff_ids,
        } = self;
        let document = Document {
            architecture: platform.architecture.clone(),
            os: platform.os.clone(),
            variant: platform.variant.clone(),
            created: created.clone(),
            config: Some(Inner {
                user: text(user),
                env: some(env.iter().map(|(name, value)| format!("{name}={value}")).collect()),
                entrypoint: some(entrypoint.clone()),
                cmd: some(cmd.clone()),
                working_dir: text(working_dir),
                labels: (!labels.is_empty()).then(|| labels.clone()),
                exposed_ports: keys(exposed_ports),
                volumes: keys(volumes),
                stop_signal: stop_signal.clone(),
            }),
            rootfs: RootFs { kind: "layers".into(), diff_ids: Some(diff_ids.clone()) },
        };
        serde_json::to_vec(&document).map_err(|e| Error::internal(e.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn parse(config: serde_json::Value) -> Result<ImageConfig> {
        let document = json!({"architecture": "amd64", "os": "linux", "config": config,
            "rootfs": {"type": "layers", "diff_ids": [Digest::of(b"x")]}, "history": [{"created_by": "x"}]});
        ImageConfig::parse(document.to_string().as_bytes())
    }

    #[test]
    fn what_docker_writes_is_read_and_written_again() {
        let config = parse(json!({
            "User": "1000:1000", "Env": ["PATH=/bin", "A=b=c", "EMPTY"], "Entrypoint": ["/entry", "x"], "Cmd": null,
            "WorkingDir": "/app", "Labels": {"a": "b"}, "ExposedPorts": {"80/tcp": {}}, "Volumes": null,
            "Hostname": "", "OnBuild": null, "StopSignal": "SIGTERM"
        }))
        .unwrap();
        assert_eq!(config.env[1], ("A".into(), "b=c".into()));
        assert_eq!(config.env[2], ("EMPTY".into(), String::new()));
        assert_eq!((config.cmd.len(), config.exposed_ports.as_slice()), (0, &["80/tcp".to_owned()][..]));
        assert_eq!(ImageConfig::parse(&config.to_document().unwrap()).unwrap(), config);
        assert_eq!(parse(serde_json::Value::Null).unwrap().env, []);
    }

    #[test]
    fn values_that_no_command_could_begin_with_are_refused() {
        for (bad, why) in [
            (json!({"WorkingDir": "app"}), "absolute"),
            (json!({"WorkingDir": "/a/../.."}), "absolute"),
            (json!({"Env": ["=x"]}), "without a name"),
            (json!({"Env": ["A=\u{0}"]}), "NUL"),
            (json!({"Cmd": ["x".repeat(LONGEST + 1)]}), "more than"),
            (json!({"Entrypoint": vec!["x"; MOST + 1]}), "more than"),
            (json!({"User": "../../etc"}), "no name"),
            (json!({"User": 7}), "cannot be read"),
        ] {
            let message = parse(bad).unwrap_err().message;
            assert!(message.contains(why), "{message}");
        }
    }
}
