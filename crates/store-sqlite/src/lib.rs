//! The control plane's database in one SQLite file.
//!
//! Here is all of Atoll's SQL for SQLite. One connection writes and a few read: SQLite allows one writer at a
//! time anyway, and a queue in this process is fairer and faster than its locks. Rules that hold for every
//! database (what a change does, what a search finds) are not here but in `atoll-store`.
//!
//! The journal is a write-ahead log with `synchronous=NORMAL`: a commit survives a crash of the process and
//! costs no wait for the disk. A power cut may lose the last commits, never half of one; their containers are
//! gone then too. Writes that must not be lost, a revoked key above all, wait for the disk (`reach_disk`).

mod activity;
mod audit;
mod build_step;
mod console;
mod conversation;
mod error;
mod event;
mod file;
mod idempotency;
mod image;
mod image_build;
mod key;
mod list;
mod mcp;
mod migrate;
mod preview;
mod row;
mod sandbox;
mod setting;
mod skill;
mod snapshot;
mod tool;
mod transfer;
mod volume;
mod write;
mod writer;

use async_trait::async_trait;
use atoll_store::{Outage, Result, Store, StoreError};
use error::failed;
pub use migrate::SCHEMA_VERSION;
use sqlx::{
    Connection, SqliteConnection, SqlitePool,
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous},
};
use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::sync::watch;
use writer::Writer;

/// How to open a database.
#[derive(Debug, Clone)]
pub struct Options {
    /// How many connections read at once.
    pub readers: u32,
    /// How long to wait for another process that holds the database.
    pub busy_timeout: Duration,
    /// How long a call waits for its turn.
    pub turn_timeout: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self { readers: 4, busy_timeout: Duration::from_secs(5), turn_timeout: Duration::from_secs(30) }
    }
}

/// The database.
#[derive(Debug, Clone)]
pub struct SqliteStore {
    writer: Writer,
    readers: SqlitePool,
    log: PathBuf,
    filling: Arc<audit::Filling>,
    /// The newest event that this process wrote.
    news: Arc<watch::Sender<u64>>,
}

impl SqliteStore {
    /// Opens the database in this file, making or upgrading it where needed.
    pub async fn open(path: &Path) -> Result<Self> {
        Self::open_with(path, Options::default()).await
    }

    /// The same, with other options than the usual ones.
    pub async fn open_with(path: &Path, options: Options) -> Result<Self> {
        file::prepare(path)?;
        let plain =
            SqliteConnectOptions::new().filename(path).foreign_keys(true).busy_timeout(options.busy_timeout);
        // Read before anything is written: the file may be another program's.
        let doing = "opening the database";
        let mut look = SqliteConnection::connect_with(&plain).await.map_err(failed(doing))?;
        let looked = migrate::look(&mut look).await;
        look.close().await.map_err(failed(doing))?;
        let behind = looked? < SCHEMA_VERSION;

        let write = plain
            .clone()
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Normal)
            // A burst of writes must not leave a huge log behind for ever.
            .pragma("journal_size_limit", "67108864")
            // An audited operation touches a page of each of a dozen indices.
            .pragma("cache_size", "-32768");
        let conn = connect_patiently(&write, options.busy_timeout).await?;
        let writer = Writer::new(conn, options.turn_timeout);
        if behind {
            migrate::run(&writer).await?;
        }
        let read = plain.pragma("query_only", "ON").pragma("cache_size", "-16384");
        Ok(Self::with(writer, readers(&options).connect_lazy_with(read), path))
    }

    /// Opens a database that another process may be using, to read only: it is neither made nor upgraded, and
    /// every write is refused.
    pub async fn open_read_only(path: &Path) -> Result<Self> {
        let options = Options { readers: 1, ..Options::default() };
        let read = SqliteConnectOptions::new()
            .filename(path)
            .read_only(true)
            .busy_timeout(options.busy_timeout)
            .pragma("query_only", "ON");
        let mut found = read_version(&read).await;
        let mut used = read;
        if matches!(found, Err(StoreError::Unavailable(Outage::NoAccess, _))) && !log_path(path).exists() {
            // A copy in a read-only folder, where the log's files cannot be made. No process can write there,
            // so it does not change.
            used = used.immutable(true);
            found = read_version(&used).await;
        }
        let found = found?;
        if found < SCHEMA_VERSION {
            return Err(StoreError::Older { found, known: SCHEMA_VERSION });
        }
        Ok(Self::with(Writer::closed(), readers(&options).connect_lazy_with(used), path))
    }

    fn with(writer: Writer, readers: SqlitePool, path: &Path) -> Self {
        let (filling, news) = (Arc::default(), Arc::new(watch::Sender::new(0)));
        Self { writer, readers, log: log_path(path), filling, news }
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

    /// Closes every connection, after the calls under way, and checkpoints the log into the file.
    pub async fn close(&self) {
        self.readers.close().await;
        self.writer.close().await;
    }

    /// Checks the integrity of the whole file, for `atoll doctor`.
    pub async fn check(&self) -> Result<()> {
        let doing = "checking the database";
        let mut conn = self.readers.acquire().await.map_err(failed(doing))?;
        let said: Vec<String> = sqlx::query_scalar("PRAGMA integrity_check(5)")
            .fetch_all(&mut *conn)
            .await
            .map_err(failed(doing))?;
        let dangling =
            sqlx::query("PRAGMA foreign_key_check").fetch_all(&mut *conn).await.map_err(failed(doing))?;
        if said == ["ok"] && dangling.is_empty() {
            return Ok(());
        }
        Err(StoreError::Corrupt(format!("{}, {} dangling rows", said.join(", "), dangling.len()), None))
    }

    /// Waits until what was committed would survive a power cut.
    async fn reach_disk(&self) -> Result<()> {
        let log = self.log.clone();
        let synced = tokio::task::spawn_blocking(move || std::fs::File::open(log)?.sync_data()).await;
        match synced {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(StoreError::Unavailable(Outage::Failing, error.into())),
            Err(error) => Err(StoreError::Internal("writing to disk", error.into())),
        }
    }
}

fn log_path(path: &Path) -> PathBuf {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    log.into()
}

async fn read_version(options: &SqliteConnectOptions) -> Result<u32> {
    let doing = "opening the database";
    let mut conn = SqliteConnection::connect_with(options).await.map_err(failed(doing))?;
    let looked = migrate::look(&mut conn).await;
    conn.close().await.map_err(failed(doing))?;
    looked
}

/// SQLite does not wait by itself where two connections turn on a new file's log at once.
async fn connect_patiently(options: &SqliteConnectOptions, patience: Duration) -> Result<SqliteConnection> {
    let begun = Instant::now();
    loop {
        let connected = SqliteConnection::connect_with(options).await.map_err(failed("opening the database"));
        match connected {
            Err(StoreError::Unavailable(Outage::Busy, _)) if begun.elapsed() < patience => {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            other => return other,
        }
    }
}

fn readers(options: &Options) -> SqlitePoolOptions {
    // A connection to a file does not go stale, so it is neither tested nor replaced.
    SqlitePoolOptions::new()
        .max_connections(options.readers)
        .acquire_timeout(options.turn_timeout)
        .test_before_acquire(false)
        .idle_timeout(None)
        .max_lifetime(None)
}

#[async_trait]
impl Store for SqliteStore {
    async fn schema_version(&self) -> Result<u32> {
        sqlx::query_scalar("PRAGMA user_version")
            .fetch_one(&self.readers)
            .await
            .map_err(failed("reading the schema version"))
    }
}
