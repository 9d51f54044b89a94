//! The operations that changed a file. The table only finds them: what they did to the file is in their rows.

use super::page::READ;
use crate::{error::failed, row, sql, write::number};
use atoll_store::{
    AuditRow, End, FileHistoryQuery, OPERATIONS_PER_PAGE, OperationRow, Result, UNNAMED_FILES,
};
use sqlx::{PgConnection, PgPool};

/// Enters the paths of an end that is already written.
pub(super) async fn enter(conn: &mut PgConnection, row: &AuditRow, end: &End) -> Result<()> {
    let paths = end.changed_paths();
    if paths.is_empty() {
        return Ok(());
    }
    let doing = "entering changed files";
    let list: Vec<Vec<u8>> = paths.into_iter().map(|path| path.as_bytes().to_vec()).collect();
    sql::query(
        "INSERT INTO audit_files (operation, end_seq, sandbox, path) \
         SELECT o.seq, o.end_seq, o.sandbox, p.path FROM audit_operations AS o, unnest($1) AS p (path) \
         WHERE o.operation = $2 AND o.sandbox IS NOT NULL",
    )
    .bind(list)
    .bind(row.entry.operation.map(|id| id.uuid().as_bytes().to_vec()))
    .execute(conn)
    .await
    .map_err(failed(doing))?;
    Ok(())
}

/// One page. Each of the two lists is read from the index no further than the page needs.
pub(super) async fn history(readers: &PgPool, query: &FileHistoryQuery) -> Result<Vec<OperationRow>> {
    let FileHistoryQuery { sandbox, path, before, limit } = query;
    let of = |path: &str| {
        format!(
            "(SELECT operation, end_seq FROM audit_files \
             WHERE sandbox = $1 AND path = {path} AND end_seq < $3 ORDER BY end_seq DESC LIMIT $4)"
        )
    };
    let sql = format!(
        "{READ} o.seq IN (SELECT operation FROM ({} UNION {} ORDER BY end_seq DESC LIMIT $4) AS found) \
         ORDER BY o.end_seq DESC",
        of("$2"),
        of("$5")
    );
    let rows = sql::query(&sql)
        .bind(sandbox.uuid().as_bytes().to_vec())
        .bind(path.as_bytes())
        .bind(before.map_or(i64::MAX, number))
        .bind((*limit).min(OPERATIONS_PER_PAGE))
        .bind(UNNAMED_FILES.as_bytes())
        .fetch_all(readers)
        .await
        .map_err(failed("listing the changes of a file"))?;
    rows.iter().map(row::operation).collect()
}
