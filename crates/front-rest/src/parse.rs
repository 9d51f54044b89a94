//! Reading ids and seconds strictly. Bodies and queries are read as every front reads them.

use atoll_http::Failure;
pub(crate) use atoll_http::{Params, Raw, json, required_json};
use atoll_types::{
    BuildId, Error, ErrorCode, ExecId, KeyId, OperationId, PreviewTokenId, SandboxId, SkillId, SnapshotId,
};
use serde::{Deserialize, Deserializer};
use uuid::Uuid;

/// Whole seconds of a number that may have a fraction, which counts as a second more.
pub(crate) fn seconds<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u32>, D::Error> {
    let Some(seconds) = Option::<f64>::deserialize(from)? else { return Ok(None) };
    match (0.0..=f64::from(u32::MAX)).contains(&seconds) {
        true => Ok(Some(seconds.ceil() as u32)),
        false => Err(serde::de::Error::custom(format!("expected seconds from 0 to {}", u32::MAX))),
    }
}

/// The id of a sandbox, in either spelling of a UUID.
pub(crate) fn sandbox_id(text: &str) -> Result<SandboxId, Failure> {
    let missing =
        || Error::new(ErrorCode::NotFound, format!("there is no sandbox {:.64}", text.escape_debug()));
    Ok(SandboxId::from_uuid(Uuid::try_parse(text).map_err(|_| missing())?))
}

/// The id of a snapshot, in either spelling of a UUID.
pub(crate) fn snapshot_id(text: &str) -> Result<SnapshotId, Failure> {
    let missing = || Error::new(ErrorCode::NotFound, "the sandbox has no snapshot with this id");
    Ok(SnapshotId::from_uuid(Uuid::try_parse(text).map_err(|_| missing())?))
}

/// The id of a preview token, in either spelling of a UUID.
pub(crate) fn preview_token_id(text: &str) -> Result<PreviewTokenId, Failure> {
    let missing = || Error::new(ErrorCode::NotFound, "the sandbox has no preview token with this id");
    Ok(PreviewTokenId::from_uuid(Uuid::try_parse(text).map_err(|_| missing())?))
}

/// The id of a skill, in either spelling of a UUID.
pub(crate) fn skill_id(text: &str) -> Result<SkillId, Failure> {
    let missing = || Error::new(ErrorCode::NotFound, "there is no skill with this id");
    Ok(SkillId::from_uuid(Uuid::try_parse(text).map_err(|_| missing())?))
}

/// The id of a build, in either spelling of a UUID.
pub(crate) fn build_id(text: &str) -> Result<BuildId, Failure> {
    let missing = || Error::new(ErrorCode::NotFound, "there is no build with this id");
    Ok(BuildId::from_uuid(Uuid::try_parse(text).map_err(|_| missing())?))
}

/// The id of a command, in either spelling of a UUID.
pub(crate) fn exec_id(text: &str) -> Result<ExecId, Failure> {
    let missing = || Error::new(ErrorCode::NotFound, "there is no command with this id");
    Ok(ExecId::from_uuid(Uuid::try_parse(text).map_err(|_| missing())?))
}

/// The id of a key.
pub(crate) fn key_id(text: &str) -> Result<KeyId, Failure> {
    let missing = || Error::new(ErrorCode::NotFound, "there is no such key");
    Ok(KeyId::from_uuid(Uuid::try_parse(text).map_err(|_| missing())?))
}

/// The id of an operation, in either spelling of a UUID.
pub(crate) fn operation_id(text: &str) -> Result<OperationId, Failure> {
    let missing = || Error::new(ErrorCode::NotFound, "there is no operation with this id");
    Ok(OperationId::from_uuid(Uuid::try_parse(text).map_err(|_| missing())?))
}
