//! The requests to the launcher, and the answer to each.

use atoll_types::files::FileChange;
use atoll_types::{
    ContainerId, Death, Error, ImageId, ImageUsage, Limits, Profile, Snapshot, SnapshotId, Usage, VolumeId,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A request and the protocol that it is written in.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Envelope {
    /// Which protocol; the launcher refuses one that it does not speak, and answers with those that it does.
    pub protocol: u32,
    /// The request.
    pub request: Request,
}

/// Every request to the launcher.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// The launcher's release and protocols. Answered in every protocol.
    Hello,
    /// Keeps the launcher running when the last container and the last connection are gone, also if it was
    /// started to end then, and makes it serve these users too, which only root may request.
    /// [`LauncherReply::Done`].
    Stay {
        /// By their numbers.
        client_uids: Vec<u32>,
    },
    /// Makes and starts a container. [`LauncherReply::Created`] with the descriptors of its egress sockets.
    Create(Box<CreateRequest>),
    /// Ends a container and frees all that it had; succeeds when there is none. [`LauncherReply::Done`].
    Destroy(ContainerId),
    /// A container's status. [`LauncherReply::Container`].
    Inspect(ContainerId),
    /// Every container of this launcher. [`LauncherReply::Containers`].
    List,
    /// Answers when the container is dead. [`LauncherReply::Died`].
    Wait(ContainerId),
    /// The same, without a process of the launcher that waits: [`LauncherReply::Watched`] with PID 1's pidfd, which is
    /// readable when PID 1 is dead, or [`LauncherReply::Died`] where it is dead already.
    Watch(ContainerId),
    /// A stream to PID 1. [`LauncherReply::Connected`] with a descriptor.
    Connect(ContainerId),
    /// New TCP sockets that belong to the container's network. [`LauncherReply::Sockets`] with as many
    /// descriptors, none of them connected.
    Sockets(SocketsRequest),
    /// The TCP ports that a process inside listens on. [`LauncherReply::Ports`].
    Ports(ContainerId),
    /// The sockets by which processes inside reach the server's egress proxy. [`LauncherReply::EgressSockets`]
    /// with descriptors.
    EgressSockets(ContainerId),
    /// Sets the certificate that containers trust beside those of their image, from now on.
    /// [`LauncherReply::Done`].
    Trust(TrustRequest),
    /// Changes what the container may use. [`LauncherReply::Done`].
    SetLimits(ContainerId, Limits),
    /// The same, for a container of the warm pool that a sandbox takes. Refused where it was made of another
    /// image than a new one would be. [`LauncherReply::Done`].
    Claim(ContainerId, Limits),
    /// Whether the container was made of the image that a new one would be made of. [`LauncherReply::Current`].
    Current(ContainerId),
    /// Freezes all processes of a container; answers when they are frozen. Succeeds when they are already.
    /// [`LauncherReply::Done`].
    Pause(ContainerId),
    /// Thaws them; succeeds when they are not frozen. [`LauncherReply::Done`].
    Unpause(ContainerId),
    /// What a container that lives uses. [`LauncherReply::Usages`] with one.
    Usage(ContainerId),
    /// The same of every one that lives, up to [`crate::MAX_USAGES`]. [`LauncherReply::Usages`].
    Usages,
    /// Every volume. [`LauncherReply::Volumes`].
    ListVolumes,
    /// Deletes a volume; succeeds when there is none, refused while a container uses it. [`LauncherReply::Done`].
    RemoveVolume(VolumeId),
    /// Gives a volume another limit; refused while it is a container's own. [`LauncherReply::Done`].
    ResizeVolume(VolumeId, u64),
    /// Makes a volume that containers attach beside their own, or gives the one that is there another limit, in use or
    /// not. [`LauncherReply::Done`].
    PutVolume(VolumeId, u64),
    /// One volume. [`LauncherReply::Volumes`] with one.
    InspectVolume(VolumeId),
    /// Makes a snapshot of a volume, in use or not; succeeds when there is one with this id.
    /// [`LauncherReply::Snapshots`] with one.
    Snapshot(SnapshotRequest),
    /// The snapshots of a volume, oldest first. [`LauncherReply::Snapshots`].
    ListSnapshots(VolumeId),
    /// Deletes a snapshot; succeeds when there is none. [`LauncherReply::Done`].
    DeleteSnapshot(SnapshotRequest),
    /// Makes a volume what it was; refused while a container uses it. [`LauncherReply::Done`].
    Rollback(SnapshotRequest),
    /// Makes the volume of a container what it was, file by file, while the container is frozen and stays. Where that fails
    /// half-way the container stays frozen, to be destroyed. [`LauncherReply::Done`].
    RollbackInPlace(SnapshotRequest),
    /// Makes a volume of a snapshot, or of a volume as it is now. [`LauncherReply::Done`].
    Fork(ForkRequest),
    /// What changed from a snapshot to another, or to the volume as it is now. [`LauncherReply::Diff`].
    Diff(DiffRequest),
    /// Makes an image of a volume that containers attach, used or not; succeeds when the image is there. The volume stays.
    /// [`LauncherReply::Done`].
    SealImage(SealRequest),
    /// Makes a volume that containers attach and that begins with the files of an image. [`LauncherReply::Done`].
    VolumeFromImage(ImageVolumeRequest),
    /// Deletes an image; succeeds when there is none, refused while a container uses it. [`LauncherReply::Done`].
    RemoveImage(ImageId),
    /// Every image that was sealed. [`LauncherReply::Images`].
    ListImages,
    /// What the launcher found on this machine. [`LauncherReply::Report`].
    Report,
    /// Destroys every container, unmounts, and ends the launcher and its monitor. [`LauncherReply::Done`].
    Shutdown,
    /// The same, and deletes all volumes and images. [`LauncherReply::Done`].
    Purge,
}

impl Request {
    /// The first protocol that has it: a launcher of an older release carries out what it knows.
    #[must_use]
    pub fn protocol(&self) -> u32 {
        match self {
            Self::Snapshot(_)
            | Self::ListSnapshots(_)
            | Self::DeleteSnapshot(_)
            | Self::Rollback(_)
            | Self::RollbackInPlace(_)
            | Self::Fork(_)
            | Self::Diff(_)
            | Self::PutVolume(..)
            | Self::InspectVolume(_) => 2,
            Self::SealImage(_) | Self::VolumeFromImage(_) | Self::RemoveImage(_) | Self::ListImages => 3,
            Self::Watch(_) => 5,
            Self::Create(request) if request.profile.volumes.iter().any(|mount| mount.whole) => 4,
            Self::Create(request)
                if request.profile.build_root.is_some() || request.profile.image.id().is_some() =>
            {
                3
            }
            Self::Create(request) if request.profile.has_attachments() => 2,
            _ => 1,
        }
    }
}

/// What a new container needs.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CreateRequest {
    /// Chosen by the caller, so that it can find the container when the answer was lost.
    pub container: ContainerId,
    /// What is fixed at start.
    pub profile: Profile,
    /// What it may use, to begin with.
    pub limits: Limits,
    /// The volume, made if there is none; without one, what is written goes with the container.
    pub volume: Option<VolumeId>,
    /// What every command starts with, to begin with.
    pub environment: BTreeMap<String, String>,
    /// Whether the container is destroyed when this connection closes. It then stays open after the answer.
    pub held: bool,
}

/// One snapshot of one volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SnapshotRequest {
    /// Whose.
    pub volume: VolumeId,
    /// Which. Chosen by the caller, so that a request whose answer was lost can be repeated.
    pub snapshot: SnapshotId,
}

/// A volume that shares what it holds with another, until either writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ForkRequest {
    /// The volume that it is made of.
    pub volume: VolumeId,
    /// A snapshot of that volume; without one, as it is now.
    pub snapshot: Option<SnapshotId>,
    /// The new volume, which must not exist.
    pub into: VolumeId,
    /// What the new volume may hold, what it shares included.
    pub disk_bytes: u64,
}

/// Two states of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiffRequest {
    /// Which volume.
    pub volume: VolumeId,
    /// Before.
    pub from: SnapshotId,
    /// After; without one, as it is now.
    pub to: Option<SnapshotId>,
}

/// A volume that becomes an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SealRequest {
    /// The volume, made by [`Request::PutVolume`] or [`Request::VolumeFromImage`].
    pub volume: VolumeId,
    /// The image. Chosen by the caller, so that a request whose answer was lost can be repeated.
    pub image: ImageId,
}

/// A volume that begins with the files of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ImageVolumeRequest {
    /// The image.
    pub image: ImageId,
    /// The new volume, which must not exist.
    pub volume: VolumeId,
    /// What the new volume may hold, what it shares included.
    pub disk_bytes: u64,
}

/// Sockets of a container's network. A socket belongs to the network namespace in which it was made, whichever
/// process connects it later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SocketsRequest {
    /// Whose network.
    pub container: ContainerId,
    /// For which addresses.
    pub family: Family,
    /// How many: 1 to [`crate::MAX_DESCRIPTORS`].
    pub count: u8,
}

/// Which addresses a socket is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// The certificates that containers trust.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrustRequest {
    /// One or more PEM blocks `CERTIFICATE` and nothing else, of [`crate::MAX_CERTIFICATE`] bytes in all.
    pub certificate_pem: String,
}

/// Where a container is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ContainerState {
    /// A worker is making it.
    Creating,
    /// PID 1 lives.
    Running,
    /// PID 1 lives, and is frozen or being frozen with all other processes of the container.
    Paused,
    /// PID 1 is gone; the rest waits for a destroy.
    Dead,
}

/// What the launcher knows of a container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerStatus {
    /// Which.
    pub container: ContainerId,
    /// Where it is in its life.
    pub state: ContainerState,
    /// Its volume.
    pub volume: Option<VolumeId>,
    /// The name of its profile.
    pub profile: String,
    /// What it may use.
    pub limits: Limits,
    /// When it was made.
    pub created_unix_ms: u64,
    /// PID 1 as the machine numbers it; 0 while creating.
    pub pid: i32,
    /// How it ended, when it did.
    pub death: Option<Death>,
    /// Whether a connection holds the container, which is then destroyed when the connection closes; set in lists
    /// only.
    #[serde(default)]
    pub held: bool,
}

fn is_counted() -> bool {
    true
}

/// What the launcher knows of a volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeStatus {
    /// Which.
    pub volume: VolumeId,
    /// Bytes in it; 0 where the kernel does not count them.
    pub used_bytes: u64,
    /// Whether the kernel counts them; on plain folders it does not. Launchers of before do not say.
    #[serde(default = "is_counted")]
    pub counted: bool,
    /// What it may hold.
    pub limit_bytes: u64,
}

/// The launcher's version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Launcher {
    /// Its release.
    pub release: String,
    /// The protocols it has.
    pub min_protocol: u32,
    /// The protocols it has.
    pub max_protocol: u32,
    /// Whether it ends with its last container and connection. False from a release that does not say.
    #[serde(default)]
    pub ephemeral: bool,
}

/// What enforces limits of disks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Quota {
    /// Btrfs simple quotas.
    Simple,
    /// Btrfs qgroups with full accounting, on kernels before 6.7.
    Classic,
    /// Nothing.
    None,
}

impl std::fmt::Display for Quota {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Simple => "simple",
            Self::Classic => "classic",
            Self::None => "none",
        })
    }
}

/// What the launcher found on this machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// `v1`, `v2` or `hybrid`.
    pub cgroup: String,
    /// Controllers that the limits need and the machine lacks.
    pub missing_controllers: Vec<String>,
    /// `btrfs`, `btrfs on a loop file` or `dir`.
    pub storage: String,
    /// What enforces limits of disks.
    pub quota: Quota,
    /// What all volumes together can hold.
    pub capacity_bytes: u64,
    /// What of that is free; without simple quotas, what can still be promised.
    pub free_bytes: u64,
    /// Whether so little is free that no new volume is made.
    pub disk_low: bool,
    /// OCI runtimes by name.
    pub runtimes: Vec<String>,
    /// What the operator should know.
    pub notes: Vec<String>,
}

/// The answer of a request that succeeded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LauncherReply {
    Hello(Launcher),
    /// With the descriptors of [`LauncherReply::EgressSockets`].
    Created {
        status: Box<ContainerStatus>,
        redirected: bool,
    },
    Container(Box<ContainerStatus>),
    Containers(Vec<ContainerStatus>),
    Died(Death),
    /// With a descriptor.
    Watched,
    Done,
    /// With a descriptor; where there is a token, every call must carry it.
    Connected {
        token: Option<String>,
        /// PID 1 is frozen, and answers when it is thawed.
        #[serde(default)]
        paused: bool,
    },
    /// With that many descriptors.
    Sockets {
        count: u8,
    },
    /// In order, each once.
    Ports(Vec<u16>),
    /// With three descriptors: the proxy's listener, the resolver's UDP socket, and its listener; and
    /// with a fourth where connections to the reserved block are redirected: their listener. All are
    /// non-blocking.
    EgressSockets {
        redirected: bool,
    },
    /// In the order of their ids.
    Usages(Vec<(ContainerId, Usage)>),
    Volumes(Vec<VolumeStatus>),
    Snapshots(Vec<Snapshot>),
    /// In no order.
    Images(Vec<ImageUsage>),
    /// By path, which begins at the volume's root: `workspace/a`, `home/b`.
    Diff {
        files: Vec<FileChange>,
        /// There may be more.
        truncated: bool,
    },
    Report(Report),
    Current(bool),
}

impl LauncherReply {
    /// How many descriptors come with it. A receiver must treat more or fewer as a broken answer.
    #[must_use]
    pub fn descriptors(&self) -> usize {
        match self {
            Self::Connected { .. } | Self::Watched => 1,
            Self::Sockets { count } => usize::from(*count),
            Self::EgressSockets { redirected } | Self::Created { redirected, .. } => {
                3 + usize::from(*redirected)
            }
            Self::Hello(_)
            | Self::Container(_)
            | Self::Containers(_)
            | Self::Died(_)
            | Self::Done
            | Self::Ports(_)
            | Self::Usages(_)
            | Self::Volumes(_)
            | Self::Snapshots(_)
            | Self::Images(_)
            | Self::Diff { .. }
            | Self::Report(_)
            | Self::Current(_) => 0,
        }
    }
}

/// The answer to a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LauncherAnswer {
    /// The request succeeded.
    Ok(LauncherReply),
    /// The request failed.
    Err(Error),
}

impl From<LauncherAnswer> for Result<LauncherReply, Error> {
    fn from(answer: LauncherAnswer) -> Self {
        match answer {
            LauncherAnswer::Ok(reply) => Ok(reply),
            LauncherAnswer::Err(error) => Err(error),
        }
    }
}

impl From<Result<LauncherReply, Error>> for LauncherAnswer {
    fn from(result: Result<LauncherReply, Error>) -> Self {
        match result {
            Ok(reply) => LauncherAnswer::Ok(reply),
            Err(error) => LauncherAnswer::Err(error),
        }
    }
}
