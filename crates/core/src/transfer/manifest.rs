//! What an archive says of its sandbox: all that a create needs, but for values that are secret. Their names
//! are told, so that an import can say what is missing.

use crate::{CreateSandbox, Environment};
use atoll_egress::Policy;
use atoll_store::SandboxRecord;
use atoll_types::{
    AutoSnapshot, Error, InstalledSkill, PathRules, Result,
    time::{now_ms, rfc3339},
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The name of the manifest in an archive.
pub(super) const NAME: &str = "atoll.json";
/// The longest manifest: far more than environment, labels and policy may have.
pub(super) const LONGEST: usize = 4 << 20;

const FORMAT: &str = "atoll-sandbox";
const VERSION: u32 = 1;
const MIB: u64 = 1 << 20;

/// Fields that a later release adds are ignored; a change of meaning has another version.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Manifest {
    format: String,
    version: u32,
    /// The release that wrote it.
    atoll: String,
    exported_at: String,
    pub(super) sandbox: ManifestSandbox,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct ManifestSandbox {
    id: String,
    created_at: String,
    image: String,
    profile: String,
    session_key: Option<String>,
    memory_mb: u64,
    cpu_cores: f64,
    disk_mb: u64,
    processes: u32,
    idle_timeout_seconds: u32,
    max_lifetime_seconds: Option<u32>,
    egress: Policy,
    labels: BTreeMap<String, String>,
    /// Absent where an older release wrote it: off.
    #[serde(default)]
    auto_snapshot: Option<String>,
    env_vars: BTreeMap<String, String>,
    /// Absent where an older release wrote it: none.
    #[serde(default)]
    pub(super) skills: Vec<InstalledSkill>,
    /// The names of variables whose values are secret and not here.
    pub(super) secrets: Vec<String>,
}

impl Manifest {
    pub(super) fn of(record: &SandboxRecord, environment: Environment) -> Result<Self> {
        let Environment { variables, secret } = environment;
        let egress = serde_json::from_str(&record.egress).map_err(|e| Error::internal(e.to_string()))?;
        let sandbox = ManifestSandbox {
            id: record.id.uuid().to_string(),
            created_at: rfc3339(record.created_at),
            image: record.image.clone(),
            profile: record.profile.name.clone(),
            session_key: record.session_key.clone(),
            memory_mb: record.limits.memory_bytes / MIB,
            cpu_cores: f64::from(record.limits.cpu_millis) / 1000.0,
            disk_mb: record.limits.disk_bytes / MIB,
            processes: record.limits.processes,
            idle_timeout_seconds: record.idle_timeout_seconds,
            max_lifetime_seconds: record.max_lifetime_seconds,
            egress,
            labels: record.labels.clone(),
            auto_snapshot: Some(record.auto_snapshot.as_str().to_owned()),
            env_vars: variables.into_iter().filter(|(name, _)| !secret.contains(name)).collect(),
            skills: record.skills.clone(),
            secrets: secret.into_iter().collect(),
        };
        Ok(Self {
            format: FORMAT.into(),
            version: VERSION,
            atoll: env!("CARGO_PKG_VERSION").into(),
            exported_at: rfc3339(now_ms()),
            sandbox,
        })
    }

    pub(super) fn parse(json: &[u8]) -> Result<Self> {
        #[derive(Deserialize)]
        struct Kind {
            format: String,
            version: u32,
        }
        let wrong = |message: String| Error::invalid("body", message);
        let unread = |e: serde_json::Error| wrong(format!("{NAME} cannot be read: {e}"));
        let Kind { format, version } = serde_json::from_slice(json).map_err(unread)?;
        if format != FORMAT {
            return Err(wrong(format!("{NAME} says that this is {format:?}, and not {FORMAT:?}")));
        }
        if version != VERSION {
            let message = format!("the archive has version {version}, and this release reads {VERSION}");
            return Err(wrong(message));
        }
        serde_json::from_slice(json).map_err(unread)
    }

    /// The create that makes the sandbox again, and the secrets that it lacks. The session key stays behind: a
    /// create with it could find another sandbox.
    pub(super) fn request(self) -> Result<(CreateSandbox, Vec<String>)> {
        let ManifestSandbox {
            id: _,
            created_at: _,
            image,
            profile,
            session_key: _,
            memory_mb,
            cpu_cores,
            disk_mb,
            processes,
            idle_timeout_seconds,
            max_lifetime_seconds,
            egress,
            labels,
            auto_snapshot,
            env_vars,
            skills: _,
            secrets,
        } = self.sandbox;
        let auto_snapshot = auto_snapshot.map_or(Ok(AutoSnapshot::default()), |name| {
            let unknown = || Error::invalid("body", format!("{NAME} has the auto_snapshot {name:?}"));
            AutoSnapshot::from_name(&name).ok_or_else(unknown)
        })?;
        let request = CreateSandbox {
            image: Some(image),
            profile: Some(profile),
            idle_timeout_seconds: Some(idle_timeout_seconds),
            max_lifetime_seconds,
            memory_mb: Some(memory_mb),
            cpu_cores: Some(cpu_cores),
            disk_mb: Some(disk_mb),
            processes: Some(processes),
            env_vars,
            secrets: BTreeMap::new(),
            network_enabled: None,
            egress: Some(egress),
            session_key: None,
            labels,
            auto_snapshot,
            dependencies: BTreeMap::new(),
            volumes: Vec::new(),
            tenant_id: None,
            filesystem: PathRules::default(),
        };
        Ok((request, secrets))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_version_of_this_format_is_read() {
        let refused = |json: &str| Manifest::parse(json.as_bytes()).unwrap_err().message;
        assert!(refused(r#"{"format":"zip","version":1}"#).contains("zip"));
        assert!(refused(r#"{"format":"atoll-sandbox","version":2}"#).contains("version 2"));
        assert!(refused(r#"{"format":"atoll-sandbox","version":1}"#).contains("missing field"));
        assert!(refused("{").contains(NAME) && refused("[]").contains(NAME) && refused("").contains(NAME));
    }

    #[test]
    fn what_another_release_writes_less_or_more_is_read() {
        let parsed = |more: &str| {
            let sandbox = format!(
                r#"{{"id":"","created_at":"","image":"host","profile":"default","session_key":null,
                "memory_mb":1,"cpu_cores":1.0,"disk_mb":1,"processes":1,"idle_timeout_seconds":1,
                "max_lifetime_seconds":null,"egress":{},"labels":{{}},"env_vars":{{}},"secrets":[]{more}}}"#,
                serde_json::to_string(&Policy::default()).unwrap()
            );
            let json = format!(
                r#"{{"format":"atoll-sandbox","version":1,"atoll":"","exported_at":"","sandbox":{sandbox}}}"#
            );
            Manifest::parse(json.as_bytes()).and_then(Manifest::request)
        };
        assert_eq!(parsed("").unwrap().0.auto_snapshot, AutoSnapshot::Off);
        let (request, _) =
            parsed(r#","auto_snapshot":"before_exec","filesystem":{"blocked":["/workspace/x"]}"#).unwrap();
        assert_eq!(request.auto_snapshot, AutoSnapshot::BeforeExec);
        assert!(request.filesystem.is_empty());
        assert!(parsed(r#","auto_snapshot":"never""#).unwrap_err().message.contains("never"));
    }
}
