//! Containers of this machine. The root launcher does the work; this side sends it requests, connects to PID
//! 1, and holds no privilege.

mod container;
mod egress_sockets;
mod images;
mod launcher;
mod observer_client;
mod ports;
mod snapshots;
mod start;

use async_trait::async_trait;
use atoll_launch_proto::{
    ContainerState, ContainerStatus, CreateRequest, LauncherReply, Quota, Report, Request, TrustRequest,
};
use atoll_provider::{
    Attachments, Capabilities, Container, ContainerSpec, DiskRoom, Images, Listed, Provider, Snapshots,
    State, Trust, Usages, Volumes,
};
use atoll_types::{ContainerId, Death, DeathKind, Error, ErrorCode, Result, Usage, VolumeId};
use container::NativeContainer;
pub use launcher::{Held, LauncherClient};
use rustix::fd::OwnedFd;
pub use start::{LaunchOptions, Started, ensure_launcher};
use std::sync::Arc;

/// Containers of this machine.
pub struct NativeProvider {
    launcher: Arc<LauncherClient>,
}

impl NativeProvider {
    /// A provider on a running launcher.
    #[must_use]
    pub fn new(launcher: Arc<LauncherClient>) -> Self {
        Self { launcher }
    }

    /// Connects to a container that was just made, and keeps the egress sockets that came with the reply.
    async fn connect_new(
        &self,
        id: ContainerId,
        reply: LauncherReply,
        fds: Vec<OwnedFd>,
    ) -> Result<NativeContainer> {
        let LauncherReply::Created { status: _, redirected } = reply else { return Err(unexpected(&reply)) };
        self.launcher.networks.find(id).hold_egress_sockets(egress_sockets::read(redirected, fds)?);
        NativeContainer::connect(Arc::clone(&self.launcher), id).await
    }

    /// What the launcher found on this machine.
    pub async fn report(&self) -> Result<Report> {
        match self.launcher.ask(Request::Report).await? {
            LauncherReply::Report(report) => Ok(report),
            other => Err(unexpected(&other)),
        }
    }

    /// Makes a container whose life is tied to the second value: it is destroyed when that is dropped, or
    /// when this process ends.
    pub async fn create_held(&self, spec: ContainerSpec) -> Result<(Arc<dyn Container>, Held)> {
        let id = spec.id;
        let (_, held) = self.launcher.ask_and_hold(create_request(spec, true)).await?;
        let container = NativeContainer::connect(Arc::clone(&self.launcher), id).await?;
        Ok((Arc::new(container), held))
    }
}

fn create_request(spec: ContainerSpec, held: bool) -> Request {
    let ContainerSpec { id, profile, limits, volume, environment } = spec;
    Request::Create(Box::new(CreateRequest { container: id, profile, limits, volume, environment, held }))
}

fn unexpected(reply: &LauncherReply) -> Error {
    Error::internal(format!("the launcher answered something else: {reply:?}"))
}

fn state(status: &ContainerStatus) -> State {
    match (status.state, &status.death) {
        (ContainerState::Creating, _) => State::Creating,
        (ContainerState::Running, _) => State::Running,
        (ContainerState::Paused, _) => State::Paused,
        (ContainerState::Dead, death) => State::Dead(death.clone().unwrap_or_else(Death::lost)),
    }
}

fn was_killed(death: &Death) -> bool {
    death.kind == DeathKind::Lost || death.signal == Some(9) && death.kind == DeathKind::Signal
}

fn listed(status: &ContainerStatus) -> Listed {
    Listed {
        id: status.container,
        state: state(status),
        volume: status.volume,
        profile: status.profile.clone(),
        held: status.held,
    }
}

#[async_trait]
impl Provider for NativeProvider {
    async fn capabilities(&self) -> Result<Capabilities> {
        let Report { runtimes, quota, .. } = self.report().await?;
        Ok(Capabilities { name: "native", runtimes, disk_limit: quota != Quota::None })
    }

    async fn create(&self, spec: ContainerSpec) -> Result<Arc<dyn Container>> {
        let id = spec.id;
        let made = match self.launcher.ask_with(create_request(spec, false)).await {
            // Whether the container was made is not known, so it must be destroyed.
            Err(error) if error.code == ErrorCode::Unavailable => Err(error),
            Err(error) => return Err(error),
            Ok((reply, fds)) => self.connect_new(id, reply, fds).await.map_err(|error| match error.code {
                // A launcher that died meanwhile removed it as half-made.
                ErrorCode::NotFound => {
                    Error::new(ErrorCode::Unavailable, "the launcher lost the container while it was made")
                }
                // Only PID 1 runs in a new container, so its end is no fault of the caller's.
                ErrorCode::ContainerDied if error.death.as_ref().is_none_or(was_killed) => Error::new(
                    ErrorCode::Unavailable,
                    "PID 1 was killed while its container was made; try again",
                ),
                _ => error,
            }),
        };
        match made {
            Ok(container) => Ok(Arc::new(container)),
            Err(error) => {
                let _ = self.destroy(id).await;
                Err(error)
            }
        }
    }

    async fn attach(&self, id: ContainerId) -> Result<Arc<dyn Container>> {
        Ok(Arc::new(NativeContainer::connect(Arc::clone(&self.launcher), id).await?))
    }

    async fn list(&self) -> Result<Vec<Listed>> {
        match self.launcher.ask(Request::List).await? {
            LauncherReply::Containers(all) => Ok(all.iter().map(listed).collect()),
            other => Err(unexpected(&other)),
        }
    }

    async fn destroy(&self, id: ContainerId) -> Result<()> {
        // First: a socket that is left open would keep the container's network alive.
        self.launcher.networks.close(id);
        self.launcher.ask(Request::Destroy(id)).await.map(|_| ())
    }

    fn volumes(&self) -> Option<&dyn Volumes> {
        Some(self)
    }

    fn snapshots(&self) -> Option<&dyn Snapshots> {
        Some(self)
    }

    fn images(&self) -> Option<&dyn Images> {
        Some(self)
    }

    fn attachments(&self) -> Option<&dyn Attachments> {
        Some(self)
    }

    fn usage(&self) -> Option<&dyn Usages> {
        Some(self)
    }

    fn trust(&self) -> Option<&dyn Trust> {
        Some(self)
    }
}

#[async_trait]
impl Trust for NativeProvider {
    async fn trust(&self, certificate_pem: &str) -> Result<()> {
        let asked = TrustRequest { certificate_pem: certificate_pem.into() };
        self.launcher.ask(Request::Trust(asked)).await.map(|_| ())
    }
}

#[async_trait]
impl Usages for NativeProvider {
    async fn all(&self) -> Result<Vec<(ContainerId, Usage)>> {
        match self.launcher.ask(Request::Usages).await? {
            LauncherReply::Usages(all) => Ok(all),
            other => Err(unexpected(&other)),
        }
    }

    async fn one(&self, id: ContainerId) -> Result<Usage> {
        match self.launcher.ask(Request::Usage(id)).await? {
            LauncherReply::Usages(one) if one.len() == 1 && one[0].0 == id => Ok(one[0].1),
            other => Err(unexpected(&other)),
        }
    }
}

#[async_trait]
impl Volumes for NativeProvider {
    async fn list_volumes(&self) -> Result<Vec<VolumeId>> {
        match self.launcher.ask(Request::ListVolumes).await? {
            LauncherReply::Volumes(all) => Ok(all.into_iter().map(|v| v.volume).collect()),
            other => Err(unexpected(&other)),
        }
    }

    async fn remove_volume(&self, id: VolumeId) -> Result<()> {
        self.launcher.ask(Request::RemoveVolume(id)).await.map(|_| ())
    }

    async fn room(&self) -> Result<DiskRoom> {
        let Report { capacity_bytes, free_bytes, disk_low, .. } = self.report().await?;
        Ok(DiskRoom { capacity_bytes, free_bytes, low: disk_low })
    }

    async fn resize_volume(&self, id: VolumeId, bytes: u64) -> Result<()> {
        self.launcher.ask(Request::ResizeVolume(id, bytes)).await.map(|_| ())
    }
}

#[async_trait]
impl Attachments for NativeProvider {
    async fn put_volume(&self, id: VolumeId, bytes: u64) -> Result<()> {
        self.launcher.ask(Request::PutVolume(id, bytes)).await.map(|_| ())
    }

    async fn volume_usage(&self, id: VolumeId) -> Result<Option<u64>> {
        match self.launcher.ask(Request::InspectVolume(id)).await? {
            LauncherReply::Volumes(one) if one.len() == 1 && one[0].volume == id => {
                Ok(one[0].counted.then_some(one[0].used_bytes))
            }
            other => Err(unexpected(&other)),
        }
    }
}
