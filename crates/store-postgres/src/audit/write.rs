//! Adding rows, and removing the oldest.

use super::files;
use crate::{
    activity,
    error::failed,
    event,
    row::count,
    sql::{self, Query},
    write::number,
};
use atoll_store::{
    AuditBatch, AuditRow, BegunColumns, Clash, EndedColumns, Facts, OperationId, Result, StoreError, Thing,
};
use sqlx::PgConnection;

const DOING: &str = "writing to the audit trail";

/// Writes a batch, and says which event is now the newest, where there is a new one.
pub(super) async fn append(conn: &mut PgConnection, batch: AuditBatch) -> Result<Option<u64>> {
    let AuditBatch { rows, mut activities, events } = batch;
    let mut next = None;
    for row in &rows {
        if next.is_some_and(|next| row.seq != next) {
            return Err(StoreError::Conflict(Clash::Chain));
        }
        add(conn, row).await?;
        next = Some(row.seq + 1);
    }
    // In one order, or two transactions could wait for each other's sandboxes.
    activities.sort_by_key(|activity| activity.sandbox);
    for activity in activities {
        match activity::record(conn, activity).await {
            // The rows are written even where the sandbox is gone.
            Ok(()) | Err(StoreError::NotFound(Thing::Sandbox)) => {}
            Err(error) => return Err(error),
        }
    }
    event::append(conn, &events).await
}

/// Only after the row before it; the first only where there is none.
macro_rules! row {
    () => {
        "WITH written AS (INSERT INTO audit_rows (seq, part, operation, at, mac, facts, output) \
         SELECT $1, $2, $3, $4, $5, $6, $7 WHERE $1 = 1 + coalesce((SELECT max(seq) FROM audit_rows), 0) RETURNING seq) "
    };
}

const ROW: &str = concat!(row!(), "SELECT count(*) AS written, count(*) AS found FROM written");
// Together with the row: each statement by itself costs a round trip.
const BEGIN: &str = concat!(
    row!(),
    ", begun AS (INSERT INTO audit_operations (seq, operation, at, high, owner, key, kind, sandbox, search) \
     SELECT $1, $3, $4, greatest($4, (SELECT high FROM audit_operations ORDER BY seq DESC LIMIT 1)), \
     $8, $9, $10, $11, $12 FROM written RETURNING seq) \
     SELECT (SELECT count(*) FROM written) AS written, (SELECT count(*) FROM begun) AS found"
);
const END: &str = concat!(
    row!(),
    ", ended AS (UPDATE audit_operations SET end_seq = $1, outcome = $8, exit_code = $9, duration_us = $10 \
     FROM written WHERE operation = $3 AND end_seq IS NULL RETURNING audit_operations.seq) \
     SELECT (SELECT count(*) FROM written) AS written, (SELECT count(*) FROM ended) AS found"
);

async fn add(conn: &mut PgConnection, row: &AuditRow) -> Result<()> {
    let sql = match &row.entry.facts {
        Facts::Begin(_) => BEGIN,
        Facts::End(_) => END,
        Facts::Egress(_) | Facts::Note(_) | Facts::Checkpoint(_) => ROW,
    };
    let done = bound(sql::query(sql), row).fetch_one(&mut *conn).await.map_err(failed(DOING))?;
    match (count(&done, "written")?, count(&done, "found")?) {
        (0, _) => Err(StoreError::Conflict(Clash::Chain)),
        (_, 0) => Err(unended(conn, row.entry.operation).await?),
        _ => match &row.entry.facts {
            Facts::End(end) => files::enter(conn, row, end).await,
            Facts::Begin(_) | Facts::Egress(_) | Facts::Note(_) | Facts::Checkpoint(_) => Ok(()),
        },
    }
}

fn bound<'q>(query: Query<'q>, row: &AuditRow) -> Query<'q> {
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
async fn unended(conn: &mut PgConnection, operation: Option<OperationId>) -> Result<StoreError> {
    let known: bool = sql::scalar("SELECT EXISTS (SELECT 1 FROM audit_operations WHERE operation = $1)")
        .bind(operation.map(|id| id.uuid().as_bytes().to_vec()))
        .fetch_one(conn)
        .await
        .map_err(failed(DOING))?;
    Ok(if known { StoreError::Conflict(Clash::Ended) } else { StoreError::NotFound(Thing::Operation) })
}

/// Removes every row up to this one, and adds the checkpoint.
pub(super) async fn remove(conn: &mut PgConnection, up_to: u64, checkpoint: AuditRow) -> Result<u64> {
    add(conn, &checkpoint).await?;
    if up_to >= checkpoint.seq {
        return Err(StoreError::Conflict(Clash::Chain));
    }
    let open: bool =
        sql::scalar("SELECT EXISTS (SELECT 1 FROM audit_operations WHERE end_seq IS NULL AND seq <= $1)")
            .bind(number(up_to))
            .fetch_one(&mut *conn)
            .await
            .map_err(failed(DOING))?;
    if open {
        return Err(StoreError::Conflict(Clash::Open));
    }
    for sql in
        ["DELETE FROM audit_files WHERE operation <= $1", "DELETE FROM audit_operations WHERE seq <= $1"]
    {
        sql::query(sql).bind(number(up_to)).execute(&mut *conn).await.map_err(failed(DOING))?;
    }
    let gone = sql::query("DELETE FROM audit_rows WHERE seq <= $1")
        .bind(number(up_to))
        .execute(conn)
        .await
        .map_err(failed(DOING))?;
    Ok(gone.rows_affected())
}
