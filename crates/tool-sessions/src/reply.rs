//! Replies of tools. Every outcome is a value of a known shape, so that a model can act on it: what happened,
//! what to do next, and which sessions are alive.

use crate::tools::{
    check::InputProblem,
    output::{ActiveSession, CodeExecuted, DisplayOutput},
};
use atoll_types::{Error, ErrorCode, files::Changed};
use serde::Serialize;
use serde_json::{Value, json};

/// The reply of a tool.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolReply {
    /// Exactly what goes over the wire.
    pub value: Value,
    /// Why the call as a whole failed, if it did. Code that raises, a command that exits with 1 and a file
    /// that cannot be imported are replies, not failures.
    pub failure: Option<FailureKind>,
    /// Pictures among the value's `display_outputs`.
    pub images: Vec<Image>,
    /// Which files of the session changed since what ran before, where that is known.
    pub changed: Option<Changed>,
}

/// Why a call failed, for programs; the value explains it to models.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureKind {
    /// Its input is invalid.
    InvalidInput,
    /// The session is dead.
    SessionDied,
    /// Something else.
    Other(ErrorCode),
}

/// A picture.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// `image/png` or another that is made of pixels.
    pub mime: String,
    /// Base64.
    pub data: String,
}

/// The most pictures of one reply that are sent beside its text.
const MOST_IMAGES: usize = 8;

fn image(display: &DisplayOutput) -> Option<Image> {
    let pixels = matches!(display.mime.as_str(), "image/png" | "image/jpeg" | "image/gif" | "image/webp");
    pixels.then(|| Image { mime: display.mime.clone(), data: display.data.clone() })
}

impl ToolReply {
    /// A reply.
    pub(crate) fn of(answer: &impl Serialize) -> Self {
        let value = serde_json::to_value(answer).unwrap_or_default();
        Self { value, failure: None, images: Vec::new(), changed: None }
    }

    /// The reply of code, with its pictures.
    pub(crate) fn of_code(answer: &CodeExecuted) -> Self {
        let images = answer.display_outputs.iter().filter_map(image).take(MOST_IMAGES).collect();
        Self { images, ..Self::of(answer) }
    }

    /// The reply to an invalid input.
    pub fn invalid(details: &[InputProblem]) -> Self {
        let value = json!({ "success": false, "error": "INVALID_INPUT", "details": details });
        Self::error(FailureKind::InvalidInput, value)
    }

    /// The reply of a dead session.
    pub(crate) fn died(session: &str, reason: &str, active: &[ActiveSession]) -> Self {
        let hint = "The session is dead; its variables are lost. Create a new session with create_session \
                    and run what you need again, with less memory or in smaller steps if memory was the reason.";
        let value = json!({
            "success": false,
            "error": format!("CONTAINER_DIED: {reason}"),
            "session_id": session,
            "hint": hint,
            "active_sessions": active,
        });
        Self::error(FailureKind::SessionDied, value)
    }

    /// The reply of any other failure.
    pub(crate) fn failed(error: &Error, hint: Option<&str>, active: &[ActiveSession]) -> Self {
        let text = format!("{}: {}", kind(error.code), error.message);
        let hint = hint.map_or_else(|| advice(error, active), str::to_owned);
        let value = json!({ "success": false, "error": text, "active_sessions": active, "hint": hint });
        Self::error(FailureKind::Other(error.code), value)
    }

    fn error(failure: FailureKind, value: Value) -> Self {
        Self { value, failure: Some(failure), images: Vec::new(), changed: None }
    }
}

/// The name of a failure.
pub(crate) fn kind(code: ErrorCode) -> &'static str {
    match code {
        ErrorCode::InvalidArgument => "InvalidInput",
        ErrorCode::NotFound => "NotFound",
        ErrorCode::AlreadyExists => "AlreadyExists",
        ErrorCode::NotRunning => "NotRunning",
        ErrorCode::Conflict => "Conflict",
        ErrorCode::PathOutsideRoot => "PathOutsideWorkspace",
        ErrorCode::SpecialFile => "SpecialFile",
        ErrorCode::IsADirectory => "IsADirectory",
        ErrorCode::NotADirectory => "NotADirectory",
        ErrorCode::DirectoryNotEmpty => "DirectoryNotEmpty",
        ErrorCode::PermissionDenied => "PermissionDenied",
        ErrorCode::ReadOnly => "ReadOnly",
        ErrorCode::DiskFull => "DiskFull",
        ErrorCode::TooLarge => "TooLarge",
        ErrorCode::LimitExceeded => "LimitExceeded",
        ErrorCode::ExecFailed => "ExecFailed",
        ErrorCode::ContainerDied => "ContainerDied",
        ErrorCode::KernelDied => "KernelDied",
        ErrorCode::RolledBack => "RolledBack",
        ErrorCode::SkillFileMissing
        | ErrorCode::SkillFileAmbiguous
        | ErrorCode::SkillMalformedFrontmatter
        | ErrorCode::SkillFrontmatterMissingField => "InvalidSkill",
        ErrorCode::Unsupported => "Unsupported",
        ErrorCode::VersionMismatch => "VersionMismatch",
        ErrorCode::BadGateway => "BadGateway",
        ErrorCode::Unavailable => "Unavailable",
        ErrorCode::Timeout => "Timeout",
        ErrorCode::Internal => "Internal",
    }
}

/// What can be done about it.
fn advice(error: &Error, active: &[ActiveSession]) -> String {
    let text = match error.code {
        ErrorCode::NotFound if active.is_empty() => {
            "There is no session in this conversation; create one with create_session."
        }
        ErrorCode::NotFound => "Use one of active_sessions, or create a session with create_session.",
        ErrorCode::LimitExceeded if active.is_empty() => {
            "The server has no room for another session now; wait a little and try again."
        }
        ErrorCode::LimitExceeded => "Use one of active_sessions, or stop one with stop_session first.",
        ErrorCode::PermissionDenied => {
            "This key does not allow it; do without it or ask the server's operator."
        }
        ErrorCode::DiskFull => "Delete files in the session with execute_terminal, or use a new session.",
        ErrorCode::Unsupported => "This server cannot do that; use another language or another way.",
        ErrorCode::Timeout => "Try again with a longer timeout, or do less at once.",
        ErrorCode::Unavailable | ErrorCode::Internal => {
            "Try again; if it happens again, create a new session."
        }
        ErrorCode::InvalidArgument | ErrorCode::TooLarge => "Change the input and try again.",
        _ => "Look at the message, change the input or the session, and try again.",
    };
    text.to_owned()
}
