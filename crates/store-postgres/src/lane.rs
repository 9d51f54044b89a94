//! Connections that write. Each does one transaction at a time, for one part of the tables, so what a transaction has
//! checked still holds when it writes; what two parts share is safe by the locks of rows.
//!
//! A transaction that has begun runs to its end in a task of its own: a client that disconnects drops the futures of its
//! request. A connection that is lost is made again. When it is lost while a transaction commits, the database is asked
//! what became of that (`pg_xact_status`), so a call that failed has written nothing.

use crate::{
    connect,
    error::{failed, is_cut},
    lock::{FENCE, ServerLock},
    sql,
};
use atoll_store::{Outage, Result, StoreError};
use sqlx::{Connection, Executor, PgConnection, Row, postgres::PgConnectOptions};
use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{
    sync::{Mutex, OwnedMutexGuard},
    time::{sleep, timeout},
};

/// The body of a transaction.
pub(crate) type Work<'c, T> = Pin<Box<dyn Future<Output = Result<T>> + Send + 'c>>;

/// How long a transaction may take. Its connection is closed then, which undoes it.
const LONGEST: Duration = Duration::from_secs(120);
/// How long it may take to begin. A connection that does not answer by then is lost.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long it may take to learn what became of a transaction.
const SETTLE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(50);

/// One of them.
#[derive(Clone)]
pub(crate) struct Lane {
    // Fair: the longest waiting is next.
    slot: Arc<Mutex<Slot>>,
    lock: Arc<ServerLock>,
    options: Arc<PgConnectOptions>,
    turn_timeout: Duration,
}

impl fmt::Debug for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The options hold the password.
        f.debug_struct("Lane").finish_non_exhaustive()
    }
}

#[derive(Default)]
struct Slot {
    /// None: not made yet, lost, or in the hands of work that panicked, which closed it.
    conn: Option<PgConnection>,
    closed: bool,
}

impl Lane {
    pub(crate) fn new(options: Arc<PgConnectOptions>, lock: Arc<ServerLock>, turn_timeout: Duration) -> Self {
        Self { slot: Arc::default(), lock, options, turn_timeout }
    }

    /// Does the work in a transaction, which is committed if the work succeeds and rolled back if it fails.
    pub(crate) async fn write<T, F>(&self, doing: &'static str, work: F) -> Result<T>
    where
        T: Send + 'static,
        F: for<'c> FnOnce(&'c mut PgConnection) -> Work<'c, T> + Send + 'static,
    {
        let turn = timeout(self.turn_timeout, self.slot.clone().lock_owned());
        let slot = turn.await.map_err(|late| StoreError::Unavailable(Outage::Busy, late.into()))?;
        let lane = self.clone();
        let task = tokio::spawn(async move { lane.transact(slot, doing, work).await });
        task.await.map_err(|panic| StoreError::Internal(doing, panic.into()))?
    }

    async fn transact<T, F>(&self, mut slot: OwnedMutexGuard<Slot>, doing: &'static str, work: F) -> Result<T>
    where
        F: for<'c> FnOnce(&'c mut PgConnection) -> Work<'c, T> + Send,
    {
        if slot.closed {
            let why = "the store is closed, or open for reading only";
            return Err(StoreError::Unavailable(Outage::NoAccess, why.into()));
        }
        let (mut conn, begun) = self.begin(slot.conn.take(), doing).await?;
        let result = match timeout(LONGEST, work(&mut conn)).await {
            Ok(result) => result,
            Err(late) => return Err(StoreError::Unavailable(Outage::Failing, late.into())),
        };
        match result {
            Ok(value) => match say(&mut conn, "COMMIT").await {
                Ok(()) => {
                    slot.conn = Some(conn);
                    Ok(value)
                }
                Err(error) if is_cut(&error) => {
                    drop(conn);
                    self.settle(&begun, failed(doing)(error)).await.map(|()| value)
                }
                Err(error) => {
                    slot.conn = undone(conn).await;
                    Err(failed(doing)(error))
                }
            },
            Err(error) => {
                slot.conn = undone(conn).await;
                Err(error)
            }
        }
    }

    /// Begins a transaction, on a new connection where the old one is lost, and returns its number.
    async fn begin(&self, old: Option<PgConnection>, doing: &'static str) -> Result<(PgConnection, String)> {
        self.lock.check()?;
        if let Some(mut conn) = old {
            match start(&mut conn).await {
                Ok(told) => return self.fenced(told).map(|begun| (conn, begun)),
                Err(error) if !is_cut(&error) => return Err(failed(doing)(error)),
                Err(_) => {}
            }
        }
        let mut conn = connect(&self.options).await?;
        let told = start(&mut conn).await.map_err(failed(doing))?;
        self.fenced(told).map(|begun| (conn, begun))
    }

    fn fenced(&self, (holder, begun): (String, String)) -> Result<String> {
        if holder == self.lock.holder { Ok(begun) } else { Err(self.lock.overtaken()) }
    }

    /// What became of a transaction whose connection was lost while it committed.
    async fn settle(&self, begun: &str, lost: StoreError) -> Result<()> {
        let since = Instant::now();
        while since.elapsed() < SETTLE {
            match self.became(begun).await.as_deref() {
                Ok("committed") => return Ok(()),
                Ok("aborted") => return Err(lost),
                // It commits, or the database does not answer yet.
                Ok(_) | Err(_) => sleep(PAUSE).await,
            }
        }
        Err(lost)
    }

    fn became<'c>(&'c self, begun: &'c str) -> TransactionFuture<'c, Result<String>> {
        Box::pin(async move {
            let mut conn = connect(&self.options).await?;
            let status: Option<String> = sql::scalar("SELECT pg_xact_status(CAST($1::text AS xid8))")
                .bind(begun)
                .fetch_one(&mut conn)
                .await
                .map_err(failed("asking for a transaction"))?;
            Ok(status.unwrap_or_default())
        })
    }

    /// For good; also of a store that only reads.
    pub(crate) async fn close(&self) {
        let mut slot = self.slot.lock().await;
        slot.closed = true;
        if let Some(conn) = slot.conn.take() {
            let _ = conn.close().await;
        }
    }
}

/// Named, so that it can be told to be `Send` whatever the lifetime.
type TransactionFuture<'c, T> = Pin<Box<dyn Future<Output = T> + Send + 'c>>;

/// Begins, and returns the server that has the database, and the transaction's number. One message, so one round trip.
fn start(conn: &mut PgConnection) -> TransactionFuture<'_, sqlx::Result<(String, String)>> {
    Box::pin(async move {
        let begin = format!(
            "BEGIN; SELECT pg_advisory_xact_lock_shared({FENCE}); \
             SELECT holder, pg_current_xact_id()::text AS begun FROM server"
        );
        let told = timeout(PATIENCE, conn.fetch_all(&*begin)).await;
        let told = told.map_err(|late| sqlx::Error::Io(late.into()))??;
        let last = told.last().ok_or(sqlx::Error::RowNotFound)?;
        Ok((last.try_get("holder")?, last.try_get("begun")?))
    })
}

fn say<'c>(conn: &'c mut PgConnection, sql: &'static str) -> TransactionFuture<'c, sqlx::Result<()>> {
    Box::pin(async move {
        let said = timeout(LONGEST, conn.execute(sql)).await;
        said.map_err(|late| sqlx::Error::Io(late.into()))?.map(drop)
    })
}

/// The connection, with its transaction undone; `None` where it is of no use any more.
async fn undone(mut conn: PgConnection) -> Option<PgConnection> {
    say(&mut conn, "ROLLBACK").await.is_ok().then_some(conn)
}
