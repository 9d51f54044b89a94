//! Ports of servers that run inside a sandbox. The bytes are for a front; here is which caller may connect,
//! and the connection.

mod preview;
mod token_use;

pub(crate) use preview::PreviewKey;
pub use preview::PreviewToken;
pub use token_use::TokenUse;
pub(crate) use token_use::TokenUses;

use crate::{
    Caller, Vault,
    actor::SandboxRegistry,
    operation::{OperationSpec, Operations},
};
use atoll_provider::{Container, PortStream, Ports};
use atoll_store::{SandboxId, SandboxRecord, Store};
use atoll_types::{ContainerId, Error, ErrorCode, Operation, Result};
use futures_util::future::BoxFuture;
use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A port of a running sandbox, for a caller that may use it.
#[derive(Clone)]
pub struct Port {
    container: Arc<dyn Container>,
    /// The sandbox's owner.
    pub owner: String,
    /// Which port.
    pub number: u16,
}

impl Port {
    /// Identifies the port for as long as the sandbox's container lives; a resumed sandbox has another.
    #[must_use]
    pub fn key(&self) -> (ContainerId, u16) {
        (self.container.id(), self.number)
    }

    fn power(&self) -> Result<&dyn Ports> {
        power(&*self.container)
    }

    /// A new connection. The sandbox is active while it is open.
    pub async fn connect(&self) -> Result<PortStream> {
        let stream = self.power()?.connect(self.number).await?;
        Ok(Box::pin(Held { stream, _container: Arc::clone(&self.container) }))
    }

    /// Completes when the sandbox's container ends; the caller must then close its connections.
    pub fn closed(&self) -> Result<BoxFuture<'static, ()>> {
        Ok(self.power()?.closed())
    }
}

/// A connection with the container that it leads into.
struct Held {
    stream: PortStream,
    _container: Arc<dyn Container>,
}

impl AsyncRead for Held {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.stream.as_mut().poll_read(cx, buffer)
    }
}

impl AsyncWrite for Held {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        self.stream.as_mut().poll_write(cx, data)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.as_mut().poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.as_mut().poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.stream.as_mut().poll_write_vectored(cx, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

fn power(container: &dyn Container) -> Result<&dyn Ports> {
    let lacking =
        || Error::new(ErrorCode::Unsupported, "ports of this sandbox cannot be reached from outside");
    container.ports().ok_or_else(lacking)
}

/// Who may connect to the ports of a sandbox, and the connections.
#[derive(Clone)]
pub struct PortAccess {
    pub(crate) operations: Operations,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) vault: Arc<Vault>,
    pub(crate) registry: Arc<SandboxRegistry>,
    pub(crate) token_uses: Arc<TokenUses>,
}

impl PortAccess {
    /// A port, for its owner. A caller that may only read may not: a request can change what is inside.
    pub async fn get(&self, caller: &Caller, id: SandboxId, number: u16) -> Result<Port> {
        caller.must_write()?;
        let record = self.operations.visible(caller, id).await?;
        self.open(&record, number).await
    }

    /// A connection to a port that the caller takes over. Requests to a preview are too many to audit one by
    /// one; this is audited.
    pub async fn forward(&self, caller: &Caller, id: SandboxId, number: u16) -> Result<(Port, PortStream)> {
        let audited = self
            .operations
            .audited(caller, OperationSpec::to(Operation::PortForward, id).and("port", number))
            .await?;
        let result = async {
            let port = self.open(audited.record()?, number).await?;
            let stream = port.connect().await?;
            Ok((port, stream))
        }
        .await;
        audited.done(result).await
    }

    /// A port, for the bearer of a token for it; and the use of the token, which ends with it.
    pub async fn by_token(&self, token: &str, id: SandboxId, number: u16) -> Result<(Port, TokenUse)> {
        let valid = self.check_preview(token, id, number).await?;
        let missing = || Error::new(ErrorCode::NotFound, format!("there is no sandbox {}", id.uuid()));
        let record = self.store.sandbox(id).await?.ok_or_else(missing)?;
        Ok((self.open(&record, number).await?, valid))
    }

    /// Every way to a port is judged as a forward is.
    async fn open(&self, record: &SandboxRecord, number: u16) -> Result<Port> {
        if number == 0 {
            return Err(Error::invalid("port", "port must be between 1 and 65535"));
        }
        let states = Operation::PortForward.states();
        let container = Arc::new(self.registry.acquire_where(record.id, states, "a port").await?);
        Ok(Port { container, owner: record.owner.clone(), number })
    }

    /// The ports that something listens on inside.
    pub async fn listening(&self, caller: &Caller, id: SandboxId) -> Result<Vec<u16>> {
        self.operations.visible(caller, id).await?;
        let states = Operation::PortForward.states();
        let container = self.registry.acquire_where(id, states, "a look at its ports").await?;
        power(&container)?.listening().await
    }
}
