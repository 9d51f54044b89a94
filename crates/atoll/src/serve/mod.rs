//! `atoll serve`. Started as root, it starts the launcher and then becomes an ordinary user by executing
//! itself again, under the same process id; started by an ordinary user, it starts only the launcher by sudo.
//! Either way the process that faces the network holds no privilege.

mod descriptors;
pub(crate) mod egress;
pub(crate) mod engine;
pub(crate) mod identity;
pub(crate) mod secret;

use crate::{
    cli,
    config::{Config, DatabaseConfig, GrpcConfig, GrpcListen, env_file},
    doctor,
};
use atoll_core::IssuedKey;
use atoll_front_mcp::{Http, McpSettings, ServerContext};
use atoll_front_rest::Rest;
use atoll_http::{Access, HttpContext, Mount, OriginCheck, Router, Transport};
use atoll_launch_proto::{LauncherReply, Request};
use atoll_provider::Provider;
use atoll_provider_native::{LaunchOptions, NativeProvider, Started, ensure_launcher};
use atoll_tool_sessions::CancellationToken;
use atoll_types::{Error, ErrorCode, Result};
use engine::{Engine, Ground};
use futures_util::future::OptionFuture;
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

/// The stack of each of the server's threads.
pub(crate) const STACK: usize = 8 << 20;

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
    env_file::load();
    let config = Config::load(options)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        // A run of the agent waits for a tool, which waits for a command: without optimisation these fill the usual stack.
        .thread_stack_size(STACK)
        .build()
        .map_err(|e| Error::internal(format!("cannot start: {e}")))?;
    if rustix::process::geteuid().is_root() {
        let identity = identity::find(config.user.as_deref())?;
        let started = runtime.block_on(launcher(&config, vec![identity.uid]))?;
        let error = match identity::prepare(&folder(&config.data_dir), &identity) {
            Ok(()) => {
                let found = egress::find().map(|found| (egress::FOUND, found));
                let new = started.new.then(|| (NEW_LAUNCHER, "1".to_owned()));
                let read = [(env_file::PASSED, "1".to_owned())];
                let passed = found.into_iter().chain(new).chain(read);
                identity::become_user(&identity, &config.data_dir, passed)
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
    let Started { client, new, visit } = ensure_launcher(&options).await?;
    if let Some(patience) = config.launcher_patience {
        client.wait_at_most(patience);
    }
    Ok(Started { client, visit, new: new || std::env::var_os(NEW_LAUNCHER).is_some() })
}

/// Ends a launcher that was started for a server that could not start, unless it found live containers.
async fn end_new(Started { client, new, .. }: &Started) {
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
    greet(&bound, config, first.as_ref());
    bound.run(config, end).await?;
    let _ = fs::remove_file(pid_file(&config.data_dir));
    Ok(())
}

/// A server that has its address and its parts, and accepts no connection yet.
pub(crate) struct Bound {
    pub(crate) engine: Engine,
    pub(crate) address: SocketAddr,
    /// Where gRPC is served, if it is.
    pub(crate) grpc_address: Option<SocketAddr>,
    /// The second address for clients of the LangGraph API, if there is one.
    pub(crate) langgraph_address: Option<SocketAddr>,
    listener: TcpListener,
    grpc_listener: Option<TcpListener>,
    langgraph_listener: Option<TcpListener>,
}

impl Bound {
    pub(crate) async fn open(config: &Config, provider: Arc<dyn Provider>) -> Result<Self> {
        let ground = Ground::open(&config.data_dir, &config.database).await?;
        let listener = TcpListener::bind(config.listen)
            .await
            .map_err(|e| Error::internal(format!("cannot listen on {}: {e}", config.listen)))?;
        let address = listener.local_addr().map_err(|e| Error::internal(e.to_string()))?;
        let grpc_listener = grpc_listener(config).await?;
        let of = |listener: &Option<TcpListener>| listener.as_ref().and_then(|l| l.local_addr().ok());
        let grpc_address = of(&grpc_listener);
        let langgraph_listener = langgraph_listener(config).await?;
        let langgraph_address = of(&langgraph_listener);
        let engine = ground.build(config, provider, address).await?;
        Ok(Self {
            engine,
            address,
            grpc_address,
            langgraph_address,
            listener,
            grpc_listener,
            langgraph_listener,
        })
    }

    /// Serves until `end` completes, and then shuts down.
    pub(crate) async fn run(
        self,
        config: &Config,
        end: impl Future<Output = ()> + Send + 'static,
    ) -> Result<()> {
        let Self {
            mut engine,
            address,
            grpc_address,
            langgraph_address,
            listener,
            grpc_listener,
            langgraph_listener,
        } = self;
        let access = if config.no_auth { Access::Open } else { Access::Keys };
        engine.run(config).await?;
        let ending = CancellationToken::new();
        let settings = &config.mcp;
        let loopback = address.ip().is_loopback();
        let origins = OriginCheck::new(access, loopback, &settings.allowed_hosts, &settings.allowed_origins);
        let context = HttpContext::new(engine.core.clone(), access, origins);
        let app = routes(&engine, config, &context, (address, langgraph_address), ending.clone());
        let grpc = grpc_listener.map(|listener| {
            let loopback = grpc_address.is_some_and(|address| address.ip().is_loopback());
            serve_grpc(&context, config, listener, loopback, ending.clone())
        });
        let grpc = grpc.transpose()?;
        let limits = {
            let core = engine.core.clone();
            move || core.answers.connection_limits()
        };
        let second = langgraph_listener.map(|listener| {
            let ending = ending.clone();
            let end = async move { ending.cancelled().await };
            atoll_http::serve(listener, app.clone(), limits.clone(), end)
        });
        let end = async move {
            end.await;
            // Clients with open event streams would stay for ever.
            ending.cancel();
        };
        let served = atoll_http::serve(listener, app, limits, end);
        let (grpc, second) = (OptionFuture::from(grpc), OptionFuture::from(second));
        tokio::join!(served, grpc, second);
        engine.end().await;
        Ok(())
    }
}

/// Everything that the server's own address serves, and the second one for clients of the LangGraph API.
fn routes(
    engine: &Engine,
    config: &Config,
    context: &HttpContext,
    (address, second): (SocketAddr, Option<SocketAddr>),
    ending: CancellationToken,
) -> Router {
    let mcp = mcp(engine, config, context, ending);
    let agents = engine.agents.clone();
    let rest = Rest::new(context.clone(), engine.sessions.clone(), agents.clone(), config.preview.clone());
    let api = rest
        .routes()
        .merge(atoll_front_compat::routes(context.clone()))
        .merge(atoll_front_langgraph::routes(context.clone(), agents))
        .merge(atoll_front_ui::routes(context.clone(), doctor::seen_by_server(&config.data_dir)));
    let McpSettings { allowed_hosts, allowed_origins, .. } = &config.mcp;
    // A page that may use the sandboxes by gRPC-Web may use the agent.
    let origins: Vec<_> = allowed_origins.iter().chain(&config.grpc.allowed_origins).cloned().collect();
    let loopback = address.ip().is_loopback() && second.is_none_or(|second| second.ip().is_loopback());
    let pages = Arc::new(OriginCheck::new(context.access, loopback, allowed_hosts, &origins));
    let server_url = config.tools.server_url.as_deref();
    let around = |router| {
        let router = atoll_front_compat::around(router, server_url);
        rest.around(atoll_front_langgraph::around(router, pages))
    };
    atoll_http::router(context, api, vec![mcp], around)
}

/// The second listener for clients of the LangGraph API; none unless the operator names one.
async fn langgraph_listener(config: &Config) -> Result<Option<TcpListener>> {
    let Some(address) = config.langgraph_listen else { return Ok(None) };
    let cannot = |error| Error::internal(format!("langgraph.listen: cannot listen on {address}: {error}"));
    TcpListener::bind(address).await.map(Some).map_err(cannot)
}

/// The listener of gRPC; none where it is off, or where another program has the default address.
async fn grpc_listener(config: &Config) -> Result<Option<TcpListener>> {
    let Some(GrpcListen { address, named }) = config.grpc.listen else { return Ok(None) };
    match TcpListener::bind(address).await {
        Ok(listener) => Ok(Some(listener)),
        Err(error) if named => {
            Err(Error::internal(format!("grpc.listen: cannot listen on {address}: {error}")))
        }
        Err(error) => {
            tracing::warn!(%address, %error, "gRPC is not served; set grpc.listen to another address, or to \"\" to switch it off");
            Ok(None)
        }
    }
}

/// Serves gRPC and gRPC-Web until the token is cancelled.
fn serve_grpc(
    context: &HttpContext,
    config: &Config,
    listener: TcpListener,
    loopback: bool,
    ending: CancellationToken,
) -> Result<impl Future<Output = ()> + use<>> {
    let GrpcConfig { allowed_hosts, allowed_origins, tls, sessions, .. } = &config.grpc;
    let origins =
        OriginCheck::new(context.access, loopback, allowed_hosts, allowed_origins).of_section("grpc");
    let context = context.with_origins(origins);
    let app = atoll_front_grpc::router(&context, sessions.clone())?;
    let transport = Transport { http2: true, tls: tls.clone() };
    let limits = move || context.core.answers.connection_limits();
    let end = async move { ending.cancelled().await };
    Ok(atoll_http::serve_over(transport, listener, app, limits, end))
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
    // Its lines carry the bodies of model providers, which may echo a key.
    let filter = match "genai=off".parse() {
        Ok(quiet) => filter.add_directive(quiet),
        Err(_) => filter,
    };
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
fn greet(bound: &Bound, config: &Config, first: Option<&IssuedKey>) {
    let (address, alive) = (bound.address, bound.engine.alive);
    say!(
        "Atoll listens on http://{address} (console: http://{address}/ui/, docs: http://{address}/docs, MCP: http://{address}/mcp)"
    );
    if let Some(address) = bound.grpc_address {
        let scheme = if config.grpc.tls.is_some() { "https" } else { "http" };
        say!("gRPC: {scheme}://{address}");
    }
    if let Some(address) = bound.langgraph_address {
        say!("LangGraph API: http://{address}");
    }
    say!("data folder: {}; sandboxes that live: {alive}", config.data_dir.display());
    if let DatabaseConfig::Postgres(address) = &config.database {
        say!("database: {address}");
    }
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
