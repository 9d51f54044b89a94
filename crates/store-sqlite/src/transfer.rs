//! Giving all rows to another database, and taking those of another.

use crate::{SqliteStore, error::failed, row::get};
use async_trait::async_trait;
use atoll_store::{
    Result, StoreError,
    transfer::{BATCH_BYTES, BATCH_ROWS, Cell, Import, Kind, RowSink, TABLES, Table, Transfer, row_bytes},
};
use futures_util::TryStreamExt;
use sqlx::{
    Connection, Executor, SqliteConnection,
    sqlite::{SqliteRow, SqliteSynchronous},
};

const GIVING: &str = "copying the database";
const TAKING: &str = "filling the database";

fn read(row: &SqliteRow, column: &'static str, kind: Kind) -> Result<Cell> {
    Ok(match kind {
        Kind::Integer => get::<Option<i64>>(row, column)?.map_or(Cell::Null, Cell::Integer),
        Kind::Flag => get::<Option<bool>>(row, column)?.map_or(Cell::Null, Cell::Flag),
        Kind::Text | Kind::Path => get::<Option<String>>(row, column)?.map_or(Cell::Null, Cell::Text),
        Kind::Bytes => get::<Option<Vec<u8>>>(row, column)?.map_or(Cell::Null, Cell::Bytes),
    })
}

async fn give(conn: &mut SqliteConnection, table: &'static Table, to: &mut dyn RowSink) -> Result<()> {
    let columns: Vec<&str> = table.columns.iter().map(|(name, _)| *name).collect();
    let order = if table.order.is_empty() { "rowid" } else { table.order };
    let all = format!("SELECT {} FROM {} ORDER BY {order}", columns.join(", "), table.name);
    let mut rows = sqlx::query(&all).fetch(conn);
    let (mut batch, mut bytes) = (Vec::new(), 0);
    while let Some(row) = rows.try_next().await.map_err(failed(GIVING))? {
        let cells: Vec<Cell> =
            table.columns.iter().map(|(name, kind)| read(&row, name, *kind)).collect::<Result<_>>()?;
        bytes += row_bytes(&cells);
        batch.push(cells);
        if bytes >= BATCH_BYTES || batch.len() >= BATCH_ROWS {
            to.take(table, std::mem::take(&mut batch)).await?;
            bytes = 0;
        }
    }
    if batch.is_empty() { Ok(()) } else { to.take(table, batch).await }
}

/// A connection in a transaction.
struct Filling {
    conn: SqliteConnection,
}

#[async_trait]
impl RowSink for Filling {
    async fn take(&mut self, table: &'static Table, rows: Vec<Vec<Cell>>) -> Result<()> {
        let names: Vec<&str> = table.columns.iter().map(|(name, _)| *name).collect();
        let places = vec!["?"; names.len()].join(", ");
        let insert = format!("INSERT INTO {} ({}) VALUES ({places})", table.name, names.join(", "));
        for row in rows {
            let mut query = sqlx::query(&insert);
            for cell in row {
                query = match cell {
                    Cell::Null => query.bind(None::<i64>),
                    Cell::Integer(value) => query.bind(value),
                    Cell::Flag(value) => query.bind(value),
                    Cell::Text(value) => query.bind(value),
                    Cell::Bytes(value) => query.bind(value),
                };
            }
            query.execute(&mut self.conn).await.map_err(failed(TAKING))?;
        }
        Ok(())
    }
}

#[async_trait]
impl Import for Filling {
    async fn finish(mut self: Box<Self>) -> Result<()> {
        self.conn.execute("COMMIT").await.map_err(failed(TAKING))?;
        self.conn.close().await.map_err(failed(TAKING))
    }
}

#[async_trait]
impl Transfer for SqliteStore {
    async fn export(&self, to: &mut dyn RowSink) -> Result<()> {
        let mut tx = self.readers.begin().await.map_err(failed(GIVING))?;
        for table in TABLES {
            give(&mut tx, table, to).await?;
        }
        tx.commit().await.map_err(failed(GIVING))
    }

    async fn import(&self) -> Result<Option<Box<dyn Import>>> {
        if self.writer.is_closed().await {
            return Err(StoreError::Internal(TAKING, "the store is open for reading only".into()));
        }
        // A commit of this connection waits for the disk.
        let options = (*self.readers.connect_options()).clone().pragma("query_only", "OFF");
        let options = options.synchronous(SqliteSynchronous::Full);
        let mut conn = SqliteConnection::connect_with(&options).await.map_err(failed(TAKING))?;
        conn.execute("BEGIN IMMEDIATE").await.map_err(failed(TAKING))?;
        for table in TABLES {
            let any = format!("SELECT EXISTS (SELECT 1 FROM {})", table.name);
            let any: bool = sqlx::query_scalar(&any).fetch_one(&mut conn).await.map_err(failed(TAKING))?;
            if any {
                return Ok(None);
            }
        }
        Ok(Some(Box::new(Filling { conn })))
    }
}
