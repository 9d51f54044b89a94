//! The way out of a container, as the launcher hands it over: descriptors of sockets that were made in
//! its network and are kept by somebody else. What this process holds of them unasked goes with
//! [`crate::ports::Networks::close`], and whoever serves them is told.

use crate::{launcher::LauncherClient, ports::Network};
use async_trait::async_trait;
use atoll_launch_proto::{LauncherReply, Request};
use atoll_provider::{EgressEndpoint, EgressSockets};
use atoll_types::{ContainerId, Error, ErrorCode, Result};
use futures_util::future::BoxFuture;
use rustix::fd::OwnedFd;
use std::sync::Arc;

/// The way out of one container.
pub(crate) struct ContainerEgress {
    launcher: Arc<LauncherClient>,
    id: ContainerId,
    network: Arc<Network>,
}

impl ContainerEgress {
    pub(crate) fn new(launcher: &Arc<LauncherClient>, id: ContainerId) -> Self {
        Self { launcher: Arc::clone(launcher), id, network: launcher.networks.find(id) }
    }
}

/// The gate in an answer's descriptors, in the order that the protocol says.
pub(crate) fn read(redirected: bool, fds: Vec<OwnedFd>) -> Result<EgressSockets> {
    let mut fds = fds.into_iter();
    let mut next = || fds.next().ok_or_else(|| Error::internal("the launcher sent half a gate"));
    let (proxy, names, names_tcp) = (next()?, next()?, next()?);
    let redirected = if redirected { Some(next()?) } else { None };
    Ok(EgressSockets { proxy, redirected, names, names_tcp })
}

#[async_trait]
impl EgressEndpoint for ContainerEgress {
    async fn egress_sockets(&self) -> Result<EgressSockets> {
        if let Some(egress_sockets) = self.network.take_gate() {
            return Ok(egress_sockets);
        }
        let (LauncherReply::EgressSockets { redirected }, fds) =
            self.launcher.ask_with(Request::EgressSockets(self.id)).await?
        else {
            return Err(Error::internal("the launcher sent no gate"));
        };
        let egress_sockets = read(redirected, fds)?;
        // Whoever got it now would hold it for ever: the word to let go has been said.
        if self.network.is_closed() {
            return Err(Error::new(ErrorCode::NotRunning, "the container is being destroyed"));
        }
        Ok(egress_sockets)
    }

    fn closed(&self) -> BoxFuture<'static, ()> {
        self.network.closed()
    }
}
