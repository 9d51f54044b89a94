//! Sessions made of another one, and volumes that outlive every session. A volume is attached when a session is made, so there is a
//! tool that makes a session with volumes beside create_session, which stays as it is.

use super::{Extra, ExtraTool, json_of, nothing, schema};
use crate::tools::tool;
use atoll_core::{AttachVolume, NewVolume};
use atoll_tool_sessions::{
    Hints, SessionStorage, ToolCaller, ToolReply,
    tools::{
        check::{Checked, InputProblem, parse},
        input::{CreateSession, Runtime},
        output::SessionCreated,
    },
};
use atoll_types::{AutoSnapshot, Error, ErrorCode, PathRules, Result, SnapshotId, VolumeRecord};
use rmcp::model::Tool;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// What fork_session wants.
#[derive(Debug, Deserialize, JsonSchema)]
struct ForkSession {
    /// The session whose files the new one begins with, as create_session returned it.
    session_id: String,
    /// A snapshot of that session, as create_snapshot or list_snapshots returned it; its files as they are now where left
    /// out.
    snapshot_id: Option<String>,
}

/// What create_volume wants.
#[derive(Debug, Deserialize, JsonSchema)]
struct CreateVolume {
    /// Lower-case letters, digits, `.`, `_` and `-`.
    name: String,
    /// What it may hold, in mebibytes; as much as a session's disk where left out.
    disk_mb: Option<u64>,
}

/// What list_volumes wants.
#[derive(Debug, Deserialize, JsonSchema)]
struct ListVolumes {}

/// What delete_volume wants.
#[derive(Debug, Deserialize, JsonSchema)]
struct DeleteVolume {
    /// The volume, as list_volumes names it.
    name: String,
}

/// What resize_volume wants.
#[derive(Debug, Deserialize, JsonSchema)]
struct ResizeVolume {
    /// The volume, as list_volumes names it.
    name: String,
    /// What it may hold from now on, in mebibytes; never less than what is in it.
    disk_mb: u64,
}

/// A volume in a session.
#[derive(Debug, Deserialize, JsonSchema)]
struct MountedVolume {
    /// The volume, as list_volumes names it.
    name: String,
    /// Where its files appear, such as /mnt/data.
    path: String,
    /// Whether the session may only read it; false where left out.
    #[serde(default)]
    read_only: bool,
}

/// What create_session_with_volumes wants.
#[derive(Debug, Deserialize, JsonSchema)]
struct CreateWithVolumes {
    /// The language of the session: python (IPython), node (Node.js) or r.
    #[serde(default)]
    language: Runtime,
    /// Packages to install before the session is ready, by name, with their versions; an empty version is the latest one.
    #[serde(default)]
    dependencies: BTreeMap<String, String>,
    /// The volumes, 16 at most.
    #[serde(default)]
    volumes: Vec<MountedVolume>,
    /// Of whom the storage at /mnt/user-data is, which outlives every session.
    tenant_id: Option<String>,
    /// Paths that code and commands only read.
    #[serde(default)]
    read_only: Vec<String>,
    /// Paths that they write, also below one that is read-only.
    #[serde(default)]
    read_write: Vec<String>,
    /// Paths whose content they do not see.
    #[serde(default)]
    blocked: Vec<String>,
    /// Whether a snapshot is made by itself before each command (before_exec) or before code runs (before_run); off where left out.
    #[serde(default)]
    auto_snapshot: AutoSnapshotOf,
}

/// Before what a snapshot is made by itself.
#[derive(Debug, Default, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum AutoSnapshotOf {
    #[default]
    Off,
    BeforeExec,
    BeforeRun,
}

impl From<AutoSnapshotOf> for AutoSnapshot {
    fn from(of: AutoSnapshotOf) -> Self {
        match of {
            AutoSnapshotOf::Off => Self::Off,
            AutoSnapshotOf::BeforeExec => Self::BeforeExec,
            AutoSnapshotOf::BeforeRun => Self::BeforeRun,
        }
    }
}

/// A volume.
#[derive(Debug, Serialize, JsonSchema)]
struct VolumeInfo {
    name: String,
    /// What it may hold, in mebibytes.
    disk_mb: u64,
    /// When it was made, in milliseconds since 1970.
    created_at: i64,
}

impl From<VolumeRecord> for VolumeInfo {
    fn from(record: VolumeRecord) -> Self {
        let VolumeRecord { name, disk_bytes, created_at, .. } = record;
        Self { name: name.to_string(), disk_mb: disk_bytes >> 20, created_at }
    }
}

/// A volume that was made.
#[derive(Debug, Serialize, JsonSchema)]
struct VolumeReply {
    success: bool,
    volume: VolumeInfo,
}

/// The caller's volumes.
#[derive(Debug, Serialize, JsonSchema)]
struct VolumeList {
    success: bool,
    /// By name, 100 at most.
    volumes: Vec<VolumeInfo>,
    /// How many there are.
    total: usize,
}

/// A volume that was deleted.
#[derive(Debug, Serialize, JsonSchema)]
struct VolumeGone {
    success: bool,
}

/// The most volumes in one answer.
const MOST_VOLUMES: usize = 100;

impl Checked for ForkSession {
    fn wrongs(&self) -> Vec<InputProblem> {
        nothing(&self.session_id, "session_id").into_iter().collect()
    }
}

impl Checked for CreateVolume {
    fn wrongs(&self) -> Vec<InputProblem> {
        nothing(&self.name, "name").into_iter().collect()
    }
}

impl Checked for ListVolumes {
    fn wrongs(&self) -> Vec<InputProblem> {
        Vec::new()
    }
}

impl Checked for DeleteVolume {
    fn wrongs(&self) -> Vec<InputProblem> {
        nothing(&self.name, "name").into_iter().collect()
    }
}

impl Checked for ResizeVolume {
    fn wrongs(&self) -> Vec<InputProblem> {
        nothing(&self.name, "name").into_iter().collect()
    }
}

impl Checked for CreateWithVolumes {
    fn wrongs(&self) -> Vec<InputProblem> {
        let none = || {
            let message = "say volumes, tenant_id, a path or auto_snapshot; else use create_session";
            InputProblem::value(["volumes".into()], message)
        };
        let Self {
            language: _,
            dependencies: _,
            volumes,
            tenant_id,
            read_only,
            read_write,
            blocked,
            auto_snapshot,
        } = self;
        let paths = [read_only, read_write, blocked].into_iter().any(|paths| !paths.is_empty());
        let automatic = !matches!(auto_snapshot, AutoSnapshotOf::Off);
        let some = !volumes.is_empty() || tenant_id.is_some() || paths || automatic;
        (!some).then(none).into_iter().collect()
    }
}

pub(super) fn tools(plain: Hints) -> Vec<Tool> {
    let looks = Hints { read_only: true, idempotent: true, ..plain };
    let ends = Hints { destructive: true, ..plain };
    let fork = "Makes a new session with the files of another one, as they are now or as they were at a snapshot, so that two ways \
                can be tried. Variables of the other session are not there. The session counts as any other.";
    let make = "Makes a volume: a folder that outlives every session and that several sessions share. Attach it with \
                create_session_with_volumes.";
    let list = "Lists the volumes that can be attached, by name.";
    let delete = "Deletes a volume with all files in it. Refused while a session has it.";
    let resize = "Gives a volume another limit, also while sessions have it.";
    let with = "Makes a session as create_session does, with volumes or a tenant's storage attached, whose files stay when the session \
                ends, with paths that its code only reads or does not see, or with snapshots that are made by themselves.";
    vec![
        tool(
            ExtraTool::ForkSession.as_str(),
            "Make a session of another one",
            fork,
            schema::<ForkSession>(),
            schema::<SessionCreated>(),
            plain,
        ),
        tool(
            ExtraTool::CreateVolume.as_str(),
            "Make a volume",
            make,
            schema::<CreateVolume>(),
            schema::<VolumeReply>(),
            plain,
        ),
        tool(
            ExtraTool::ListVolumes.as_str(),
            "List volumes",
            list,
            schema::<ListVolumes>(),
            schema::<VolumeList>(),
            looks,
        ),
        tool(
            ExtraTool::DeleteVolume.as_str(),
            "Delete a volume",
            delete,
            schema::<DeleteVolume>(),
            schema::<VolumeGone>(),
            ends,
        ),
        tool(
            ExtraTool::ResizeVolume.as_str(),
            "Resize a volume",
            resize,
            schema::<ResizeVolume>(),
            schema::<VolumeReply>(),
            Hints { idempotent: true, ..plain },
        ),
        tool(
            ExtraTool::CreateWithVolumes.as_str(),
            "Make a session with volumes",
            with,
            schema::<CreateWithVolumes>(),
            schema::<SessionCreated>(),
            plain,
        ),
    ]
}

type StorageResult = Result<ToolReply, Vec<InputProblem>>;

impl Extra {
    pub(super) async fn fork_session(&self, who: &ToolCaller, arguments: Value) -> StorageResult {
        let ForkSession { session_id, snapshot_id } = parse(arguments)?;
        let snapshot: Option<SnapshotId> = match snapshot_id.map(|id| id.parse()).transpose() {
            Ok(snapshot) => snapshot,
            Err(_) => {
                let message = "there is no snapshot with this id in this session";
                let missing = Err(Error::new(ErrorCode::NotFound, message));
                return Ok(self.sessions.reply(who, missing).await);
            }
        };
        Ok(self.sessions.fork(who, &session_id, snapshot).await)
    }

    pub(super) async fn create_volume(&self, who: &ToolCaller, arguments: Value) -> StorageResult {
        let CreateVolume { name, disk_mb } = parse(arguments)?;
        let made = self.core.volumes.create(&who.caller, NewVolume { name, disk_mb }).await;
        let made = made.and_then(|volume| json_of(&VolumeReply { success: true, volume: volume.into() }));
        Ok(self.sessions.reply(who, made).await)
    }

    pub(super) async fn list_volumes(&self, who: &ToolCaller, arguments: Value) -> StorageResult {
        let ListVolumes {} = parse(arguments)?;
        // An admin's sessions have its own volumes too.
        let all = self.core.volumes.list(&who.caller, Some(&who.caller.owner)).await;
        let all = all.and_then(|all| {
            let total = all.len();
            let volumes = all.into_iter().take(MOST_VOLUMES).map(VolumeInfo::from).collect();
            json_of(&VolumeList { success: true, volumes, total })
        });
        Ok(self.sessions.reply(who, all).await)
    }

    pub(super) async fn delete_volume(&self, who: &ToolCaller, arguments: Value) -> StorageResult {
        let DeleteVolume { name } = parse(arguments)?;
        let gone = self.core.volumes.delete(&who.caller, None, &name).await;
        let gone = gone.and_then(|()| json_of(&VolumeGone { success: true }));
        Ok(self.sessions.reply(who, gone).await)
    }

    pub(super) async fn resize_volume(&self, who: &ToolCaller, arguments: Value) -> StorageResult {
        let ResizeVolume { name, disk_mb } = parse(arguments)?;
        let resized = self.core.volumes.resize(&who.caller, None, &name, disk_mb).await;
        let resized =
            resized.and_then(|volume| json_of(&VolumeReply { success: true, volume: volume.into() }));
        Ok(self.sessions.reply(who, resized).await)
    }

    pub(super) async fn create_with_volumes(&self, who: &ToolCaller, arguments: Value) -> StorageResult {
        let CreateWithVolumes {
            language,
            dependencies,
            volumes,
            tenant_id,
            read_only,
            read_write,
            blocked,
            auto_snapshot,
        } = parse(arguments)?;
        let input = CreateSession { language, dependencies, ..CreateSession::default() };
        let volume = |mounted: MountedVolume| {
            let MountedVolume { name, path, read_only } = mounted;
            AttachVolume { name, path, read_only }
        };
        let storage = SessionStorage {
            volumes: volumes.into_iter().map(volume).collect(),
            tenant_id,
            filesystem: PathRules { read_only, read_write, blocked },
            auto_snapshot: auto_snapshot.into(),
        };
        Ok(self.sessions.create_with_volumes(who, input, storage).await)
    }
}
