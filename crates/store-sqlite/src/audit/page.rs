//! Pages of operations. Which index a page is read from decides whether it takes a millisecond or a second,
//! and the planner has no statistics; so each index that fits is counted up to a bound, and the one with the
//! fewest entries is used. Times are turned into row numbers first.

use super::text::{INDEXED_TO, Needle};
use crate::{error::failed, row, write::number};
use atoll_store::{OPERATIONS_PER_PAGE, OperationQuery, OperationRow, Outcome, Result};
use sqlx::{QueryBuilder, Sqlite, SqliteConnection, SqlitePool};

const DOING: &str = "listing operations";

/// How far an index is counted to compare it with another.
const ENOUGH: i64 = 2000;

/// A query with its times turned into row numbers.
pub(super) struct Plan<'q> {
    query: &'q OperationQuery,
    needle: Option<Needle>,
    from: i64,
    to: i64,
    /// The last operation that the text index has.
    indexed: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PageDirection {
    /// One of the table's indices, with the condition that makes it usable.
    Index(&'static str, &'static [Column]),
    Text,
    All,
}

impl PageDirection {
    /// Its columns, where they are two.
    fn pair(self) -> &'static [Column] {
        match self {
            PageDirection::Index(_, columns) if columns.len() > 1 => columns,
            PageDirection::Index(..) | PageDirection::Text | PageDirection::All => &[],
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Column {
    Sandbox,
    Key,
    Owner,
    Kind,
    Exit,
    Outcome,
    Open,
}

const EVERY: [Column; 7] =
    [Column::Sandbox, Column::Key, Column::Owner, Column::Kind, Column::Exit, Column::Outcome, Column::Open];

/// Every index, the most selective first.
const INDICES: &[(&str, &[Column])] = &[
    ("audit_sandbox", &[Column::Sandbox]),
    ("audit_open", &[Column::Open]),
    ("audit_owner_outcome", &[Column::Owner, Column::Outcome]),
    ("audit_owner_exit", &[Column::Owner, Column::Exit]),
    ("audit_owner_kind", &[Column::Owner, Column::Kind]),
    ("audit_outcome", &[Column::Outcome]),
    ("audit_exit", &[Column::Exit]),
    ("audit_key", &[Column::Key]),
    ("audit_kind", &[Column::Kind]),
    ("audit_owner", &[Column::Owner]),
];

impl<'q> Plan<'q> {
    pub(super) async fn new(conn: &mut SqliteConnection, query: &'q OperationQuery) -> Result<Self> {
        let mut plan = Self {
            query,
            needle: query.text.as_deref().and_then(Needle::new),
            from: i64::MIN,
            to: query.before.map_or(i64::MAX, |before| number(before).saturating_sub(1)),
            indexed: 0,
        };
        if let Some(since) = query.since {
            let first = "SELECT seq FROM audit_operations WHERE high >= ? ORDER BY high, seq LIMIT 1";
            plan.from = one(conn, first, since).await?.unwrap_or(i64::MAX);
        }
        if let Some(until) = query.until {
            let after = "SELECT seq FROM audit_operations WHERE high > ? ORDER BY high, seq LIMIT 1";
            let in_order = one(conn, after, until).await?.map_or(i64::MAX, |seq| seq - 1);
            // Written after the clock was set back.
            let late =
                "SELECT max(seq) FROM audit_operations INDEXED BY audit_late WHERE at < high AND at <= ?";
            plan.to = plan.to.min(in_order.max(one(conn, late, until).await?.unwrap_or(i64::MIN)));
        }
        if plan.needle.as_ref().is_some_and(|needle| needle.index.is_some()) {
            plan.indexed = sqlx::query_scalar(INDEXED_TO).fetch_one(conn).await.map_err(failed(DOING))?;
        }
        Ok(plan)
    }

    fn has(&self, column: Column) -> bool {
        let query = self.query;
        match column {
            Column::Sandbox => query.sandbox.is_some(),
            Column::Key => query.key.is_some(),
            Column::Owner => query.owner.is_some(),
            Column::Kind => query.kind.is_some(),
            Column::Exit => query.exit_code.is_some(),
            // Nearly all end well; an index of them would find everything.
            Column::Outcome => query.outcome.is_some_and(|outcome| outcome != Outcome::Ok),
            Column::Open => query.open,
        }
    }

    /// The condition on a column, as its index needs it.
    fn column(&self, sql: &mut QueryBuilder<'q, Sqlite>, column: Column) {
        let query = self.query;
        match column {
            Column::Sandbox => {
                if let Some(id) = query.sandbox {
                    sql.push(" AND sandbox IS NOT NULL AND sandbox = ")
                        .push_bind(id.uuid().as_bytes().to_vec());
                }
            }
            Column::Key => {
                if let Some(id) = query.key {
                    sql.push(" AND key IS NOT NULL AND key = ").push_bind(id.uuid().as_bytes().to_vec());
                }
            }
            Column::Owner => {
                if let Some(owner) = &query.owner {
                    sql.push(" AND owner = ").push_bind(owner);
                }
            }
            Column::Kind => {
                if let Some(kind) = &query.kind {
                    sql.push(" AND kind = ").push_bind(kind);
                }
            }
            Column::Exit => {
                if let Some(code) = query.exit_code {
                    sql.push(" AND exit_code IS NOT NULL AND exit_code = ").push_bind(code);
                }
            }
            Column::Outcome => {
                if let Some(outcome) = query.outcome {
                    if outcome != Outcome::Ok {
                        sql.push(" AND outcome <> 'ok'");
                    }
                    sql.push(" AND outcome = ").push_bind(outcome.as_str());
                }
            }
            Column::Open => {
                if query.open {
                    sql.push(" AND end_seq IS NULL");
                }
            }
        }
    }

    fn range(&self, sql: &mut QueryBuilder<'q, Sqlite>, column: &str, to: i64) {
        if self.from > i64::MIN {
            sql.push(format_args!(" AND {column} >= ")).push_bind(self.from);
        }
        if to < i64::MAX {
            sql.push(format_args!(" AND {column} <= ")).push_bind(to);
        }
    }

    /// Every condition, but for those on row numbers.
    fn conditions(&self, sql: &mut QueryBuilder<'q, Sqlite>) {
        for column in EVERY {
            self.column(sql, column);
        }
        if let Some(since) = self.query.since {
            sql.push(" AND at >= ").push_bind(since);
        }
        if let Some(until) = self.query.until {
            sql.push(" AND at <= ").push_bind(until);
        }
        if let Some(needle) = &self.needle {
            sql.push(" AND instr(search, ").push_bind(needle.text.clone()).push(")");
        }
    }

    /// How many entries an index has for the query, counted up to the bound.
    async fn count(&self, conn: &mut SqliteConnection, way: PageDirection) -> Result<i64> {
        let mut sql = QueryBuilder::new("SELECT count(*) FROM (SELECT 1 FROM ");
        match way {
            PageDirection::Index(name, columns) => {
                sql.push(format_args!("audit_operations INDEXED BY {name} WHERE TRUE"));
                for column in columns {
                    self.column(&mut sql, *column);
                }
                self.range(&mut sql, "seq", self.to);
            }
            PageDirection::Text => {
                sql.push("audit_text WHERE audit_text MATCH ").push_bind(self.asked());
                self.range(&mut sql, "rowid", self.to.min(self.indexed));
            }
            PageDirection::All => return Ok(ENOUGH),
        }
        sql.push(format_args!(" LIMIT {ENOUGH})"));
        sql.build_query_scalar().fetch_one(conn).await.map_err(failed(DOING))
    }

    fn asked(&self) -> String {
        self.needle.as_ref().and_then(|needle| needle.index.clone()).unwrap_or_default()
    }

    async fn way(&self, conn: &mut SqliteConnection) -> Result<PageDirection> {
        let fits = |columns: &[Column]| columns.iter().all(|column| self.has(*column));
        let mut ways: Vec<PageDirection> = INDICES
            .iter()
            .filter(|(_, columns)| fits(columns))
            .map(|(name, columns)| PageDirection::Index(name, columns))
            .collect();
        // The entries of an index of two columns are a subset of those of either column's index.
        let pairs: Vec<Column> = ways.iter().flat_map(|way| way.pair()).copied().collect();
        ways.retain(
            |way| matches!(way, PageDirection::Index(_, own) if own.len() > 1 || !pairs.contains(&own[0])),
        );
        if self.needle.as_ref().is_some_and(|needle| needle.index.is_some()) {
            ways.push(PageDirection::Text);
        }
        let mut best = (PageDirection::All, i64::MAX);
        for way in ways.iter().copied() {
            let count = if ways.len() == 1 { 0 } else { self.count(conn, way).await? };
            // Where all have many, the text is the most selective.
            if count < best.1 || way == PageDirection::Text && count <= best.1 {
                best = (way, count);
            }
        }
        Ok(best.0)
    }

    /// Finds the numbers of operations, the last first.
    async fn numbers(&self, conn: &mut SqliteConnection, limit: i64) -> Result<Vec<i64>> {
        let way = self.way(conn).await?;
        let mut found = Vec::new();
        if way == PageDirection::Text {
            // Operations that the text index does not have yet.
            let mut sql = QueryBuilder::new("SELECT seq FROM audit_operations WHERE seq > ");
            sql.push_bind(self.indexed);
            self.range(&mut sql, "seq", self.to);
            self.conditions(&mut sql);
            sql.push(" ORDER BY seq DESC LIMIT ").push_bind(limit);
            found = sql.build_query_scalar().fetch_all(&mut *conn).await.map_err(failed(DOING))?;
        }
        let left = limit - i64::try_from(found.len()).unwrap_or(i64::MAX);
        if left > 0 {
            let mut sql = self.rows("seq", way);
            sql.push(" ORDER BY ").push(if way == PageDirection::Text { "audit_text.rowid" } else { "seq" });
            sql.push(" DESC LIMIT ").push_bind(left);
            let rest = sql.build_query_scalar().fetch_all(conn).await.map_err(failed(DOING))?;
            found.extend::<Vec<i64>>(rest);
        }
        Ok(found)
    }

    /// The operations, read by one index; the text index has only a part of them.
    fn rows(&self, what: &str, way: PageDirection) -> QueryBuilder<'q, Sqlite> {
        let mut sql = QueryBuilder::new(format!("SELECT {what} FROM "));
        match way {
            PageDirection::Index(name, _) => {
                sql.push(format_args!("audit_operations INDEXED BY {name} WHERE TRUE"));
                self.range(&mut sql, "seq", self.to);
            }
            PageDirection::All => {
                sql.push("audit_operations NOT INDEXED WHERE TRUE");
                self.range(&mut sql, "seq", self.to);
            }
            PageDirection::Text => {
                sql.push("audit_text CROSS JOIN audit_operations ON seq = audit_text.rowid WHERE audit_text MATCH ");
                sql.push_bind(self.asked());
                self.range(&mut sql, "audit_text.rowid", self.to.min(self.indexed));
            }
        }
        self.conditions(&mut sql);
        sql
    }

    /// All operations, for adding up; the text index is not used, because it has only a part of them.
    pub(super) async fn every(
        &self,
        conn: &mut SqliteConnection,
        what: &str,
    ) -> Result<QueryBuilder<'q, Sqlite>> {
        let way = match self.way(conn).await? {
            PageDirection::Text => PageDirection::All,
            way => way,
        };
        Ok(self.rows(what, way))
    }
}

async fn one(conn: &mut SqliteConnection, sql: &'static str, bound: i64) -> Result<Option<i64>> {
    let found: Option<Option<i64>> =
        sqlx::query_scalar(sql).bind(bound).fetch_optional(conn).await.map_err(failed(DOING))?;
    Ok(found.flatten())
}

pub(super) const READ: &str = "SELECT b.seq, b.facts, e.seq AS end_seq, e.facts AS end_facts FROM audit_operations AS o \
     JOIN audit_rows AS b ON b.seq = o.seq LEFT JOIN audit_rows AS e ON e.seq = o.end_seq WHERE ";

/// One page, all of it from one moment.
pub(super) async fn page(readers: &SqlitePool, query: &OperationQuery) -> Result<Vec<OperationRow>> {
    let mut tx = readers.begin().await.map_err(failed(DOING))?;
    let plan = Plan::new(&mut tx, query).await?;
    let limit = i64::from(query.limit.min(OPERATIONS_PER_PAGE));
    let numbers = plan.numbers(&mut tx, limit).await?;
    let list = numbers.iter().map(i64::to_string).collect::<Vec<_>>().join(",");
    let rows = sqlx::query(&format!("{READ} o.seq IN (SELECT value FROM json_each(?)) ORDER BY o.seq DESC"))
        .bind(format!("[{list}]"))
        .fetch_all(&mut *tx)
        .await
        .map_err(failed(DOING))?;
    tx.commit().await.map_err(failed(DOING))?;
    rows.iter().map(row::operation).collect()
}

/// The operation with this id.
pub(super) async fn find(readers: &SqlitePool, id: &[u8]) -> Result<Option<OperationRow>> {
    let found = sqlx::query(&format!("{READ} o.operation = ?"))
        .bind(id)
        .fetch_optional(readers)
        .await
        .map_err(failed(DOING))?;
    found.as_ref().map(row::operation).transpose()
}
