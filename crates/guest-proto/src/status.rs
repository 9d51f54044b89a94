//! How an [`atoll_types::Error`] is carried in a gRPC status, its code and field as metadata, and in a message
//! where there is no gRPC.
//!
//! What a sandbox sends is hostile, so a status is never trusted: an unknown code becomes `internal`, and texts
//! are cut.

use crate::v1::Failure;
use atoll_types::{Error, ErrorCode};
use tonic::{Code, Status};

const CODE: &str = "atoll-code";
const FIELD: &str = "atoll-field";
const LONGEST: usize = 2000;

fn grpc_code(code: ErrorCode) -> Code {
    match code {
        ErrorCode::InvalidArgument | ErrorCode::PathOutsideRoot | ErrorCode::TooLarge => {
            Code::InvalidArgument
        }
        ErrorCode::NotFound => Code::NotFound,
        ErrorCode::AlreadyExists => Code::AlreadyExists,
        ErrorCode::PermissionDenied | ErrorCode::ReadOnly => Code::PermissionDenied,
        ErrorCode::DiskFull | ErrorCode::LimitExceeded => Code::ResourceExhausted,
        ErrorCode::Unsupported => Code::Unimplemented,
        ErrorCode::Unavailable | ErrorCode::BadGateway | ErrorCode::ContainerDied => Code::Unavailable,
        ErrorCode::Timeout => Code::DeadlineExceeded,
        ErrorCode::Internal => Code::Internal,
        ErrorCode::NotRunning
        | ErrorCode::Conflict
        | ErrorCode::SpecialFile
        | ErrorCode::IsADirectory
        | ErrorCode::NotADirectory
        | ErrorCode::DirectoryNotEmpty
        | ErrorCode::ExecFailed
        | ErrorCode::KernelDied
        | ErrorCode::RolledBack
        | ErrorCode::SkillFileMissing
        | ErrorCode::SkillFileAmbiguous
        | ErrorCode::SkillMalformedFrontmatter
        | ErrorCode::SkillFrontmatterMissingField
        | ErrorCode::VersionMismatch => Code::FailedPrecondition,
    }
}

fn cut(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(LONGEST).collect()
}

/// The status that carries this error.
#[must_use]
pub fn to_status(error: &Error) -> Status {
    let mut status = Status::new(grpc_code(error.code), &error.message);
    let metadata = status.metadata_mut();
    metadata.insert(CODE, tonic::metadata::MetadataValue::from_static(error.code.as_str()));
    if let Some(value) = error.field.as_deref().and_then(|f| f.parse().ok()) {
        metadata.insert(FIELD, value);
    }
    status
}

/// Whether PID 1 sent this error itself, rather than the connection to it failing.
#[must_use]
pub fn is_spoken(status: &Status) -> bool {
    status.metadata().contains_key(CODE)
}

/// The error that a status carries, made safe for logs and callers.
#[must_use]
pub fn from_status(status: &Status) -> Error {
    let text = |key| status.metadata().get(key).and_then(|v| v.to_str().ok());
    let code = text(CODE).and_then(ErrorCode::from_name).unwrap_or(match status.code() {
        Code::Unavailable | Code::Cancelled => ErrorCode::Unavailable,
        Code::DeadlineExceeded => ErrorCode::Timeout,
        Code::Unimplemented => ErrorCode::Unsupported,
        _ => ErrorCode::Internal,
    });
    Error { field: text(FIELD).map(cut), ..Error::new(code, cut(status.message())) }
}

/// The message that carries this error.
#[must_use]
pub fn to_failure(error: &Error) -> Failure {
    Failure {
        code: error.code.as_str().into(),
        field: error.field.clone().unwrap_or_default(),
        message: cut(&error.message),
    }
}

/// The error that a message carries, sanitised as by [`from_status`].
#[must_use]
pub fn from_failure(failure: &Failure) -> Error {
    let Failure { code, field, message } = failure;
    let code = ErrorCode::from_name(code).unwrap_or(ErrorCode::Internal);
    Error { field: (!field.is_empty()).then(|| cut(field)), ..Error::new(code, cut(message)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_survives_the_trip() {
        for code in ErrorCode::ALL {
            let error = Error::new(*code, "it is so").at("path");
            assert_eq!(from_status(&to_status(&error)), error);
            assert_eq!(from_failure(&to_failure(&error)), error);
        }
    }

    #[test]
    fn hostile_statuses_are_tamed() {
        let mut status = Status::new(Code::Ok, "a\u{1b}[2Jb\n".to_string() + &"x".repeat(10_000));
        status.metadata_mut().insert(CODE, "no_such_code".parse().unwrap());
        let error = from_status(&status);
        assert_eq!(error.code, ErrorCode::Internal);
        assert!(error.message.starts_with("a[2Jb"));
        assert_eq!(error.message.len(), LONGEST);
        let long = "\u{1b}".to_string() + &"x".repeat(10_000);
        let failure = Failure { code: "no_such_code".into(), field: long.clone(), message: long };
        let error = from_failure(&failure);
        assert_eq!((error.code, error.message.len()), (ErrorCode::Internal, LONGEST));
        assert_eq!(error.field.map(|f| f.len()), Some(LONGEST));
    }
}
