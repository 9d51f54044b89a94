//! Sandboxes as archives.

use crate::{
    App,
    files::steady,
    parse::{Params, sandbox_id},
    shapes::Sandbox,
};
use atoll_core::{Created, Export, ImportOptions, Imported};
use atoll_guest_tools::Unpacked;
use atoll_http::{Busy, Failure, Repeat, Who, once};
use atoll_types::SnapshotId;
use axum::{
    body::Body,
    extract::{Path, State},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{AppendHeaders, IntoResponse, Response},
};
use bytes::Bytes;
use futures_util::Stream;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

/// The header that says what belongs to a sandbox and is not in its archive.
const LEFT_OUT: &str = "atoll-left-out";

/// What of a sandbox is exported.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct TransferParams {
    /// Whether the sandbox's snapshots are written; they are where it is left out.
    snapshots: Option<bool>,
}

/// What of an archive is imported.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct SandboxImportParams {
    /// Whether the archive's snapshots are read; they are where it is left out.
    snapshots: Option<bool>,
    /// Whether your volumes of the names that the archive has are attached; they are not where it is left out, since an archive may come from
    /// anywhere.
    volumes: Option<bool>,
}

/// Reads a sandbox, its record, its files and its snapshots, as one archive with digests. Values that are secret are not in
/// it; those of its other variables are, so a key that only reads is refused.
#[utoipa::path(get, path = "/api/v1/sandboxes/{id}/export", tag = "sandboxes",
    params(("id" = uuid::Uuid, Path), TransferParams),
    responses((status = 200, content_type = "application/x-tar", body = Vec<u8>,
        description = "An archive that breaks off lacks its digest, and the connection breaks",
        headers(("atoll-left-out" = String, description = "What belongs to the sandbox and is not in the archive"))),
        (status = 403, description = "The sandbox has files that its user may not read, or the key may only read"), (status = 404),
        (status = 409), (status = 413, description = "It has more than a million files and folders, or more than 400 snapshots"),
        (status = 429, description = "Two exports of the owner are under way already, or eight on the machine"),
        (status = 501, description = "An older release started the sandbox, or its runtime cannot show snapshots"),
        (status = 507, description = "The disk has no room for a copy of what is exported")))]
pub(crate) async fn export(
    State(app): State<App>,
    Who(caller): Who,
    Path(id): Path<String>,
    Params(TransferParams { snapshots }): Params<TransferParams>,
) -> Result<Response, Failure> {
    let export = app.core.transfers.export(&caller, sandbox_id(&id)?, snapshots.unwrap_or(true)).await?;
    let headers = [
        (header::CONTENT_TYPE, "application/x-tar"),
        (header::CONTENT_DISPOSITION, "attachment; filename=\"sandbox.tar\""),
    ];
    // A header has no letters but ASCII's, and paths may have others.
    let plain = |c: char| if c == ' ' || c.is_ascii_graphic() { c } else { '?' };
    let left_out: String = export.left_out.join("; ").chars().map(plain).collect();
    let left_out = HeaderValue::from_str(&left_out).ok().filter(|text| !text.is_empty());
    let left_out = AppendHeaders(left_out.map(|text| (LEFT_OUT, text)));
    Ok((headers, left_out, Body::from_stream(pieces(export))).into_response())
}

fn pieces(export: Export) -> impl Stream<Item = Result<bytes::Bytes, std::io::Error>> {
    futures_util::stream::try_unfold(export, |mut export| async move {
        match export.next().await {
            Ok(Some(bytes)) => Ok(Some((bytes, export))),
            Ok(None) => Ok(None),
            // The connection breaks, so that the client does not take this for the end.
            Err(error) => Err(std::io::Error::other(error)),
        }
    })
}

/// A sandbox that was imported.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ImportResult {
    sandbox: Sandbox,
    /// Files, links and folders.
    files: u64,
    /// Bytes of files.
    bytes: u64,
    /// Variables that were secret, whose values no archive has: stop the sandbox, set them and resume it.
    missing_secrets: Vec<String>,
    /// How many snapshots it has.
    snapshots: usize,
    /// Snapshots with which variables of kernels were kept, which no archive has: only their files can be rolled back.
    missing_kernels: Vec<Uuid>,
    /// What belonged to the exported sandbox and this one has not: volumes, and files outside of its two folders.
    left_out: Vec<String>,
}

/// Makes a sandbox from an archive. Tier, plan and room are asked as for a create; of an archive that is
/// refused, broke off or was changed nothing is left.
#[utoipa::path(post, path = "/api/v1/sandboxes/import", tag = "sandboxes",
    params(SandboxImportParams),
    request_body(content = Vec<u8>, content_type = "application/octet-stream", description = "An archive that export wrote; any content type will do"),
    responses((status = 201, body = ImportResult),
        (status = 403, description = "Above what the key's tier, the owner's plan or the machine allows"),
        (status = 413, description = "It has more than a million files and folders"),
        (status = 422, description = "The archive is broken, broke off, was changed, or has an entry that is refused"),
        (status = 429, description = "Too many at a time, no room on the machine, or more snapshots than a sandbox may have"),
        (status = 501, description = "It has snapshots or path rules, and the provider makes none"),
        (status = 507, description = "The files do not fit into the sandbox's disk")))]
pub(crate) async fn import(
    State(app): State<App>,
    Who(caller): Who,
    Params(SandboxImportParams { snapshots, volumes }): Params<SandboxImportParams>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Failure> {
    // An archive is not read twice, so its length stands for it.
    let length = headers.get(header::CONTENT_LENGTH).map(|length| Bytes::copy_from_slice(length.as_bytes()));
    let repeat = Repeat::of(&headers, "import", &length.unwrap_or_default())?;
    let (core, asker) = (app.core.clone(), caller.clone());
    let work = async move {
        let options =
            ImportOptions { snapshots: snapshots.unwrap_or(true), volumes: volumes.unwrap_or(false) };
        let imported = core.transfers.import(&asker, options, steady(body)).await?;
        let Imported { record, unpacked, missing_secrets, snapshots, missing_kernels, left_out } = imported;
        let Unpacked { files, bytes } = unpacked;
        let sandbox = Sandbox::created(Created { record, new: true, stderr: String::new() });
        let missing_kernels = missing_kernels.iter().map(SnapshotId::uuid).collect();
        let result =
            ImportResult { sandbox, files, bytes, missing_secrets, snapshots, missing_kernels, left_out };
        Ok((StatusCode::CREATED, result))
    };
    once(&app.core, &caller, repeat, Busy::Refuse, work).await
}
