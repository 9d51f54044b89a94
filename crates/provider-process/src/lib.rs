//! Containers for tests of what stands above a provider. Each is a process of the user that runs the test, behind the
//! real guest protocol, in namespaces that an ordinary user may make: no root, no launcher, no cgroup.
//!
//! It claims what it has. Commands, files, terminals and volumes are real. Limits are not enforced, containers cannot
//! be paused, claimed or reached by port, their usage and changed files are not known, and nothing inside has a
//! network. It is no sandbox for code that is not trusted, and no program that ships depends on it.
//!
//! A container ends when the provider is dropped, or the process that has it ends in whatever way: PID 1 watches a
//! pipe of theirs.

mod container;
mod process;
mod volumes;

use async_trait::async_trait;
use atoll_guest_proto::GuestConfig;
use atoll_provider::{
    Attachments, Capabilities, Container, ContainerSpec, Images, Listed, Provider, Snapshots, State, Trust,
    Usages, Volumes,
};
use atoll_types::{ContainerId, Error, ErrorCode, ImageName, Isolation, Result, RootMode, VolumeId};
use container::ProcessContainer;
use process::Process;
use serde::{Deserialize, Serialize};
use std::{
    collections::HashMap,
    fs, io,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// What PID 1 prints when the provider may connect.
pub const READY: &str = "ready";

/// What PID 1 is started with, as JSON in its argument. Descriptors in the configuration are PID 1's to open.
#[derive(Debug, Serialize, Deserialize)]
pub struct Start {
    /// The configuration.
    pub config: GuestConfig,
    /// The container's folder.
    pub folder: PathBuf,
    /// The folder of its volume.
    pub volume: PathBuf,
    /// Whether its root can be written.
    pub root_mode: RootMode,
}

impl Start {
    /// Where PID 1 listens.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.folder.join("socket")
    }

    /// Where it keeps output.
    #[must_use]
    pub fn spool(&self) -> PathBuf {
        self.folder.join("spool")
    }

    /// Where it makes its root.
    #[must_use]
    pub fn root(&self) -> PathBuf {
        self.folder.join("root")
    }
}

/// Containers of the user that runs a test.
pub struct ProcessProvider {
    /// Declared before the folder, so that the processes have ended when that is removed.
    containers: Arc<Mutex<HashMap<ContainerId, Entry>>>,
    folder: tempfile::TempDir,
}

/// One container, from the request to make it to its destruction.
struct Entry {
    volume: Option<VolumeId>,
    profile: String,
    /// None while it is being made.
    process: Option<Arc<Process>>,
}

impl ProcessProvider {
    /// A provider without containers, on a folder of its own.
    pub fn new() -> io::Result<Self> {
        // Not "atoll": no variable of a command may say what runs it.
        let folder = tempfile::Builder::new().prefix("process-").tempdir()?;
        for name in ["containers", "volumes"] {
            fs::create_dir(folder.path().join(name))?;
        }
        Ok(Self { containers: Arc::default(), folder })
    }

    /// Kills a container's PID 1, as a fault of the machine would.
    pub fn kill(&self, id: ContainerId) -> Result<()> {
        self.find(id)?.kill();
        Ok(())
    }

    fn containers(&self) -> MutexGuard<'_, HashMap<ContainerId, Entry>> {
        self.containers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, id: ContainerId) -> Result<Arc<Process>> {
        let found = self.containers().get(&id).and_then(|entry| entry.process.clone());
        found.ok_or_else(|| Error::new(ErrorCode::NotFound, "there is no such container"))
    }

    fn uses(&self, volume: VolumeId) -> bool {
        self.containers().values().any(|entry| entry.volume == Some(volume))
    }

    /// Takes the id, and the volume where there is one.
    fn reserve(&self, spec: &ContainerSpec) -> Result<()> {
        let mut containers = self.containers();
        if containers.contains_key(&spec.id) {
            return Err(Error::new(ErrorCode::AlreadyExists, "there is a container with this id"));
        }
        if spec.volume.is_some() && containers.values().any(|entry| entry.volume == spec.volume) {
            return Err(Error::new(ErrorCode::Conflict, "another container uses this volume"));
        }
        let profile = spec.profile.name.clone();
        containers.insert(spec.id, Entry { volume: spec.volume, profile, process: None });
        Ok(())
    }

    async fn start(&self, spec: ContainerSpec) -> Result<ProcessContainer> {
        let id = spec.id;
        let folder = self.folder.path().join("containers").join(id.to_string());
        let volume = match spec.volume {
            Some(volume) => self.volume_folder(volume),
            None => folder.join("volume"),
        };
        let process = tokio::task::spawn_blocking(move || Process::start(spec, folder, volume)).await;
        let process = Arc::new(process.map_err(|e| Error::internal(e.to_string()))??);
        if let Some(entry) = self.containers().get_mut(&id) {
            entry.process = Some(Arc::clone(&process));
        }
        ProcessContainer::connect(process).await
    }
}

/// Refuses what this provider cannot make.
fn check(spec: &ContainerSpec) -> Result<()> {
    spec.profile.validate()?;
    spec.limits.validate()?;
    if spec.profile.image != ImageName::host() {
        return Err(Error::new(ErrorCode::NotFound, "the only image is the machine's own").at("image"));
    }
    if spec.profile.build_root.is_some() {
        let message = "this provider keeps no images";
        return Err(Error::new(ErrorCode::Unsupported, message).at("profile.build_root"));
    }
    if spec.profile.isolation != Isolation::Builtin {
        return Err(Error::new(ErrorCode::Unsupported, "there are no runtimes").at("profile.isolation"));
    }
    if !spec.profile.mounts.is_empty() {
        return Err(Error::new(ErrorCode::Unsupported, "nothing can be mounted").at("profile.mounts"));
    }
    if spec.profile.has_attachments() {
        let message = "this provider attaches no volumes and has no path rules";
        return Err(Error::new(ErrorCode::Unsupported, message).at("volumes"));
    }
    Ok(())
}

#[async_trait]
impl Provider for ProcessProvider {
    async fn capabilities(&self) -> Result<Capabilities> {
        Ok(Capabilities { name: "process", runtimes: Vec::new(), disk_limit: false })
    }

    async fn create(&self, spec: ContainerSpec) -> Result<Arc<dyn Container>> {
        check(&spec)?;
        self.reserve(&spec)?;
        let id = spec.id;
        match self.start(spec).await {
            Ok(container) => Ok(Arc::new(container)),
            Err(error) => {
                let _ = self.destroy(id).await;
                Err(error)
            }
        }
    }

    async fn attach(&self, id: ContainerId) -> Result<Arc<dyn Container>> {
        Ok(Arc::new(ProcessContainer::connect(self.find(id)?).await?))
    }

    async fn list(&self) -> Result<Vec<Listed>> {
        let containers = self.containers();
        let listed = |(id, entry): (&ContainerId, &Entry)| Listed {
            id: *id,
            state: entry.process.as_ref().map_or(State::Creating, |process| process.state()),
            volume: entry.volume,
            profile: entry.profile.clone(),
            held: false,
        };
        Ok(containers.iter().map(listed).collect())
    }

    async fn destroy(&self, id: ContainerId) -> Result<()> {
        let process = self.containers().get(&id).and_then(|entry| entry.process.clone());
        if let Some(process) = process {
            let ended = tokio::task::spawn_blocking(move || process.end()).await;
            ended.map_err(|e| Error::internal(e.to_string()))?;
        }
        self.containers().remove(&id);
        Ok(())
    }

    fn volumes(&self) -> Option<&dyn Volumes> {
        Some(self)
    }

    fn snapshots(&self) -> Option<&dyn Snapshots> {
        None
    }

    fn images(&self) -> Option<&dyn Images> {
        None
    }

    fn attachments(&self) -> Option<&dyn Attachments> {
        None
    }

    fn usage(&self) -> Option<&dyn Usages> {
        None
    }

    fn trust(&self) -> Option<&dyn Trust> {
        None
    }
}

impl Drop for ProcessProvider {
    fn drop(&mut self) {
        self.containers().drain().filter_map(|(_, entry)| entry.process).for_each(|process| process.end());
    }
}
