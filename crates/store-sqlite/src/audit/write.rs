//! Adding rows, and removing the oldest.

use super::files;
use crate::{activity, error::failed, event, write::number};
use atoll_store::{
    AuditBatch, AuditRow, BegunColumns, Clash, EndedColumns, Facts, OperationId, Result, StoreError, Thing,
};
use sqlx::{Row, Sqlite, SqliteConnection, sqlite::SqliteArguments};
use std::sync::LazyLock;

const DOING: &str = "writing to the audit trail";

/// Writes a batch, and says which event is now the newest, where there is a new one.
pub(super) async fn append(conn: &mut SqliteConnection, batch: AuditBatch) -> Result<Option<u64>> {
    let AuditBatch { rows, activities, events } = batch;
    let mut next = None;
    for row in &rows {
        if next.is_some_and(|next| row.seq != next) {
            return Err(StoreError::Conflict(Clash::Chain));
        }
        add(conn, row).await?;
        next = Some(row.seq + 1);
    }
    for activity in activities {
        match activity::record(conn, activity).await {
            // The rows are written even where the sandbox is gone.
            Ok(()) | Err(StoreError::NotFound(Thing::Sandbox)) => {}
            Err(error) => return Err(error),
        }
    }
    event::append(conn, &events).await
}

/// The beginning of an operation, where it is all of a batch: the most common case.
pub(super) fn alone(mut batch: AuditBatch) -> Result<AuditRow, AuditBatch> {
    let begins = matches!(&batch.rows[..], [row] if matches!(row.entry.facts, Facts::Begin(_)));
    match batch.rows.pop() {
        Some(row) if begins && batch.activities.is_empty() && batch.events.is_empty() => Ok(row),
        row => {
            batch.rows.extend(row);
            Err(batch)
        }
    }
}

/// Writes it, with its transaction, in one statement. A row that does not follow the one before writes
/// nothing.
pub(super) async fn begin(conn: &mut SqliteConnection, row: AuditRow) -> Result<()> {
    let written: i64 = bound(sqlx::query(&BEGIN_ALONE), &row)
        .fetch_one(conn)
        .await
        .and_then(|found| found.try_get(0))
        .map_err(failed(DOING))?;
    if written == 1 { Ok(()) } else { Err(StoreError::Conflict(Clash::Chain)) }
}

/// Only after the row before it; the first only where there is none.
const ROW: &str = "INSERT INTO audit_rows (seq, part, operation, at, mac, facts, output) \
     SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7 WHERE ?1 = 1 + coalesce((SELECT max(seq) FROM audit_rows), 0)";

// Together with the row: each statement by itself costs a round trip to the connection's thread.
static BEGIN: LazyLock<String> = LazyLock::new(|| {
    format!(
        "{ROW}; INSERT INTO audit_operations (seq, operation, at, high, owner, key, kind, sandbox, search) \
         SELECT ?1, ?3, ?4, max(?4, coalesce((SELECT high FROM audit_operations ORDER BY seq DESC LIMIT 1), ?4)), \
         ?8, ?9, ?10, ?11, ?12 WHERE changes() = 1"
    )
});
static BEGIN_ALONE: LazyLock<String> =
    LazyLock::new(|| format!("BEGIN IMMEDIATE; {}; COMMIT; SELECT changes()", *BEGIN));
static END: LazyLock<String> = LazyLock::new(|| {
    format!(
        "{ROW}; UPDATE audit_operations SET end_seq = ?1, outcome = ?8, exit_code = ?9, duration_us = ?10 \
         WHERE operation = ?3 AND end_seq IS NULL AND changes() = 1"
    )
});

async fn add(conn: &mut SqliteConnection, row: &AuditRow) -> Result<()> {
    let (sql, writes) = match &row.entry.facts {
        Facts::Begin(_) => (BEGIN.as_str(), 2),
        Facts::End(_) => (END.as_str(), 2),
        Facts::Egress(_) | Facts::Note(_) | Facts::Checkpoint(_) => (ROW, 1),
    };
    let done = bound(sqlx::query(sql), row).execute(&mut *conn).await.map_err(failed(DOING))?;
    match done.rows_affected() {
        written if written == writes => match &row.entry.facts {
            Facts::End(end) => files::enter(conn, row, end).await,
            Facts::Begin(_) | Facts::Egress(_) | Facts::Note(_) | Facts::Checkpoint(_) => Ok(()),
        },
        0 => Err(StoreError::Conflict(Clash::Chain)),
        _ => Err(unended(conn, row.entry.operation).await?),
    }
}

type Query<'q> = sqlx::query::Query<'q, Sqlite, SqliteArguments<'q>>;

fn bound<'q>(query: Query<'q>, row: &'q AuditRow) -> Query<'q> {
    let AuditRow { seq, entry, encoded, mac } = row;
    let query = query
        .bind(number(*seq))
        .bind(entry.facts.part().as_str())
        .bind(entry.operation.map(|id| id.uuid().as_bytes().to_vec()))
        .bind(entry.at)
        .bind(&mac.0[..])
        .bind(&encoded.facts)
        .bind(&encoded.output);
    match &entry.facts {
        Facts::Begin(begin) => {
            let BegunColumns { at: _, owner, key, kind, sandbox, search } = BegunColumns::of(entry.at, begin);
            query.bind(owner).bind(key).bind(kind).bind(sandbox).bind(search)
        }
        Facts::End(end) => {
            let EndedColumns { seq: _, outcome, exit_code, duration_us } = EndedColumns::of(*seq, end);
            query.bind(outcome).bind(exit_code).bind(duration_us)
        }
        Facts::Egress(_) | Facts::Note(_) | Facts::Checkpoint(_) => query,
    }
}

/// Why an operation could not be ended.
async fn unended(conn: &mut SqliteConnection, operation: Option<OperationId>) -> Result<StoreError> {
    let known: bool =
        sqlx::query_scalar("SELECT EXISTS (SELECT 1 FROM audit_operations WHERE operation = ?)")
            .bind(operation.map(|id| id.uuid().as_bytes().to_vec()))
            .fetch_one(conn)
            .await
            .map_err(failed(DOING))?;
    Ok(if known { StoreError::Conflict(Clash::Ended) } else { StoreError::NotFound(Thing::Operation) })
}

/// Removes every row up to this one, and adds the checkpoint.
pub(super) async fn remove(conn: &mut SqliteConnection, up_to: u64, checkpoint: AuditRow) -> Result<u64> {
    add(conn, &checkpoint).await?;
    if up_to >= checkpoint.seq {
        return Err(StoreError::Conflict(Clash::Chain));
    }
    let open: bool = sqlx::query_scalar(
        "SELECT EXISTS (SELECT 1 FROM audit_operations INDEXED BY audit_open WHERE end_seq IS NULL AND seq <= ?)",
    )
    .bind(number(up_to))
    .fetch_one(&mut *conn)
    .await
    .map_err(failed(DOING))?;
    if open {
        return Err(StoreError::Conflict(Clash::Open));
    }
    // Before the operations: entries of the text index are found by their numbers.
    for sql in [
        "DELETE FROM audit_text WHERE rowid IN (SELECT seq FROM audit_operations WHERE seq <= ?)",
        "DELETE FROM audit_files WHERE operation <= ?",
        "DELETE FROM audit_operations WHERE seq <= ?",
    ] {
        sqlx::query(sql).bind(number(up_to)).execute(&mut *conn).await.map_err(failed(DOING))?;
    }
    let gone = sqlx::query("DELETE FROM audit_rows WHERE seq <= ?")
        .bind(number(up_to))
        .execute(conn)
        .await
        .map_err(failed(DOING))?;
    Ok(gone.rows_affected())
}
