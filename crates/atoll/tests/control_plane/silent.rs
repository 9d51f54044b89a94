//! A provider that does not answer for a while after the server started.

use super::{Server, eventually};
use async_trait::async_trait;
use atoll_provider::{
    Attachments, Capabilities, Container, ContainerSpec, Images, Listed, Provider, Snapshots, Trust, Usages,
    Volumes,
};
use atoll_provider_process::ProcessProvider;
use atoll_types::{ContainerId, Error, ErrorCode, Result};
use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

struct Silent {
    inner: Arc<ProcessProvider>,
    silent: AtomicBool,
    /// Whether it does not even tell what it can do.
    deaf: AtomicBool,
    asked: AtomicUsize,
}

#[async_trait]
impl Provider for Silent {
    async fn capabilities(&self) -> Result<Capabilities> {
        match self.deaf.load(Ordering::SeqCst) {
            true => Err(Error::new(ErrorCode::Unavailable, "the launcher does not answer")),
            false => self.inner.capabilities().await,
        }
    }

    async fn create(&self, spec: ContainerSpec) -> Result<Arc<dyn Container>> {
        self.inner.create(spec).await
    }

    async fn attach(&self, id: ContainerId) -> Result<Arc<dyn Container>> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        match self.silent.load(Ordering::SeqCst) {
            true => Err(Error::new(ErrorCode::Unavailable, "the launcher does not answer")),
            false => self.inner.attach(id).await,
        }
    }

    async fn list(&self) -> Result<Vec<Listed>> {
        self.inner.list().await
    }

    async fn destroy(&self, id: ContainerId) -> Result<()> {
        self.inner.destroy(id).await
    }

    fn volumes(&self) -> Option<&dyn Volumes> {
        self.inner.volumes()
    }

    fn snapshots(&self) -> Option<&dyn Snapshots> {
        self.inner.snapshots()
    }

    fn images(&self) -> Option<&dyn Images> {
        self.inner.images()
    }

    fn attachments(&self) -> Option<&dyn Attachments> {
        self.inner.attachments()
    }

    fn usage(&self) -> Option<&dyn Usages> {
        self.inner.usage()
    }

    fn trust(&self) -> Option<&dyn Trust> {
        self.inner.trust()
    }
}

/// The operations of its sandboxes stay open until it answers: their commands may live.
#[test]
fn commands_of_a_sandbox_that_does_not_answer_at_a_start_are_not_lost() {
    let mut server = Server::start();
    let path = server.create("{}");
    let exec = server.background(&path, "echo before; read x; exit 4");
    eventually("its output", || server.get(&exec)["output_bytes"] == 7);
    server.kill();
    let inner = Arc::clone(&server.provider);
    let provider = Arc::new(Silent { inner, silent: true.into(), deaf: false.into(), asked: 0.into() });
    server.restart_with(Arc::clone(&provider) as _);
    // At a start each sandbox is attached to for its egress sockets and for its commands; what is beyond that is
    // another try, after the operations that nothing goes on with were ended.
    eventually("another try", || provider.asked.load(Ordering::SeqCst) > 3);
    provider.silent.store(false, Ordering::SeqCst);
    let row = || server.get("/api/v1/audit?kind=exec")["entries"][0]["ended"].clone();
    assert!(row().is_null(), "{}", row());
    server.ask("POST", &format!("{exec}/stdin?close=true"), "\n");
    eventually("its row", || row()["exit_code"] == 4);
    drop(provider);
}

/// `docker_available` of the API of containers means that the provider is ready.
#[test]
fn a_provider_that_does_not_answer_is_not_available() {
    let mut server = Server::start();
    let available = |server: &Server| server.get("/api/sandbox/status")["docker_available"].clone();
    assert_eq!(available(&server), true);
    server.kill();
    let inner = Arc::clone(&server.provider);
    let provider = Arc::new(Silent { inner, silent: false.into(), deaf: false.into(), asked: 0.into() });
    server.restart_with(Arc::clone(&provider) as _);
    provider.deaf.store(true, Ordering::SeqCst);
    // What is known of the provider is kept for a moment.
    eventually("the loss of the provider", || available(&server) == false);
    provider.deaf.store(false, Ordering::SeqCst);
    eventually("its return", || available(&server) == true);
    server.end();
    drop(provider);
}
