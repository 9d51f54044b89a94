//! The seam between the control plane and what runs containers.
//!
//! A provider makes, attaches to, lists and destroys containers. Commands and files are not its task: they go
//! over the guest stream, the same on every provider ([`Guest`]). A capability that only some providers have
//! is an optional trait that is either there or not; nothing here has a default that pretends.

#[cfg(feature = "conformance")]
pub mod conformance;
mod guest;

use async_trait::async_trait;
pub use atoll_guest_proto::{FEATURE_KERNELS, FEATURE_TOOLS};
use atoll_types::{
    ContainerId, Death, ImageId, ImageUsage, Limits, Profile, Result, Snapshot, SnapshotId, Usage, VolumeId,
};
pub use atoll_types::{
    ExecReport, OutputStream, StartFailure, TerminalSize,
    files::{Changed, Entry, EntryKind, FileAction, FileChange, WriteOptions},
};
use futures_util::future::BoxFuture;
pub use guest::{
    Command, Dial, ExecEvent, ExecStream, FileReader, Finished, Guest, GuestChange, Lost, Program, Spool,
    about_path,
};
use std::{collections::BTreeMap, os::fd::OwnedFd, pin::Pin, sync::Arc};
use tokio::io::{AsyncRead, AsyncWrite};

/// What a new container needs.
#[derive(Debug, Clone)]
pub struct ContainerSpec {
    /// Chosen by the caller, so that it can look the container up after a lost reply.
    pub id: ContainerId,
    /// What is fixed at start.
    pub profile: Profile,
    /// Its limits, to begin with.
    pub limits: Limits,
    /// The volume, which outlives it; without one, what is written goes with the container.
    pub volume: Option<VolumeId>,
    /// The environment of every command.
    pub environment: BTreeMap<String, String>,
}

impl ContainerSpec {
    /// A throw-away container of a profile, with the default limits.
    #[must_use]
    pub fn throw_away(profile: Profile) -> Self {
        Self {
            id: ContainerId::random(),
            profile,
            limits: Limits::default(),
            volume: None,
            environment: BTreeMap::new(),
        }
    }
}

/// The state of a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// It is being made.
    Creating,
    /// It runs.
    Running,
    /// It is paused, with all that is in it. Calls of [`Guest`] are answered when it is resumed.
    Paused,
    /// It died; a destroy frees what is left of it.
    Dead(Death),
}

/// One line of a provider's list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Which.
    pub id: ContainerId,
    /// Its state.
    pub state: State,
    /// Its volume.
    pub volume: Option<VolumeId>,
    /// The name of its profile.
    pub profile: String,
    /// Whether a live process outside this server holds it: it is destroyed when that ends.
    pub held: bool,
}

/// A provider and the features of its containers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capabilities {
    /// `native`, `docker`, `kubernetes`, `wasm`.
    pub name: &'static str,
    /// The isolations that a profile may name beside the built-in one.
    pub runtimes: Vec<String>,
    /// Whether the disk limit is enforced.
    pub disk_limit: bool,
}

/// Runs containers.
#[async_trait]
pub trait Provider: Send + Sync {
    /// Its features.
    async fn capabilities(&self) -> Result<Capabilities>;
    /// Makes and starts a container. On failure nothing of it is left.
    async fn create(&self, spec: ContainerSpec) -> Result<Arc<dyn Container>>;
    /// A handle on a container that was made before, perhaps before a restart. A paused one is found as well,
    /// and not called.
    async fn attach(&self, id: ContainerId) -> Result<Arc<dyn Container>>;
    /// Every container, dead ones included.
    async fn list(&self) -> Result<Vec<Listed>>;
    /// Ends a container and frees all that it had, except its volume. Succeeds when there is none.
    async fn destroy(&self, id: ContainerId) -> Result<()>;
    /// Volumes that outlive containers, where the provider has them.
    fn volumes(&self) -> Option<&dyn Volumes>;
    /// Snapshots and forks of those volumes, where the provider can make them.
    fn snapshots(&self) -> Option<&dyn Snapshots>;
    /// Images beside the machine's own, where the provider can keep them. One that cannot refuses a profile that names
    /// another image or has a [`Profile::build_root`].
    fn images(&self) -> Option<&dyn Images>;
    /// Volumes that several containers attach, and paths with a rule, where the provider can mount them. One that cannot
    /// refuses a profile that names any.
    fn attachments(&self) -> Option<&dyn Attachments>;
    /// Usage of containers, where the provider can measure it.
    fn usage(&self) -> Option<&dyn Usages>;
    /// Certificates that containers trust, where the provider can install them.
    fn trust(&self) -> Option<&dyn Trust>;
}

/// One container.
#[async_trait]
pub trait Container: Send + Sync {
    /// Which.
    fn id(&self) -> ContainerId;
    /// Commands and files in it.
    fn guest(&self) -> &Guest;
    /// Its state.
    async fn state(&self) -> Result<State>;
    /// Returns when it is dead, and how it died.
    async fn died(&self) -> Result<Death>;
    /// Changing limits while it runs, where the provider can.
    fn live_limits(&self) -> Option<&dyn LiveLimits>;
    /// Claiming it for a sandbox that it was not made for, where the provider can.
    fn claimable(&self) -> Option<&dyn Claimable>;
    /// Pausing it, where the provider can.
    fn pause(&self) -> Option<&dyn Pause>;
    /// Finding which files changed, where the provider can.
    fn changes(&self) -> Option<&dyn FileChanges>;
    /// Connecting to servers inside, where the provider can.
    fn ports(&self) -> Option<&dyn Ports>;
    /// Egress sockets for processes inside, where the provider can.
    fn egress_endpoint(&self) -> Option<&dyn EgressEndpoint>;
}

/// The power to find which files changed, without asking anything inside.
#[async_trait]
pub trait FileChanges: Send + Sync {
    /// The changes in /workspace since the last call, or since the container started. Each change is returned
    /// once; a call that failed or was cancelled has returned none.
    async fn take(&self) -> Result<ChangeReport>;
    /// A report is recorded. Where this server ends before that, the next one gets its changes again, with
    /// `truncated`. Does not block.
    fn acknowledge(&self, sequence: u64);
}

/// What [`FileChanges::take`] returns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangeReport {
    /// Its number, for [`FileChanges::acknowledge`].
    pub sequence: u64,
    /// The changes.
    pub changed: Changed,
}

/// Changes limits while a container runs.
#[async_trait]
pub trait LiveLimits: Send + Sync {
    /// Changes them; on failure the former ones hold.
    async fn set_limits(&self, limits: Limits) -> Result<()>;
}

/// A container that is made before its sandbox is known. Until it is claimed it has run nothing.
#[async_trait]
pub trait Claimable: Send + Sync {
    /// Whether it was made of the same image and settings as a new one would be now.
    async fn current(&self) -> Result<bool>;
    /// Claims it: it has these limits from now on, and its commands start with this environment.
    /// [`atoll_types::ErrorCode::Conflict`] of `container` where it is not current. On failure it is of no
    /// use any more.
    async fn claim(&self, limits: Limits, environment: BTreeMap<String, String>) -> Result<()>;
}

/// Pauses a container, with every process where it is, and resumes it.
#[async_trait]
pub trait Pause: Send + Sync {
    /// No process inside runs any more when this returns. Succeeds when it is paused already. On failure it
    /// runs, unless the provider did not answer; then [`Container::state`] says.
    /// [`atoll_types::ErrorCode::Unsupported`] where this container cannot be paused.
    async fn pause(&self) -> Result<()>;
    /// Every process continues where it was. Succeeds when it runs.
    async fn resume(&self) -> Result<()>;
}

/// Bytes in both directions.
pub trait Duplex: AsyncRead + AsyncWrite + Send {}
impl<T: AsyncRead + AsyncWrite + Send> Duplex for T {}

/// A connection to a server inside a container.
pub type PortStream = Pin<Box<dyn Duplex>>;

/// Connects to servers inside, while nothing inside can reach out.
#[async_trait]
pub trait Ports: Send + Sync {
    /// A connection to a TCP port of the container's loopback. [`atoll_types::ErrorCode::BadGateway`]
    /// when nothing listens there.
    async fn connect(&self, port: u16) -> Result<PortStream>;
    /// Completes when the container is being destroyed. The holder of a connection must close it then: the
    /// far side may be silent for ever, and an open socket keeps the network of a container alive.
    fn closed(&self) -> BoxFuture<'static, ()>;
    /// The ports that something listens on, in order; where there are very many, the first.
    async fn listening(&self) -> Result<Vec<u16>>;
}

/// Sockets of a container's network on which processes inside request connections to the outside. They were
/// bound before anything ran there, and stay bound as long as the container lives, served or not. All are
/// non-blocking.
#[derive(Debug)]
pub struct EgressSockets {
    /// Listens on 127.0.0.1:3128.
    pub proxy: OwnedFd,
    /// Listens for connections to the reserved block, to any port; none where the kernel cannot redirect
    /// them. A connection's own local address is the requested one.
    pub redirected: Option<OwnedFd>,
    /// UDP, 127.0.0.53:53.
    pub names: OwnedFd,
    /// TCP, the same.
    pub names_tcp: OwnedFd,
}

/// Egress sockets for processes inside. Unless a session serves them, nothing inside reaches out.
#[async_trait]
pub trait EgressEndpoint: Send + Sync {
    /// The container's egress sockets. Every call gives descriptors of the same sockets.
    /// [`atoll_types::ErrorCode::Conflict`] when a process inside has bound a port of theirs, which can only
    /// be after every holder of them was killed; that container has no egress.
    async fn egress_sockets(&self) -> Result<EgressSockets>;
    /// Completes when the container is being destroyed. The holder of the sockets must close them then: an
    /// open socket keeps the network of a container alive.
    fn closed(&self) -> BoxFuture<'static, ()>;
}

/// Installs certificates that containers trust beside their image's own: a proxy that inspects connections
/// signs with them.
#[async_trait]
pub trait Trust: Send + Sync {
    /// Every container that is made from now on finds these certificates at
    /// [`atoll_types::egress_address::TRUST_CERTIFICATE`], and with those of its image at
    /// [`atoll_types::egress_address::TRUST_BUNDLE`]. PEM blocks `CERTIFICATE` and nothing else, 32 KiB at
    /// most. The last call counts; a provider that restarts forgets it, so the server calls it at every
    /// start.
    async fn trust(&self, certificate_pem: &str) -> Result<()>;
}

/// Measures the usage of containers, without a call to anything inside.
#[async_trait]
pub trait Usages: Send + Sync {
    /// Of every live container at once: the cost does not grow with a request for each. A provider may leave
    /// out those beyond some thousands.
    async fn all(&self) -> Result<Vec<(ContainerId, Usage)>>;
    /// Of one. [`atoll_types::ErrorCode::NotFound`] when there is none, and an error of its death when
    /// it is dead.
    async fn one(&self, id: ContainerId) -> Result<Usage>;
}

/// The disk of all volumes together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskRoom {
    /// Its capacity.
    pub capacity_bytes: u64,
    /// How much of that is free.
    pub free_bytes: u64,
    /// Whether so little is free that no new volume is made.
    pub low: bool,
}

/// Keeps volumes.
#[async_trait]
pub trait Volumes: Send + Sync {
    /// Every volume.
    async fn list_volumes(&self) -> Result<Vec<VolumeId>>;
    /// Deletes a volume. Succeeds when there is none; a conflict while a container uses it.
    async fn remove_volume(&self, id: VolumeId) -> Result<()>;
    /// Gives a volume another limit; a conflict below what it holds, and while a container has it as its own.
    /// [`atoll_types::ErrorCode::NotFound`] where there is none.
    async fn resize_volume(&self, id: VolumeId, bytes: u64) -> Result<()>;
    /// The disk of all volumes together.
    async fn room(&self) -> Result<DiskRoom>;
}

/// Keeps volumes that containers attach beside their own, by [`Profile::volumes`], and puts the rules of
/// [`Profile::paths`] in force. Such a volume is listed, removed and has its room as any other.
#[async_trait]
pub trait Attachments: Send + Sync {
    /// Makes a volume, or gives the one that is there another limit, in use or not; a conflict below what it holds.
    async fn put_volume(&self, id: VolumeId, bytes: u64) -> Result<()>;
    /// How many bytes a volume holds, where the kernel counts them. [`atoll_types::ErrorCode::NotFound`] where there is no such volume.
    async fn volume_usage(&self, id: VolumeId) -> Result<Option<u64>>;
}

/// Makes snapshots and forks of volumes, which share what they hold until it is written.
///
/// A snapshot belongs to its volume: what only it still holds counts against the volume's limit, and it goes with the
/// volume. Every call may be repeated after a lost reply; a fork whose volume is there already is
/// [`atoll_types::ErrorCode::AlreadyExists`].
#[async_trait]
pub trait Snapshots: Send + Sync {
    /// Makes a snapshot of a volume, in use or not. It is of one moment, also while processes write.
    async fn create_snapshot(&self, volume: VolumeId, id: SnapshotId) -> Result<Snapshot>;
    /// The snapshots of a volume, oldest first.
    async fn list_snapshots(&self, volume: VolumeId) -> Result<Vec<Snapshot>>;
    /// Deletes a snapshot. Succeeds when there is none.
    async fn delete_snapshot(&self, volume: VolumeId, id: SnapshotId) -> Result<()>;
    /// The files that differ between a snapshot and another, or the volume as it is now. Paths begin at the volume's
    /// root, where /workspace is `workspace` and home is `home`.
    async fn diff(&self, volume: VolumeId, from: SnapshotId, to: Option<SnapshotId>) -> Result<Changed>;
    /// Makes a volume what it was, whole or not at all. Its limit and its snapshots stay. A conflict while a container
    /// uses it.
    async fn roll_back(&self, volume: VolumeId, to: SnapshotId) -> Result<()>;
    /// Refuses with [`atoll_types::ErrorCode::DiskFull`] where [`Self::roll_back`] would find no room, and with
    /// [`atoll_types::ErrorCode::NotFound`] where it would find no snapshot; nothing ends for that. Only of
    /// a volume that a container has and that is about to be rolled back: where the container has ended meanwhile, this
    /// may have done it.
    async fn check_roll_back(&self, volume: VolumeId, to: SnapshotId) -> Result<()>;
    /// Makes the volume of a container what it was while the container stays, and none of its processes runs: what they have
    /// open of files that both states have is then what it was. [`atoll_types::ErrorCode::Unsupported`] where this container
    /// cannot stay. Where it fails half-way no process of the container runs again, and the caller destroys it.
    async fn roll_back_in_place(&self, volume: VolumeId, to: SnapshotId) -> Result<()>;
    /// Makes a volume of a snapshot, or of a volume as it is now, with a limit of its own. What it shares counts as
    /// used; a conflict of `disk_bytes` where that is more than the limit.
    async fn fork(
        &self,
        from: VolumeId,
        snapshot: Option<SnapshotId>,
        into: VolumeId,
        bytes: u64,
    ) -> Result<()>;
}

/// Keeps images: volumes that were sealed, from which containers start by the name [`atoll_types::ImageName::of`]. The volumes
/// are those of [`Attachments`], and [`Profile::build_root`] makes one a container's root.
///
/// An image never changes. Its files show the ids inside that they had in the volume. Every call may be repeated after a
/// lost reply; a volume that is there already is [`atoll_types::ErrorCode::AlreadyExists`].
#[async_trait]
pub trait Images: Send + Sync {
    /// Makes an image of a volume, used or not. It appears whole or not at all; succeeds when it is there. The volume stays.
    /// [`atoll_types::ErrorCode::NotFound`] where there is no such volume.
    async fn seal(&self, volume: VolumeId, image: ImageId) -> Result<()>;
    /// Makes a volume that begins with the files of an image and has a limit of its own. What it shares counts as used; a
    /// conflict of `disk_bytes` where that is more than the limit. [`atoll_types::ErrorCode::NotFound`] of `image` where
    /// there is no such image.
    async fn volume_from_image(&self, image: ImageId, volume: VolumeId, bytes: u64) -> Result<()>;
    /// Deletes an image. Succeeds when there is none; a conflict while a container uses it. Volumes that were made of it stay.
    async fn remove_image(&self, image: ImageId) -> Result<()>;
    /// Every image, in no order.
    async fn list_images(&self) -> Result<Vec<ImageUsage>>;
}
