//! What an archive says of its sandbox: all that a create needs, but for values that are secret. Their names
//! are told, so that an import can say what is missing.

use crate::{CreateSandbox, Environment, bounds::SNAPSHOT_LABEL, sandboxes::own_labels};
use atoll_egress::Policy;
use atoll_store::SandboxRecord;
use atoll_types::{
    AutoSnapshot, Error, InstalledSkill, PathRules, Profile, Result, RootMode, SnapshotId, SnapshotKind,
    SnapshotRecord, VolumeMount,
    time::{now_ms, parse_rfc3339, rfc3339},
};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, path::Path};

/// The name of the manifest in an archive.
pub(super) const NAME: &str = "atoll.json";
/// The longest manifest: far more than environment, labels and policy may have.
pub(super) const LONGEST: usize = 4 << 20;

const FORMAT: &str = "atoll-sandbox";
/// That of an archive without snapshots, which every release reads.
const VERSION: u32 = 1;
const WITH_SNAPSHOTS: u32 = 2;
/// That of an archive with path rules, which a release that does not know them must not leave out.
const WITH_RULES: u32 = 3;
const MIB: u64 = 1 << 20;
/// What is shown of the path of one volume.
const LONGEST_PLACE: usize = 100;
/// The longest id of what a snapshot was made before.
const LONGEST_ID: usize = 100;

/// Fields that a later release adds are ignored; a change of meaning has another version.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Manifest {
    format: String,
    version: u32,
    /// The release that wrote it.
    atoll: String,
    exported_at: String,
    pub(super) sandbox: ManifestSandbox,
    /// The newest first, each a part of the archive.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) snapshots: Vec<ManifestSnapshot>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct ManifestSnapshot {
    id: String,
    kind: String,
    label: Option<String>,
    made_before: Option<String>,
    created_at: String,
    /// Whether variables of kernels were kept with it: they are processes, and not in an archive.
    #[serde(default)]
    pub(super) kernels: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct ManifestSandbox {
    id: String,
    created_at: String,
    pub(super) image: String,
    /// That of the image's record, since another server may have another image of this name. Absent where it was `host`, or where an
    /// older release wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) image_digest: Option<String>,
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
    /// Absent where there are none, and where an older release wrote it.
    #[serde(default, skip_serializing_if = "PathRules::is_empty")]
    pub(super) filesystem: PathRules,
    /// The same. Their files are in no archive, and an import attaches the importer's own of these names where it is asked to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) volumes: Vec<ManifestVolume>,
    /// Absent where an older release wrote it: not known.
    #[serde(default)]
    pub(super) left_out: Vec<String>,
}

/// A volume that the sandbox had.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ManifestVolume {
    pub(super) name: String,
    pub(super) path: String,
    #[serde(default)]
    pub(super) read_only: bool,
}

impl ManifestVolume {
    fn of(mount: &VolumeMount) -> Self {
        let VolumeMount { name, volume: _, path, read_only, whole: _ } = mount;
        Self { name: name.to_string(), path: path.clone(), read_only: *read_only }
    }

    /// As people are told of it.
    pub(super) fn shown(&self) -> String {
        let only = if self.read_only { ", read-only" } else { "" };
        format!("the volume {} at {:.LONGEST_PLACE$}{only}", self.name, self.path)
    }
}

/// What belongs to a sandbox and is not in its archive, for people.
pub(super) fn left_out(profile: &Profile) -> Vec<String> {
    let mut all = Vec::new();
    if profile.root == RootMode::Writable {
        let name = &profile.name;
        all.push(format!("what the profile {name} let it change outside of /workspace and its home"));
    }
    all.extend(profile.volumes.iter().map(|mount| ManifestVolume::of(mount).shown()));
    let outside = |(path, _): (&str, _)| {
        ["/workspace", profile.home()].iter().all(|own| !Path::new(path).starts_with(own))
    };
    if profile.paths.iter().any(outside) {
        all.push("what is kept for paths with a rule outside of /workspace and the home".into());
    }
    all
}

impl Manifest {
    pub(super) fn of(
        record: &SandboxRecord,
        image_digest: Option<String>,
        environment: Environment,
        snapshots: &[SnapshotRecord],
    ) -> Result<Self> {
        let Environment { variables, secret } = environment;
        let egress = serde_json::from_str(&record.egress).map_err(|e| Error::internal(e.to_string()))?;
        let sandbox = ManifestSandbox {
            id: record.id.uuid().to_string(),
            created_at: rfc3339(record.created_at),
            image: record.image.clone(),
            image_digest,
            profile: record.profile.name.clone(),
            session_key: record.session_key.clone(),
            memory_mb: record.limits.memory_bytes / MIB,
            cpu_cores: f64::from(record.limits.cpu_millis) / 1000.0,
            disk_mb: record.limits.disk_bytes / MIB,
            processes: record.limits.processes,
            idle_timeout_seconds: record.idle_timeout_seconds,
            max_lifetime_seconds: record.max_lifetime_seconds,
            egress,
            labels: own_labels(&record.labels),
            auto_snapshot: Some(record.auto_snapshot.as_str().to_owned()),
            env_vars: variables.into_iter().filter(|(name, _)| !secret.contains(name)).collect(),
            skills: record.skills.clone(),
            secrets: secret.into_iter().collect(),
            filesystem: record.profile.paths.clone(),
            volumes: record.profile.volumes.iter().map(ManifestVolume::of).collect(),
            left_out: left_out(&record.profile),
        };
        let version = match (sandbox.filesystem.is_empty(), snapshots.is_empty()) {
            (false, _) => WITH_RULES,
            (true, false) => WITH_SNAPSHOTS,
            (true, true) => VERSION,
        };
        Ok(Self {
            format: FORMAT.into(),
            version,
            atoll: env!("CARGO_PKG_VERSION").into(),
            exported_at: rfc3339(now_ms()),
            sandbox,
            snapshots: snapshots.iter().map(ManifestSnapshot::of).collect(),
        })
    }

    /// The text, which an import would refuse where it is too long.
    pub(super) fn json(&self) -> Result<Vec<u8>> {
        let json = serde_json::to_vec_pretty(self).map_err(|e| Error::internal(e.to_string()))?;
        if json.len() <= LONGEST { Ok(json) } else { Err(Error::internal("the manifest is too long")) }
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
        if !(VERSION..=WITH_RULES).contains(&version) {
            let message = format!(
                "the archive has version {version}, and this release reads {VERSION} to {WITH_RULES}"
            );
            return Err(wrong(message));
        }
        let mut manifest: Self = serde_json::from_slice(json).map_err(unread)?;
        if version == VERSION {
            manifest.snapshots.clear();
        }
        Ok(manifest)
    }

    /// The records of the snapshots, which have new ids, the newest first.
    pub(super) fn snapshot_records(&self, record: &SandboxRecord) -> Result<Vec<SnapshotRecord>> {
        let ids: BTreeMap<&str, SnapshotId> =
            self.snapshots.iter().map(|snapshot| (snapshot.id.as_str(), SnapshotId::random())).collect();
        if ids.len() < self.snapshots.len() {
            return Err(Error::invalid("body", format!("{NAME} has a snapshot twice")));
        }
        self.snapshots.iter().map(|snapshot| snapshot.record(record, &ids)).collect()
    }

    /// The create that makes the sandbox again, and the secrets that it lacks. The session key stays behind: a
    /// create with it could find another sandbox.
    pub(super) fn request(self) -> Result<(CreateSandbox, Vec<String>)> {
        let ManifestSandbox {
            id: _,
            created_at: _,
            image,
            image_digest: _,
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
            filesystem: _,
            volumes: _,
            left_out: _,
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
            // An older release exported labels that a front finds its own sandboxes by.
            labels: own_labels(&labels),
            auto_snapshot,
            dependencies: BTreeMap::new(),
            volumes: Vec::new(),
            tenant_id: None,
            // They would bind the import itself, so they come last.
            filesystem: PathRules::default(),
            runtime: None,
            approved_image: false,
        };
        Ok((request, secrets))
    }
}

impl ManifestSnapshot {
    fn of(record: &SnapshotRecord) -> Self {
        Self {
            id: record.id.to_string(),
            kind: record.kind.as_str().to_owned(),
            label: record.label.clone(),
            made_before: record.made_before.clone(),
            created_at: rfc3339(record.created_at),
            kernels: record.kernels.is_some(),
        }
    }

    /// Of a snapshot that was made before a rollback, the one that it was rolled back to has another id too.
    fn record(&self, sandbox: &SandboxRecord, ids: &BTreeMap<&str, SnapshotId>) -> Result<SnapshotRecord> {
        let wrong = |what: &str, value: &str| {
            Error::invalid("body", format!("{NAME} has a snapshot with the {what} {value:?}"))
        };
        let Self { id, kind, label, made_before, created_at, kernels: _ } = self;
        label.as_deref().map_or(Ok(()), |label| SNAPSHOT_LABEL.check("body", label))?;
        if made_before.as_ref().is_some_and(|before| before.len() > LONGEST_ID) {
            return Err(wrong("id", id));
        }
        let new =
            |before: &String| ids.get(before.as_str()).map_or_else(|| before.clone(), ToString::to_string);
        let time = parse_rfc3339(created_at).filter(|time| *time > 0);
        Ok(SnapshotRecord {
            id: ids.get(id.as_str()).copied().ok_or_else(|| wrong("id", id))?,
            sandbox: sandbox.id,
            owner: sandbox.owner.clone(),
            kind: SnapshotKind::from_name(kind).ok_or_else(|| wrong("kind", kind))?,
            label: label.clone(),
            made_before: made_before.as_ref().map(new),
            // Another machine's clock may be ahead of this one's.
            created_at: time.ok_or_else(|| wrong("time", created_at))?.min(now_ms()),
            size_bytes: 0,
            kernels: None,
            skills: None,
            ready: false,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_version_of_this_format_is_read() {
        let refused = |json: &str| Manifest::parse(json.as_bytes()).unwrap_err().message;
        assert!(refused(r#"{"format":"zip","version":1}"#).contains("zip"));
        assert!(refused(r#"{"format":"atoll-sandbox","version":4}"#).contains("version 4"));
        assert!(refused(r#"{"format":"atoll-sandbox","version":1}"#).contains("missing field"));
        assert!(refused("{").contains(NAME) && refused("[]").contains(NAME) && refused("").contains(NAME));
    }

    #[test]
    fn what_another_release_writes_less_or_more_is_read() {
        let parsed = |more: &str| {
            let sandbox = format!(
                r#"{{"id":"","created_at":"","image":"host","profile":"default","session_key":null,
                "memory_mb":1,"cpu_cores":1.0,"disk_mb":1,"processes":1,"idle_timeout_seconds":1,
                "max_lifetime_seconds":null,"egress":{},"labels":{{"a":"1","sandbox-api.scope":"agent","atoll.x":"2"}},"env_vars":{{}},"secrets":[]{more}}}"#,
                serde_json::to_string(&Policy::default()).unwrap()
            );
            let json = format!(
                r#"{{"format":"atoll-sandbox","version":1,"atoll":"","exported_at":"","sandbox":{sandbox}}}"#
            );
            Manifest::parse(json.as_bytes())
        };
        let asked = |more: &str| parsed(more).and_then(Manifest::request);
        assert_eq!(asked("").unwrap().0.auto_snapshot, AutoSnapshot::Off);
        let old = parsed("").unwrap().sandbox;
        assert!(old.filesystem.is_empty() && old.volumes.is_empty());
        let more = r#","auto_snapshot":"before_exec","filesystem":{"blocked":["/workspace/x"]},
            "volumes":[{"name":"data","path":"/data","read_only":true}],"later":1"#;
        let (request, _) = asked(more).unwrap();
        assert_eq!(request.auto_snapshot, AutoSnapshot::BeforeExec);
        // The rules do not bind the import itself.
        assert!(request.filesystem.is_empty() && request.volumes.is_empty());
        let ManifestSandbox { filesystem, volumes, .. } = parsed(more).unwrap().sandbox;
        assert_eq!(filesystem.blocked, ["/workspace/x"]);
        assert_eq!(volumes[0].shown(), "the volume data at /data, read-only");
        assert_eq!(request.labels, BTreeMap::from([("a".to_owned(), "1".to_owned())]));
        assert!(asked(r#","auto_snapshot":"never""#).unwrap_err().message.contains("never"));
    }
}
