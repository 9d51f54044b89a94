//! Giving all rows to another database, and taking those of another.

use crate::{
    PostgresStore, connect,
    error::failed,
    migrate,
    sql::{self, get},
};
use async_trait::async_trait;
use atoll_store::{
    Result, StoreError,
    transfer::{BATCH_BYTES, BATCH_ROWS, Cell, Import, Kind, RowSink, TABLES, Table, Transfer, row_bytes},
};
use futures_util::TryStreamExt;
use sqlx::{Connection, Executor, PgConnection, postgres::PgRow};

const GIVING: &str = "copying the database";
const TAKING: &str = "filling the database";

fn read(row: &PgRow, column: &'static str, kind: Kind) -> Result<Cell> {
    Ok(match kind {
        Kind::Integer => get::<Option<i64>>(row, column)?.map_or(Cell::Null, Cell::Integer),
        Kind::Flag => get::<Option<bool>>(row, column)?.map_or(Cell::Null, Cell::Flag),
        Kind::Text => get::<Option<String>>(row, column)?.map_or(Cell::Null, Cell::Text),
        Kind::Bytes => get::<Option<Vec<u8>>>(row, column)?.map_or(Cell::Null, Cell::Bytes),
        Kind::Path => match get::<Option<Vec<u8>>>(row, column)?.map(String::from_utf8) {
            None => Cell::Null,
            Some(Ok(path)) => Cell::Text(path),
            Some(Err(_)) => return Err(StoreError::Corrupt(format!("a {column} cannot be read"), None)),
        },
    })
}

async fn give(conn: &mut PgConnection, table: &'static Table, to: &mut dyn RowSink) -> Result<()> {
    let columns: Vec<&str> = table.columns.iter().map(|(name, _)| *name).collect();
    // Where no column says the order, the hidden one does.
    let order = if table.order.is_empty() { "seq" } else { table.order };
    let all = format!("SELECT {} FROM {} ORDER BY {order}", columns.join(", "), table.name);
    let mut rows = sql::query(&all).fetch(conn);
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
    conn: PgConnection,
}

fn wrong(table: &Table, column: &str) -> StoreError {
    let what = format!("{}.{column} has another type than expected", table.name);
    StoreError::Internal(TAKING, what.into())
}

#[async_trait]
impl RowSink for Filling {
    async fn take(&mut self, table: &'static Table, rows: Vec<Vec<Cell>>) -> Result<()> {
        let (mut names, mut places) = (Vec::new(), Vec::new());
        for (place, (name, kind)) in (1..).zip(table.columns) {
            let array = match kind {
                Kind::Integer => "bigint[]",
                Kind::Flag => "boolean[]",
                Kind::Text => "text[]",
                Kind::Bytes | Kind::Path => "bytea[]",
            };
            names.push(*name);
            places.push(format!("${place}::{array}"));
        }
        let (names, places) = (names.join(", "), places.join(", "));
        let insert =
            format!("INSERT INTO {} ({names}) SELECT * FROM unnest({places}) AS rows ({names})", table.name);
        let mut query = sql::query(&insert);
        let mut rows: Vec<_> = rows.into_iter().map(Vec::into_iter).collect();
        for (name, kind) in table.columns {
            let cells = rows.iter_mut().map(|row| row.next().unwrap_or(Cell::Null));
            let wrong = || wrong(table, name);
            query = match kind {
                Kind::Integer => {
                    query.bind(cells.map(|cell| integer(cell, wrong)).collect::<Result<Vec<_>>>()?)
                }
                Kind::Flag => query.bind(cells.map(|cell| flag(cell, wrong)).collect::<Result<Vec<_>>>()?),
                Kind::Text => query.bind(cells.map(|cell| text(cell, wrong)).collect::<Result<Vec<_>>>()?),
                Kind::Bytes => query.bind(cells.map(|cell| bytes(cell, wrong)).collect::<Result<Vec<_>>>()?),
                Kind::Path => {
                    let path = |cell| Ok(text(cell, wrong)?.map(String::into_bytes));
                    query.bind(cells.map(path).collect::<Result<Vec<_>>>()?)
                }
            };
        }
        query.execute(&mut self.conn).await.map(drop).map_err(failed(TAKING))
    }
}

fn integer(cell: Cell, wrong: impl Fn() -> StoreError) -> Result<Option<i64>> {
    match cell {
        Cell::Null => Ok(None),
        Cell::Integer(value) => Ok(Some(value)),
        Cell::Flag(_) | Cell::Text(_) | Cell::Bytes(_) => Err(wrong()),
    }
}

fn flag(cell: Cell, wrong: impl Fn() -> StoreError) -> Result<Option<bool>> {
    match cell {
        Cell::Null => Ok(None),
        Cell::Flag(value) => Ok(Some(value)),
        Cell::Integer(_) | Cell::Text(_) | Cell::Bytes(_) => Err(wrong()),
    }
}

fn text(cell: Cell, wrong: impl Fn() -> StoreError) -> Result<Option<String>> {
    match cell {
        Cell::Null => Ok(None),
        Cell::Text(value) => Ok(Some(value)),
        Cell::Integer(_) | Cell::Flag(_) | Cell::Bytes(_) => Err(wrong()),
    }
}

fn bytes(cell: Cell, wrong: impl Fn() -> StoreError) -> Result<Option<Vec<u8>>> {
    match cell {
        Cell::Null => Ok(None),
        Cell::Bytes(value) => Ok(Some(value)),
        Cell::Integer(_) | Cell::Flag(_) | Cell::Text(_) => Err(wrong()),
    }
}

#[async_trait]
impl Import for Filling {
    async fn finish(mut self: Box<Self>) -> Result<()> {
        for table in TABLES.iter().filter(|table| table.numbered) {
            let next = format!(
                "SELECT setval(pg_get_serial_sequence('atoll.{0}', 'seq'), max(seq)) FROM {0} HAVING count(*) > 0",
                table.name
            );
            self.conn.execute(&*next).await.map_err(failed(TAKING))?;
        }
        self.conn.execute("COMMIT").await.map_err(failed(TAKING))?;
        // The planner knows nothing of tables that were filled at once.
        self.conn.execute("ANALYZE").await.map_err(failed(TAKING))?;
        let _ = self.conn.close().await;
        Ok(())
    }
}

#[async_trait]
impl Transfer for PostgresStore {
    async fn export(&self, to: &mut dyn RowSink) -> Result<()> {
        self.lock.check()?;
        let mut conn = connect(&self.connecting).await?;
        let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";
        conn.execute(begin).await.map_err(failed(GIVING))?;
        migrate::look(&mut conn).await?;
        for table in TABLES {
            give(&mut conn, table, to).await?;
        }
        conn.execute("COMMIT").await.map_err(failed(GIVING))?;
        Ok(())
    }

    async fn import(&self) -> Result<Option<Box<dyn Import>>> {
        self.lock.check()?;
        let mut conn = connect(&self.connecting).await?;
        conn.execute("BEGIN").await.map_err(failed(TAKING))?;
        for table in TABLES {
            let any = format!("SELECT EXISTS (SELECT 1 FROM {})", table.name);
            let any: bool = sql::scalar(&any).fetch_one(&mut conn).await.map_err(failed(TAKING))?;
            if any {
                return Ok(None);
            }
        }
        Ok(Some(Box::new(Filling { conn })))
    }
}
