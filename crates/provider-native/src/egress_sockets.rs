//! The egress sockets of a container, as the launcher passes them: descriptors of sockets that were made in
//! its network and that a socket holder keeps. Unused ones that this process holds are closed by
//! [`crate::ports::Networks::close`], which also notifies the session that serves them.

use crate::{launcher::LauncherClient, ports::Network};
use async_trait::async_trait;
use atoll_launch_proto::{LauncherReply, Request};
use atoll_provider::{EgressEndpoint, EgressSockets};
use atoll_types::{ContainerId, Error, ErrorCode, Result};
use futures_util::future::BoxFuture;
use rustix::fd::OwnedFd;
use std::sync::Arc;

/// The egress endpoint of one container.
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

/// The egress sockets in a reply's descriptors, in the order of the protocol.
pub(crate) fn read(redirected: bool, fds: Vec<OwnedFd>) -> Result<EgressSockets> {
    let mut fds = fds.into_iter();
    let mut next = || fds.next().ok_or_else(|| Error::internal("the launcher sent too few egress sockets"));
    let (proxy, names, names_tcp) = (next()?, next()?, next()?);
    let redirected = if redirected { Some(next()?) } else { None };
    Ok(EgressSockets { proxy, redirected, names, names_tcp })
}

#[async_trait]
impl EgressEndpoint for ContainerEgress {
    async fn egress_sockets(&self) -> Result<EgressSockets> {
        if let Some(egress_sockets) = self.network.take_egress_sockets() {
            return Ok(egress_sockets);
        }
        let (LauncherReply::EgressSockets { redirected }, fds) =
            self.launcher.ask_with(Request::EgressSockets(self.id)).await?
        else {
            return Err(Error::internal("the launcher sent no egress sockets"));
        };
        let egress_sockets = read(redirected, fds)?;
        // Closed already, so a session that got them now would never be notified to close them.
        if self.network.is_closed() {
            return Err(Error::new(ErrorCode::NotRunning, "the container is being destroyed"));
        }
        Ok(egress_sockets)
    }

    fn closed(&self) -> BoxFuture<'static, ()> {
        self.network.closed()
    }
}
