//! The control plane's database in PostgreSQL.
//!
//! Here is all of Atoll's SQL for PostgreSQL. Four connections write, one for each part of the tables, a few read, and one
//! holds the lock that keeps a second server away (`lock`). Rules that hold for every database (what a change does, what a
//! search finds) are not here but in `atoll-store`.
//!
//! A commit waits for the disk (`synchronous_commit` is on): what a call has written survives a power cut. A call whose
//! connection was cut has written nothing, or is answered as if it had not been (`lane`).

mod activity;
mod audit;
mod build_step;
mod console;
mod conversation;
mod error;
mod event;
mod idempotency;
mod image;
mod image_build;
mod key;
mod lane;
mod list;
mod lock;
mod mcp;
mod migrate;
mod preview;
mod row;
mod sandbox;
mod setting;
mod skill;
mod snapshot;
mod sql;
mod text;
mod tool;
mod transfer;
mod volume;
mod write;

use async_trait::async_trait;
use atoll_store::{Outage, Result, Store, StoreError};
use error::failed;
use lane::Lane;
use lock::ServerLock;
pub use migrate::SCHEMA_VERSION;
use sqlx::{
    Connection, PgConnection, PgPool,
    postgres::{PgConnectOptions, PgPoolOptions},
};
use std::{fmt, pin::Pin, sync::Arc, time::Duration};
use tokio::{sync::watch, time::timeout};

/// How to open a database.
#[derive(Debug, Clone)]
pub struct Options {
    /// How many connections read at once.
    pub readers: u32,
    /// How long to wait for another server that holds the database: one that was killed lets go in a moment.
    pub lock_timeout: Duration,
    /// How long a call waits for its turn, or for the database to come back.
    pub turn_timeout: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self { readers: 4, lock_timeout: Duration::from_secs(5), turn_timeout: Duration::from_secs(30) }
    }
}

/// Where a database is, with the password, which is never shown.
#[derive(Clone)]
pub struct Address(PgConnectOptions);

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Address({self})")
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(options) = self;
        let database = options.get_database().unwrap_or(options.get_username());
        write!(f, "postgres://{}@", options.get_username())?;
        match options.get_socket() {
            Some(folder) => {
                write!(f, "localhost:{}/{database}?host={}", options.get_port(), folder.display())
            }
            None => write!(f, "{}:{}/{database}", options.get_host(), options.get_port()),
        }
    }
}

impl Address {
    /// Of `postgres://user:password@host:port/database`; a password beside it takes the place of the one in it. The error
    /// does not repeat the text.
    pub fn parse(url: &str, password: Option<&str>) -> Result<Self, String> {
        let options: PgConnectOptions =
            url.parse().map_err(|_| "expected postgres://user@host:port/database".to_owned())?;
        Ok(Self(match password {
            Some(password) => options.password(password),
            None => options,
        }))
    }

    /// Of its parts; a host that begins with a slash is the folder of a socket.
    #[must_use]
    pub fn of(host: &str, port: u16, user: &str, password: Option<&str>, database: &str) -> Self {
        let options = PgConnectOptions::new().port(port).username(user).database(database);
        let options = if host.starts_with('/') { options.socket(host) } else { options.host(host) };
        Self(match password {
            Some(password) => options.password(password),
            None => options,
        })
    }

    /// As connections of this process use it.
    fn options(&self) -> PgConnectOptions {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let name = format!("atoll, process {} on {host}", std::process::id());
        // The server of the database cuts a longer one in the middle of a letter.
        let name: String = name.chars().filter(char::is_ascii).take(60).collect();
        self.0.clone().application_name(&name).statement_cache_capacity(256).options([
            ("search_path", "atoll"),
            ("synchronous_commit", "on"),
            // The locks of a machine that vanished are released.
            ("tcp_keepalives_idle", "10"),
            ("tcp_keepalives_interval", "5"),
            ("tcp_keepalives_count", "3"),
            ("idle_in_transaction_session_timeout", "120000"),
        ])
    }
}

/// How long the database may take to answer a new connection.
const ANSWER: Duration = Duration::from_secs(10);

fn connect(options: &PgConnectOptions) -> Pin<Box<dyn Future<Output = Result<PgConnection>> + Send + '_>> {
    Box::pin(async move {
        let connected = timeout(ANSWER, PgConnection::connect_with(options)).await;
        let connected = connected.map_err(|late| StoreError::Unavailable(Outage::Failing, late.into()))?;
        connected.map_err(failed("connecting to the database"))
    })
}

/// The lock of a database whose tables are this release's. In a box, so that it can be told to be `Send`.
fn lock(
    connecting: &PgConnectOptions,
    patience: Duration,
) -> Pin<Box<dyn Future<Output = Result<ServerLock>> + Send + '_>> {
    Box::pin(async move {
        let mut conn = connect(connecting).await?;
        // Before the lock: what is said of a newer database does not depend on who uses it.
        migrate::look(&mut conn).await?;
        lock::take(&mut conn, patience).await?;
        migrate::run(&mut conn).await?;
        ServerLock::claim(connecting.clone(), conn).await
    })
}

/// The database.
#[derive(Clone)]
pub struct PostgresStore {
    /// Sandboxes, and what belongs to them.
    records: Lane,
    /// The audit trail.
    trail: Lane,
    /// Keys, requests, sessions, settings and events.
    sessions: Lane,
    /// Conversations.
    talks: Lane,
    readers: PgPool,
    /// With the password.
    connecting: Arc<PgConnectOptions>,
    lock: Arc<ServerLock>,
    /// The newest event that this process wrote.
    news: Arc<watch::Sender<u64>>,
}

impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresStore").field("lock", &self.lock).finish_non_exhaustive()
    }
}

impl PostgresStore {
    /// Opens the database, making or upgrading its tables where needed. No other process may have it open to write.
    pub async fn open(address: &Address) -> Result<Self> {
        Self::open_with(address, Options::default()).await
    }

    /// The same, with other options than the usual ones.
    pub async fn open_with(address: &Address, options: Options) -> Result<Self> {
        let connecting = address.options();
        let lock = lock(&connecting, options.lock_timeout).await?;
        Ok(Self::with(connecting, &options, lock))
    }

    /// Opens a database that another process may be using, to read only: it is neither made nor upgraded, and
    /// every write is refused.
    pub async fn open_read_only(address: &Address) -> Result<Self> {
        let connecting = address.options();
        let mut conn = connect(&connecting).await?;
        let found = migrate::look(&mut conn).await?;
        let _ = conn.close().await;
        if found < SCHEMA_VERSION {
            return Err(StoreError::Older { found, known: SCHEMA_VERSION });
        }
        let store = Self::with(connecting, &Options { readers: 1, ..Options::default() }, ServerLock::none());
        for lane in [&store.records, &store.trail, &store.sessions, &store.talks] {
            lane.close().await;
        }
        Ok(store)
    }

    /// Whether a server has the database open. `atoll doctor` says so.
    pub async fn is_served(address: &Address) -> Result<bool> {
        let mut conn = connect(&address.options()).await?;
        let held = lock::is_held(&mut conn).await;
        let _ = conn.close().await;
        held
    }

    fn with(connecting: PgConnectOptions, options: &Options, lock: ServerLock) -> Self {
        let readers = readers(&connecting, options);
        let (lock, connecting) = (Arc::new(lock), Arc::new(connecting));
        let lane = || Lane::new(Arc::clone(&connecting), Arc::clone(&lock), options.turn_timeout);
        let (records, trail, sessions, talks) = (lane(), lane(), lane(), lane());
        Self {
            records,
            trail,
            sessions,
            talks,
            readers,
            connecting,
            lock,
            news: Arc::new(watch::Sender::new(0)),
        }
    }

    /// The connections that read; none while this server does not have the lock.
    fn readers(&self) -> Result<&PgPool> {
        self.lock.check().map(|()| &self.readers)
    }

    /// Wakes the followers of events.
    fn tell(&self, newest: Option<u64>) {
        if let Some(newest) = newest {
            self.news.send_if_modified(|told| {
                let later = newest > *told;
                *told = newest.max(*told);
                later
            });
        }
    }

    /// Closes every connection, after the calls under way, the one that holds the lock last.
    pub async fn close(&self) {
        for lane in [&self.records, &self.trail, &self.sessions, &self.talks] {
            lane.close().await;
        }
        self.readers.close().await;
        self.lock.close().await;
    }
}

fn readers(connecting: &PgConnectOptions, options: &Options) -> PgPool {
    let reading = connecting.clone().options([
        ("default_transaction_read_only", "on"),
        // A transaction reads everything from one moment.
        ("default_transaction_isolation", "repeatable\\ read"),
        // A plan for any values would read whole tables for a page.
        ("plan_cache_mode", "force_custom_plan"),
    ]);
    PgPoolOptions::new()
        .max_connections(options.readers)
        .acquire_timeout(options.turn_timeout)
        .max_lifetime(None)
        .connect_lazy_with(reading)
}

#[async_trait]
impl Store for PostgresStore {
    async fn schema_version(&self) -> Result<u32> {
        let version: i64 = sql::scalar("SELECT version FROM version")
            .fetch_one(self.readers()?)
            .await
            .map_err(failed("reading the schema version"))?;
        u32::try_from(version).map_err(|e| StoreError::Internal("reading the schema version", e.into()))
    }
}
