//! Replies of the tools, exactly as they go over the wire. A failure of a whole call has another shape
//! ([`crate::ToolReply`]).

use super::input::Runtime;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How a session is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SessionStatus {
    Starting,
    Running,
    Dead,
}

/// A session of this conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ActiveSession {
    /// Its id.
    pub session_id: String,
    /// What it speaks.
    pub runtime: Runtime,
    /// How it is.
    pub status: SessionStatus,
}

/// A session that was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SessionCreated {
    /// Whether it is there. A package that could not be installed does not change that.
    pub success: bool,
    /// What the other tools want.
    pub session_id: String,
    /// What it speaks.
    pub runtime: Runtime,
    /// How it is.
    pub status: SessionStatus,
    /// What was asked for.
    pub dependencies: BTreeMap<String, String>,
    /// What went wrong while packages were installed; absent where nothing did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stderr: Option<String>,
}

/// What came of a piece of code.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CodeExecuted {
    /// Whether nothing went wrong.
    pub success: bool,
    /// What it printed.
    pub stdout: String,
    /// What it complained.
    pub stderr: String,
    /// Its value by MIME type, text/plain among them; null where it has none.
    pub result: Option<BTreeMap<String, String>>,
    /// What went wrong.
    pub error: Option<CodeError>,
    /// What it showed: figures, pages, sounds.
    pub display_outputs: Vec<DisplayOutput>,
    /// True where the interpreter was started anew: all variables are lost, the files are there.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub state_lost: bool,
}

/// What went wrong in a piece of code.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CodeError {
    /// The language's own name of it; or TIMEOUT, INTERRUPTED.
    #[serde(rename = "type")]
    pub kind: String,
    /// What it says.
    pub message: String,
    /// Where it happened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceback: Option<String>,
}

/// A display output: an image, a chart, audio, a table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DisplayOutput {
    /// Its MIME type.
    #[serde(rename = "type")]
    pub mime: String,
    /// Text, or base64 where the type is not text, SVG or JSON; over MCP a notice where it comes as content of its own.
    pub data: String,
}

/// What came of a command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CommandExecuted {
    /// As a shell has it; 124 when its time was up.
    pub exit_code: i32,
    /// What it printed.
    pub stdout: String,
    /// What it complained.
    pub stderr: String,
}

/// What came of an import.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FilesImported {
    /// Whether all of them are there.
    pub success: bool,
    /// Each, in the order of the call.
    pub files: Vec<FileImported>,
    /// How many failed; null where none did.
    pub error: Option<String>,
}

/// One of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FileImported {
    /// Where it came from: a path, `session:path`, or its name.
    pub source: String,
    /// Where it is now, or would have been.
    pub destination: String,
    /// Whether it is there.
    pub success: bool,
    /// Its bytes, of a folder all together; null where it failed.
    pub size: Option<u64>,
    /// Why it failed.
    pub error: Option<String>,
}

/// What came of an export.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FilesExported {
    /// Whether all of them were exported.
    pub success: bool,
    /// Each, in the order of the call.
    pub files: Vec<FileExported>,
    /// How many failed; null where none did.
    pub error: Option<String>,
    /// Where there is no download_url: how the files can be had.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// One of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FileExported {
    /// The session that has it.
    pub session_id: String,
    /// Its path there, absolute.
    pub path: String,
    /// Whether it is exported.
    pub success: bool,
    /// Its bytes; null where it failed, or for a folder.
    pub size: Option<u64>,
    /// Why it failed.
    pub error: Option<String>,
    /// Where people can download it, with their key; null where no server listens, as over stdio.
    pub download_url: Option<String>,
}

/// What came of a stop.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SessionStopped {
    /// Whether there was one.
    pub success: bool,
}
