//! Egress decisions, found by expressions over the stored JSON.
//!
//! Egress decisions are indexed by SQL expressions over the MACed JSON; they have no columns of their own.

use crate::{
    error::failed,
    row,
    sql::{self, Builder},
    write::number,
};
use atoll_store::{EGRESS_PER_PAGE, EgressQuery, EgressRow, EgressTotals, Result, SandboxId};
use sqlx::PgPool;

const DOING: &str = "listing decisions";

// As the index has it, to the letter.
const SANDBOX: &str = "egress_fact(facts, 'sandbox') COLLATE \"C\"";
const HOST: &str = "lower(egress_fact(facts, 'host') COLLATE \"C\")";
const ALLOWED: &str = "egress_fact(facts, 'allowed')";

pub(super) async fn page(readers: &PgPool, query: &EgressQuery) -> Result<Vec<EgressRow>> {
    let EgressQuery { sandbox, operation, allowed, host, before, limit } = query;
    let mut sql = Builder::new("SELECT facts FROM audit_rows WHERE part = 'egress'");
    if let Some(id) = operation {
        sql.push(" AND operation = ").push_bind(id.uuid().as_bytes().to_vec());
    }
    if let Some(id) = sandbox {
        sql.push(format_args!(" AND {SANDBOX} = ")).push_bind(id.to_string());
    }
    match allowed {
        Some(true) => _ = sql.push(format_args!(" AND {ALLOWED} = 'true'")),
        Some(false) => _ = sql.push(format_args!(" AND {ALLOWED} = 'false'")),
        None => {}
    }
    if let Some(host) = host {
        sql.push(format_args!(" AND {HOST} = ")).push_bind(host.to_ascii_lowercase());
    }
    if let Some(before) = before {
        sql.push(" AND seq < ").push_bind(number(*before));
    }
    sql.push(" ORDER BY seq DESC LIMIT ").push_bind((*limit).min(EGRESS_PER_PAGE));
    let rows = sql.query().fetch_all(readers).await.map_err(failed(DOING))?;
    rows.iter().map(row::egress).collect()
}

pub(super) async fn totals(readers: &PgPool, sandbox: SandboxId) -> Result<EgressTotals> {
    let figure =
        |name: &str| format!("coalesce(sum(egress_fact(facts, '{name}')::numeric), 0)::float8 AS {name}");
    let sql = format!(
        "SELECT {ALLOWED} AS allowed, {}, {}, {} FROM audit_rows \
         WHERE part = 'egress' AND {SANDBOX} = $1 GROUP BY 1",
        figure("count"),
        figure("sent"),
        figure("received")
    );
    let doing = "adding decisions up";
    let rows = sql::query(&sql).bind(sandbox.to_string()).fetch_all(readers).await.map_err(failed(doing))?;
    let mut totals = EgressTotals::default();
    for row in &rows {
        // A cast stops at the ends.
        let figure = |name| sql::get::<f64>(row, name).map(|figure| figure as u64);
        let allowed: Option<String> = sql::get(row, "allowed")?;
        let allowed = allowed.as_deref() == Some("true");
        *(if allowed { &mut totals.allowed } else { &mut totals.refused }) += figure("count")?;
        totals.sent += figure("sent")?;
        totals.received += figure("received")?;
    }
    Ok(totals)
}
