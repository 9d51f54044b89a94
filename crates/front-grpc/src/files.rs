//! Files, which are text in this protocol.

use crate::v1;
use atoll_core::{Caller, Core};
use atoll_http::LARGEST_CALL;
use atoll_types::{Error, ErrorCode, Result, SandboxId, files::WriteOptions};
use bytes::Bytes;
use futures_util::stream;
use std::sync::Arc;

/// Whether to add to the file's end.
fn is_append(mode: &str) -> Result<bool> {
    match mode {
        "" | "w" => Ok(false),
        "a" => Ok(true),
        _ => Err(Error::invalid("mode", "mode must be \"w\" or \"a\"")),
    }
}

/// Writes a file whole, or adds to one.
pub(crate) async fn write(
    core: &Core,
    caller: &Caller,
    sandbox: SandboxId,
    request: v1::WriteFileRequest,
) -> Result<()> {
    let v1::WriteFileRequest { session_id: _, path, content, mode } = request;
    let options = WriteOptions { append: is_append(&mode)?, create_parents: true, ..WriteOptions::default() };
    let body = stream::iter([Ok(Bytes::from(content))]);
    core.files.upload(caller, sandbox, &path, options, body).await.map(drop)
}

/// The text of a file, and what it holds of its owner's answers.
pub(crate) async fn read(
    core: &Core,
    caller: &Caller,
    sandbox: SandboxId,
    path: &str,
) -> Result<(String, Arc<atoll_core::HeldAnswer>)> {
    let mut held = core.answers.hold(&caller.owner)?;
    let mut file = core.files.download(caller, sandbox, path, 0, 0).await?;
    let mut bytes = Vec::new();
    while let Some(piece) = file.next().await? {
        if bytes.len() + piece.len() > LARGEST_CALL {
            let message = format!("the file is larger than {} MiB", LARGEST_CALL >> 20);
            return Err(Error::new(ErrorCode::TooLarge, message));
        }
        if !held.grow(piece.len()) {
            let message = "your answers that are not yet read leave no room for this one; read them first";
            return Err(Error::new(ErrorCode::LimitExceeded, message));
        }
        bytes.extend_from_slice(&piece);
    }
    let text = String::from_utf8(bytes).map_err(|e| {
        let at = e.utf8_error().valid_up_to();
        Error::invalid("path", format!("the file is no UTF-8 text: byte {at} is wrong"))
    })?;
    Ok((text, Arc::new(held)))
}
