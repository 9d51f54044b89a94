//! `atoll serve`. Started as root, it sees that the launcher runs and then becomes an ordinary user by
//! starting itself anew, under the same process id; started by an ordinary user, only the launcher is
//! started by sudo. Either way what faces the network holds no privilege.

mod descriptors;
mod egress;
mod identity;
pub(crate) mod secret;

use crate::{cli, config::Config};
use atoll_audit::{AuditKey, Ledger};
use atoll_core::{Core, IssuedKey, Vault};
use atoll_front_rest::Access;
use atoll_provider_native::{LaunchOptions, NativeProvider, ensure_launcher};
use atoll_sessions::{SessionSettings, Sessions};
use atoll_store_sqlite::SqliteStore;
use atoll_types::{Error, ErrorCode, Result};
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

/// Where the server keeps its own things.
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

/// Where the audit trail ends.
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
        runtime.block_on(launcher(&config, vec![identity.uid]))?;
        runtime.shutdown_background();
        identity::prepare(&folder(&config.data_dir), &identity)?;
        let found = egress::find().map(|found| (egress::FOUND, found));
        return Err(identity::become_user(&identity, &config.data_dir, found));
    }
    runtime.block_on(serve(&config)).map(|()| 0)
}

async fn launcher(config: &Config, client_uids: Vec<u32>) -> Result<NativeProvider> {
    let options =
        LaunchOptions { data_dir: config.data_dir.clone(), client_uids, ephemeral: false, extra: Vec::new() };
    let client = ensure_launcher(&options).await?.client;
    if let Some(patience) = config.launcher_patience {
        client.wait_at_most(patience);
    }
    Ok(NativeProvider::new(client))
}

async fn serve(config: &Config) -> Result<()> {
    let filter = tracing_subscriber::EnvFilter::try_from_env("ATOLL_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info,sqlx=warn"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    // Before the launcher does: a folder that root made would be closed to an ordinary user.
    fs::create_dir_all(&config.data_dir).map_err(|e| {
        Error::internal(format!("the data folder {} cannot be made: {e}", config.data_dir.display()))
    })?;
    let provider = Arc::new(launcher(config, Vec::new()).await?);
    descriptors::raise();
    let own = folder(&config.data_dir);
    fs::create_dir_all(&own)
        .map_err(|e| Error::internal(format!("the server's folder cannot be made: {e}")))?;
    let _only = claim(&own)?;
    let store = SqliteStore::open(&database(&config.data_dir)).await.map_err(|e| {
        // The operator may know what the caller may not.
        tracing::error!(error = %e, "the database");
        Error::internal(e.to_string())
    })?;
    let secret = secret::load_or_make(&secret_key(&config.data_dir))?;
    let (store, key) = (Arc::new(store), AuditKey::from_secret(&secret));
    let head = audit_head(&config.data_dir);
    let (ledger, opened) = Ledger::open(Arc::clone(&store) as _, key, &head).await?;
    for fault in &opened.evidence {
        tracing::error!(
            row = fault.seq,
            "the audit trail is not sound: {}; see atoll audit verify",
            fault.text
        );
    }
    let listener = TcpListener::bind(config.listen)
        .await
        .map_err(|e| Error::internal(format!("cannot listen on {}: {e}", config.listen)))?;
    let address = listener.local_addr().map_err(|e| Error::internal(e.to_string()))?;
    let way_out = egress::parts(&config.egress, config.core.tiers.clone(), &own, address, &*provider).await?;
    let (book, dialer) = (Arc::clone(&way_out.book), way_out.engine.dialer());
    let vault = Vault::new(&secret);
    let core =
        Core::new(Arc::clone(&store) as _, provider, vault, config.core.clone(), ledger.clone(), way_out);
    let alive = core.reconcile().await?;
    let sessions = Sessions::new(core.clone(), store, session_settings(config));
    sessions.reconcile().await?;
    let first =
        core.create_first_key(std::env::var("ATOLL_BOOTSTRAP_KEY").ok().filter(|k| !k.is_empty())).await?;
    fs::write(pid_file(&config.data_dir), std::process::id().to_string())
        .map_err(|e| Error::internal(format!("the pid file cannot be written: {e}")))?;
    let end = told_to_end()?;
    greet(address, config, first.as_ref(), alive);
    let access = if config.no_auth { Access::Open } else { Access::Keys };
    let sampler = tokio::spawn({
        let core = core.clone();
        async move { core.sample_usage().await }
    });
    let keeper = tokio::spawn({
        let core = core.clone();
        async move { core.keep_pool().await }
    });
    let house = tokio::spawn({
        let core = core.clone();
        async move { core.keep_house().await }
    });
    let collector = tokio::spawn({
        let sessions = sessions.clone();
        async move { sessions.keep().await }
    });
    let asked = config.egress.ask_indexes;
    let fresh = tokio::spawn(async move {
        let failed = |error: Error| tracing::warn!(%error, "the links of indexes cannot be remembered");
        if asked {
            book.keep_fresh(&dialer, failed).await;
        }
    });
    let network = egress::listen(&core, config.egress.listen).await?;
    let app = atoll_front_rest::router(core.clone(), sessions, access, config.preview.clone());
    atoll_front_rest::serve(listener, app, end).await;
    sampler.abort();
    keeper.abort();
    core.end_pool().await;
    fresh.abort();
    network.abort();
    house.abort();
    collector.abort();
    match core.wind_down().await {
        Ok(0) => {}
        Ok(stopped) => tracing::info!(stopped, "sandboxes were stopped, as is set"),
        Err(error) => tracing::error!(%error, "sandboxes cannot be stopped"),
    }
    core.close_gates().await;
    ledger.close().await;
    let _ = fs::remove_file(pid_file(&config.data_dir));
    Ok(())
}

/// Where tool sessions keep and find files.
fn session_settings(config: &Config) -> SessionSettings {
    SessionSettings {
        server_url: config.tools.server_url.clone(),
        import_dirs: config.tools.import_dirs.clone(),
        storage_dir: folder(&config.data_dir).join("uploads"),
    }
}

/// Makes this the only server of its data folder, until it ends: two would each answer for sandboxes
/// that the other changes.
fn claim(own: &Path) -> Result<fs::File> {
    let cannot = |e: std::io::Error| Error::internal(format!("the server's folder cannot be locked: {e}"));
    let path = own.join("server.lock");
    let lock = fs::OpenOptions::new().create(true).truncate(false).write(true).open(path).map_err(cannot)?;
    match rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(lock),
        Err(rustix::io::Errno::WOULDBLOCK) => {
            let message = "another server runs on this data folder; end it with `atoll down`, or choose \
                           another with --data-dir";
            Err(Error::new(ErrorCode::Conflict, message))
        }
        Err(error) => Err(cannot(error.into())),
    }
}

/// Comes about when the server is told to end. From this call on, not from the first look: whoever hears
/// that the server listens may end it at once.
fn told_to_end() -> Result<impl Future<Output = ()>> {
    let listen = |kind| signal(kind).map_err(|e| Error::internal(format!("signals cannot be heard: {e}")));
    let (mut term, mut int) = (listen(SignalKind::terminate())?, listen(SignalKind::interrupt())?);
    Ok(async move {
        tokio::select! { _ = term.recv() => {}, _ = int.recv() => {} }
        tracing::info!("ending");
    })
}

/// What a person wants to see first.
fn greet(address: SocketAddr, config: &Config, first: Option<&IssuedKey>, alive: usize) {
    println!("Atoll listens on http://{address} (docs: http://{address}/docs)");
    println!("data folder: {}; sandboxes that live: {alive}", config.data_dir.display());
    let key = match first {
        Some(issued) => {
            println!("first key (admin; shown this once): {}", issued.secret);
            issued.secret.clone()
        }
        None => "$ATOLL_API_KEY".to_owned(),
    };
    println!("try:");
    println!("  curl -sX POST http://{address}/api/v1/sandboxes -H 'Authorization: Bearer {key}' -d '{{}}'");
}
