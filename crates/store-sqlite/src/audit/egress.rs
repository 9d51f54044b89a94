//! Egress decisions, found by expressions over the stored JSON.
//!
//! Egress decisions are indexed by SQL expressions over the MACed JSON; they have no columns of their own.

use crate::{error::failed, row, write::number};
use atoll_store::{EGRESS_PER_PAGE, EgressQuery, EgressRow, EgressTotals, Result, SandboxId};
use sqlx::{QueryBuilder, Row, Sqlite, SqlitePool};

const DOING: &str = "listing decisions";

// As the indices have them, to the letter.
const SANDBOX: &str = "json_extract(CAST(facts AS TEXT), '$.facts.egress.sandbox')";
const HOST: &str = "lower(json_extract(CAST(facts AS TEXT), '$.facts.egress.host'))";
const ALLOWED: &str = "json_extract(CAST(facts AS TEXT), '$.facts.egress.allowed')";

/// The most selective index.
fn index(query: &EgressQuery) -> &'static str {
    match query {
        EgressQuery { operation: Some(_), .. } => "INDEXED BY audit_egress_operation",
        EgressQuery { sandbox: None, .. } => "NOT INDEXED",
        EgressQuery { host: Some(_), .. } => "INDEXED BY audit_egress_host",
        EgressQuery { allowed: Some(false), .. } => "INDEXED BY audit_egress_refused",
        EgressQuery { .. } => "INDEXED BY audit_egress_sandbox",
    }
}

pub(super) async fn page(readers: &SqlitePool, query: &EgressQuery) -> Result<Vec<EgressRow>> {
    let EgressQuery { sandbox, operation, allowed, host, before, limit } = query;
    let mut sql: QueryBuilder<'_, Sqlite> =
        QueryBuilder::new(format!("SELECT facts FROM audit_rows {} WHERE part = 'egress'", index(query)));
    if let Some(id) = operation {
        sql.push(" AND operation = ").push_bind(id.uuid().as_bytes().to_vec());
    }
    if let Some(id) = sandbox {
        sql.push(format_args!(" AND {SANDBOX} = ")).push_bind(id.to_string());
    }
    match allowed {
        Some(true) => _ = sql.push(format_args!(" AND {ALLOWED} = 1")),
        Some(false) => _ = sql.push(format_args!(" AND {ALLOWED} = 0")),
        None => {}
    }
    if let Some(host) = host {
        sql.push(format_args!(" AND {HOST} = ")).push_bind(host.to_ascii_lowercase());
    }
    if let Some(before) = before {
        sql.push(" AND seq < ").push_bind(number(*before));
    }
    sql.push(" ORDER BY seq DESC LIMIT ").push_bind((*limit).min(EGRESS_PER_PAGE));
    let rows = sql.build().fetch_all(readers).await.map_err(failed(DOING))?;
    rows.iter().map(row::egress).collect()
}

pub(super) async fn totals(readers: &SqlitePool, sandbox: SandboxId) -> Result<EgressTotals> {
    let figure =
        |name: &str| format!("total(json_extract(CAST(facts AS TEXT), '$.facts.egress.{name}')) AS {name}");
    let sql = format!(
        "SELECT {ALLOWED} AS allowed, {}, {}, {} FROM audit_rows INDEXED BY audit_egress_sandbox \
         WHERE part = 'egress' AND {SANDBOX} = ? GROUP BY 1",
        figure("count"),
        figure("sent"),
        figure("received")
    );
    let doing = "adding decisions up";
    let rows = sqlx::query(&sql).bind(sandbox.to_string()).fetch_all(readers).await.map_err(failed(doing))?;
    let mut totals = EgressTotals::default();
    for row in &rows {
        // A cast stops at the ends.
        let get = |name| row.try_get::<f64, _>(name).map(|n| n as u64).map_err(failed(doing));
        let allowed: i64 = row::get(row, "allowed")?;
        *(if allowed == 1 { &mut totals.allowed } else { &mut totals.refused }) += get("count")?;
        totals.sent += get("sent")?;
        totals.received += get("received")?;
    }
    Ok(totals)
}
