//! What ran, from the audit trail: commands and cells, and nothing else of it.

use super::removed;
use crate::{
    App, at,
    ids::{any_sandbox, container_text},
    kept_text,
};
use atoll_core::Caller;
use atoll_http::{Failure, Params, Raw, Who, json as read_json};
use atoll_types::{
    Error, ErrorCode, Millis, Operation, OperationId,
    audit::{OPERATIONS_PER_PAGE, OperationQuery, OperationRow, Tally},
    time::{moment, now_ms},
};
use axum::{
    Json,
    extract::{Path, State},
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::{collections::VecDeque, ops::RangeInclusive};
use uuid::Uuid;

/// What runs code.
const KINDS: [Operation; 2] = [Operation::Exec, Operation::KernelExecute];
const LIMIT: RangeInclusive<u32> = 1..=500;
const USUAL_LIMIT: u32 = 100;
/// The trail is read from its end, so a page far away costs all that is before it.
const FARTHEST: u32 = 10_000;
const RETENTION_DAYS: RangeInclusive<i64> = 0..=36_500;
const DAY_MS: i64 = 24 * 3600 * 1000;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AuditParams {
    /// A sandbox, as `container_…` or `sbx_…`.
    session_id: Option<String>,
    /// An owner's name or id. Only an admin sees others' entries.
    user_id: Option<String>,
    exit_code: Option<i32>,
    since: Option<String>,
    until: Option<String>,
    limit: Option<u32>,
    offset: Option<u32>,
}

fn wrong(field: &str, message: String) -> Failure {
    Failure::in_query(Error::invalid(field, message))
}

fn time(field: &str, text: Option<&str>) -> Result<Option<Millis>, Failure> {
    let message = "expected a time such as 2026-11-15T12:00:00Z, or milliseconds since 1970";
    text.map(|text| moment(text).ok_or_else(|| wrong(field, message.into()))).transpose()
}

fn within<T: PartialOrd + std::fmt::Display>(
    field: &str,
    value: T,
    range: &RangeInclusive<T>,
) -> Result<T, Failure> {
    match range.contains(&value) {
        true => Ok(value),
        false => Err(wrong(field, format!("{field} must be between {} and {}", range.start(), range.end()))),
    }
}

impl AuditParams {
    /// The query of one kind of operation, and which of what it finds are wanted.
    fn query(self) -> Result<(OperationQuery, u32, u32), Failure> {
        let Self { session_id, user_id, exit_code, since, until, limit, offset } = self;
        let query = OperationQuery {
            sandbox: session_id.as_deref().map(any_sandbox).transpose()?,
            owner: user_id.as_deref().map(atoll_core::owner_id),
            exit_code,
            since: time("since", since.as_deref())?,
            until: time("until", until.as_deref())?,
            ..OperationQuery::default()
        };
        let limit = within("limit", limit.unwrap_or(USUAL_LIMIT), &LIMIT)?;
        Ok((query, limit, within("offset", offset.unwrap_or(0), &(0..=FARTHEST))?))
    }
}

/// A command or a cell.
#[derive(Debug, Serialize)]
struct AuditItem {
    id: Uuid,
    session_id: Option<String>,
    user_id: String,
    /// exec or kernel.execute.
    kind: String,
    command: String,
    exit_code: Option<i32>,
    /// ok, failed, refused or lost; running where it has not ended.
    outcome: &'static str,
    duration_ms: Option<u64>,
    created_at: String,
}

impl From<OperationRow> for AuditItem {
    fn from(row: OperationRow) -> Self {
        let OperationRow { seq: _, id, at: began, begin, end } = row;
        Self {
            id: id.uuid(),
            session_id: begin.sandbox.map(container_text),
            user_id: begin.owner,
            kind: begin.kind,
            command: begin.detail.text,
            exit_code: end.as_ref().and_then(|end| end.facts.exit_code),
            outcome: end.as_ref().map_or("running", |end| end.facts.outcome.as_str()),
            duration_ms: end.as_ref().map(|end| end.facts.duration_us / 1000),
            created_at: at(began),
        }
    }
}

/// The operations of one kind, the newest first, a page in memory at a time.
struct Newest {
    kind: Operation,
    rows: VecDeque<OperationRow>,
    /// The last row that was read.
    before: Option<u64>,
    ended: bool,
}

impl Newest {
    fn of(kind: Operation) -> Self {
        Self { kind, rows: VecDeque::new(), before: None, ended: false }
    }

    /// Reads the next page where the last is used up.
    async fn fill(&mut self, app: &App, caller: &Caller, query: &OperationQuery) -> Result<(), Failure> {
        if !self.rows.is_empty() || self.ended {
            return Ok(());
        }
        let (kind, before) = (Some(self.kind.name().to_owned()), self.before);
        let query = OperationQuery { kind, before, limit: OPERATIONS_PER_PAGE, ..query.clone() };
        self.rows = app.core.audit.page(caller, query).await.map_err(Failure::in_query)?.into();
        self.ended = self.rows.len() < OPERATIONS_PER_PAGE as usize;
        self.before = self.rows.back().map(|row| row.seq);
        Ok(())
    }
}

pub(super) async fn list(
    State(app): State<App>,
    Who(caller): Who,
    Params(params): Params<AuditParams>,
) -> Result<Json<Value>, Failure> {
    let (query, limit, offset) = params.query()?;
    let mut kinds = KINDS.map(Newest::of);
    let (mut passed, mut entries) = (0, Vec::new());
    while entries.len() < limit as usize {
        for kind in &mut kinds {
            kind.fill(&app, &caller, &query).await?;
        }
        let newest = kinds.iter_mut().max_by_key(|kind| kind.rows.front().map(|row| row.seq));
        let Some(row) = newest.and_then(|kind| kind.rows.pop_front()) else { break };
        if passed < offset {
            passed += 1;
        } else {
            entries.push(AuditItem::from(row));
        }
    }
    Ok(Json(json!({ "entries": entries, "limit": limit, "offset": offset })))
}

/// What all that ran since then adds up to.
pub(super) async fn total(app: &App, caller: &Caller, query: OperationQuery) -> Result<Tally, Failure> {
    let mut total = Tally::default();
    for kind in KINDS {
        let query = OperationQuery { kind: Some(kind.name().to_owned()), ..query.clone() };
        let Tally { count, ok, failed, duration_us } = app.core.audit.summary(caller, query).await?.total;
        total.count += count;
        total.ok += ok;
        total.failed += failed;
        total.duration_us += duration_us;
    }
    Ok(total)
}

pub(super) async fn summary(
    State(app): State<App>,
    Who(caller): Who,
    Params(params): Params<AuditParams>,
) -> Result<Json<Value>, Failure> {
    let (query, ..) = params.query()?;
    let total = total(&app, &caller, query).await?;
    Ok(Json(json!({
        "total_commands": total.count, "success_count": total.ok, "failure_count": total.failed,
        "total_duration_ms": total.duration_us / 1000, "avg_duration_ms": total.mean_us() / 1000,
    })))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CleanupBody {
    retention_days: i64,
}

/// Removes older rows of the whole trail. For admins.
pub(super) async fn cleanup(
    State(app): State<App>,
    Who(caller): Who,
    Raw(body): Raw,
) -> Result<Json<Value>, Failure> {
    let CleanupBody { retention_days } = read_json(&body)?;
    if !RETENTION_DAYS.contains(&retention_days) {
        let most = RETENTION_DAYS.end();
        return Err(
            Error::invalid("retention_days", format!("retention_days must be between 0 and {most}")).into()
        );
    }
    let cleaned = app.core.audit.cleanup(&caller, now_ms() - retention_days * DAY_MS).await?;
    Ok(removed(cleaned.rows))
}

pub(super) async fn output(
    State(app): State<App>,
    Who(caller): Who,
    Path(id): Path<String>,
) -> Result<Json<Value>, Failure> {
    let missing = || Error::new(ErrorCode::NotFound, "there is no entry with this id");
    let id = OperationId::from_uuid(Uuid::try_parse(&id).map_err(|_| missing())?);
    let kept = app.core.audit.output(&caller, id).await?;
    Ok(Json(json!({ "stdout": kept_text(kept.stdout), "stderr": kept_text(kept.stderr) })))
}
