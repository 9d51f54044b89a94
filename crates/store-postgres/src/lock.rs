//! One server on a database at a time.
//!
//! A server holds an advisory lock of the database on a connection of its own, as long as it lives. A second server does
//! not get the lock and is told who has it. A task watches the connection: when it is lost, the store refuses every call
//! until the task has the lock again and the row `atoll.server` still names this server, which shows that no other was
//! there meanwhile. Where another was, this one never goes on.
//!
//! A lost connection is noticed late, so the watching alone would let two servers write for a moment. Each transaction
//! that writes therefore takes a second lock (`FENCE`) together with other writers and reads that row; a server that takes
//! over takes `FENCE` alone before it writes its name there. A transaction of the server before it has then ended, or
//! finds another name and is undone.

use crate::{connect, error::failed, sql};
use atoll_store::{Outage, Result, StoreError};
use sqlx::{
    Connection, PgConnection,
    postgres::{PgConnectOptions, PgRow},
};
use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU8, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::{
    task::JoinHandle,
    time::{sleep, timeout},
};
use uuid::Uuid;

/// "ATOL", and which lock.
const SERVER: i64 = 0x4154_4f4c_0000_0001;
/// See the module.
pub(crate) const FENCE: i64 = 0x4154_4f4c_0000_0002;
/// Of a transaction that adds events: they must become visible in the order of their numbers.
pub(crate) const EVENTS: i64 = 0x4154_4f4c_0000_0003;

/// How often the connection is tried.
const WATCH: Duration = Duration::from_secs(1);
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// Between two attempts to get the lock.
const PAUSE: Duration = Duration::from_millis(100);

const TAKING: &str = "taking the database's lock";

const HELD: u8 = 0;
const LOST: u8 = 1;
const TAKEN: u8 = 2;
const CLOSED: u8 = 3;

/// The lock of a server, or of a reader, which needs none.
#[derive(Debug)]
pub(crate) struct ServerLock {
    state: Arc<AtomicU8>,
    /// This server's name in `atoll.server`.
    pub(crate) holder: String,
    watch: Mutex<Option<JoinHandle<()>>>,
}

impl ServerLock {
    /// For a store that only reads.
    pub(crate) fn none() -> Self {
        Self { state: Arc::default(), holder: String::new(), watch: Mutex::default() }
    }

    /// Writes this server's name, on the connection that has the lock, and watches that.
    pub(crate) async fn claim(options: PgConnectOptions, mut conn: PgConnection) -> Result<Self> {
        let holder = Uuid::new_v4().to_string();
        let mut tx = conn.begin().await.map_err(failed(TAKING))?;
        sql::query("SELECT pg_advisory_xact_lock($1)")
            .bind(FENCE)
            .execute(&mut *tx)
            .await
            .map_err(failed(TAKING))?;
        sql::query(
            "INSERT INTO server (one, holder) VALUES (TRUE, $1) \
             ON CONFLICT (one) DO UPDATE SET holder = excluded.holder",
        )
        .bind(&holder)
        .execute(&mut *tx)
        .await
        .map_err(failed(TAKING))?;
        tx.commit().await.map_err(failed(TAKING))?;
        let state = Arc::new(AtomicU8::new(HELD));
        let watch = tokio::spawn(watch(options, conn, holder.clone(), Arc::clone(&state)));
        Ok(Self { state, holder, watch: Mutex::new(Some(watch)) })
    }

    /// Refuses where this server does not have the lock.
    pub(crate) fn check(&self) -> Result<()> {
        match self.state.load(Ordering::Acquire) {
            HELD => Ok(()),
            LOST => Err(StoreError::Unavailable(
                Outage::Failing,
                "the connection that holds the server's lock is lost; it is being made again".into(),
            )),
            TAKEN => Err(taken()),
            _ => Err(StoreError::Unavailable(Outage::NoAccess, "the store is closed".into())),
        }
    }

    /// A transaction found another server's name.
    pub(crate) fn overtaken(&self) -> StoreError {
        self.state.store(TAKEN, Ordering::Release);
        taken()
    }

    /// Gives the lock up.
    pub(crate) async fn close(&self) {
        self.state.store(CLOSED, Ordering::Release);
        let watch = self.watch.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(watch) = watch {
            watch.abort();
            // Its connection is closed once it has ended.
            let _ = watch.await;
        }
    }
}

impl Drop for ServerLock {
    fn drop(&mut self) {
        if let Some(watch) = self.watch.get_mut().unwrap_or_else(PoisonError::into_inner).take() {
            watch.abort();
        }
    }
}

fn taken() -> StoreError {
    StoreError::Unavailable(
        Outage::Busy,
        "another server has taken the database while this one had lost it; start this one again".into(),
    )
}

/// Waits for the lock on this connection, not longer than this.
pub(crate) async fn take(conn: &mut PgConnection, patience: Duration) -> Result<()> {
    let begun = Instant::now();
    while !try_take(conn).await? {
        if begun.elapsed() > patience {
            let who = holder(conn).await?;
            let held = format!("another server has this database: {who}");
            return Err(StoreError::Unavailable(Outage::Busy, held.into()));
        }
        sleep(PAUSE).await;
    }
    Ok(())
}

async fn try_take(conn: &mut PgConnection) -> Result<bool> {
    sql::scalar("SELECT pg_try_advisory_lock($1)").bind(SERVER).fetch_one(conn).await.map_err(failed(TAKING))
}

/// Who has the lock, in words.
async fn holder(conn: &mut PgConnection) -> Result<String> {
    let found = sql::query(
        "SELECT coalesce(a.application_name, '') AS name, coalesce(host(a.client_addr), '') AS address, \
         coalesce(to_char(a.backend_start AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS'), '') AS since \
         FROM pg_locks AS l LEFT JOIN pg_stat_activity AS a ON a.pid = l.pid \
         WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1 \
         AND l.classid = ($1 >> 32)::oid AND l.objid = ($1 & 4294967295)::oid \
         AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())",
    )
    .bind(SERVER)
    .fetch_optional(conn)
    .await
    .map_err(failed(TAKING))?;
    let words = |row: &PgRow| -> Result<String> {
        let (name, address, since): (String, String, String) =
            (sql::get(row, "name")?, sql::get(row, "address")?, sql::get(row, "since")?);
        let name = if name.is_empty() { "a program of another user".to_owned() } else { name };
        let from = if address.is_empty() { String::new() } else { format!(" from {address}") };
        let since = if since.is_empty() { String::new() } else { format!(", since {since} UTC") };
        Ok(format!("{name}{from}{since}"))
    };
    found.as_ref().map_or_else(|| Ok("it has just let go; try again".to_owned()), words)
}

/// Whether a server has the lock.
pub(crate) async fn is_held(conn: &mut PgConnection) -> Result<bool> {
    let free = try_take(conn).await?;
    if free {
        sql::query("SELECT pg_advisory_unlock($1)")
            .bind(SERVER)
            .execute(conn)
            .await
            .map_err(failed(TAKING))?;
    }
    Ok(!free)
}

/// Tries the connection again and again, and makes another where it is lost.
async fn watch(options: PgConnectOptions, mut conn: PgConnection, holder: String, state: Arc<AtomicU8>) {
    loop {
        while matches!(timeout(PATIENCE, conn.ping()).await, Ok(Ok(()))) {
            sleep(WATCH).await;
        }
        // Unless the store was closed meanwhile, or a transaction saw another server.
        let lost = state.compare_exchange(HELD, LOST, Ordering::AcqRel, Ordering::Acquire);
        if lost.is_err() {
            return;
        }
        drop(conn);
        conn = loop {
            sleep(PAUSE).await;
            match timeout(PATIENCE, again(&options, &holder)).await {
                Ok(Ok(Some(conn))) => break conn,
                Ok(Ok(None)) => {
                    let _ = state.compare_exchange(LOST, TAKEN, Ordering::AcqRel, Ordering::Acquire);
                    return;
                }
                // Still away, or the server of the database still has the lost connection.
                Ok(Err(_)) | Err(_) => {}
            }
        };
        if state.compare_exchange(LOST, HELD, Ordering::AcqRel, Ordering::Acquire).is_err() {
            return;
        }
    }
}

/// A connection that has the lock; `None` where another server has been there.
async fn again(options: &PgConnectOptions, holder: &str) -> Result<Option<PgConnection>> {
    let mut conn = connect(options).await?;
    let has = try_take(&mut conn).await?;
    let named: String =
        sql::scalar("SELECT holder FROM server").fetch_one(&mut conn).await.map_err(failed(TAKING))?;
    if named != holder {
        return Ok(None);
    }
    if has {
        return Ok(Some(conn));
    }
    Err(StoreError::Unavailable(Outage::Busy, "the lock is not free yet".into()))
}
