//! Errors, as one sentence for people and as fields for programs. Both of the server's error shapes, and any
//! other body (a proxy's page), become the same type.

use atoll_types::{ErrorCode, with_field};
use serde::Deserialize;
use serde_json::{Map, Value};
use std::fmt;

/// The result of a request.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The URL, the key or the request itself is invalid; nothing was sent.
    #[error("{0}")]
    Url(String),
    /// No server answers at the URL.
    #[error("no server answers at {url} ({cause})")]
    Unreachable {
        /// Where.
        url: String,
        /// The system's error.
        cause: String,
    },
    /// The server refused it.
    #[error(transparent)]
    Api(Box<ApiError>),
    /// The response is not one of Atoll's, or broke off.
    #[error("the server did not answer as expected: {0}")]
    Unexpected(String),
}

/// An error response of the server.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ApiError {
    /// The HTTP status.
    pub status: u16,
    /// What kind of failure: one of `atoll_types::ErrorCode`'s names, or `unauthorized`, `http_error`.
    pub code: String,
    /// For people.
    pub message: String,
    /// The field of the request that is wrong, where one is.
    pub field: Option<String>,
    /// More, by name.
    pub details: Map<String, Value>,
    /// When to retry.
    pub retry_after_seconds: Option<u64>,
    /// The body as it came, where it was JSON.
    pub json: Option<String>,
}

impl std::error::Error for ApiError {}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The message about a file always names the path itself.
        let told = |field: &&str| *field == "path" && self.code != "invalid_argument";
        let field = self.field.as_deref().filter(|field| !told(field));
        f.write_str(&with_field(&self.message, field))?;
        // Where the server says what must happen first, to ask again alone does not help.
        match self.retry_after_seconds.filter(|_| !self.details.contains_key("when")) {
            Some(1) => f.write_str(" (ask again in a second)"),
            Some(seconds) => write!(f, " (ask again in {seconds} seconds)"),
            None => Ok(()),
        }
    }
}

#[derive(Deserialize)]
struct Envelope {
    error: Body,
}

#[derive(Deserialize)]
struct Body {
    #[serde(default)]
    code: String,
    #[serde(default)]
    message: String,
    #[serde(default)]
    details: Map<String, Value>,
}

/// The shape of the LangGraph API.
#[derive(Deserialize)]
struct Flat {
    error: String,
    message: String,
}

#[derive(Deserialize)]
struct Validation {
    detail: Vec<Detail>,
}

#[derive(Deserialize)]
struct Detail {
    #[serde(default)]
    loc: Vec<Value>,
    #[serde(default)]
    msg: String,
    #[serde(default, rename = "type")]
    kind: String,
}

impl Detail {
    /// The field, without the place (body, query) in front.
    fn field(&self) -> Option<String> {
        let name = |part: &Value| part.as_str().map_or_else(|| part.to_string(), str::to_owned);
        let parts: Vec<String> = self.loc.iter().skip(1).map(name).collect();
        (!parts.is_empty()).then(|| parts.join("."))
    }

    fn sentence(&self) -> String {
        with_field(&self.msg, self.field().as_deref()).into_owned()
    }
}

impl ApiError {
    /// The kind of failure, where this release knows it.
    #[must_use]
    pub fn known_code(&self) -> Option<ErrorCode> {
        ErrorCode::from_name(&self.code)
    }

    /// Whether the request had no valid key.
    #[must_use]
    pub fn is_unauthorized(&self) -> bool {
        self.status == 401
    }

    pub(crate) fn parse(status: u16, reason: Option<&str>, body: &[u8]) -> Self {
        let found = serde_json::from_slice::<Envelope>(body)
            .ok()
            .map(|envelope| Self::of_body(status, envelope.error))
            .or_else(|| Some(Self::of_details(&serde_json::from_slice::<Validation>(body).ok()?.detail)))
            .or_else(|| {
                let Flat { error: code, message } = serde_json::from_slice(body).ok()?;
                Some(Self { code, message, ..Self::default() })
            })
            .filter(|error| !error.message.is_empty());
        match found {
            Some(error) => Self { status, json: String::from_utf8(body.to_vec()).ok(), ..error },
            None => {
                let reason = reason.map(|r| format!(" {r}")).unwrap_or_default();
                let message =
                    format!("the server answered {status}{reason}, and not as Atoll does; is the URL right?");
                Self { status, code: "http_error".into(), message, ..Self::default() }
            }
        }
    }

    fn of_body(status: u16, body: Body) -> Self {
        let Body { code, message, details } = body;
        let field = details.get("field").and_then(Value::as_str).map(str::to_owned);
        // The server calls both a missing key and a forbidden act permission_denied.
        let code = if status == 401 { "unauthorized".into() } else { code };
        Self { code, message, field, details, ..Self::default() }
    }

    fn of_details(details: &[Detail]) -> Self {
        let unsupported =
            details.iter().any(|d| ErrorCode::from_name(&d.kind) == Some(ErrorCode::Unsupported));
        let code = if unsupported { ErrorCode::Unsupported } else { ErrorCode::InvalidArgument };
        let code = code.as_str().to_owned();
        let sentences: Vec<String> = details.iter().map(Detail::sentence).filter(|s| !s.is_empty()).collect();
        let field = details.first().and_then(Detail::field);
        match details {
            [only] => Self { code, message: only.msg.clone(), field, ..Self::default() },
            // Each sentence names its own field.
            _ => Self { code, message: sentences.join("; "), field: None, ..Self::default() },
        }
    }
}
