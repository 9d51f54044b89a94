//! One table from codes to statuses, and one shape for each kind of error. A caller gets the error's own
//! message; causes stay in the log.

use atoll_types::{Error, ErrorCode, Refusal};
use axum::{
    Json,
    body::Body,
    http::{HeaderValue, Response, StatusCode, header},
    response::IntoResponse,
};
use serde_json::{Value, json};
use std::any::Any;

/// The status of every code.
pub const ERROR_TABLE: &[(ErrorCode, u16)] = &[
    (ErrorCode::InvalidArgument, 422),
    (ErrorCode::NotFound, 404),
    (ErrorCode::AlreadyExists, 409),
    (ErrorCode::NotRunning, 409),
    (ErrorCode::Conflict, 409),
    (ErrorCode::PathOutsideRoot, 400),
    (ErrorCode::SpecialFile, 400),
    (ErrorCode::IsADirectory, 400),
    (ErrorCode::NotADirectory, 400),
    (ErrorCode::DirectoryNotEmpty, 409),
    (ErrorCode::PermissionDenied, 403),
    (ErrorCode::ReadOnly, 403),
    (ErrorCode::DiskFull, 507),
    (ErrorCode::TooLarge, 413),
    (ErrorCode::LimitExceeded, 429),
    (ErrorCode::ExecFailed, 400),
    (ErrorCode::ContainerDied, 409),
    (ErrorCode::KernelDied, 409),
    (ErrorCode::RolledBack, 409),
    (ErrorCode::SkillFileMissing, 422),
    (ErrorCode::SkillFileAmbiguous, 422),
    (ErrorCode::SkillMalformedFrontmatter, 422),
    (ErrorCode::SkillFrontmatterMissingField, 422),
    (ErrorCode::Unsupported, 501),
    (ErrorCode::VersionMismatch, 502),
    (ErrorCode::BadGateway, 502),
    (ErrorCode::Unavailable, 503),
    (ErrorCode::Timeout, 504),
    (ErrorCode::Internal, 500),
];

/// An error on its way to the caller.
#[derive(Debug)]
pub struct Failure {
    error: Error,
    /// Where the field is: in the body, the query, the path or a header.
    place: &'static str,
    /// Instead of the table's.
    status: Option<StatusCode>,
}

/// What the answer to a failed request says, as data among the answer's extensions: a front whose protocol has another
/// shape of errors renders it anew, whichever layer refused the request.
#[derive(Debug, Clone)]
pub struct RenderedFailure {
    /// The error.
    pub error: Error,
    /// Whether the request's place for it is known, so that the error names a field of the request.
    pub validation: bool,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self { error, place: "body", status: None }
    }
}

impl Failure {
    /// An error about the query.
    #[must_use]
    pub fn in_query(error: Error) -> Self {
        Self { error, place: "query", status: None }
    }

    /// An error about the path.
    #[must_use]
    pub fn in_path(error: Error) -> Self {
        Self { error, place: "path", status: None }
    }

    /// An error about a header.
    #[must_use]
    pub fn in_header(error: Error) -> Self {
        Self { error, place: "header", status: None }
    }

    /// What went wrong.
    #[must_use]
    pub fn error(&self) -> &Error {
        &self.error
    }

    /// Whether the caller is not known.
    #[must_use]
    pub fn is_unauthorized(&self) -> bool {
        self.status == Some(StatusCode::UNAUTHORIZED)
    }

    /// No key, or one that is not valid.
    #[must_use]
    pub fn unauthorized(message: &str) -> Self {
        let error = Error::new(ErrorCode::PermissionDenied, message);
        Self { error, place: "header", status: Some(StatusCode::UNAUTHORIZED) }
    }

    /// An error of authentication: a credential that is not known is no credential.
    #[must_use]
    pub fn unknown_caller(error: Error) -> Self {
        match error.code {
            ErrorCode::PermissionDenied => Self::unauthorized(&error.message),
            _ => error.into(),
        }
    }

    /// The route speaks WebSocket and the request does not.
    #[must_use]
    pub fn no_socket(message: String) -> Self {
        let error = Error::new(ErrorCode::InvalidArgument, message);
        Self { error, place: "header", status: Some(StatusCode::UPGRADE_REQUIRED) }
    }

    /// The caller's answers that are not yet read leave no room for this one.
    #[must_use]
    pub fn too_large_unread() -> Self {
        let message = "your answers that are not yet read leave no room for this one; read them first";
        Self { error: Error::new(ErrorCode::LimitExceeded, message), place: "body", status: None }
    }

    /// Too many connections, of all clients or of this one's address.
    #[must_use]
    pub fn too_many_connections() -> Self {
        let message = "too many connections; close some, or wait a second";
        Self { error: Error::new(ErrorCode::LimitExceeded, message), place: "body", status: None }
    }

    /// Too many requests.
    #[must_use]
    pub fn too_many() -> Self {
        let message = "too many requests; wait a second";
        Self { error: Error::new(ErrorCode::LimitExceeded, message), place: "body", status: None }
    }

    /// A header that two readers could each read otherwise is there twice.
    #[must_use]
    pub fn repeated(name: &header::HeaderName) -> Self {
        let message = format!("the header {name} is there more than once");
        let error = Error::new(ErrorCode::InvalidArgument, message);
        Self { error, place: "header", status: Some(StatusCode::BAD_REQUEST) }
    }
}

/// The names and indices of a path in a body: `allow[1].host` are three.
fn parts(path: &str) -> Vec<Value> {
    let part = |part: &str| match part.strip_suffix(']').and_then(|index| index.parse::<u64>().ok()) {
        Some(index) => index.into(),
        None => part.into(),
    };
    path.split(['.', '[']).filter(|text| !text.is_empty()).map(part).collect()
}

/// Where a request is wrong. The caller can correct that, whatever the reason is, so the answer has the shape
/// of a validation error; an error without such a place has the other shape.
fn location(place: &'static str, error: &Error) -> Option<Vec<Value>> {
    match (error.code, &error.field) {
        // The body or the query as a whole; a parameter of the path may be called so.
        (ErrorCode::InvalidArgument, Some(field)) if field == place && place != "path" => {
            Some(vec![place.into()])
        }
        (ErrorCode::InvalidArgument, None) => Some(vec![place.into()]),
        (ErrorCode::InvalidArgument | ErrorCode::Unsupported, Some(field)) => {
            let parts = if place == "body" { parts(field) } else { vec![field.as_str().into()] };
            Some([place.into()].into_iter().chain(parts).collect())
        }
        _ => None,
    }
}

fn status_of(error: &Error) -> StatusCode {
    let listed = ERROR_TABLE.iter().find(|(code, _)| *code == error.code).map_or(500, |(_, status)| *status);
    StatusCode::from_u16(listed).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response<Body> {
        let Self { error, place, status } = self;
        let found = if status.is_none() { location(place, &error) } else { None };
        let rendered = RenderedFailure { error: error.clone(), validation: found.is_some() };
        let retry_after = error.refusal.as_ref().and_then(|r| r.retry_after_seconds).unwrap_or(1);
        let mut response = match found {
            Some(loc) => {
                let kind = match error.code {
                    ErrorCode::Unsupported => "unsupported",
                    _ => "value_error",
                };
                let detail = json!({ "loc": loc, "msg": error.message, "type": kind });
                (StatusCode::UNPROCESSABLE_ENTITY, Json(json!({ "detail": [detail] }))).into_response()
            }
            None => {
                let status = status.unwrap_or_else(|| status_of(&error));
                // What runs in a sandbox, and what a caller chose itself, cannot fill our log.
                let by_choice = error.code == ErrorCode::Unavailable && error.field.is_some();
                if status.is_server_error() && error.code != ErrorCode::BadGateway && !by_choice {
                    tracing::error!(code = %error.code, message = error.message, "a request failed");
                }
                let mut details = serde_json::Map::new();
                details.extend(error.field.map(|f| ("field".to_owned(), f.into())));
                if let Some(death) = &error.death {
                    let data = serde_json::to_value(death).unwrap_or_default();
                    details.extend([("death".to_owned(), data), ("hint".to_owned(), death.hint().into())]);
                }
                if let Some(Refusal { retry_after_seconds, facts }) = error.refusal.as_deref() {
                    details.extend(facts.clone());
                    details.extend(retry_after_seconds.map(|n| ("retry_after_seconds".to_owned(), n.into())));
                }
                let body =
                    json!({ "error": { "code": error.code, "message": error.message, "details": details } });
                (status, Json(body)).into_response()
            }
        };
        if response.status() == StatusCode::TOO_MANY_REQUESTS {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(retry_after));
        }
        if response.status() == StatusCode::UPGRADE_REQUIRED {
            response.headers_mut().insert(header::UPGRADE, HeaderValue::from_static("websocket"));
        }
        if response.status() == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response.extensions_mut().insert(rendered);
        response
    }
}

/// No such path.
pub(crate) async fn no_such_route() -> Failure {
    Error::new(ErrorCode::NotFound, "there is nothing at this path; see /docs").into()
}

/// The path is there, and not for this method.
pub(crate) async fn no_such_method() -> Failure {
    let error = Error::new(ErrorCode::Unsupported, "this path does not take this method; see /docs");
    Failure { error, place: "header", status: Some(StatusCode::METHOD_NOT_ALLOWED) }
}

/// A fault of ours, which the log has and the caller need not see.
pub(crate) fn panicked(cause: Box<dyn Any + Send + 'static>) -> Response<Body> {
    let text = cause.downcast_ref::<String>().map(String::as_str).or(cause.downcast_ref::<&str>().copied());
    tracing::error!(text, "a handler panicked");
    Failure::from(Error::internal("something went wrong; the operator's log says what")).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_request_is_told_by_its_place() {
        let at = |error: &Error, place| location(place, error).map(Value::from);
        assert_eq!(at(&Error::invalid("image", "no"), "body"), Some(json!(["body", "image"])));
        let deep = Error::invalid("egress.allow[1].host", "no");
        assert_eq!(at(&deep, "body"), Some(json!(["body", "egress", "allow", 1, "host"])));
        assert_eq!(at(&Error::invalid("Range", "no"), "header"), Some(json!(["header", "Range"])));
        assert_eq!(at(&Error::invalid("body", "cut off"), "body"), Some(json!(["body"])));
        assert_eq!(at(&Error::new(ErrorCode::InvalidArgument, "no"), "path"), Some(json!(["path"])));
        assert_eq!(at(&Error::new(ErrorCode::PermissionDenied, "no").at("image"), "body"), None);
        assert_eq!(at(&Error::new(ErrorCode::Unsupported, "no"), "body"), None);
    }

    #[test]
    fn every_code_has_one_status() {
        for code in ErrorCode::ALL {
            assert_eq!(ERROR_TABLE.iter().filter(|(c, _)| c == code).count(), 1, "{code}");
        }
    }
}
