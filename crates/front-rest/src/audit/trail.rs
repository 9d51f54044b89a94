//! The audit trail as a whole: exported, verified and shortened. All of it needs an admin key.

use crate::{
    App,
    parse::{Params, Raw, json},
};
use atoll_core::{AuditExport, Cleaned, Fault, Report, Verdict};
use atoll_http::{Ending, Failure, Who};
use atoll_types::{
    Error,
    audit::Mac,
    time::{moment, now_ms},
};
use axum::{
    Json,
    body::Body,
    extract::State,
    http::{HeaderValue, header},
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use futures_util::stream;
use serde::{Deserialize, Serialize};
use std::io;
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ExportParams {
    /// The first row.
    from: Option<u64>,
    /// Whether what commands wrote comes with it, packed.
    output: Option<bool>,
}

/// The rows of the trail as JSON Lines: `seq`, `part` (begin, end, note or checkpoint), `operation`, `at`
/// in milliseconds since 1970, `mac`, `facts` and, where it was asked for, `output`: both outputs, deflated,
/// in base64. Needs an admin key.
#[utoipa::path(get, path = "/api/v1/audit/export", tag = "audit", params(ExportParams),
    responses((status = 200, content_type = "application/x-ndjson", body = String), (status = 403), (status = 422)))]
pub(crate) async fn export(
    State(app): State<App>,
    Who(caller): Who,
    Params(params): Params<ExportParams>,
    ending: Ending,
) -> Result<Response, Failure> {
    let ExportParams { from, output } = params;
    let export = app.core.audit.export(&caller, from.unwrap_or(0), output.unwrap_or(false))?;
    let lines = stream::unfold(Some((export, ending)), |state| async {
        let (mut export, ending) = state?;
        let lines = next(&mut export, &ending).await.transpose()?;
        let rest = lines.is_ok().then_some((export, ending));
        Some((lines, rest))
    });
    let mut response = Body::from_stream(lines).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"));
    let attached = HeaderValue::from_static("attachment; filename=\"atoll-audit.ndjson\"");
    headers.insert(header::CONTENT_DISPOSITION, attached);
    Ok(response)
}

/// What breaks off must not look whole, so an error breaks the answer.
async fn next(export: &mut AuditExport, ending: &Ending) -> io::Result<Option<Bytes>> {
    tokio::select! {
        biased;
        () = ending.wait() => Err(io::Error::other("the server ends")),
        lines = export.next() => Ok(lines.map_err(io::Error::other)?.map(Bytes::from)),
    }
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct VerifyParams {
    /// A row and its code that were noted earlier, as `last` and `mac` told them: `SEQ:MAC`.
    expect: Option<String>,
}

/// Whether the trail is as it was written.
#[derive(Debug, Default, Serialize, ToSchema)]
pub(crate) struct AuditVerdict {
    sound: bool,
    /// Where it is not.
    first_fault: Option<AuditFault>,
    /// What the server noted itself when it started, beside that.
    noted: Vec<AuditFault>,
    /// Why it cannot be told; it is not sound then.
    unsure: Option<String>,
    /// The first row; those before it were removed on purpose.
    first: Option<u64>,
    /// The last row; zero when there is none.
    last: Option<u64>,
    /// Its code. A client that notes both can tell later that no row before it was replaced.
    mac: Option<String>,
    operations: Option<u64>,
    /// How many of them have not ended.
    open: Option<u64>,
    /// What is worth knowing and no fault, such as a power cut.
    remarks: Vec<String>,
}

/// What is wrong, and where.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AuditFault {
    seq: u64,
    /// changed, removed, moved, added, cut_off, head_missing, head_forged or projection.
    kind: String,
    message: String,
}

impl From<Fault> for AuditFault {
    fn from(fault: Fault) -> Self {
        let Fault { kind, seq, text } = fault;
        Self { seq, kind: kind.to_string(), message: text }
    }
}

impl From<Verdict> for AuditVerdict {
    fn from(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Sound(Report { first, last, mac, operations, open, remarks }) => Self {
                sound: true,
                first: Some(first),
                last: Some(last),
                mac: Some(mac.to_string()),
                operations: Some(operations),
                open: Some(open),
                remarks,
                ..Self::default()
            },
            Verdict::Faulty { first, noted } => Self {
                first_fault: Some(first.into()),
                noted: noted.into_iter().map(AuditFault::from).collect(),
                ..Self::default()
            },
            Verdict::Unsure(why) => Self { unsure: Some(why), ..Self::default() },
        }
    }
}

fn expected(text: &str) -> Result<(u64, Mac), Failure> {
    let wrong = || Failure::in_query(Error::invalid("expect", "expected a row and its code, as SEQ:MAC"));
    let (seq, mac) = text.split_once(':').ok_or_else(wrong)?;
    Ok((seq.parse().map_err(|_| wrong())?, mac.parse().map_err(|_| wrong())?))
}

/// Checks the trail from its first row to its last: nothing was changed, removed, moved, added or cut off.
/// Needs an admin key. An operator who does not trust the server runs `atoll audit verify` on its data folder.
#[utoipa::path(get, path = "/api/v1/audit/verify", tag = "audit", params(VerifyParams),
    responses((status = 200, body = AuditVerdict), (status = 403), (status = 422)))]
pub(crate) async fn verify(
    State(app): State<App>,
    Who(caller): Who,
    Params(params): Params<VerifyParams>,
) -> Result<Json<AuditVerdict>, Failure> {
    let expect = params.expect.as_deref().map(expected).transpose()?;
    Ok(Json(app.core.audit.verify(&caller, expect).await?.into()))
}

/// The most days that a cleanup may name.
pub(crate) const OLDEST_DAYS: u32 = 36_500;

/// What is too old: one of both.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CleanupBody {
    /// What is older than this: RFC 3339, or milliseconds since 1970 as text.
    before: Option<String>,
    /// What is older than so many days.
    older_than_days: Option<u32>,
}

/// What was removed.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AuditCleaned {
    /// How many rows.
    removed: u64,
    /// The last row that is gone, now or since earlier; zero when none is.
    removed_to: u64,
    /// An operation that has not ended: it and what follows it stay.
    held_by: Option<Uuid>,
}

impl CleanupBody {
    fn moment(self) -> Result<i64, Failure> {
        match self {
            Self { before: Some(before), older_than_days: None } => moment(&before).ok_or_else(|| {
                Error::invalid("before", "expected a time such as 2026-11-15T12:00:00Z").into()
            }),
            Self { before: None, older_than_days: Some(days) } => {
                if days > OLDEST_DAYS {
                    return Err(Error::invalid("older_than_days", format!("at most {OLDEST_DAYS}")).into());
                }
                Ok(now_ms() - i64::from(days) * 86_400_000)
            }
            Self { .. } => Err(Error::invalid("before", "give either before or older_than_days").into()),
        }
    }
}

/// Removes the rows at the beginning of the trail that are too old. A checkpoint stays in their place,
/// from which the rest is verified. Needs an admin key.
#[utoipa::path(post, path = "/api/v1/audit/cleanup", tag = "audit", request_body = CleanupBody,
    responses((status = 200, body = AuditCleaned), (status = 403),
        (status = 409, description = "The trail is not sound, or is being cleaned already"), (status = 422)))]
pub(crate) async fn cleanup(
    State(app): State<App>,
    Who(caller): Who,
    Raw(body): Raw,
) -> Result<Json<AuditCleaned>, Failure> {
    let before = json::<CleanupBody>(&body)?.moment()?;
    let Cleaned { rows, first, held_by } = app.core.audit.cleanup(&caller, before).await?;
    let held_by = held_by.map(|operation| operation.uuid());
    Ok(Json(AuditCleaned { removed: rows, removed_to: first.saturating_sub(1), held_by }))
}
