//! The audit trail.

mod egress;
mod files;
mod page;
mod summary;
mod write;

use crate::{PostgresStore, error::failed, row, sql, write::number};
use async_trait::async_trait;
use atoll_store::{
    AuditBatch, AuditOutput, AuditRow, Audits, Decoded, EgressQuery, EgressRow, EgressTotals, Facts,
    FileHistoryQuery, OpenOperation, OperationId, OperationQuery, OperationRow, Part, RawRow, Result,
    SandboxId, StoreError, Summary,
};

const WRITING: &str = "writing to the audit trail";
const READING: &str = "reading the audit trail";

/// Rows, each joined with its operation: a beginning by its number, an end by its operation. The rows are chosen first, so
/// that few operations are looked up and not all of them read.
fn rows(which: &str, order: &str) -> String {
    format!(
        "SELECT r.seq, r.part, r.operation, r.at, r.mac, r.facts, r.output, o.seq AS begin_seq, \
         o.operation AS begin_operation, o.at AS begin_at, o.high, o.owner, o.key, o.kind, o.sandbox, o.search, \
         o.end_seq, o.outcome, o.exit_code, o.duration_us, ARRAY(SELECT f.path FROM audit_files AS f \
         WHERE f.operation = o.seq AND f.end_seq = o.end_seq AND f.sandbox = o.sandbox ORDER BY f.path) AS paths \
         FROM (SELECT * FROM audit_rows {which}) AS r LEFT JOIN LATERAL (SELECT * FROM audit_operations AS p \
         WHERE p.seq = CASE r.part WHEN 'begin' THEN r.seq WHEN 'end' THEN \
         (SELECT q.seq FROM audit_operations AS q WHERE q.operation = r.operation) END) AS o ON TRUE {order}"
    )
}

#[async_trait]
impl Audits for PostgresStore {
    async fn append_audit(&self, batch: AuditBatch) -> Result<()> {
        let newest = self.trail.write(WRITING, |conn| Box::pin(write::append(conn, batch))).await?;
        self.tell(newest);
        Ok(())
    }

    async fn last_audit_row(&self) -> Result<Option<RawRow>> {
        let found = sql::query(&rows("ORDER BY seq DESC LIMIT 1", ""))
            .fetch_optional(self.readers()?)
            .await
            .map_err(failed(READING))?;
        found.as_ref().map(row::audit).transpose()
    }

    async fn audit_rows(&self, from: u64, limit: u32) -> Result<Vec<RawRow>> {
        let from = if from == 0 { i64::MIN } else { number(from) };
        let rows = sql::query(&rows("WHERE seq >= $1 ORDER BY seq LIMIT $2", "ORDER BY r.seq"))
            .bind(from)
            .bind(limit)
            .fetch_all(self.readers()?)
            .await
            .map_err(failed(READING))?;
        rows.iter().map(row::audit).collect()
    }

    async fn audit_marks(&self, part: Part, limit: u32) -> Result<Vec<RawRow>> {
        let sql = rows(
            "WHERE part IN ('note', 'checkpoint') AND part = $1 ORDER BY seq DESC LIMIT $2",
            "ORDER BY r.seq DESC",
        );
        let rows = sql::query(&sql)
            .bind(part.as_str())
            .bind(limit)
            .fetch_all(self.readers()?)
            .await
            .map_err(failed(READING))?;
        rows.iter().map(row::audit).collect()
    }

    async fn audit_operations(&self, query: &OperationQuery) -> Result<Vec<OperationRow>> {
        page::page(self.readers()?, query).await
    }

    async fn audit_operation(&self, id: OperationId) -> Result<Option<OperationRow>> {
        page::find(self.readers()?, &id.uuid().as_bytes()[..]).await
    }

    async fn audit_output(&self, id: OperationId) -> Result<Option<AuditOutput>> {
        let sql = "SELECT e.facts, e.output FROM audit_operations AS o \
                   LEFT JOIN audit_rows AS e ON e.seq = o.end_seq WHERE o.operation = $1";
        let found = sql::query(sql)
            .bind(&id.uuid().as_bytes()[..])
            .fetch_optional(self.readers()?)
            .await
            .map_err(failed(READING))?;
        let Some(found) = found else { return Ok(None) };
        let (Some(facts), Some(output)) =
            (sql::get::<Option<Vec<u8>>>(&found, "facts")?, sql::get::<Option<Vec<u8>>>(&found, "output")?)
        else {
            return Ok(Some(AuditOutput::default()));
        };
        let decoded = Decoded::new(&facts, &output)
            .map_err(|e| StoreError::Corrupt("an audit row cannot be read".into(), Some(e.into())))?;
        Ok(Some(match decoded.entry.facts {
            Facts::End(end) => AuditOutput { stdout: end.stdout, stderr: end.stderr },
            Facts::Begin(_) | Facts::Egress(_) | Facts::Note(_) | Facts::Checkpoint(_) => {
                AuditOutput::default()
            }
        }))
    }

    async fn audit_file_history(&self, query: &FileHistoryQuery) -> Result<Vec<OperationRow>> {
        files::history(self.readers()?, query).await
    }

    async fn audit_summary(&self, query: &OperationQuery) -> Result<Summary> {
        summary::summary(self.readers()?, query).await
    }

    async fn audit_egress(&self, query: &EgressQuery) -> Result<Vec<EgressRow>> {
        egress::page(self.readers()?, query).await
    }

    async fn egress_totals(&self, sandbox: SandboxId) -> Result<EgressTotals> {
        egress::totals(self.readers()?, sandbox).await
    }

    async fn open_operations(&self, after: u64, limit: u32) -> Result<Vec<OpenOperation>> {
        let rows = sql::query(
            "SELECT seq, operation, at FROM audit_operations \
             WHERE end_seq IS NULL AND seq > $1 ORDER BY seq LIMIT $2",
        )
        .bind(number(after))
        .bind(limit)
        .fetch_all(self.readers()?)
        .await
        .map_err(failed(READING))?;
        rows.iter().map(row::open_operation).collect()
    }

    async fn count_operations(&self, up_to: u64) -> Result<u64> {
        let count: i64 = sql::scalar("SELECT count(*) FROM audit_operations WHERE seq <= $1")
            .bind(number(up_to))
            .fetch_one(self.readers()?)
            .await
            .map_err(failed(READING))?;
        Ok(count.unsigned_abs())
    }

    async fn remove_audit(&self, up_to: u64, checkpoint: AuditRow) -> Result<u64> {
        self.trail.write(WRITING, move |conn| Box::pin(write::remove(conn, up_to, checkpoint))).await
    }

    async fn flush_audit(&self) -> Result<()> {
        // Every commit has waited for the disk.
        Ok(())
    }
}
