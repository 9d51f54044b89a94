//! The six tools as their callers see them: inputs, replies, schemas, descriptions. Nothing here does any
//! work.

pub mod check;
mod describe;
pub mod input;
pub mod output;

pub use describe::{Hints, ToolDescription, describe};

use std::str::FromStr;

/// One of the six.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tool {
    CreateSession,
    ExecuteCode,
    ExecuteTerminal,
    ImportFiles,
    ExportFiles,
    StopSession,
}

/// There is no such tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoSuchTool;

impl Tool {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::CreateSession,
        Self::ExecuteCode,
        Self::ExecuteTerminal,
        Self::ImportFiles,
        Self::ExportFiles,
        Self::StopSession,
    ];

    /// The name on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::CreateSession => "create_session",
            Self::ExecuteCode => "execute_code",
            Self::ExecuteTerminal => "execute_terminal",
            Self::ImportFiles => "import_files",
            Self::ExportFiles => "export_files",
            Self::StopSession => "stop_session",
        }
    }
}

impl FromStr for Tool {
    type Err = NoSuchTool;
    fn from_str(name: &str) -> Result<Self, NoSuchTool> {
        Self::ALL.into_iter().find(|tool| tool.as_str() == name).ok_or(NoSuchTool)
    }
}
