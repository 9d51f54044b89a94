//! A handle on one container: the channel to its PID 1, remade through the launcher when it breaks.
//!
//! Each stream between the server and PID 1 has a flow-control window of its own, and the connection's window
//! is too large to fill: a reader that does not read, or a command that does not, blocks no other stream.

use crate::{
    egress_sockets::ContainerEgress, launcher::LauncherClient, observer_client::ContainerChanges,
    ports::ContainerPorts, state, unexpected,
};
use async_trait::async_trait;
use atoll_launch_proto::{LauncherReply, Request, output_bytes, spool_bytes};
use atoll_provider::{
    Claimable, Container, Dial, EgressEndpoint, FileChanges, Guest, GuestChange, LiveLimits, Lost, Pause,
    PortStream, Ports, Spool, State,
};
use atoll_types::{ContainerId, Death, Error, ErrorCode, Limits, Result};
use hyper_util::rt::TokioIo;
use std::{collections::BTreeMap, io, os::unix::net::UnixStream, sync::Arc, time::Duration};
use tokio::{net::unix::pipe, sync::Mutex};
use tonic::transport::{Channel, Endpoint};
use tower::service_fn;

/// A container of this machine.
pub(crate) struct NativeContainer {
    id: ContainerId,
    launcher: Arc<LauncherClient>,
    guest: Guest,
    changes: ContainerChanges,
    ports: ContainerPorts,
    egress_sockets: ContainerEgress,
}

/// Queries the launcher why PID 1 does not answer, and gets further connections to it.
struct AskLauncher {
    id: ContainerId,
    launcher: Arc<LauncherClient>,
}

#[async_trait]
impl Lost for AskLauncher {
    async fn death(&self) -> Option<Death> {
        // A dying process closes its sockets a moment before it is dead.
        for _ in 0..TRIES {
            match inspect(&self.launcher, self.id).await {
                Ok(State::Dead(death)) => return Some(death),
                // It was destroyed, which is its end as well.
                Err(error) if error.code == ErrorCode::NotFound => return Some(Death::lost()),
                _ => tokio::time::sleep(PAUSE).await,
            }
        }
        None
    }
}

#[async_trait]
impl Dial for AskLauncher {
    async fn dial(&self) -> Result<UnixStream> {
        self.launcher.connect_unix(self.id).await
    }
}

/// How long the handshake may take.
const GREETING: Duration = Duration::from_secs(30);
const TRIES: u32 = 25;
const PAUSE: Duration = Duration::from_millis(20);

async fn inspect(launcher: &LauncherClient, id: ContainerId) -> Result<State> {
    match launcher.ask(Request::Inspect(id)).await? {
        LauncherReply::Container(status) => Ok(state(&status)),
        other => Err(unexpected(&other)),
    }
}

/// The flow-control window of a stream, so that a bulk transfer does not wait for round trips.
const STREAM_WINDOW: u32 = 1 << 20;
/// Practically unlimited: a reader that does not read must not use up the others' share.
const CONNECTION_WINDOW: u32 = 1 << 30;
/// Larger than usual: a bulk transfer in small frames spends its time on their headers.
const LARGEST_FRAME: u32 = 256 << 10;

impl NativeContainer {
    /// Connects to PID 1 and does the handshake, unless the container is paused: then that happens after it
    /// is resumed.
    pub(crate) async fn connect(launcher: Arc<LauncherClient>, id: ContainerId) -> Result<Self> {
        let (first, token, paused) = launcher.connect(id).await?;
        let channel = channel(Arc::clone(&launcher), id, first).await?;
        let asked = Arc::new(AskLauncher { id, launcher: Arc::clone(&launcher) });
        let guest = Guest::silent(channel, token.as_deref(), Arc::clone(&asked) as _)?;
        if !paused {
            greet(&guest).await?;
        }
        // Over TCP no descriptors can pass.
        let guest = if token.is_none() { guest.with_descriptors(asked) } else { guest };
        let changes = ContainerChanges::new(&launcher.observer, id);
        let ports = ContainerPorts::new(&launcher, id);
        let egress_sockets = ContainerEgress::new(&launcher, id);
        Ok(Self { id, launcher, guest, changes, ports, egress_sockets })
    }
}

/// The handshake with PID 1, with a timeout: the container may be paused at this moment.
async fn greet(guest: &Guest) -> Result<()> {
    let late = || Error::new(ErrorCode::Unavailable, "PID 1 does not answer");
    tokio::time::timeout(GREETING, guest.hello()).await.unwrap_or_else(|_| Err(late()))
}

/// A channel that starts on the given connection, and gets another from the launcher when that breaks.
async fn channel(launcher: Arc<LauncherClient>, id: ContainerId, first: PortStream) -> Result<Channel> {
    let first = Arc::new(Mutex::new(Some(first)));
    let connector = service_fn(move |_| {
        let (launcher, first) = (Arc::clone(&launcher), Arc::clone(&first));
        async move {
            let there = first.lock().await.take();
            let stream = match there {
                Some(stream) => stream,
                None => launcher.connect(id).await.map_err(std::io::Error::other)?.0,
            };
            Ok::<_, std::io::Error>(TokioIo::new(stream))
        }
    });
    Endpoint::from_static("http://sandbox")
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_frame_size(LARGEST_FRAME)
        .connect_with_connector(connector)
        .await
        .map_err(|e| Error::new(ErrorCode::Unavailable, format!("PID 1 does not answer: {e}")))
}

#[async_trait]
impl Container for NativeContainer {
    fn id(&self) -> ContainerId {
        self.id
    }

    fn guest(&self) -> &Guest {
        &self.guest
    }

    async fn state(&self) -> Result<State> {
        inspect(&self.launcher, self.id).await
    }

    async fn died(&self) -> Result<Death> {
        let pidfd = match self.launcher.ask_with(Request::Watch(self.id)).await {
            Ok((LauncherReply::Watched, mut fds)) => fds.pop(),
            Ok((LauncherReply::Died(death), _)) => return Ok(death),
            Ok((other, _)) => return Err(unexpected(&other)),
            // A launcher of an older release keeps a process that waits.
            Err(error) if error.code == ErrorCode::VersionMismatch => None,
            Err(error) => return Err(error),
        };
        let watched = pidfd.is_some();
        if let Some(pidfd) = pidfd {
            // Nothing is read: a pidfd is readable when its process is dead, which is all that this waits for.
            let watch = pipe::Receiver::from_owned_fd_unchecked(pidfd);
            let failed = |e: io::Error| Error::internal(format!("cannot watch PID 1: {e}"));
            watch.map_err(failed)?.readable().await.map_err(failed)?;
        }
        match self.launcher.ask(Request::Wait(self.id)).await {
            Ok(LauncherReply::Died(death)) => Ok(death),
            Ok(other) => Err(unexpected(&other)),
            // It was destroyed before its death was read, which is its end as well.
            Err(error) if watched && error.code == ErrorCode::NotFound => Ok(Death::lost()),
            Err(error) => Err(error),
        }
    }

    fn live_limits(&self) -> Option<&dyn LiveLimits> {
        Some(self)
    }

    fn claimable(&self) -> Option<&dyn Claimable> {
        Some(self)
    }

    fn pause(&self) -> Option<&dyn Pause> {
        Some(self)
    }

    fn changes(&self) -> Option<&dyn FileChanges> {
        Some(&self.changes)
    }

    fn ports(&self) -> Option<&dyn Ports> {
        Some(&self.ports)
    }

    fn egress_endpoint(&self) -> Option<&dyn EgressEndpoint> {
        Some(&self.egress_sockets)
    }
}

#[async_trait]
impl Pause for NativeContainer {
    async fn pause(&self) -> Result<()> {
        self.launcher.ask(Request::Pause(self.id)).await.map(drop)
    }

    async fn resume(&self) -> Result<()> {
        self.launcher.ask(Request::Unpause(self.id)).await?;
        greet(&self.guest).await
    }
}

#[async_trait]
impl LiveLimits for NativeContainer {
    async fn set_limits(&self, limits: Limits) -> Result<()> {
        self.launcher.ask(Request::SetLimits(self.id, limits)).await?;
        self.guest.configure(guest_limits(&limits)).await
    }
}

/// The limits that PID 1 applies itself.
fn guest_limits(limits: &Limits) -> GuestChange {
    let spool = Spool { bytes: spool_bytes(limits), of_one: output_bytes(limits) };
    let Limits { open_files, processes, .. } = *limits;
    let (open_files, processes) = (Some(open_files), Some(processes));
    GuestChange { environment: None, open_files, processes, spool: Some(spool) }
}

#[async_trait]
impl Claimable for NativeContainer {
    async fn current(&self) -> Result<bool> {
        match self.launcher.ask(Request::Current(self.id)).await? {
            LauncherReply::Current(current) => Ok(current),
            other => Err(unexpected(&other)),
        }
    }

    async fn claim(&self, limits: Limits, environment: BTreeMap<String, String>) -> Result<()> {
        let change = GuestChange { environment: Some(environment), ..guest_limits(&limits) };
        let asked = self.launcher.ask(Request::Claim(self.id, limits));
        // The launcher changes the one and PID 1 the other; neither waits for the other. PID 1's reply also
        // shows that it lives.
        tokio::try_join!(asked, self.guest.configure(change)).map(|_| ())
    }
}
