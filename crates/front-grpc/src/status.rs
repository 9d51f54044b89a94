//! One table from codes to statuses of gRPC. A caller gets the error's own message; causes stay in the log.

use atoll_http::Failure;
use atoll_types::{Error, ErrorCode};
use axum::{body::Body, http::Response};
use tonic::{Code, Status};

/// The status of every code.
const CODES: &[(ErrorCode, Code)] = &[
    (ErrorCode::InvalidArgument, Code::InvalidArgument),
    (ErrorCode::NotFound, Code::NotFound),
    (ErrorCode::AlreadyExists, Code::AlreadyExists),
    (ErrorCode::NotRunning, Code::FailedPrecondition),
    (ErrorCode::Conflict, Code::FailedPrecondition),
    (ErrorCode::PathOutsideRoot, Code::InvalidArgument),
    (ErrorCode::SpecialFile, Code::InvalidArgument),
    (ErrorCode::IsADirectory, Code::InvalidArgument),
    (ErrorCode::NotADirectory, Code::InvalidArgument),
    (ErrorCode::DirectoryNotEmpty, Code::FailedPrecondition),
    (ErrorCode::PermissionDenied, Code::PermissionDenied),
    (ErrorCode::ReadOnly, Code::PermissionDenied),
    (ErrorCode::DiskFull, Code::ResourceExhausted),
    (ErrorCode::TooLarge, Code::InvalidArgument),
    (ErrorCode::LimitExceeded, Code::ResourceExhausted),
    (ErrorCode::ExecFailed, Code::InvalidArgument),
    (ErrorCode::ContainerDied, Code::FailedPrecondition),
    (ErrorCode::KernelDied, Code::FailedPrecondition),
    (ErrorCode::RolledBack, Code::Aborted),
    (ErrorCode::SkillFileMissing, Code::InvalidArgument),
    (ErrorCode::SkillFileAmbiguous, Code::InvalidArgument),
    (ErrorCode::SkillMalformedFrontmatter, Code::InvalidArgument),
    (ErrorCode::SkillFrontmatterMissingField, Code::InvalidArgument),
    (ErrorCode::Unsupported, Code::Unimplemented),
    (ErrorCode::VersionMismatch, Code::Unavailable),
    (ErrorCode::BadGateway, Code::Unavailable),
    (ErrorCode::Unavailable, Code::Unavailable),
    (ErrorCode::Timeout, Code::DeadlineExceeded),
    (ErrorCode::Internal, Code::Internal),
];

/// An error as gRPC has it. Metadata say when to ask again, where that is known.
pub(crate) fn of(error: &Error) -> Status {
    let code = CODES.iter().find(|(code, _)| *code == error.code).map_or(Code::Unknown, |(_, code)| *code);
    if code == Code::Internal {
        tracing::error!(message = error.message, "a call failed");
    }
    let mut status = Status::new(code, error.message.clone());
    if let Some(seconds) = error.refusal.as_ref().and_then(|refusal| refusal.retry_after_seconds) {
        status.metadata_mut().insert("retry-after", seconds.into());
    }
    status
}

/// Whether an error is about what the session is or holds. Such a one is told in the answer, where the protocol has a
/// field for it; any other is the call's status.
pub(crate) fn is_about_session(error: &Error) -> bool {
    !matches!(
        error.code,
        ErrorCode::Internal
            | ErrorCode::Unavailable
            | ErrorCode::Timeout
            | ErrorCode::LimitExceeded
            | ErrorCode::VersionMismatch
            | ErrorCode::BadGateway
    )
}

/// The answer to a caller that may not ask.
pub(crate) fn refuse(failure: Failure) -> Response<Body> {
    let status = match failure.is_unauthorized() {
        true => Status::unauthenticated(failure.error().message.clone()),
        false => of(failure.error()),
    };
    status.into_http::<tonic::body::Body>().map(Body::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_one_status() {
        for code in ErrorCode::ALL {
            assert_eq!(CODES.iter().filter(|(c, _)| c == code).count(), 1, "{code}");
        }
        let status = of(&Error::new(ErrorCode::LimitExceeded, "too many").retry_after(7));
        assert_eq!((status.code(), status.message()), (Code::ResourceExhausted, "too many"));
        assert_eq!(status.metadata().get("retry-after").unwrap(), "7");
    }
}
