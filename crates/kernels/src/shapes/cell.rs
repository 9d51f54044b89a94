//! What a cell does and how it ends, as JSON.

use atoll_types::{Death, KernelId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// An event of a cell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CellEvent {
    /// It began to run.
    Began {
        /// Which cell of its kernel it is.
        execution_count: u64,
    },
    /// It printed a text.
    Output {
        /// Where.
        stream: CellStream,
        /// What; whole characters.
        text: String,
    },
    /// It displayed an output.
    Display(Display),
    /// It has ended; the last event.
    Ended(Box<CellReport>),
}

/// The streams of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CellStream {
    Stdout,
    Stderr,
}

/// A display output: an image, a chart, audio, a table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Display {
    /// Its MIME type.
    #[serde(rename = "type")]
    pub mime: String,
    /// Text, or base64 where the type is not text, SVG or JSON.
    pub data: String,
}

/// What kind of error ended a cell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "KindOnWire", into = "KindOnWire")]
pub enum CellErrorKind {
    /// Its timeout was reached.
    Timeout,
    /// A request interrupted it.
    Interrupted,
    /// The interpreter died, or was killed.
    KernelDied,
    /// The code's own error, by the language's name of it.
    Raised(String),
}

impl CellErrorKind {
    /// Its name on the wire.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Timeout => "TIMEOUT",
            Self::Interrupted => "INTERRUPTED",
            Self::KernelDied => "KERNEL_DIED",
            Self::Raised(name) => name,
        }
    }
}

/// A kind as the kernel manager sends it: code may raise an error with one of our names.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum KindOnWire {
    /// One of ours; a manager of an older release sends the names of raised errors so as well.
    Name(String),
    Raised {
        raised: String,
    },
}

impl From<KindOnWire> for CellErrorKind {
    fn from(kind: KindOnWire) -> Self {
        let known = [Self::Timeout, Self::Interrupted, Self::KernelDied];
        match kind {
            KindOnWire::Raised { raised } => Self::Raised(raised),
            KindOnWire::Name(name) => {
                known.into_iter().find(|kind| kind.as_str() == name).unwrap_or(Self::Raised(name))
            }
        }
    }
}

impl From<CellErrorKind> for KindOnWire {
    fn from(kind: CellErrorKind) -> Self {
        match kind {
            CellErrorKind::Raised(raised) => Self::Raised { raised },
            kind => Self::Name(kind.as_str().into()),
        }
    }
}

impl From<CellErrorKind> for String {
    fn from(kind: CellErrorKind) -> Self {
        match kind {
            CellErrorKind::Raised(name) => name,
            kind => kind.as_str().into(),
        }
    }
}

/// The error of a cell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CellError {
    /// Its kind.
    #[serde(rename = "type")]
    pub kind: CellErrorKind,
    /// Its message.
    pub message: String,
    /// Where it happened.
    pub traceback: Option<String>,
}

impl CellError {
    /// The error of a cell that its code did not raise.
    #[must_use]
    pub fn new(kind: CellErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), traceback: None }
    }

    /// The error of a cell whose interpreter died for this reason.
    #[must_use]
    pub fn kernel_died(reason: &str) -> Self {
        let message = format!("the interpreter died: {reason}; its variables are lost");
        Self::new(CellErrorKind::KernelDied, message)
    }
}

/// A cell that has ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CellReport {
    /// Where it ran.
    pub kernel: KernelId,
    /// Whether it ended without an error.
    pub success: bool,
    /// Its stdout.
    pub stdout: String,
    /// Its stderr.
    pub stderr: String,
    /// Its value, by MIME type; `text/plain` is always among them.
    pub result: Option<BTreeMap<String, String>>,
    /// Its error.
    pub error: Option<CellError>,
    /// Its display outputs.
    pub display_outputs: Vec<Display>,
    /// Which cell of its kernel it was.
    pub execution_count: u64,
    /// How long it ran.
    pub duration_us: u64,
    /// Its timeout was reached.
    pub timed_out: bool,
    /// A request interrupted it.
    pub interrupted: bool,
    /// The interpreter was lost with it, and all variables: it died, or would not be interrupted.
    pub state_lost: bool,
    /// Whether a fresh interpreter took its place.
    pub restarted: bool,
    /// How the interpreter ended.
    pub death: Option<Death>,
    /// Whether some of its output is missing; a notice is in its place.
    pub truncated: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_that_code_raises_is_never_one_of_ours() {
        let raised = CellErrorKind::Raised("KERNEL_DIED".into());
        for kind in [raised, CellErrorKind::Timeout, CellErrorKind::Interrupted, CellErrorKind::KernelDied] {
            let text = serde_json::to_string(&kind).unwrap();
            assert_eq!(serde_json::from_str::<CellErrorKind>(&text).unwrap(), kind, "{text}");
        }
        let old = |name: &str| serde_json::from_value::<CellErrorKind>(name.into()).unwrap();
        assert_eq!(old("KERNEL_DIED"), CellErrorKind::KernelDied);
        assert_eq!(old("NameError"), CellErrorKind::Raised("NameError".into()));
    }
}
