//! The seam between the control plane and what runs containers.
//!
//! A provider makes, finds, lists and destroys containers. Commands and files are not its business:
//! they go over the guest stream, the same on every provider ([`Guest`]). What only some providers can
//! do is an optional power that is either there or not; nothing here has a default that pretends.

#[cfg(feature = "conformance")]
pub mod conformance;
mod guest;

use async_trait::async_trait;
pub use atoll_guest_proto::{FEATURE_KERNELS, FEATURE_TOOLS};
use atoll_types::{ContainerId, Death, Limits, Profile, Result, Usage, VolumeId};
use futures_util::future::BoxFuture;
pub use guest::{
    Command, Dial, Entry, EntryKind, ExecEvent, ExecReport, ExecStream, FileReader, Finished, Guest,
    GuestChange, Lost, OutputStream, Program, Spool, StartFailure, TerminalSize, WriteOptions, about_path,
};
use std::{collections::BTreeMap, os::fd::OwnedFd, pin::Pin, sync::Arc};
use tokio::io::{AsyncRead, AsyncWrite};

/// What a new container needs.
#[derive(Debug, Clone)]
pub struct ContainerSpec {
    /// Chosen by the caller, so that a lost answer can be asked after.
    pub id: ContainerId,
    /// What is fixed at start.
    pub profile: Profile,
    /// What it may use, to begin with.
    pub limits: Limits,
    /// What survives it; without one, what is written goes with the container.
    pub volume: Option<VolumeId>,
    /// What every command starts with.
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

/// Whether a container lives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// It is being made.
    Creating,
    /// It lives.
    Running,
    /// It lives, and stands still with all that is in it. What is asked of [`Guest`] is answered when it goes
    /// on.
    Paused,
    /// It died; what is left of it waits for a destroy.
    Dead(Death),
}

/// One line of a provider's list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Which.
    pub id: ContainerId,
    /// Whether it lives.
    pub state: State,
    /// Its volume.
    pub volume: Option<VolumeId>,
    /// The name of its profile.
    pub profile: String,
    /// Whether a living process outside this server holds it, with whose end it goes.
    pub held: bool,
}

/// What a provider is and what its containers can be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capabilities {
    /// `native`, `docker`, `kubernetes`, `wasm`.
    pub name: &'static str,
    /// The isolations that a profile may ask for beside the built-in one.
    pub runtimes: Vec<String>,
    /// Whether the disk limit is enforced.
    pub disk_limit: bool,
}

/// What runs containers.
#[async_trait]
pub trait Provider: Send + Sync {
    /// What it is.
    async fn capabilities(&self) -> Result<Capabilities>;
    /// Makes and starts a container. On failure nothing of it is left.
    async fn create(&self, spec: ContainerSpec) -> Result<Arc<dyn Container>>;
    /// A handle on a container that somebody made before, perhaps before a restart. One that stands still is
    /// found as well, and not asked anything.
    async fn attach(&self, id: ContainerId) -> Result<Arc<dyn Container>>;
    /// Every container, dead ones included.
    async fn list(&self) -> Result<Vec<Listed>>;
    /// Ends a container and frees all that it had, except its volume. Fine when there is none.
    async fn destroy(&self, id: ContainerId) -> Result<()>;
    /// Volumes that outlive containers, where the provider has them.
    fn volumes(&self) -> Option<&dyn Volumes>;
    /// What containers use, where the provider can tell.
    fn usage(&self) -> Option<&dyn Usages>;
    /// Telling containers whom to trust, where the provider can.
    fn trust(&self) -> Option<&dyn Trust>;
}

/// One container.
#[async_trait]
pub trait Container: Send + Sync {
    /// Which.
    fn id(&self) -> ContainerId;
    /// Commands and files in it.
    fn guest(&self) -> &Guest;
    /// Whether it lives.
    async fn state(&self) -> Result<State>;
    /// Answers when it is dead, and how that came.
    async fn died(&self) -> Result<Death>;
    /// Changing limits while it runs, where the provider can.
    fn live_limits(&self) -> Option<&dyn LiveLimits>;
    /// Handing it over to somebody it was not made for, where the provider can.
    fn claimable(&self) -> Option<&dyn Claimable>;
    /// Letting it stand still, where the provider can.
    fn pause(&self) -> Option<&dyn Pause>;
    /// Finding which files changed, where the provider can.
    fn changes(&self) -> Option<&dyn FileChanges>;
    /// Reaching servers inside, where the provider can.
    fn ports(&self) -> Option<&dyn Ports>;
    /// Letting what is inside ask to get out, where the provider can.
    fn egress_endpoint(&self) -> Option<&dyn EgressEndpoint>;
}

/// What came of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileAction {
    /// It was not there.
    Created,
    /// It is another than it was.
    Modified,
    /// It is not there any more.
    Deleted,
}

/// One file of /workspace that changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileChange {
    /// Relative to /workspace.
    pub path: String,
    /// What came of it.
    pub action: FileAction,
    /// Its size now; zero when it is gone.
    pub size_bytes: u64,
}

/// What changed between two questions.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Changed {
    /// By path.
    pub files: Vec<FileChange>,
    /// There may be more.
    pub truncated: bool,
}

/// The power to find which files changed, without asking anything inside.
#[async_trait]
pub trait FileChanges: Send + Sync {
    /// What changed in /workspace since the last question, or since the container began. Each change is
    /// told once.
    async fn take(&self) -> Result<Changed>;
}

/// The power to change limits while a container runs.
#[async_trait]
pub trait LiveLimits: Send + Sync {
    /// Changes them; on failure the former ones hold.
    async fn set_limits(&self, limits: Limits) -> Result<()>;
}

/// The power to be made before it is known for whom. Whatever is handed over has run nothing.
#[async_trait]
pub trait Claimable: Send + Sync {
    /// Whether it was made of what a new one would be made of now.
    async fn current(&self) -> Result<bool>;
    /// Hands it over: it has these limits from now on, and its commands start with this environment.
    /// [`atoll_types::ErrorCode::Conflict`] of `container` where it is not current. On failure it is of no use any more.
    async fn claim(&self, limits: Limits, environment: BTreeMap<String, String>) -> Result<()>;
}

/// The power to let a container stand still, with every process where it is, and go on.
#[async_trait]
pub trait Pause: Send + Sync {
    /// Nothing inside runs any more when this answers. Fine when it stands still already. On failure it goes
    /// on, unless the provider did not answer; [`Container::state`] tells.
    /// [`atoll_types::ErrorCode::Unsupported`] where this container cannot.
    async fn pause(&self) -> Result<()>;
    /// It goes on where it was. Fine when it runs.
    async fn resume(&self) -> Result<()>;
}

/// Bytes in both directions.
pub trait Duplex: AsyncRead + AsyncWrite + Send {}
impl<T: AsyncRead + AsyncWrite + Send> Duplex for T {}

/// A connection to a server inside a container.
pub type PortStream = Pin<Box<dyn Duplex>>;

/// The power to reach servers inside, while nothing inside can reach out.
#[async_trait]
pub trait Ports: Send + Sync {
    /// A connection to a TCP port of the container's loopback. [`atoll_types::ErrorCode::BadGateway`]
    /// when nothing listens there.
    async fn connect(&self, port: u16) -> Result<PortStream>;
    /// Comes about when the container is being destroyed. Whoever has a connection lets go of it then:
    /// the far side may be silent for ever, and an open socket keeps the network of a container alive.
    fn closed(&self) -> BoxFuture<'static, ()>;
    /// The ports that something listens on, in order; where there are very many, the first.
    async fn listening(&self) -> Result<Vec<u16>>;
}

/// Sockets of a container's network on which whatever is inside can ask to get out. They were bound
/// before anything ran there, and stay bound as long as the container lives, whoever serves them. All
/// are non-blocking.
#[derive(Debug)]
pub struct EgressSockets {
    /// Listens on 127.0.0.1:3128.
    pub proxy: OwnedFd,
    /// Listens for connections to the reserved block, to any port; none where the kernel cannot send them
    /// here. A connection's own local address is the one that was asked for.
    pub redirected: Option<OwnedFd>,
    /// UDP, 127.0.0.53:53.
    pub names: OwnedFd,
    /// TCP, the same.
    pub names_tcp: OwnedFd,
}

/// The power to let what is inside ask to get out. Without somebody who serves the gate there is no way.
#[async_trait]
pub trait EgressEndpoint: Send + Sync {
    /// The container's gate. Every call gives descriptors of the same sockets.
    /// [`atoll_types::ErrorCode::Conflict`] when something inside has a port of it, which can only be when
    /// everything that held it was killed; that container has no way out.
    async fn egress_sockets(&self) -> Result<EgressSockets>;
    /// Comes about when the container is being destroyed. Whoever has a gate lets go of it then: an open
    /// socket keeps the network of a container alive.
    fn closed(&self) -> BoxFuture<'static, ()>;
}

/// The power to tell containers whom to trust, beside those that their image does: a proxy that looks
/// into connections signs what it says.
#[async_trait]
pub trait Trust: Send + Sync {
    /// Every container that is made from now on finds these certificates at
    /// [`atoll_types::egress_address::TRUST_CERTIFICATE`], and with those of its image at
    /// [`atoll_types::egress_address::TRUST_BUNDLE`]. PEM blocks `CERTIFICATE` and nothing else, 32 KiB at most. The
    /// last word counts; it is forgotten with the provider's own end, so it is said at every start.
    async fn trust(&self, certificate_pem: &str) -> Result<()>;
}

/// The power to tell what containers use, without asking anything inside.
#[async_trait]
pub trait Usages: Send + Sync {
    /// Of every container that lives, at one go: the cost does not grow with a request for each. A
    /// provider may leave out what goes beyond thousands.
    async fn all(&self) -> Result<Vec<(ContainerId, Usage)>>;
    /// Of one. [`atoll_types::ErrorCode::NotFound`] when there is none, and an error of its death when
    /// it is dead.
    async fn one(&self, id: ContainerId) -> Result<Usage>;
}

/// What all volumes together may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskRoom {
    /// What they can hold.
    pub capacity_bytes: u64,
    /// What of that is free.
    pub free_bytes: u64,
    /// Whether so little is free that no new volume is made.
    pub low: bool,
}

/// The power to keep volumes.
#[async_trait]
pub trait Volumes: Send + Sync {
    /// Every volume.
    async fn list_volumes(&self) -> Result<Vec<VolumeId>>;
    /// Deletes a volume. Fine when there is none; a conflict while a container uses it.
    async fn remove_volume(&self, id: VolumeId) -> Result<()>;
    /// Gives a volume that no container uses another limit; a conflict below what it holds.
    async fn resize_volume(&self, id: VolumeId, bytes: u64) -> Result<()>;
    /// What all volumes together may use.
    async fn room(&self) -> Result<DiskRoom>;
}
