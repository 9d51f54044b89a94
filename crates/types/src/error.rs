//! One closed vocabulary of failures. A front renders a code with its own table; the message is for
//! people and never carries a host path or a private cause.

use crate::{Death, Refusal};
use serde::{Deserialize, Serialize};
use std::{borrow::Cow, fmt};

macro_rules! codes {
    ($($(#[$doc:meta])* $variant:ident = $text:literal),+ $(,)?) => {
        /// What went wrong, as data.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum ErrorCode { $($(#[$doc])* $variant),+ }

        impl ErrorCode {
            /// Every code, for tables that must be complete.
            pub const ALL: &[ErrorCode] = &[$(ErrorCode::$variant),+];

            /// The name on the wire.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(ErrorCode::$variant => $text),+ }
            }

            /// The code with this name on the wire.
            #[must_use]
            pub fn from_name(name: &str) -> Option<Self> {
                match name { $($text => Some(ErrorCode::$variant),)+ _ => None }
            }
        }
    };
}

codes! {
    /// A field has an invalid value; `field` names it.
    InvalidArgument = "invalid_argument",
    /// No such sandbox, container, volume, exec or file.
    NotFound = "not_found",
    /// The name is taken.
    AlreadyExists = "already_exists",
    /// The sandbox is not running.
    NotRunning = "not_running",
    /// The request conflicts with another one, or with the present state.
    Conflict = "conflict",
    /// A path or symbolic link leads out of the tree it must stay in.
    PathOutsideRoot = "path_outside_root",
    /// A device, FIFO or socket where a file or directory was needed.
    SpecialFile = "special_file",
    /// A directory where a file was needed.
    IsADirectory = "is_a_directory",
    /// Something else where a directory was needed.
    NotADirectory = "not_a_directory",
    /// The directory has entries.
    DirectoryNotEmpty = "directory_not_empty",
    /// The sandbox's user may not do this, or the caller may not.
    PermissionDenied = "permission_denied",
    /// The place is mounted read-only.
    ReadOnly = "read_only",
    /// The disk limit, or the disk, is full.
    DiskFull = "disk_full",
    /// A body or a field is larger than allowed.
    TooLarge = "too_large",
    /// A limit (processes, memory, open files, sandboxes) is reached.
    LimitExceeded = "limit_exceeded",
    /// The command could not be started; `stage` and `errno` say why.
    ExecFailed = "exec_failed",
    /// The container died; the details say how.
    ContainerDied = "container_died",
    /// The interpreter died; the details say how.
    KernelDied = "kernel_died",
    /// The sandbox was rolled back to a snapshot meanwhile.
    RolledBack = "rolled_back",
    /// A skill's package has no SKILL.md.
    #[serde(rename = "skill-file-missing")]
    SkillFileMissing = "skill-file-missing",
    /// A skill's package has several SKILL.md.
    #[serde(rename = "skill-file-ambiguous")]
    SkillFileAmbiguous = "skill-file-ambiguous",
    /// The front matter of a SKILL.md cannot be read.
    #[serde(rename = "skill-malformed-frontmatter")]
    SkillMalformedFrontmatter = "skill-malformed-frontmatter",
    /// The front matter of a SKILL.md lacks a field.
    #[serde(rename = "skill-frontmatter-missing-field")]
    SkillFrontmatterMissingField = "skill-frontmatter-missing-field",
    /// This machine, provider or profile cannot do that.
    Unsupported = "unsupported",
    /// The two sides speak no common protocol version.
    VersionMismatch = "version_mismatch",
    /// Nothing answers on a port of the sandbox, or not as it should.
    BadGateway = "bad_gateway",
    /// A part that the request needs does not answer.
    Unavailable = "unavailable",
    /// It took longer than allowed.
    Timeout = "timeout",
    /// A bug.
    Internal = "internal",
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A failure that may be shown to the caller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
#[serde(deny_unknown_fields)]
pub struct Error {
    /// What kind of failure.
    pub code: ErrorCode,
    /// One sentence for a person.
    pub message: String,
    /// The field of the request that is wrong, where one is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// How the container died, where it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub death: Option<Death>,
    /// What would be allowed, where a limit refused the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refusal: Option<Box<Refusal>>,
}

/// The result of any request.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// A failure without a field.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), field: None, death: None, refusal: None }
    }

    /// An invalid value, with the name of its field.
    pub fn invalid(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(ErrorCode::InvalidArgument, message).at(field)
    }

    /// The container died, and how.
    #[must_use]
    pub fn died(death: Death) -> Self {
        let message = format!("the container died: {}; {}", death.reason(), death.hint());
        Self { death: Some(death), ..Self::new(ErrorCode::ContainerDied, message) }
    }

    /// A bug.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::Internal, message)
    }

    /// The same failure, naming the field it is about.
    #[must_use]
    pub fn at(mut self, field: impl Into<String>) -> Self {
        self.field = Some(field.into());
        self
    }

    /// What went wrong, with the field in front where the message does not name it.
    #[must_use]
    pub fn sentence(&self) -> Cow<'_, str> {
        with_field(&self.message, self.field.as_deref())
    }

    /// The same failure, prefixed with the action that failed.
    #[must_use]
    pub fn context(mut self, doing: impl fmt::Display) -> Self {
        self.message = format!("{doing}: {}", self.message);
        self
    }
}

/// A message with the field in front that it is about, unless it names the field itself.
#[must_use]
pub fn with_field<'a>(message: &'a str, field: Option<&str>) -> Cow<'a, str> {
    match field {
        Some(field) if !names(message, field) => Cow::Owned(format!("{field}: {message}")),
        _ => Cow::Borrowed(message),
    }
}

/// Whether the field is in the message as a word of its own: "did" does not name `id`.
fn names(message: &str, field: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    message.match_indices(field).any(|(at, _)| {
        let (before, after) = (&message[..at], &message[at + field.len()..]);
        !before.ends_with(is_word) && !after.starts_with(is_word)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_names_its_field_once() {
        let of = |field: &str, message: &str| Error::invalid(field, message).sentence().into_owned();
        assert_eq!(of("mode", "expected container or wasm"), "mode: expected container or wasm");
        assert_eq!(of("code", "code must not be empty"), "code must not be empty");
        assert_eq!(of("files", "files[0] is no file"), "files[0] is no file");
        assert_eq!(of("id", "it did not end"), "id: it did not end", "a part of a word names nothing");
        assert_eq!(of("mode", "no model has it; see mode"), "no model has it; see mode");
        assert_eq!(Error::new(ErrorCode::NotFound, "there is none").sentence(), "there is none");
    }

    #[test]
    fn names_are_unique_and_match_serde() {
        for code in ErrorCode::ALL {
            assert_eq!(ErrorCode::from_name(code.as_str()), Some(*code));
            assert_eq!(serde_json::to_value(code).unwrap(), code.as_str());
        }
    }
}
