//! Pages of operations. The planner has statistics and chooses the index; every index ends with the number, so it gives
//! the newest first.

use crate::{
    error::failed,
    row,
    sql::{self, Builder},
    write::number,
};
use atoll_store::{OPERATIONS_PER_PAGE, OperationQuery, OperationRow, Outcome, Result, search_detail};
use sqlx::PgPool;

const DOING: &str = "listing operations";

/// The conditions of a query.
pub(super) struct Plan<'q> {
    query: &'q OperationQuery,
    /// The text to look for, folded; `None` when everything matches.
    needle: Option<String>,
}

impl<'q> Plan<'q> {
    pub(super) fn new(query: &'q OperationQuery) -> Self {
        let needle = query.text.as_deref().map(search_detail).filter(|needle| !needle.is_empty());
        Self { query, needle }
    }

    /// The operations, to be read or added up.
    pub(super) fn every(&self, what: &str) -> Builder {
        let OperationQuery {
            owner,
            key,
            kind,
            sandbox,
            exit_code,
            outcome,
            text: _,
            since,
            until,
            open,
            before,
            limit: _,
        } = self.query;
        let mut sql = Builder::new(format!("SELECT {what} FROM audit_operations WHERE TRUE"));
        if let Some(id) = sandbox {
            sql.push(" AND sandbox = ").push_bind(id.uuid().as_bytes().to_vec());
        }
        if let Some(id) = key {
            sql.push(" AND key = ").push_bind(id.uuid().as_bytes().to_vec());
        }
        if let Some(owner) = owner {
            sql.push(" AND owner = ").push_bind(owner);
        }
        if let Some(kind) = kind {
            sql.push(" AND kind = ").push_bind(kind);
        }
        if let Some(code) = exit_code {
            sql.push(" AND exit_code = ").push_bind(code);
        }
        if let Some(outcome) = outcome {
            // Nearly all end well; the index has the others.
            sql.push(if *outcome == Outcome::Ok { "" } else { " AND outcome <> 'ok'" });
            sql.push(" AND outcome = ").push_bind(outcome.as_str());
        }
        if *open {
            sql.push(" AND end_seq IS NULL");
        }
        if let Some(since) = since {
            sql.push(" AND at >= ").push_bind(since);
        }
        if let Some(until) = until {
            sql.push(" AND at <= ").push_bind(until);
        }
        if let Some(before) = before {
            sql.push(" AND seq < ").push_bind(number(*before));
        }
        if let Some(needle) = &self.needle {
            sql.push(" AND strpos(search, ").push_bind(needle).push(") > 0");
        }
        sql
    }
}

pub(super) const READ: &str = "SELECT b.seq, b.facts, e.seq AS end_seq, e.facts AS end_facts FROM audit_operations AS o \
     JOIN audit_rows AS b ON b.seq = o.seq LEFT JOIN audit_rows AS e ON e.seq = o.end_seq WHERE ";

/// One page, all of it from one moment.
pub(super) async fn page(readers: &PgPool, query: &OperationQuery) -> Result<Vec<OperationRow>> {
    let mut tx = readers.begin().await.map_err(failed(DOING))?;
    let mut numbers = Plan::new(query).every("seq");
    numbers.push(" ORDER BY seq DESC LIMIT ").push_bind(query.limit.min(OPERATIONS_PER_PAGE));
    let numbers = numbers.query().fetch_all(&mut *tx).await.map_err(failed(DOING))?;
    let numbers: Vec<i64> = numbers.iter().map(|row| sql::get(row, "seq")).collect::<Result<_>>()?;
    let rows = sql::query(&format!("{READ} o.seq = ANY($1) ORDER BY o.seq DESC"))
        .bind(numbers)
        .fetch_all(&mut *tx)
        .await
        .map_err(failed(DOING))?;
    tx.commit().await.map_err(failed(DOING))?;
    rows.iter().map(row::operation).collect()
}

/// The operation with this id.
pub(super) async fn find(readers: &PgPool, id: &[u8]) -> Result<Option<OperationRow>> {
    let found = sql::query(&format!("{READ} o.operation = $1"))
        .bind(id)
        .fetch_optional(readers)
        .await
        .map_err(failed(DOING))?;
    found.as_ref().map(row::operation).transpose()
}
