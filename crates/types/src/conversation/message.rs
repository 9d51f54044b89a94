//! Messages of a conversation, in the form that every model provider's can be made of.

use crate::{CellId, ExecId, OperationId, SandboxId, files::Changed, names};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The longest id of a message, in bytes.
pub const LONGEST_MESSAGE_ID: usize = 128;

names!(
    /// Who speaks.
    Role {
        /// The operator or the client instructs the model.
        System = "system",
        /// A person.
        User = "user",
        /// The model.
        Assistant = "assistant",
        /// A tool answers one call of the model.
        Tool = "tool",
    }
);

names!(
    /// Why a model stopped.
    FinishReason {
        /// It had said everything.
        Stop = "stop",
        /// It wants tools to be called.
        ToolCalls = "tool_calls",
        /// Its answer reached the longest that it may be.
        Length = "length",
        /// The provider withheld the rest.
        ContentFilter = "content_filter",
        /// The run was cancelled while it spoke.
        Cancelled = "cancelled",
    }
);

/// A message. Its id never changes; a message of the same id replaces it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// Unique in its thread; a client may choose it.
    pub id: String,
    /// Who speaks.
    pub role: Role,
    /// What is said, in its order.
    pub content: Vec<Block>,
    /// The speaker's name, where the client has several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The model that wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Why the model stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finish: Option<FinishReason>,
    /// The tokens that it cost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<TokenUsage>,
    /// Fields of the client that the agent keeps and does not read.
    #[serde(default, skip_serializing_if = "serde_json::Map::is_empty")]
    pub extra: super::Metadata,
}

impl Message {
    /// A message of one text.
    #[must_use]
    pub fn text(id: impl Into<String>, role: Role, text: impl Into<String>) -> Self {
        Self::new(id, role, vec![Block::Text { text: text.into() }])
    }

    /// A message of blocks.
    #[must_use]
    pub fn new(id: impl Into<String>, role: Role, content: Vec<Block>) -> Self {
        let extra = super::Metadata::new();
        Self { id: id.into(), role, content, name: None, model: None, finish: None, usage: None, extra }
    }

    /// Its text blocks, joined.
    #[must_use]
    pub fn plain_text(&self) -> String {
        let text = |block: &Block| match block {
            Block::Text { text } => Some(text.clone()),
            _ => None,
        };
        self.content.iter().filter_map(text).collect()
    }

    /// The calls of tools that it asks for.
    pub fn tool_calls(&self) -> impl Iterator<Item = &ToolCall> {
        self.content.iter().filter_map(|block| match block {
            Block::ToolCall(call) => Some(call),
            _ => None,
        })
    }

    /// The result of a tool that it carries.
    #[must_use]
    pub fn tool_result(&self) -> Option<&ToolResult> {
        self.content.iter().find_map(|block| match block {
            Block::ToolResult(result) => Some(result),
            _ => None,
        })
    }
}

/// A part of a message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Block {
    /// Text.
    Text {
        /// What.
        text: String,
    },
    /// What a model thought before it answered.
    Reasoning {
        /// As far as the provider shows it.
        text: String,
        /// What the provider wants back unchanged with the next request.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signature: Option<String>,
    },
    /// A picture: base64 with its MIME type.
    Image {
        /// `image/png` and the like.
        mime: String,
        /// Base64.
        data: String,
    },
    /// A picture or a file by its URL. The agent never fetches it: the provider does.
    ImageUrl {
        /// Where it is.
        url: String,
    },
    /// The model wants a tool to be called.
    ToolCall(ToolCall),
    /// A tool answered.
    ToolResult(ToolResult),
    /// A block of the client that the agent keeps and does not read.
    Other {
        /// As it came.
        value: Value,
    },
}

/// A call of a tool, as the model asked for it: neither the name nor the arguments need to be valid. Once a person changed it, it is
/// what was carried out, and its result has what the model asked for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolCall {
    /// As the provider names it; where it names none, or one that another call of the message has, made by the agent.
    pub id: String,
    /// The tool.
    pub name: String,
    /// Its arguments; null where they are no JSON.
    pub arguments: Value,
    /// The arguments as they came, where they are no JSON; cut where they are long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub broken: Option<String>,
    /// What the provider wants back unchanged with the next request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signature: Option<String>,
}

names!(
    /// How a call of a tool went.
    ToolStatus {
        /// The tool answered. Code that raises and a command that exits with 1 are answers.
        Success = "success",
        /// The call as a whole failed; the text says why and what to do.
        Error = "error",
    }
);

/// The most changed files that a result names.
pub const MOST_CHANGED: usize = 64;

/// What came of a call of a tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolResult {
    /// The call that it answers.
    pub call: String,
    /// The tool.
    pub name: String,
    /// How it went.
    pub status: ToolStatus,
    /// What the tool replied; pictures are taken out of it.
    pub value: Value,
    /// Pictures that the tool showed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pictures: Vec<ToolPicture>,
    /// The sandbox that it worked in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxId>,
    /// The command that it ran: the audit trail, its output and its egress decisions are found by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exec: Option<ExecId>,
    /// The cell that it ran, likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cell: Option<CellId>,
    /// The audited operations that it caused, where the trail names them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub operations: Vec<OperationId>,
    /// The rows of the audit trail with what it asked of the network, as far as they were written when it ended; those that came
    /// later are found by `operations`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub egress: Vec<u64>,
    /// Which files it changed, where that is known: the first [`MOST_CHANGED`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changed: Option<Changed>,
    /// The call as the model wrote it, where a person had another one carried out in its place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<Box<ToolCall>>,
    /// How long it took.
    #[serde(default)]
    pub duration_ms: u64,
}

/// A picture that a tool showed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolPicture {
    /// `image/png` and the like.
    pub mime: String,
    /// Base64.
    pub data: String,
}

/// Tokens of a message.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenUsage {
    /// Read by the model.
    pub input: u64,
    /// Written by the model, its reasoning included.
    pub output: u64,
    /// Of the output, its reasoning.
    #[serde(default)]
    pub reasoning: u64,
    /// Of the input, read from the provider's cache.
    #[serde(default)]
    pub cached: u64,
}

impl TokenUsage {
    /// Both together.
    #[must_use]
    pub fn total(self) -> u64 {
        self.input.saturating_add(self.output)
    }
}
