//! `atoll serve`. Started as root, it starts the launcher and then becomes an ordinary user by executing
//! itself again, under the same process id; started by an ordinary user, it starts only the launcher by sudo.
//! Either way the process that faces the network holds no privilege.

mod descriptors;
pub(crate) mod egress;
pub(crate) mod engine;
pub(crate) mod identity;
pub(crate) mod secret;

use crate::{cli, config::Config};
use atoll_core::IssuedKey;
use atoll_front_mcp::{Http, ServerContext};
use atoll_front_rest::Rest;
use atoll_http::{Access, HttpContext, Mount, OriginCheck};
use atoll_launch_proto::{LauncherReply, Request};
use atoll_provider::Provider;
use atoll_provider_native::{LaunchOptions, NativeProvider, Started, ensure_launcher};
use atoll_tool_sessions::CancellationToken;
use atoll_types::{Error, ErrorCode, Result};
use engine::{Engine, Ground};
use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
};
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
};

/// The folder of the server's own files.
pub(crate) fn folder(data_dir: &Path) -> PathBuf {
    data_dir.join("server")
}

/// The database.
pub(crate) fn database(data_dir: &Path) -> PathBuf {
    folder(data_dir).join("atoll.db")
}

/// The server's secret.
pub(crate) fn secret_key(data_dir: &Path) -> PathBuf {
    folder(data_dir).join("secret.key")
}

/// The head of the audit trail.
pub(crate) fn audit_head(data_dir: &Path) -> PathBuf {
    folder(data_dir).join("audit.head")
}

/// The server's process id, for `atoll down`.
pub(crate) fn pid_file(data_dir: &Path) -> PathBuf {
    folder(data_dir).join("server.pid")
}

/// Starts the server and returns when it ends.
pub(crate) fn start(options: &cli::Serve) -> Result<u8> {
    let config = Config::load(options)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|e| Error::internal(format!("cannot start: {e}")))?;
    if rustix::process::geteuid().is_root() {
        let identity = identity::find(config.user.as_deref())?;
        let started = runtime.block_on(launcher(&config, vec![identity.uid]))?;
        let error = match identity::prepare(&folder(&config.data_dir), &identity) {
            Ok(()) => {
                let found = egress::find().map(|found| (egress::FOUND, found));
                let new = started.new.then(|| (NEW_LAUNCHER, "1".to_owned()));
                identity::become_user(&identity, &config.data_dir, found.into_iter().chain(new))
            }
            Err(error) => error,
        };
        runtime.block_on(end_new(&started));
        return Err(error);
    }
    runtime.block_on(serve(&config)).map(|()| 0)
}

/// The variable that says to the unprivileged server that root has just started the launcher.
const NEW_LAUNCHER: &str = "ATOLL_NEW_LAUNCHER";

/// The launcher of the data folder, started where there is none.
pub(crate) async fn launcher(config: &Config, client_uids: Vec<u32>) -> Result<Started> {
    let options =
        LaunchOptions { data_dir: config.data_dir.clone(), client_uids, ephemeral: false, extra: Vec::new() };
    let Started { client, new } = ensure_launcher(&options).await?;
    if let Some(patience) = config.launcher_patience {
        client.wait_at_most(patience);
    }
    Ok(Started { client, new: new || std::env::var_os(NEW_LAUNCHER).is_some() })
}

/// Ends a launcher that was started for a server that could not start, unless it found live containers.
async fn end_new(Started { client, new }: &Started) {
    if *new
        && matches!(client.ask(Request::List).await, Ok(LauncherReply::Containers(found)) if found.is_empty())
    {
        let _ = client.ask(Request::Shutdown).await;
    }
}

async fn serve(config: &Config) -> Result<()> {
    log_to_stderr("info,sqlx=warn,rmcp=error");
    let started = launcher(config, Vec::new()).await?;
    let served = serve_with(config, Arc::new(NativeProvider::new(Arc::clone(&started.client)))).await;
    if served.is_err() {
        end_new(&started).await;
    }
    served
}

async fn serve_with(config: &Config, provider: Arc<dyn Provider>) -> Result<()> {
    descriptors::raise();
    let bound = Bound::open(config, provider).await?;
    let given = std::env::var("ATOLL_BOOTSTRAP_KEY").ok().filter(|k| !k.is_empty());
    // The operator knows a key that it gave, and standard output may end in a log.
    let shown = given.is_none();
    let first = bound.engine.core.keys.create_first(given).await?.filter(|_| shown);
    fs::write(pid_file(&config.data_dir), std::process::id().to_string())
        .map_err(|e| Error::internal(format!("the pid file cannot be written: {e}")))?;
    let end = told_to_end()?;
    greet(bound.address, config, first.as_ref(), bound.engine.alive);
    bound.run(config, end).await?;
    let _ = fs::remove_file(pid_file(&config.data_dir));
    Ok(())
}

/// A server that has its address and its parts, and accepts no connection yet.
pub(crate) struct Bound {
    pub(crate) engine: Engine,
    pub(crate) address: SocketAddr,
    listener: TcpListener,
}

impl Bound {
    pub(crate) async fn open(config: &Config, provider: Arc<dyn Provider>) -> Result<Self> {
        let ground = Ground::open(&config.data_dir).await?;
        let listener = TcpListener::bind(config.listen)
            .await
            .map_err(|e| Error::internal(format!("cannot listen on {}: {e}", config.listen)))?;
        let address = listener.local_addr().map_err(|e| Error::internal(e.to_string()))?;
        let engine = ground.build(config, provider, address).await?;
        Ok(Self { engine, address, listener })
    }

    /// Serves until `end` completes, and then shuts down.
    pub(crate) async fn run(
        self,
        config: &Config,
        end: impl Future<Output = ()> + Send + 'static,
    ) -> Result<()> {
        let Self { mut engine, address, listener } = self;
        let access = if config.no_auth { Access::Open } else { Access::Keys };
        engine.run(config).await?;
        let ending = CancellationToken::new();
        let settings = &config.mcp;
        let loopback = address.ip().is_loopback();
        let origins = OriginCheck::new(access, loopback, &settings.allowed_hosts, &settings.allowed_origins);
        let context = HttpContext::new(engine.core.clone(), access, origins);
        let mcp = mcp(&engine, config, &context, ending.clone());
        let rest = Rest::new(context.clone(), engine.sessions.clone(), config.preview.clone());
        let app = atoll_http::router(&context, rest.routes(), vec![mcp], |router| rest.around(router));
        let end = async move {
            end.await;
            // Clients with open event streams would stay for ever.
            ending.cancel();
        };
        let core = engine.core.clone();
        atoll_http::serve(listener, app, move || core.answers.connection_limits(), end).await;
        engine.end().await;
        Ok(())
    }
}

/// The tools, for clients that speak MCP over HTTP.
fn mcp(engine: &Engine, config: &Config, context: &HttpContext, ending: CancellationToken) -> Mount {
    let face = ServerContext::new(engine.core.clone(), engine.sessions.clone(), config.mcp.clone());
    Mount::new(atoll_front_mcp::PATH, "mcp", Http::new(face, context, ending))
}

/// Logs to stderr, at the default levels or the operator's.
pub(crate) fn log_to_stderr(usual: &str) {
    let filter = tracing_subscriber::EnvFilter::try_from_env("ATOLL_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new(usual));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
}

/// Makes this the only server of its data folder, until it ends: two would overwrite each other's changes of
/// the same sandboxes.
pub(crate) fn claim(own: &Path) -> Result<fs::File> {
    let cannot = |e: std::io::Error| Error::internal(format!("the server's folder cannot be locked: {e}"));
    let path = own.join("server.lock");
    let lock = fs::OpenOptions::new().create(true).truncate(false).write(true).open(path).map_err(cannot)?;
    match rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(lock),
        Err(rustix::io::Errno::WOULDBLOCK) => {
            let folder = own.parent().unwrap_or(own).display();
            let message = format!(
                "another server runs on this data folder; end it with `atoll down --data-dir {folder}`, or \
                 choose another with --data-dir"
            );
            Err(Error::new(ErrorCode::Conflict, message))
        }
        Err(error) => Err(cannot(error.into())),
    }
}

/// Completes at a signal to end. The handlers are installed by this call, not by the first poll: a parent
/// that sees the server listen may send the signal at once.
pub(crate) fn told_to_end() -> Result<impl Future<Output = ()>> {
    let listen = |kind| signal(kind).map_err(|e| Error::internal(format!("signals cannot be heard: {e}")));
    let (mut term, mut int) = (listen(SignalKind::terminate())?, listen(SignalKind::interrupt())?);
    Ok(async move {
        tokio::select! { _ = term.recv() => {}, _ = int.recv() => {} }
        tracing::info!("ending");
    })
}

/// The first lines that a person sees.
fn greet(address: SocketAddr, config: &Config, first: Option<&IssuedKey>, alive: usize) {
    say!("Atoll listens on http://{address} (docs: http://{address}/docs, MCP: http://{address}/mcp)");
    say!("data folder: {}; sandboxes that live: {alive}", config.data_dir.display());
    let key = match first {
        Some(issued) => {
            say!("first key (admin; shown this once): {}", issued.secret);
            issued.secret.clone()
        }
        None => "$ATOLL_API_KEY".to_owned(),
    };
    say!("try:");
    say!("  curl -sX POST http://{address}/api/v1/sandboxes -H \"Authorization: Bearer {key}\" -d '{{}}'");
}
