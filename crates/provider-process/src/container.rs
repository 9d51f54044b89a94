//! A handle on one container: the channel to its PID 1, over the socket in its folder.

use crate::process::Process;
use async_trait::async_trait;
use atoll_provider::{
    Claimable, Container, Dial, EgressEndpoint, FileChanges, Guest, LiveLimits, Lost, Pause, Ports, State,
};
use atoll_types::{ContainerId, Death, Error, ErrorCode, Result};
use hyper_util::rt::TokioIo;
use std::{os::unix::net::UnixStream, sync::Arc, time::Duration};
use tonic::transport::{Channel, Endpoint};
use tower::service_fn;

/// Practically unlimited: a reader that does not read must not use up the others' share.
const CONNECTION_WINDOW: u32 = 1 << 30;
/// How long a death may take to be known after the socket is closed.
const GRACE: Duration = Duration::from_millis(500);

pub(crate) struct ProcessContainer {
    process: Arc<Process>,
    guest: Guest,
}

/// Knows the process, for the guest's client.
struct AskProcess(Arc<Process>);

#[async_trait]
impl Lost for AskProcess {
    async fn death(&self) -> Option<Death> {
        tokio::time::timeout(GRACE, died(&self.0)).await.ok()
    }
}

#[async_trait]
impl Dial for AskProcess {
    async fn dial(&self) -> Result<UnixStream> {
        UnixStream::connect(&self.0.socket).map_err(|e| silent(&e))
    }
}

fn silent(error: &dyn std::fmt::Display) -> Error {
    Error::new(ErrorCode::Unavailable, format!("PID 1 does not answer: {error}"))
}

async fn died(process: &Process) -> Death {
    let mut death = process.death.clone();
    match death.wait_for(Option::is_some).await {
        Ok(death) => death.clone().unwrap_or_else(Death::lost),
        Err(_) => Death::lost(),
    }
}

async fn channel(process: &Process) -> Result<Channel> {
    let socket = process.socket.clone();
    let connector = service_fn(move |_| {
        let socket = socket.clone();
        async move { tokio::net::UnixStream::connect(socket).await.map(TokioIo::new) }
    });
    let endpoint = Endpoint::from_static("http://sandbox").initial_connection_window_size(CONNECTION_WINDOW);
    endpoint.connect_with_connector(connector).await.map_err(|e| silent(&e))
}

impl ProcessContainer {
    /// Connects to PID 1 and does the handshake.
    pub(crate) async fn connect(process: Arc<Process>) -> Result<Self> {
        if let State::Dead(death) = process.state() {
            return Err(Error::died(death));
        }
        let asked = Arc::new(AskProcess(Arc::clone(&process)));
        let guest = Guest::greet(channel(&process).await?, None, Arc::clone(&asked) as _).await?;
        Ok(Self { process, guest: guest.with_descriptors(asked) })
    }
}

#[async_trait]
impl Container for ProcessContainer {
    fn id(&self) -> ContainerId {
        self.process.id
    }

    fn guest(&self) -> &Guest {
        &self.guest
    }

    async fn state(&self) -> Result<State> {
        Ok(self.process.state())
    }

    async fn died(&self) -> Result<Death> {
        Ok(died(&self.process).await)
    }

    fn live_limits(&self) -> Option<&dyn LiveLimits> {
        None
    }

    fn claimable(&self) -> Option<&dyn Claimable> {
        None
    }

    fn pause(&self) -> Option<&dyn Pause> {
        None
    }

    fn changes(&self) -> Option<&dyn FileChanges> {
        None
    }

    fn ports(&self) -> Option<&dyn Ports> {
        None
    }

    fn egress_endpoint(&self) -> Option<&dyn EgressEndpoint> {
        None
    }
}
