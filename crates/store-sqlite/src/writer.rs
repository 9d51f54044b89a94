//! The one connection that writes. A transaction that has begun runs to its end in a task of its own: a
//! client that disconnects drops the futures of its request, and the driver's pool loses a connection that is
//! dropped in the middle of a transaction.

use crate::error::failed;
use atoll_store::{Outage, Result, StoreError};
use sqlx::{Connection, SqliteConnection};
use std::{pin::Pin, sync::Arc, time::Duration};
use tokio::{
    sync::{Mutex, OwnedMutexGuard},
    time::timeout,
};

/// The body of a transaction.
pub(crate) type Work<'c, T> = Pin<Box<dyn Future<Output = Result<T>> + Send + 'c>>;

#[derive(Debug, Clone)]
pub(crate) struct Writer {
    // Fair: the longest waiting is next. None: closed.
    connection: Arc<Mutex<Option<WriterConnection>>>,
    turn_timeout: Duration,
}

#[derive(Debug)]
struct WriterConnection {
    conn: SqliteConnection,
    /// Whether a transaction is open. Set at the next use only when the work before panicked.
    busy: bool,
}

impl Writer {
    pub(crate) fn new(conn: SqliteConnection, turn_timeout: Duration) -> Self {
        Self { connection: Arc::new(Mutex::new(Some(WriterConnection { conn, busy: false }))), turn_timeout }
    }

    /// For a store that only reads.
    pub(crate) fn closed() -> Self {
        Self { connection: Arc::new(Mutex::new(None)), turn_timeout: Duration::ZERO }
    }

    /// Does the work in a transaction, which is committed if the work succeeds and rolled back if it fails.
    pub(crate) async fn write<T, F>(&self, doing: &'static str, work: F) -> Result<T>
    where
        T: Send + 'static,
        F: for<'c> FnOnce(&'c mut SqliteConnection) -> Work<'c, T> + Send + 'static,
    {
        let task = tokio::spawn(on_connection(self.turn().await?, move |conn| transact(conn, doing, work)));
        task.await.map_err(|panic| StoreError::Internal(doing, panic.into()))?
    }

    /// The same for work that is one SQL text with its own `BEGIN` and `COMMIT`: each statement by itself
    /// costs a round trip to the connection's thread.
    pub(crate) async fn write_whole<T, F>(&self, doing: &'static str, work: F) -> Result<T>
    where
        T: Send + 'static,
        F: for<'c> FnOnce(&'c mut SqliteConnection) -> Work<'c, T> + Send + 'static,
    {
        let task = tokio::spawn(on_connection(self.turn().await?, work));
        task.await.map_err(|panic| StoreError::Internal(doing, panic.into()))?
    }

    async fn turn(&self) -> Result<OwnedMutexGuard<Option<WriterConnection>>> {
        let turn = timeout(self.turn_timeout, self.connection.clone().lock_owned());
        turn.await.map_err(|late| StoreError::Unavailable(Outage::Busy, late.into()))
    }

    pub(crate) async fn is_closed(&self) -> bool {
        self.connection.lock().await.is_none()
    }

    pub(crate) async fn close(&self) {
        if let Some(connection) = self.connection.lock().await.take() {
            // Commits are safe; a log that could not be checkpointed is read at the next start.
            let _ = connection.conn.close().await;
        }
    }
}

/// Does the work; where it fails, the transaction is rolled back.
async fn on_connection<T, F>(mut connection: OwnedMutexGuard<Option<WriterConnection>>, work: F) -> Result<T>
where
    F: for<'c> FnOnce(&'c mut SqliteConnection) -> Work<'c, T> + Send,
{
    let Some(connection) = connection.as_mut() else {
        return Err(StoreError::Unavailable(
            Outage::NoAccess,
            "the store is closed, or open for reading only".into(),
        ));
    };
    if connection.busy {
        undo(&mut connection.conn).await;
    }
    connection.busy = true;
    let result = work(&mut connection.conn).await;
    if result.is_err() {
        undo(&mut connection.conn).await;
    }
    connection.busy = false;
    result
}

fn transact<'c, T, F>(conn: &'c mut SqliteConnection, doing: &'static str, work: F) -> Work<'c, T>
where
    T: Send + 'c,
    F: for<'d> FnOnce(&'d mut SqliteConnection) -> Work<'d, T> + Send + 'c,
{
    Box::pin(async move {
        // Immediate: a transaction that reads first could not become a writing one when another process wrote
        // meanwhile.
        say(conn, "BEGIN IMMEDIATE", doing).await?;
        let value = work(conn).await?;
        say(conn, "COMMIT", doing).await.map(|()| value)
    })
}

async fn say(conn: &mut SqliteConnection, sql: &'static str, doing: &'static str) -> Result<()> {
    sqlx::query(sql).execute(conn).await.map(|_| ()).map_err(failed(doing))
}

async fn undo(conn: &mut SqliteConnection) {
    // Fails where SQLite has rolled back already, as it does when the disk is full.
    let _ = say(conn, "ROLLBACK", "undoing").await;
}
