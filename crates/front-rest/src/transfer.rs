//! Sandboxes as archives.

use crate::{App, files::steady, parse::sandbox_id, shapes::Sandbox};
use atoll_core::{Created, Export, Imported};
use atoll_guest_tools::Unpacked;
use atoll_http::{Busy, Failure, Repeat, Who, once};
use axum::{
    body::Body,
    extract::{Path, State},
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use futures_util::Stream;
use serde::Serialize;
use utoipa::ToSchema;

/// Reads a sandbox, its record and its files, as one archive with digests. Values that are secret are not in it; those of
/// its other variables are, so a key that only reads is refused.
#[utoipa::path(get, path = "/api/v1/sandboxes/{id}/export", tag = "sandboxes",
    params(("id" = uuid::Uuid, Path)),
    responses((status = 200, content_type = "application/x-tar", body = Vec<u8>,
        description = "An archive that breaks off lacks its digest, and the connection breaks"),
        (status = 403, description = "The sandbox has files that its user may not read, or the key may only read"), (status = 404),
        (status = 409), (status = 413, description = "It has more than a million files and folders"),
        (status = 429, description = "Two of the owner's sandboxes are being exported already, or eight on the machine"),
        (status = 501, description = "An older release started the sandbox")))]
pub(crate) async fn export(
    State(app): State<App>,
    Who(caller): Who,
    Path(id): Path<String>,
) -> Result<Response, Failure> {
    let export = app.core.transfers.export(&caller, sandbox_id(&id)?).await?;
    let headers = [
        (header::CONTENT_TYPE, "application/x-tar"),
        (header::CONTENT_DISPOSITION, "attachment; filename=\"sandbox.tar\""),
    ];
    Ok((headers, Body::from_stream(pieces(export))).into_response())
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
}

/// Makes a sandbox from an archive. Tier, plan and room are asked as for a create; of an archive that is
/// refused, broke off or was changed nothing is left.
#[utoipa::path(post, path = "/api/v1/sandboxes/import", tag = "sandboxes",
    request_body(content = Vec<u8>, content_type = "application/octet-stream", description = "An archive that export wrote; any content type will do"),
    responses((status = 201, body = ImportResult),
        (status = 403, description = "Above what the key's tier, the owner's plan or the machine allows"),
        (status = 413, description = "It has more than a million files and folders"),
        (status = 422, description = "The archive is broken, broke off, was changed, or has an entry that is refused"),
        (status = 429, description = "Too many at a time, or no room on the machine"),
        (status = 507, description = "The files do not fit into the sandbox's disk")))]
pub(crate) async fn import(
    State(app): State<App>,
    Who(caller): Who,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Failure> {
    // An archive is not read twice, so its length stands for it.
    let length = headers.get(header::CONTENT_LENGTH).map(|length| Bytes::copy_from_slice(length.as_bytes()));
    let repeat = Repeat::of(&headers, "import", &length.unwrap_or_default())?;
    let (core, asker) = (app.core.clone(), caller.clone());
    let work = async move {
        let imported = core.transfers.import(&asker, steady(body)).await?;
        let Imported { record, unpacked: Unpacked { files, bytes }, missing_secrets } = imported;
        let sandbox = Sandbox::created(Created { record, new: true, stderr: String::new() });
        Ok((StatusCode::CREATED, ImportResult { sandbox, files, bytes, missing_secrets }))
    };
    once(&app.core, &caller, repeat, Busy::Refuse, work).await
}
