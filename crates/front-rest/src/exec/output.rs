//! Reading what a command printed, from any offset, while it runs and afterwards.

use super::sse::{self, OutputRequest, Updates, server_ends, updates};
use crate::{
    App,
    parse::{Params, exec_id, sandbox_id},
};
use atoll_core::{ExecFollow, ExecUpdate};
use atoll_http::{Ending, Failure, Who};
use atoll_types::{Error, OutputStream, Result};
use axum::{
    body::Body,
    extract::{Path, State},
    http::{HeaderMap, HeaderValue, header},
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use serde::Deserialize;
use std::io;
use utoipa::{IntoParams, ToSchema};

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct OutputParams {
    /// The offset of the first byte that is wanted, over both outputs.
    from: Option<u64>,
    /// Whether to wait for more, until the command ends.
    follow: Option<bool>,
    /// Events that say where and what (sse), or the bytes alone (raw).
    #[param(inline)]
    format: Option<Format>,
    /// Only this output.
    #[param(inline)]
    stream: Option<Which>,
}

/// How output is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum Format {
    Sse,
    Raw,
}

/// One of the two outputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum Which {
    Stdout,
    Stderr,
}

/// Where a client that reconnects wants to go on.
fn last_event(headers: &HeaderMap) -> Result<Option<u64>, Failure> {
    let Some(value) = headers.get("last-event-id").filter(|v| !v.is_empty()) else { return Ok(None) };
    let wrong = || {
        Failure::in_header(Error::invalid("Last-Event-ID", "expected the id of an event, which is an offset"))
    };
    Ok(Some(value.to_str().ok().and_then(|text| text.parse().ok()).ok_or_else(wrong)?))
}

/// Reads a command's output.
///
/// As `sse`, events of JSON: `started`; `stdout` and `stderr` with `offset` and `data`, which is base64
/// where `encoding` says so; `dropped` with `offset` and `bytes` for what is gone; at last `exit`, or
/// `error`. An event's id is the offset to resume at, and `Last-Event-ID` does. As `raw`, the bytes of both
/// outputs in their order, or of one: the header `x-atoll-offset` says where they begin, `x-atoll-dropped`
/// how many are missing, and a gap on the way breaks the answer off.
#[utoipa::path(get, path = "/api/v1/sandboxes/{id}/execs/{eid}/output", tag = "exec",
    params(("id" = uuid::Uuid, Path), ("eid" = String, Path), OutputParams,
        ("Last-Event-ID" = Option<u64>, Header, description = "Goes before `from`")),
    responses(
        (status = 200, content((String = "text/event-stream"), (Vec<u8> = "application/octet-stream"))),
        (status = 404), (status = 409, description = "Not running"), (status = 422)))]
pub(crate) async fn output(
    State(app): State<App>,
    Who(caller): Who,
    Path((id, eid)): Path<(String, String)>,
    Params(params): Params<OutputParams>,
    ending: Ending,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let OutputParams { from, follow, format, stream } = params;
    let only = stream.map(|which| match which {
        Which::Stdout => OutputStream::Stdout,
        Which::Stderr => OutputStream::Stderr,
    });
    let from = last_event(&headers)?.or(from).unwrap_or(0);
    let wish = OutputRequest { from, follow: follow.unwrap_or(false), only };
    let found = app.core.execs.output(&caller, sandbox_id(&id)?, exec_id(&eid)?, from, wish.follow).await?;
    match format.unwrap_or(Format::Sse) {
        Format::Sse => Ok(sse::respond(found, wish, ending)),
        Format::Raw => raw(found, wish, ending).await,
    }
}

/// The bytes alone. What is missing at the start is known before the answer begins.
async fn raw(found: ExecFollow, wish: OutputRequest, ending: Ending) -> Result<Response, Failure> {
    let report = found.report.clone();
    let mut updates = updates(found);
    let there = report.ended || report.output_bytes > wish.from;
    let first = if there { updates.next().await.transpose()? } else { None };
    let begins = match &first {
        Some(ExecUpdate::Output { offset, .. }) => *offset,
        Some(ExecUpdate::Ended { report, .. }) => report.output_bytes.max(wish.from),
        None => wish.from,
    };
    let missing = (begins - wish.from.min(begins)).saturating_add(report.dropped_bytes);
    let updates: Updates = Box::pin(stream::iter(first.map(Ok)).chain(updates));
    let pieces = stream::unfold((updates, begins, ending), move |(updates, next, ending)| async move {
        let (piece, next) = raw_piece(updates, next, wish, ending).await?;
        Some((piece, next))
    });
    let mut response = Body::from_stream(pieces).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    headers.insert("x-atoll-offset", HeaderValue::from(begins));
    if missing > 0 {
        headers.insert("x-atoll-dropped", HeaderValue::from(missing));
    }
    Ok(response)
}

type RawState = (Updates, u64, Ending);

/// The next bytes that are wanted. After an error nothing more comes.
async fn raw_piece(
    mut updates: Updates,
    mut next: u64,
    wish: OutputRequest,
    ending: Ending,
) -> Option<(io::Result<Bytes>, RawState)> {
    let last = ending.clone();
    let broken = move |error: Error| {
        let nothing: Updates = Box::pin(stream::empty());
        Some((Err(io::Error::other(error)), (nothing, u64::MAX, last.clone())))
    };
    if next == u64::MAX {
        return None;
    }
    loop {
        let update = tokio::select! {
            biased;
            update = updates.next() => update,
            () = ending.wait() => return broken(server_ends()),
        };
        match update {
            Some(Ok(ExecUpdate::Output { stream, offset, data })) => {
                if offset != next {
                    return broken(Error::internal("the reader was too slow, and what it wanted is gone"));
                }
                next = offset + data.len() as u64;
                if wish.only.is_none_or(|only| only == stream) {
                    return Some((Ok(data), (updates, next, ending)));
                }
            }
            Some(Ok(ExecUpdate::Ended { .. })) => return None,
            Some(Err(error)) => return broken(error),
            None if wish.follow => return broken(Error::internal("the command's output broke off")),
            None => return None,
        }
    }
}
