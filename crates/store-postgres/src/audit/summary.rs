//! Totals of operations.

use super::page::Plan;
use crate::{error::failed, row, sql};
use atoll_store::{OPERATIONS_PER_PAGE, OperationQuery, Outcome, Result, Summary, Tally};
use sqlx::{PgConnection, PgPool, postgres::PgRow};
use std::cmp::Reverse;

const DOING: &str = "adding operations up";

// The sum as a float: an integer may overflow, which is an error.
const TALLY: &str = "count(*) AS count, count(*) FILTER (WHERE outcome = 'ok') AS ok, \
                     count(*) FILTER (WHERE outcome <> 'ok') AS failed, coalesce(sum(duration_us), 0)::float8 AS duration";

fn tally(row: &PgRow) -> Result<Tally> {
    let duration: f64 = sql::get(row, "duration")?;
    // A cast stops at the ends.
    let duration_us = duration as u64;
    Ok(Tally {
        count: row::count(row, "count")?,
        ok: row::count(row, "ok")?,
        failed: row::count(row, "failed")?,
        duration_us,
    })
}

async fn grouped<T>(
    conn: &mut PgConnection,
    plan: &Plan<'_>,
    by: &str,
    group: impl Fn(&PgRow) -> Result<T>,
) -> Result<Vec<(T, Tally)>> {
    let mut sql = plan.every(&format!("{by} AS what, {TALLY}"));
    sql.push(" GROUP BY 1");
    let rows = sql.query().fetch_all(conn).await.map_err(failed(DOING))?;
    rows.iter().map(|row| Ok((group(row)?, tally(row)?))).collect()
}

pub(super) async fn summary(readers: &PgPool, query: &OperationQuery) -> Result<Summary> {
    let query = OperationQuery { before: None, ..query.clone() };
    let mut tx = readers.begin().await.map_err(failed(DOING))?;
    let plan = Plan::new(&query);
    // Rounded down before 1970 too.
    let day = "(at - ((at % 86400000) + 86400000) % 86400000) / 86400000";
    let mut days: Vec<(i64, Tally)> = grouped(&mut tx, &plan, day, |row| sql::get(row, "what")).await?;
    days.sort_by_key(|(day, _)| Reverse(*day));
    let mut sandboxes = grouped(&mut tx, &plan, "sandbox", |row| row::optional_sandbox(row, "what")).await?;
    sandboxes.sort_by_key(|(sandbox, tally)| (Reverse(tally.count), *sandbox));
    sandboxes.truncate(OPERATIONS_PER_PAGE as usize);
    let mut outcomes =
        grouped(&mut tx, &plan, "outcome", |row| row::optional_name(row, "what", Outcome::from_name)).await?;
    outcomes.sort_by_key(|(outcome, _)| (outcome.is_none(), *outcome));
    tx.commit().await.map_err(failed(DOING))?;
    let mut total = Tally::default();
    for (_, Tally { count, ok, failed, duration_us }) in &days {
        total.count += count;
        total.ok += ok;
        total.failed += failed;
        total.duration_us = total.duration_us.saturating_add(*duration_us);
    }
    Ok(Summary { total, days, sandboxes, outcomes })
}
